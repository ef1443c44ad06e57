"""Images: cubins, fat binaries, libraries, and what a function says of itself."""

import ctypes
import functools
import locale
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cuda_calls import KERNELS, SHIM, Alone, Check, Cuda, CudaError, compiled

IMAGES = Path(__file__).parents[1] / "data/images"
"""KERNELS as the toolkit's fatbinary packs it (13.0), by --compress-mode."""
SOURCE = b"""
struct Large { char bytes[5000]; };
__device__ int counter = 5;
extern "C" __global__ void __launch_bounds__(128) work(float* out, int n, double scale)
{
    __shared__ float room[100];
    room[threadIdx.x % 100] = n * scale;
    __syncthreads();
    out[threadIdx.x] = room[(threadIdx.x + n) % 100] + counter;
}
extern "C" __global__ void large(const __grid_constant__ Large value, int* out) { *out = value.bytes[*out]; }
extern "C" __global__ void nothing() {}
"""
DECIMALS = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry decimals(.param .u64 place)
{
    .reg .b64 %rd<2>; .reg .f64 %fd<5>;
    ld.param.u64 %rd1, [place];
    mov.f64 %fd1, 2.75;
    mov.f64 %fd2, 1.5;
    mov.f64 %fd3, 1.25e3;
    mov.f64 %fd4, 0.5e-3;
    st.global.f64 [%rd1], %fd1;
    st.global.f64 [%rd1+8], %fd2;
    st.global.f64 [%rd1+16], %fd3;
    st.global.f64 [%rd1+24], %fd4;
    ret;
}
"""


@functools.cache
def machine_code() -> bytes:
    return compiled(SOURCE, b"--gpu-architecture=sm_90")


def test_kernels_of_a_cubin(cuda: Cuda) -> None:
    module = cuda.cuModuleLoadData(machine_code())
    names = cuda.CUfunction_attribute
    function = cuda.cuModuleGetFunction(module, b"work")
    assert [cuda.cuFuncGetParamInfo(function, index) for index in range(3)] == [(0, 8), (8, 4), (16, 8)]
    assert cuda.cuFuncGetAttribute(names.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == 128
    assert cuda.cuFuncGetAttribute(names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) == 400
    assert 8 <= cuda.cuFuncGetAttribute(names.CU_FUNC_ATTRIBUTE_NUM_REGS, function) <= 64
    assert cuda.cuFuncGetAttribute(names.CU_FUNC_ATTRIBUTE_BINARY_VERSION, function) == 90
    large = cuda.cuModuleGetFunction(module, b"large")
    assert [cuda.cuFuncGetParamInfo(large, index) for index in range(2)] == [(0, 5000), (5000, 8)]
    assert cuda.cuModuleGetFunctionCount(module) == 3
    address, size = cuda.cuModuleGetGlobal(module, b"counter")
    assert size == 4
    assert cuda.read(address)[0] == 5
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"nothing"), grid=200, block=128)
    cuda.cuCtxSynchronize()
    cuda.cuModuleUnload(module)


@pytest.mark.parametrize("name", ["text-none", "text-speed", "text-default"])
def test_fat_binaries_with_ptx(cuda: Cuda, name: str) -> None:
    place = cuda.device_words()
    module = cuda.cuModuleLoadData((IMAGES / f"{name}.fatbin").read_bytes())
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"count"), place)
    assert cuda.read(place)[0] == 1
    cuda.cuModuleUnload(module)


# Through fikitd the first goes by memory that it shares with the program, the second by a file.
@pytest.mark.parametrize("mebibytes", [6, 40])
def test_a_large_image(cuda: Cuda, mebibytes: int) -> None:
    line = b"// " + b"-" * 1020 + b"\n"
    place = cuda.device_words()
    text = KERNELS.rstrip(b"\0") + b"\n" + line * (mebibytes * 1024) + b"\0"
    module = cuda.cuModuleLoadData(text)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"store"), place, ctypes.c_uint(9))
    assert cuda.read(place)[0] == 9
    cuda.cuModuleUnload(module)


def printing(cuda: Cuda) -> None:
    with open(os.environ["IMAGE"], "rb") as file:
        module = cuda.cuModuleLoadData(file.read())
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"say"), ctypes.c_int(40), block=2)
    cuda.cuCtxSynchronize()


@pytest.mark.parametrize("kind", ["text", "machine"])
def test_kernels_of_packed_images_print(cuda: Cuda, alone: Alone, kind: str) -> None:
    if kind == "machine" and cuda.simulated:
        pytest.skip("the simulated GPU runs no machine code")
    printed = alone(printing, IMAGE=str(IMAGES / f"prints-{kind}.fatbin"))
    assert printed.splitlines() == ["kernel says 40", "kernel says 41"]


class Wrapper(ctypes.Structure):
    """What nvcc puts around a program's fat binary; version 2 names what it was linked from."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_char_p),
        ("others", ctypes.c_void_p),
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_linked_program_is_loaded_and_not_its_parts(cuda: Cuda, fails: Check, version: int) -> None:
    """As a library's code; calls of older date take a bare image only."""
    whole = (IMAGES / "text-none.fatbin").read_bytes()
    part = ctypes.create_string_buffer(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0), 16)
    parts = (ctypes.c_void_p * 2)(ctypes.addressof(part), None)
    wrapper = Wrapper(0x466243B1, version, whole, ctypes.addressof(parts) if version == 2 else None)
    image = ctypes.addressof(wrapper)
    library = cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0)
    function = cuda.cuKernelGetFunction(cuda.cuLibraryGetKernel(library, b"count"))
    place = cuda.device_words()
    cuda.launch_function(function, place)
    assert cuda.read(place)[0] == 1
    cuda.cuLibraryUnload(library)
    fails("INVALID_IMAGE", cuda.cuModuleLoadData, image)
    fails("INVALID_IMAGE", cuda.cuModuleLoadDataEx, image, 0, [], [])
    fails("INVALID_IMAGE", cuda.cuModuleLoadFatBinary, image)


def test_a_library_s_module_goes_with_the_library(cuda: Cuda, fails: Check) -> None:
    library = cuda.cuLibraryLoadData((IMAGES / "text-none.fatbin").read_bytes(), [], [], 0, [], [], 0)
    module = cuda.cuLibraryGetModule(library)
    fails("NOT_PERMITTED", cuda.cuModuleUnload, module)
    place = cuda.device_words()
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"count"), place)
    assert cuda.read(place)[0] == 1
    cuda.cuLibraryUnload(library)


def resetting(cuda: Cuda) -> None:
    kept = cuda.CUlibraryOption.CU_LIBRARY_BINARY_IS_PRESERVED
    library = cuda.cuLibraryLoadData(KERNELS, [], [], 0, [kept], [True], 1)
    kernel = cuda.cuLibraryGetKernel(library, b"store")
    for value in (98, 99):
        place, _ = cuda.cuLibraryGetGlobal(library, b"counter")
        print(int(cuda.read(place, 1, "uint64")[0]))
        cuda.cuMemsetD32(place, value, 1)
        print(int(cuda.read(place, 1, "uint64")[0]))
        words = cuda.device_words()
        cuda.launch_function(cuda.cuKernelGetFunction(kernel), words, ctypes.c_uint32(value))
        print(cuda.read(words)[0])
        cuda.cuDevicePrimaryCtxReset(cuda.device)
        cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(cuda.device))


def test_a_library_s_variables_are_as_new_after_a_reset(alone: Alone) -> None:
    assert alone(resetting).split() == ["7", "98", "98", "7", "99", "99"]


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (
            b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { foo.bar; ret; }\n",
            "INVALID_PTX",
        ),
        (b"not PTX", "INVALID_IMAGE"),
        (b".version 99.9\n.target sm_90\n.address_size 64\n", "UNSUPPORTED_PTX_VERSION"),
    ],
)
def test_what_is_wrong_with_a_library_is_told_when_it_is_used(
    cuda: Cuda, fails: Check, image: bytes, error: str
) -> None:
    fails(error, cuda.cuModuleLoadData, image)
    library = cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0)
    fails(error, cuda.cuLibraryGetKernel, library, b"k")
    fails(error, cuda.cuLibraryGetGlobal, library, b"k")
    fails(error, cuda.cuLibraryGetModule, library)
    assert cuda.cuLibraryGetKernelCount(library) == 0
    cuda.cuLibraryUnload(library)


@pytest.mark.parametrize("name", ["machine-none", "machine-size"])
def test_fat_binaries_with_a_cubin(cuda: Cuda, name: str) -> None:
    module = cuda.cuModuleLoadData((IMAGES / f"{name}.fatbin").read_bytes())
    function = cuda.cuModuleGetFunction(module, b"count")
    assert cuda.cuFuncGetParamInfo(function, 0) == (0, 8)
    cuda.cuModuleUnload(module)


def test_a_file(cuda: Cuda, fails: Check, tmp_path: object) -> None:
    path = f"{tmp_path}/kernels.cubin"
    with open(path, "wb") as file:
        file.write(machine_code())
    cuda.cuModuleUnload(cuda.cuModuleLoad(path.encode()))
    library = cuda.cuLibraryLoadFromFile(path.encode(), [], [], 0, [], [], 0)
    assert cuda.cuLibraryGetKernelCount(library) == 3
    cuda.cuLibraryUnload(library)
    fails("FILE_NOT_FOUND", cuda.cuModuleLoad, b"/nowhere/at/all")
    ends = os.pipe()
    os.write(ends[1], KERNELS[:1000])
    os.close(ends[1])
    fails("FILE_NOT_FOUND", cuda.cuModuleLoad, f"/dev/fd/{ends[0]}".encode())
    os.close(ends[0])
    with pytest.raises(CudaError):
        cuda.cuModuleLoad(f"{tmp_path}".encode())


OF_ANOTHER = b'extern "C" __global__ void f() {}', b"--gpu-architecture=sm_80"


def test_a_cubin_of_another_device(cuda: Cuda, fails: Check) -> None:
    fails("NO_BINARY_FOR_GPU", cuda.cuModuleLoadData, compiled(*OF_ANOTHER))


def test_a_library_of_another_device(cuda: Cuda, fails: Check) -> None:
    library = cuda.cuLibraryLoadData(compiled(*OF_ANOTHER), [], [], 0, [], [], 0)
    fails("NO_BINARY_FOR_GPU", cuda.cuLibraryGetKernel, library, b"f")
    fails("NO_BINARY_FOR_GPU", cuda.cuLibraryGetModule, library)
    assert cuda.cuLibraryGetKernelCount(library) == 0
    cuda.cuLibraryUnload(library)


HEAD = b".version 7.1\n.target sm_80\n.address_size 64\n"
DECLARED = (
    HEAD
    + b"""
.extern .global .align 4 .u32 later;
.extern .global .align 4 .u32 nowhere;
.extern .shared .align 8 .b8 room[64];
.extern .shared .align 8 .b8 rest[];
.visible .entry tell(.param .u64 place)
{
    .reg .b32 %value<4>;
    .reg .b64 %place;
    ld.param.u64 %place, [place];
    ld.global.u32 %value0, [later];
    ld.global.u32 %value1, [nowhere];
    mov.u32 %value2, room;
    mov.u32 %value3, rest;
    sub.u32 %value3, %value3, %value2;
    st.shared.u32 [room+60], %value3;
    ld.shared.u32 %value2, [room+60];
    st.global.v2.u32 [%place], {%value0, %value1};
    st.global.u32 [%place+8], %value2;
    ret;
}
"""
)
"""What a compiler like LLVM's makes of variables of known size that it takes to be elsewhere."""
DEFINED = b".visible .global .align 4 .u32 later = 5;\n"


def test_variables_that_are_declared_elsewhere(cuda: Cuda) -> None:
    for text in (DECLARED + DEFINED, DECLARED.replace(HEAD, HEAD + DEFINED)):
        tell = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(text + b"\0"), b"tell")
        assert (
            cuda.cuFuncGetAttribute(cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, tell) == 64
        )
        place = cuda.device_words(3)
        cuda.launch_function(tell, place)
        assert list(cuda.read(place, 3)) == [5, 0, 64]


def test_elements_of_arrays(cuda: Cuda) -> None:
    text = (
        HEAD
        + b"""
.global .align 4 .u32 list[4] = {10, 20, 30, 40};
.visible .entry elements(.param .u64 place, .param .u32 index)
{
    .reg .b32 %index, %value<4>;
    .reg .b64 %place, %wide;
    ld.param.u64 %place, [place];
    ld.param.u32 %index, [index];
    ld.global.u32 %value0, list[3];
    ld.global.u32 %value1, list[%index];
    ld.global.u32 %value2, list[%index+1];
    mov.u64 %wide, list[2];
    ld.global.u32 %value3, [%wide];
    st.global.v4.u32 [%place], {%value0, %value1, %value2, %value3};
    mov.u32 %value0, 50;
    st.global.u32 list[%index+2], %value0;
    ret;
}\0"""
    )
    module = cuda.cuModuleLoadData(text)
    place = cuda.device_words(4)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"elements"), place, ctypes.c_uint32(1))
    assert list(cuda.read(place, 4)) == [40, 20, 30, 30]
    assert list(cuda.read(cuda.cuModuleGetGlobal(module, b"list")[0], 4)) == [10, 20, 30, 50]


CROWDED = """.version 8.0
.target sm_90
.address_size 64
.const .align 4 .b8 table[400];
.visible .entry crowded(.param .u64 place)
{
    .reg .b32 %value<101>, %sum, %index;
    .reg .b64 %place, %near, %step, %room;
    .local .align 4 .b8 room[256];
    ld.param.u64 %place, [place];
""" + "\n".join(
    [f"ld.volatile.global.u32 %value{n}, [%place+{4 * n}];" for n in range(100)]
    + ["mov.u32 %sum, 0;"]
    + [f"xor.b32 %sum, %sum, %value{n}; mul.lo.u32 %sum, %sum, %value{n};" for n in range(99, -1, -1)]
    # Where it is written and read is known at run time only, so that the room is one in memory.
    + [
        f"{move} and.b32 %index, %sum, 252; cvt.u64.u32 %step, %index; add.u64 %near, %room, %step; {access}"
        for move, access in (
            ("mov.u64 %room, room;", "st.local.u32 [%near], %sum;"),
            ("shr.u32 %sum, %sum, 8;", "st.local.u32 [%near], %sum;"),
            ("ld.volatile.global.u32 %sum, [%place];", "ld.local.u32 %sum, [%near];"),
        )
    ]
    + ["ld.const.u32 %index, [table];"]
    + ["add.u32 %sum, %sum, %index;", "st.global.u32 [%place], %sum;", "ret; }"]
)


@pytest.mark.parametrize("by_linker", [False, True])
def test_how_many_registers_a_kernel_may_have(cuda: Cuda, by_linker: bool) -> None:
    text = CROWDED.encode() + b"\0"
    attribute = cuda.driver.CUfunction_attribute
    option = cuda.driver.CUjit_option.CU_JIT_MAX_REGISTERS

    def crowded(image: object) -> object:
        return cuda.cuModuleGetFunction(cuda.cuModuleLoadData(image), b"crowded")

    def has(function: object, name: str) -> int:
        return int(cuda.cuFuncGetAttribute(getattr(attribute, f"CU_FUNC_ATTRIBUTE_{name}"), function))

    free = crowded(text)
    assert 90 <= has(free, "NUM_REGS") <= 255
    assert has(free, "LOCAL_SIZE_BYTES") >= 256
    assert has(free, "CONST_SIZE_BYTES") >= 400
    if by_linker:
        state = cuda.cuLinkCreate(1, [option], [40])
        kind = cuda.driver.CUjitInputType.CU_JIT_INPUT_PTX
        cuda.cuLinkAddData(state, kind, text, len(text), b"crowded", 0, [], [])
        image, _size = cuda.cuLinkComplete(state)
        assert has(crowded(image), "NUM_REGS") <= 40
        cuda.cuLinkDestroy(state)
    else:
        module = cuda.cuModuleLoadDataEx(text, 1, [option], [40])
        assert has(cuda.cuModuleGetFunction(module, b"crowded"), "NUM_REGS") <= 40


@pytest.mark.parametrize(
    ("bounds", "threads", "blocks", "most"),
    [
        (".maxntid 1024, 1, 1", 1024, 1, 64),
        (".reqntid 320, 2, 1", 640, 1, 96),
        (".maxntid 256, 1, 1 .minnctapersm 3", 256, 3, 80),
        (".maxntid 1000, 1, 1 .minnctapersm 3", 1000, 1, 64),  # more than an SM takes, so no request
        (".maxntid 1500, 1, 1", 1024, 1, 40),  # more than a block has
    ],
)
def test_registers_leave_room_for_the_blocks_asked_for(
    cuda: Cuda, bounds: str, threads: int, blocks: int, most: int
) -> None:
    text = CROWDED.replace(")", f") {bounds}", 1).encode() + b"\0"
    function = cuda.cuModuleGetFunction(cuda.cuModuleLoadData(text), b"crowded")
    attribute = cuda.driver.CUfunction_attribute
    assert cuda.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == threads
    assert cuda.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, function) <= most
    assert cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, 0) >= blocks


def test_the_best_block(cuda: Cuda) -> None:
    grid, block = cuda.cuOccupancyMaxPotentialBlockSize(cuda.function("nothing"), None, 0, 0)
    per_sm = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(cuda.function("nothing"), block, 0)
    assert per_sm * block == 2048
    sms = cuda.cuDeviceGetAttribute(
        cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cuda.device
    )
    assert grid == per_sm * sms


def test_handles_of_what_is_gone(cuda: Cuda, fails: Check) -> None:
    module = cuda.cuModuleLoadData(KERNELS)
    function = cuda.cuModuleGetFunction(module, b"nothing")
    cuda.cuModuleUnload(module)
    other = cuda.cuModuleLoadData(KERNELS)  # may lie where the first one lay
    if cuda.simulated and not SHIM:  # elsewhere a handle is an address: the driver may crash
        fails("INVALID_HANDLE", cuda.launch_function, function)
        fails("INVALID_HANDLE", cuda.cuModuleGetFunction, module, b"nothing")
        stream = cuda.stream()
        cuda.cuStreamDestroy(stream)
        cuda.stream()
        fails("INVALID_HANDLE", cuda.cuStreamSynchronize, stream)
        event = cuda.cuEventCreate(0)
        cuda.cuEventDestroy(event)
        fails("INVALID_HANDLE", cuda.cuEventQuery, event)
    if cuda.simulated:  # through fikitd, too, as long as nothing else takes the memory
        shape = cuda.CUDA_ARRAY_DESCRIPTOR()
        shape.Width = shape.Height = 8
        shape.Format, shape.NumChannels = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        array = cuda.cuArrayCreate(shape)
        cuda.cuArrayDestroy(array)
        fails("INVALID_HANDLE", cuda.cuArrayDestroy, array)
    cuda.cuModuleUnload(other)


@pytest.mark.skipif(
    os.environ.get("FIKIT_TEST_DEVICE") == "real", reason="an H200's driver cuts such decimals itself"
)
def test_numbers_whose_decimals_the_program_s_locale_writes_otherwise(
    cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (localedef := shutil.which("localedef")) is None:
        pytest.skip("localedef is not installed")
    codes, numbers = tmp_path / "codes", tmp_path / "numbers"
    codes.write_text("<code_set_name> A\n<escape_char> /\nCHARMAP\n<U0000>..<U007F> /x00 NUL\nEND CHARMAP\n")
    numbers.write_text('LC_NUMERIC\ndecimal_point "<U002C>"\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n')
    made = [localedef, "--quiet", "-c", "--no-archive", "-i", str(numbers), "-f", str(codes), "./comma"]
    subprocess.run(made, cwd=tmp_path, capture_output=True, check=False)  # it warns of what is not there
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_NUMERIC)
    locale.setlocale(locale.LC_NUMERIC, "comma")
    try:
        assert locale.localeconv()["decimal_point"] == ","
        module = cuda.cuModuleLoadData(DECIMALS)
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    place = cuda.device_words(8)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"decimals"), place)
    assert [*cuda.read(place, 4, np.float64)] == [2.75, 1.5, 1250.0, 0.5e-3]
    cuda.cuModuleUnload(module)


@pytest.mark.skipif(os.environ.get("FIKIT_TEST_DEVICE") == "real", reason="an H200's driver ends the process")
@pytest.mark.parametrize("kind", ["cubin", "machine-none.fatbin", "text-default.fatbin"])
def test_a_file_that_is_cut_short_is_an_error_and_no_end(alone: Alone, tmp_path: Path, kind: str) -> None:
    image = machine_code() if kind == "cubin" else (IMAGES / kind).read_bytes()

    def load(cuda: Cuda) -> None:
        for each in os.environ["FILES"].split(":"):
            print(cuda.result("cuModuleLoad", each.encode()), end=" ")

    files = []
    for size in (4, 15, 40, 63, 64, 100, *(len(image) * part // 8 for part in range(1, 8))):
        files.append(tmp_path / str(size))
        files[-1].write_bytes(image[:size])
    assert alone(load, FILES=":".join(map(str, files))).split() == ["ERROR_INVALID_IMAGE"] * len(files)
