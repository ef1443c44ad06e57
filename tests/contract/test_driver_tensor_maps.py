"""Copies by tensor maps, of tiles of one to five dimensions: what comes to shared memory, what goes back."""

import ctypes
import os
from typing import Any

import numpy as np
import pytest
from cuda_calls import Alone, Cuda, CudaError
from tensor_kernels import HEADER, LOAD, REDUCE, REPLACED, SEVERAL, STORE, kernel


def array_of(kind: Any, values: Any) -> Any:
    return (kind * max(len(values), 1))(*values)


def aligned_map() -> Any:
    room = (ctypes.c_uint8 * 192)()
    return (ctypes.c_uint8 * 128).from_buffer(room, -ctypes.addressof(room) % 64)


class Tensor:
    """A tensor in device memory and the tile that a map of it describes; axes from the innermost on."""

    def __init__(
        self,
        cuda: Cuda,
        values: Any,
        kind: str,
        box: tuple[int, ...],
        *,
        steps: tuple[int, ...] = (),
        swizzle: int = 0,
        nan: bool = False,
        placed: bool = True,
    ) -> None:
        self.cuda, self.values, self.box = cuda, np.ascontiguousarray(values), box
        self.steps = steps or (1,) * len(box)
        self.pattern = 16 << swizzle if swizzle else 0
        self.address = cuda.cuMemAlloc(values.nbytes)
        cuda.cuMemcpyHtoD(self.address, self.values.ctypes.data, values.nbytes)
        fill = "NAN_REQUEST_ZERO_FMA" if nan else "NONE"
        patterns = ("NONE", "32B", "64B", "128B")
        self.map = aligned_map()
        # cuda.bindings gives the map any place; it must be at a multiple of 64.
        encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
        result = encode(
            self.map,
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}").value,
            len(box),
            ctypes.c_void_p(int(self.address) if placed else 0),
            array_of(ctypes.c_uint64, values.shape[::-1]),
            array_of(ctypes.c_uint64, self.values.strides[::-1][1:]),
            array_of(ctypes.c_uint32, box),
            array_of(ctypes.c_uint32, self.steps),
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE.value,
            getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{patterns[swizzle]}").value,
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE.value,
            getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}").value,
        )
        assert result == 0

    def places(self, start: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the tensor's index of each element of the tile, outermost axis first, and which exist."""
        axes = [
            first + np.arange(0, size, step if axis else 1)
            for axis, (first, size, step) in enumerate(zip(start, self.box, self.steps, strict=True))
        ][::-1]
        index = np.meshgrid(*axes, indexing="ij")
        inside = np.ones(index[0].shape, dtype=bool)
        for axis, size in zip(index, self.values.shape, strict=True):
            inside &= (axis >= 0) & (axis < size)
        return tuple(axis[inside] for axis in index), inside

    def tile(self, start: tuple[int, ...], outside: Any = 0) -> Any:
        """Return what the tile is, without a pattern."""
        index, inside = self.places(start)
        found = np.full(inside.shape, outside, dtype=self.values.dtype)
        found[inside] = self.values[index]
        return found

    def in_shared(self, tile: Any) -> Any:
        """Return the bytes of the tile as they lie in shared memory."""
        rows = np.ascontiguousarray(tile).view(np.uint8).reshape(-1)
        if not self.pattern:
            return rows
        pieces = rows.reshape(-1, 16)
        place = np.arange(len(pieces))
        return pieces[place ^ (place >> 3 & (self.pattern // 16 - 1))].reshape(-1)

    def run(self, copy: str, start: tuple[int, ...], memory: Any) -> Any:
        """Run one copy between the tile and `memory`, an array of bytes; what memory then holds."""
        cuda, rank = self.cuda, len(self.box)
        module = cuda.cuModuleLoadData((HEADER + kernel(rank, "move", copy)).encode())
        target = cuda.cuMemAlloc(memory.nbytes)
        cuda.cuMemcpyHtoD(target, memory.ctypes.data, memory.nbytes)
        stored = [
            self.map,
            ctypes.c_uint64(int(target)),
            ctypes.c_uint32(memory.nbytes),
            (ctypes.c_int32 * 5)(*start),
        ]
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in stored))
        function = cuda.cuModuleGetFunction(module, b"move")
        cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
        found = cuda.read(target, memory.nbytes, np.uint8)
        cuda.cuMemFree(target)
        cuda.cuModuleUnload(module)
        return found

    def load(self, start: tuple[int, ...]) -> Any:
        rank = len(self.box)
        return self.run(LOAD.format(rank), start, np.zeros(self.tile(start).nbytes, dtype=np.uint8))

    def give(self, copy: str, start: tuple[int, ...], tile: Any) -> Any:
        """Store or reduce a tile; what the tensor then is."""
        self.run(copy.format(len(self.box), "{}"), start, self.in_shared(tile))
        found = np.zeros_like(self.values)
        self.cuda.cuMemcpyDtoH(found.ctypes.data, self.address, found.nbytes)
        return found


def numbers(kind: Any, *shape: int) -> Any:
    return (np.arange(np.prod(shape)) % 251 + 1).astype(kind).reshape(shape)


LOADS: Any = {
    "1": ("FLOAT32", numbers(np.float32, 100), (32,), {}, [(8,), (92,), (-4,), (200,)]),
    "2": ("FLOAT16", numbers(np.float16, 20, 40), (16, 8), {}, [(8, 4), (-8, -2), (32, 15), (0, 100)]),
    "2, 32 bytes": ("FLOAT16", numbers(np.float16, 20, 40), (16, 16), {"swizzle": 1}, [(8, 1), (32, -1)]),
    "2, 64 bytes": ("BFLOAT16", numbers(np.uint16, 20, 40), (32, 16), {"swizzle": 2}, [(8, 1), (16, 9)]),
    "2, 128 bytes": ("FLOAT32", numbers(np.float32, 40, 64), (32, 32), {"swizzle": 3}, [(0, 0), (40, 20)]),
    "2, bytes": ("UINT8", numbers(np.uint8, 16, 128), (128, 16), {"swizzle": 3}, [(0, 0), (-16, 3)]),
    "3, in steps": (
        "INT32",
        numbers(np.int32, 6, 12, 20),
        (8, 8, 4),
        {"steps": (1, 2, 3)},
        [(0, 0, 0), (4, 5, 1), (-4, -3, -1)],
    ),
    "4": ("UINT8", numbers(np.uint8, 3, 4, 5, 32), (32, 3, 2, 2), {}, [(16, 1, 1, 1), (-16, -1, 3, 2)]),
    "5": (
        "UINT64",
        numbers(np.uint64, 2, 3, 3, 3, 4),
        (4, 2, 2, 3, 2),
        {},
        [(2, 1, 1, 1, 0), (-2, 2, 2, 1, 1)],
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_tiles_that_come(cuda: Cuda, name: str) -> None:
    kind, values, box, options, starts = LOADS[name]
    tensor = Tensor(cuda, values, kind, box, **options)
    for start in starts:
        wanted = tensor.in_shared(tensor.tile(start))
        np.testing.assert_array_equal(tensor.load(start), wanted, err_msg=str(start))


def test_a_map_may_get_its_address_later(cuda: Cuda) -> None:
    tensor = Tensor(cuda, numbers(np.float32, 8, 16), "FLOAT32", (16, 4), placed=False)
    assert (
        ctypes.CDLL("libcuda.so.1").cuTensorMapReplaceAddress(
            tensor.map, ctypes.c_void_p(int(tensor.address))
        )
        == 0
    )
    np.testing.assert_array_equal(tensor.load((4, 1)), tensor.in_shared(tensor.tile((4, 1))))


@pytest.mark.parametrize(("kind", "dtype"), [("FLOAT16", np.float16), ("FLOAT32", np.float32)])
def test_what_is_outside_may_be_nan(cuda: Cuda, kind: str, dtype: Any) -> None:
    tensor = Tensor(cuda, numbers(dtype, 8, 16), kind, (16, 4), nan=True)
    found = tensor.load((8, 6)).view(dtype).reshape(4, 16)
    np.testing.assert_array_equal(found, tensor.tile((8, 6), np.nan))


def store(cuda: Cuda, name: str) -> None:
    kind, values, box, options, starts = LOADS[name]
    for start in starts:
        if min(start) < 0:
            continue
        tensor = Tensor(cuda, values, kind, box, **options)
        index, inside = tensor.places(start)
        given = numbers(values.dtype, *inside.shape)[::-1].copy()
        wanted = values.copy()
        wanted[index] = given[inside]
        found = tensor.give(STORE, start, given)
        np.testing.assert_array_equal(found, wanted, err_msg=f"{name} {start}")


def test_tiles_that_go(alone: Alone) -> None:
    def body(cuda: Cuda) -> None:  # a fault would end the whole process
        from test_driver_tensor_maps import LOADS, store

        for name in LOADS:
            store(cuda, name)
        print("all of them")

    assert alone(body) == "all of them\n"


@pytest.mark.parametrize("start", [(-8, 0), (0, -1)])
@pytest.mark.parametrize("copy", ["STORE", "REDUCE"])
def test_a_tile_that_goes_may_not_begin_before_the_tensor(
    alone: Alone, copy: str, start: tuple[int, int]
) -> None:
    def body(cuda: Cuda) -> None:
        from test_driver_tensor_maps import REDUCE, STORE, Tensor, numbers

        tensor = Tensor(cuda, numbers(np.uint32, 8, 16), "UINT32", (16, 4))
        copy = {"STORE": STORE, "REDUCE": REDUCE.format("{}", "add")}[os.environ["COPY"]]
        try:
            tensor.give(copy, tuple(map(int, os.environ["START"].split())), numbers(np.uint32, 4, 16))
        except CudaError as error:
            print(error)

    assert "ILLEGAL_INSTRUCTION" in alone(body, COPY=copy, START=" ".join(map(str, start)))


def test_a_tile_for_several_blocks(cuda: Cuda) -> None:
    tensor = Tensor(cuda, numbers(np.uint32, 8, 16), "UINT32", (8, 4))
    module = cuda.cuModuleLoadData((HEADER + SEVERAL).encode())
    out = cuda.device_words(64)
    values = [tensor.map, ctypes.c_uint64(out)]
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    function = cuda.cuModuleGetFunction(module, b"several")
    cuda.cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
    found = cuda.read(out, 64).reshape(2, 4, 8)
    np.testing.assert_array_equal(found, np.stack([tensor.tile((4, 1))] * 2))


REDUCTIONS: Any = {
    "add": ("UINT32", np.uint32, np.add),
    "min": ("INT32", np.int32, np.minimum),
    "max": ("UINT64", np.uint64, np.maximum),
    "and": ("UINT32", np.uint32, np.bitwise_and),
    "or": ("UINT64", np.uint64, np.bitwise_or),
    "xor": ("INT32", np.int32, np.bitwise_xor),
    "add of f32": ("FLOAT32", np.float32, np.add),
    "add of f16": ("FLOAT16", np.float16, np.add),
    "max of f16": ("FLOAT16", np.float16, np.maximum),
}


def test_tiles_that_are_added(alone: Alone) -> None:
    def body(cuda: Cuda) -> None:
        from test_driver_tensor_maps import REDUCTIONS, reduce

        for name in REDUCTIONS:
            reduce(cuda, name)
        print("all of them")

    assert alone(body) == "all of them\n"


def reduce(cuda: Cuda, name: str) -> None:
    kind, dtype, change = REDUCTIONS[name]
    tensor = Tensor(cuda, numbers(dtype, 10, 24), kind, (16, 4))
    start = (16, 8)
    index, inside = tensor.places(start)
    given = numbers(dtype, *inside.shape)[::-1].copy()
    wanted = tensor.values.copy()
    wanted[index] = change(wanted[index], given[inside])
    copy = REDUCE.format(2, name.split()[0])
    np.testing.assert_array_equal(tensor.give(copy, start, given), wanted, err_msg=name)


def test_a_map_that_a_kernel_changes(cuda: Cuda) -> None:
    first = Tensor(cuda, numbers(np.float32, 40, 64), "FLOAT32", (32, 8), swizzle=3)
    second = Tensor(cuda, numbers(np.float32, 5, 24) * 2, "FLOAT32", (32, 8))
    module = cuda.cuModuleLoadData((HEADER.replace("sm_90", "sm_90a") + REPLACED).encode())
    place = cuda.cuMemAlloc(128)
    cuda.cuMemcpyHtoD(place, ctypes.addressof(first.map), 128)
    stride = second.values.strides[0]
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"change"), place, second.address, stride, block=32)
    cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH(ctypes.addressof(first.map), place, 128)
    first.values, first.pattern = second.values, 0
    for start in ((0, 0), (16, 3), (-4, -2)):
        np.testing.assert_array_equal(first.load(start), second.in_shared(second.tile(start)))


def test_a_tile_begins_at_a_multiple_of_16_bytes(alone: Alone) -> None:
    def body(cuda: Cuda) -> None:
        from test_driver_tensor_maps import Tensor, numbers

        tensor = Tensor(cuda, numbers(np.float32, 8, 16), "FLOAT32", (16, 4))
        tensor.load((4, 1))
        try:
            tensor.load((5, 1))
        except CudaError as error:
            print(error)

    assert "ILLEGAL_INSTRUCTION" in alone(body)


def test_a_map_of_another_rank_is_a_fault(cuda: Cuda, alone: Alone) -> None:
    if not cuda.simulated:
        pytest.skip("what a GPU makes of it was not measured")

    def body(cuda: Cuda) -> None:
        from test_driver_tensor_maps import LOAD, Tensor, numbers

        tensor = Tensor(cuda, numbers(np.float32, 8, 16), "FLOAT32", (16, 4))
        tensor.box = (16, 4, 1)  # the kernel is one for three dimensions
        try:
            tensor.run(LOAD.format(3), (0, 0, 0), np.zeros(64, dtype=np.uint8))
        except CudaError as error:
            print(error)

    assert "ILLEGAL_INSTRUCTION" in alone(body)


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes", "im2col"),
        ("cp.async.bulk.tensor.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "cp.async"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.tile.mbarrier::complete_tx::bytes", "cp.async"),
    ],
)
def test_what_is_refused(cuda: Cuda, instruction: str, why: str) -> None:
    if not cuda.simulated:
        pytest.skip("the driver's compiler says it in other words")
    log = bytes(4096)  # the driver writes into it
    text = HEADER + kernel(2, "move", instruction)
    option = cuda.CUjit_option
    kinds = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    refused = cuda.result("cuModuleLoadDataEx", text.encode(), 2, kinds, [log, len(log)])
    assert refused == "ERROR_INVALID_PTX"
    line = next(at for at, code in enumerate(text.splitlines(), 1) if "cp.async.bulk.tensor" in code)
    assert why in log.decode()
    assert f"line {line}" in log.decode()
