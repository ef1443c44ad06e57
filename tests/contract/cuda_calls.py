"""The driver API as the contract tests call it: a result that is no success is an exception.

With FIKIT_TEST_DEVICE=sim (the default) the simulated libcuda is opened first, so that cuda.bindings, which
opens libcuda.so.1 by name, gets it. With =real nothing is preloaded. With FIKIT_TEST_SHIM=1 it is fikitd's
libcuda.so.1, and the device is that of a daemon (conftest.py).
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

SHIM = os.environ.get("FIKIT_TEST_SHIM") == "1"
KERNELS = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 8 .u64 counter = 7;
.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};

.visible .entry nothing() { ret; }

// Runs for so many nanoseconds.
.visible .entry spin(.param .u64 duration)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [duration];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra AGAIN;
    ret;
}

.visible .entry store(.param .u64 place, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [place];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}

.visible .entry spin_store(.param .u64 duration, .param .u64 place, .param .u32 value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [duration];
    ld.param.u64 %rd5, [place];
    ld.param.u32 %r1, [value];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra AGAIN;
    st.global.u32 [%rd5], %r1;
    ret;
}

.visible .entry count(.param .u64 place)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
    red.global.add.u32 [%rd1], 1;
    ret;
}

.visible .entry bump()
{
    .reg .b64 %rd<3>;
    mov.u64 %rd1, counter;
    ld.global.u64 %rd2, [%rd1];
    add.u64 %rd2, %rd2, 1;
    st.global.u64 [%rd1], %rd2;
    ret;
}

.visible .entry crash() { trap; }

.visible .entry small(.param .u32 unused) .maxntid 64, 1, 1 { ret; }

.visible .entry with_shared(.param .u64 place)
{
    .shared .align 4 .b8 room[1024];
    ret;
}
"""


# What the fixtures `fails` and `alone` are.
Check = Callable[..., None]
Alone = Callable[..., str]


class CudaError(Exception):
    """A driver call that failed."""

    def __init__(self, name: str, result: Any) -> None:
        super().__init__(f"{name}: {result.name}")
        self.result = result


def preload() -> None:
    """Open the library under test, for who asks for libcuda.so.1; RuntimeError where that is another."""
    if SHIM:
        from fikit.unmodified import library_folder

        path = library_folder() / "libcuda.so.1"
    elif os.environ.get("FIKIT_TEST_DEVICE", "sim") == "sim":
        from fikitd.simcuda import library_path

        path = library_path()
    else:
        return
    tested = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if ctypes.CDLL("libcuda.so.1")._handle != tested._handle:
        raise RuntimeError(f"libcuda.so.1 was loaded before {path}")


class Cuda:
    """cuda.bindings.driver with exceptions; enumerations and structures are its own."""

    def __init__(self) -> None:
        self.simulated = os.environ.get("FIKIT_TEST_DEVICE", "sim") == "sim"
        preload()
        from cuda.bindings import driver

        self.driver = driver
        self.errors = driver.CUresult

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driver, name)
        if not name.startswith("cu"):
            return found

        def call(*arguments: Any) -> Any:
            result, *values = found(*arguments)
            if result != self.errors.CUDA_SUCCESS:
                raise CudaError(name, result)
            return values[0] if len(values) == 1 else tuple(values)

        return call

    def result(self, name: str, *arguments: Any) -> str:
        """Return the name of a call's result, without CUDA_."""
        return str(getattr(self.driver, name)(*arguments)[0].name).removeprefix("CUDA_")

    def start(self) -> None:
        """Make the first device's primary context current and load KERNELS."""
        self.cuInit(0)
        self.device = self.cuDeviceGet(0)
        self.context = self.cuDevicePrimaryCtxRetain(self.device)
        self.cuCtxSetCurrent(self.context)
        self.module = self.cuModuleLoadData(KERNELS)

    def function(self, name: str) -> Any:
        """Return a kernel of KERNELS."""
        return self.cuModuleGetFunction(self.module, name.encode())

    def launch(
        self,
        name: str,
        *values: Any,
        grid: int = 1,
        block: int = 1,
        stream: Any = 0,
        shared: int = 0,
    ) -> None:
        """Launch a kernel of KERNELS; integers are u64, ctypes values what they are."""
        self.launch_function(
            self.function(name), *values, grid=grid, block=block, stream=stream, shared=shared
        )

    def launch_function(
        self,
        function: Any,
        *values: Any,
        grid: int = 1,
        block: int = 1,
        stream: Any = 0,
        shared: int = 0,
    ) -> None:
        """Launch any function."""
        stored = [v if hasattr(v, "_type_") else ctypes.c_uint64(int(v)) for v in values]
        pointers = (ctypes.c_void_p * max(len(stored), 1))(*(ctypes.addressof(v) for v in stored))
        self.cuLaunchKernel(
            function,
            grid,
            1,
            1,
            block,
            1,
            1,
            shared,
            stream,
            ctypes.addressof(pointers) if stored else 0,
            0,
        )

    def stream(self, priority: int = 0, *, blocking: bool = False) -> Any:
        """Make a stream."""
        flags = self.CUstream_flags
        kind = flags.CU_STREAM_DEFAULT if blocking else flags.CU_STREAM_NON_BLOCKING
        return self.cuStreamCreateWithPriority(kind.value, priority)

    def read(self, address: Any, count: int = 1, kind: Any = np.uint32) -> Any:
        """Read device memory, after all work."""
        values = np.zeros(count, dtype=kind)
        self.cuCtxSynchronize()
        self.cuMemcpyDtoH(values.ctypes.data, address, values.nbytes)
        return values

    def device_words(self, count: int = 1) -> int:
        """Allocate zeroed 32-bit words on the device."""
        address = self.cuMemAlloc(4 * count)
        self.cuMemsetD32(address, 0, count)
        self.cuCtxSynchronize()
        return int(address)

    def pinned_words(self, count: int = 1) -> tuple[int, Any]:
        """Allocate zeroed pinned words; return their address and an array over them."""
        address = int(self.cuMemHostAlloc(4 * count, 0))
        words = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))
        words[:] = 0
        return address, words

    @contextmanager
    def held(self, stream: Any) -> Iterator[None]:
        """What the stream is given meanwhile begins at the end, however late this thread runs until then."""
        address, words = self.pinned_words()
        self.cuStreamWaitValue32(stream, address, 1, 0)
        try:
            yield
        finally:
            words[0] = 1
        self.cuStreamSynchronize(stream)
        self.cuMemFreeHost(address)

    def properties(self) -> Any:
        """Return what cuMemCreate needs for device memory."""
        wanted = self.CUmemAllocationProp()
        wanted.type = self.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = self.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = int(self.device)
        return wanted

    def allow(self, address: int, size: int) -> None:
        """Let the device read and write a mapping."""
        access = self.CUmemAccessDesc()
        access.location = self.properties().location
        access.flags = self.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.cuMemSetAccess(address, size, [access], 1)


def open_cuda() -> Cuda:
    """Return the driver, with a context and the kernels."""
    cuda = Cuda()
    cuda.start()
    return cuda


def compiled(text: bytes, *options: bytes) -> bytes:
    """Machine code from NVRTC."""
    import pytest  # not at the top: processes that tests start need it least of all

    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(text, b"text.cu", 0, None, None)
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    image = b" " * size
    nvrtc.nvrtcGetCUBIN(program, image)
    return image


class Edge(ctypes.Structure):
    """CUgraphEdgeData, in memory of our own: what cuda.bindings gives of it was seen to be zeros."""

    _fields_ = (
        ("from_port", ctypes.c_uint8),
        ("to_port", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 5),
    )

    def told(self) -> tuple[int, int, int]:
        return self.from_port, self.to_port, self.type


def replay(cuda: Cuda, graph: Any) -> None:
    """Runs a graph once, and ends it."""
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuCtxSynchronize()
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
