"""Sparse products of tensor cores (mma.sp): half of each row is there, times a dense matrix."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cuda_calls import Cuda
from numpy.typing import NDArray

LANES = 32
ROWS = 16
COLUMNS = 8


@dataclass(frozen=True)
class Shape:
    types: str  # d, a, b, c
    k: int
    bits: int  # of an element of a and b
    selector: int = 0

    @property
    def group(self) -> int:
        """Elements of a row of which metadata chooses: all but `kept` are zero."""
        return 2 if self.bits == 32 else 4

    @property
    def kept(self) -> int:
        return self.group // 2

    @property
    def each(self) -> int:
        return 32 // self.bits

    def __str__(self) -> str:
        return f"m16n8k{self.k}.{self.types}.{self.selector}"


SHAPES = [
    Shape("f32.f16.f16.f32", 16, 16, 0),
    Shape("f32.f16.f16.f32", 16, 16, 3),
    Shape("f32.f16.f16.f32", 32, 16, 0),
    Shape("f32.f16.f16.f32", 32, 16, 1),
    Shape("f32.bf16.bf16.f32", 32, 16, 1),
    Shape("f32.tf32.tf32.f32", 8, 32, 2),
    Shape("f32.tf32.tf32.f32", 16, 32, 1),
    Shape("s32.s8.s8.s32", 32, 8, 1),
    Shape("s32.s8.u8.s32", 64, 8, 0),
]


def kernel(shape: Shape) -> tuple[str, int, int]:
    """The text, and how many registers a and b have. Word i of lane l is word 32 * i + l of the argument."""
    a = ROWS * shape.k // 2 // shape.each // LANES
    b = shape.k * COLUMNS // shape.each // LANES
    counts = {"a": a, "b": b, "c": 4}
    names = [f"%{letter}{i}" for letter, count in counts.items() for i in range(count)] + ["%e"]
    lines = [f"ld.global.b32 {name}, [%at+{128 * index}];" for index, name in enumerate(names)]

    def registers(letter: str, count: int) -> str:
        return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"

    product = f"mma.sp::ordered_metadata.sync.aligned.m16n8k{shape.k}.row.col.{shape.types}"
    operands = [registers("c", 4), registers("a", a), registers("b", b), registers("c", 4), "%e"]
    lines.append(f"{product} {', '.join(operands)}, {shape.selector};")
    lines += [f"st.global.b32 [%at+{128 * i}], %c{i};" for i in range(4)]
    text = f""".version 8.6
.target sm_90
.address_size 64
.visible .entry multiply(.param .u64 words)
{{
    .reg .b32 %a<{a}>, %b<{b}>, %c<4>, %e, %lane;
    .reg .b64 %at, %step;
    ld.param.u64 %at, [words];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %step, %lane, 4;
    add.u64 %at, %at, %step;
    {" ".join(lines)}
    ret;
}}
"""
    return text, a, b


def as_bits(shape: Shape, values: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Small whole numbers as elements."""
    kind = shape.types.split(".")[1]
    if kind in ("s8", "u8"):
        return (values & 0xFF).astype(np.uint32)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    words = values.astype(np.float32).view(np.uint32)
    return words >> 16 if kind == "bf16" else words


def gathered(shape: Shape, bits: NDArray[np.uint32], rows: NDArray[Any], columns: NDArray[Any]) -> int:
    """The elements at these places as one register."""
    chosen = bits[rows, columns]
    return int(sum(int(value) << (shape.bits * place) for place, value in enumerate(chosen)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_sparse_product(cuda: Cuda, shape: Shape) -> None:
    chooser = np.random.default_rng(shape.k + shape.bits + shape.selector)
    groups = shape.k // shape.group
    places = np.sort(
        np.argsort(chooser.random((ROWS, groups, shape.group)), axis=2)[:, :, : shape.kept], axis=2
    )
    low = 0 if "u8" in shape.types else -4
    held = chooser.integers(1, 5, (ROWS, shape.k // 2))
    dense = chooser.integers(low, 5, (shape.k, COLUMNS))
    added = chooser.integers(-9, 9, (ROWS, COLUMNS))
    whole = np.zeros((ROWS, groups, shape.group), dtype=np.int64)
    np.put_along_axis(whole, places, held.reshape(ROWS, groups, shape.kept), axis=2)

    text, a, b = kernel(shape)
    words = np.zeros((a + b + 5, LANES), dtype=np.uint32)
    a_bits, b_bits = as_bits(shape, held), as_bits(shape, dense)
    real = not shape.types.startswith("s32")
    c_words = added.astype(np.float32 if real else np.int32).view(np.uint32)
    steps = np.arange(shape.each)
    for lane in range(LANES):
        row, first = lane // 4, lane % 4 * shape.each
        for index in range(a):
            column = first + index // 2 * 4 * shape.each + steps
            words[index, lane] = gathered(shape, a_bits, np.full(shape.each, row + index % 2 * 8), column)
        for index in range(b):
            words[a + index, lane] = gathered(
                shape, b_bits, first + index * 4 * shape.each + steps, np.full(shape.each, row)
            )
        for index in range(4):
            words[a + b + index, lane] = c_words[row + index // 2 * 8, lane % 4 * 2 + index % 2]
    words[a + b + 4] = metadata(shape, places.reshape(ROWS, -1))

    module = cuda.cuModuleLoadData(text.encode())
    target = cuda.cuMemAlloc(words.nbytes)
    cuda.cuMemcpyHtoD(target, words.ctypes.data, words.nbytes)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"multiply"), target, block=LANES)
    found = cuda.read(target, 4 * LANES, np.float32 if real else np.int32).reshape(4, LANES)
    cuda.cuMemFree(target)
    cuda.cuModuleUnload(module)
    expected = whole.reshape(ROWS, shape.k) @ dense + added
    for lane in range(LANES):
        got = [found[index, lane] for index in range(4)]
        row, column = lane // 4, lane % 4 * 2
        assert got == [*expected[row, column : column + 2], *expected[row + 8, column : column + 2]], lane


def metadata(shape: Shape, places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Each lane's word. A group of four lanes has the metadata of rows r and r + 8 (r: which group).

    A row has so many bits for every element held: two, or four that name two halves of 32 bits. Two rows' 16
    bits make a word, or, where elements have eight bits, one row's 32. The selector says which lanes count.
    """
    bits = 4 if shape.bits == 32 else 2
    words = np.zeros(LANES, dtype=np.uint32)
    unit = 32 if shape.bits == 8 else 16
    lanes = ROWS * places.shape[1] * bits // 32 // 8
    for row in range(ROWS):
        for index, place in enumerate(places[row]):
            code = (4, 14)[place] if bits == 4 else place
            part, shift = divmod(index * bits, unit)
            first = row % 8 * 4 + shape.selector * lanes
            if unit == 16:
                words[first + part] |= np.uint32(code << (shift + row // 8 * 16))
            else:
                words[first + 2 * part + row // 8] |= np.uint32(code << shift)
    return words
