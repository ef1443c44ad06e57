"""Kernel arguments: what travels is what was meant, or an error names the argument."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import fikit
import numpy as np
import pytest

Records = Callable[[], list[dict[str, Any]]]
SHAPES = "<BxHI" + "Q" + "fxxxxd" + "12s"
SAME = (1, 2, 3, 4, 1.5, 2.5, b"abcdefghijkl")


def sent(session: fikit.Session, records: Records) -> tuple[Any, ...]:
    session.synchronize()
    launch = [record for record in records() if record["op"] == "launch"][-1]
    return struct.unpack(SHAPES, bytes.fromhex(launch["parameters"]))


@pytest.mark.parametrize(
    "arguments",
    [
        SAME,
        (
            True,
            np.uint16(2),
            np.int64(3),
            ctypes.c_uint64(4),
            np.float64(1.5),
            np.float32(2.5),
            b"abcdefghijkl",
        ),
        (
            ctypes.c_uint8(1),
            ctypes.c_int16(2),
            ctypes.c_int(3),
            np.uint64(4),
            ctypes.c_float(1.5),
            ctypes.c_double(2.5),
            bytearray(b"abcdefghijkl"),
        ),
    ],
)
def test_values_by_size_and_type(
    session: fikit.Session, module: fikit.Module, records: Records, arguments: tuple[Any, ...]
) -> None:
    module.kernel("shapes").launch(*arguments, grid=1, block=1)
    assert sent(session, records) == SAME


def test_declared_types_convert(session: fikit.Session, module: fikit.Module, records: Records) -> None:
    kernel = module.kernel("shapes", ["u8", "i16", "u32", "pointer", "f32", "f64", "bytes"])
    with session.allocate(16) as memory:
        address = memory.address
        kernel.launch(
            np.uint8(255), -2, 2**32 - 1, memory, np.int32(7), 8, (ctypes.c_int * 3)(1, 2, 3), grid=1, block=1
        )
    values = sent(session, records)
    assert values == (255, 2**16 - 2, 2**32 - 1, address, 7.0, 8.0, struct.pack("3i", 1, 2, 3))


@pytest.mark.parametrize(
    ("index", "value", "error"),
    [
        (0, 256, OverflowError),
        (0, -129, OverflowError),
        (2, 2**32, OverflowError),
        (3, 2**64, OverflowError),
        (3, -(2**63) - 1, OverflowError),
        (0, 1.5, TypeError),
        (2, "4", TypeError),
        (3, None, TypeError),
        (3, np.zeros(1, np.uint64), TypeError),
        (6, b"too short", TypeError),
    ],
)
def test_what_does_not_fit_is_named(
    module: fikit.Module, index: int, value: Any, error: type[Exception]
) -> None:
    arguments = [*SAME]
    arguments[index] = value
    with pytest.raises(error, match=rf"argument {index} of kernel shapes"):
        module.kernel("shapes").launch(*arguments, grid=1, block=1)


def test_a_wrong_declaration_is_refused_also_behind_the_right_one(module: fikit.Module) -> None:
    right = ["u8", "i16", "u32", "pointer", "f32", "f64", "bytes"]
    kernel = module.kernel("shapes", right)
    for place, wrong in ((4, "f64"), (0, "u16"), (1, "i64")):
        declared = [*right[:place], wrong, *right[place + 1 :]]
        with pytest.raises(
            fikit.UsageError, match=rf"parameter {place} of kernel shapes has \d bytes; .* {wrong}"
        ):
            module.kernel("shapes", declared)
    assert module.kernel("shapes", tuple(right)) is kernel


def test_wrong_calls(session: fikit.Session, module: fikit.Module) -> None:
    kernel = module.kernel("nothing")
    with pytest.raises(TypeError, match="takes 0 arguments, not 1"):
        kernel.launch(1, grid=1, block=1)
    for grid in (0, -1, (), (1, 1, 1, 1), (1, 0), 2**32, "1"):
        with pytest.raises(fikit.UsageError, match="grid"):
            kernel.launch(grid=grid, block=1)
    memory = session.allocate(8)
    memory.free()
    with pytest.raises(fikit.UsageError, match="argument 3 of kernel shapes: the memory was freed"):
        module.kernel("shapes").launch(1, 2, 3, memory, 1.5, 2.5, b"abcdefghijkl", grid=1, block=1)


def test_wrong_calls_are_told_in_the_caller_s_own_words(session: fikit.Session, module: fikit.Module) -> None:
    kernel = module.kernel("nothing")
    wrong: Any = 5
    for size in (-1, 1 << 40):
        with pytest.raises(fikit.UsageError, match=f"occupancy: blocks of {size} threads"):
            kernel.occupancy(size)
        with pytest.raises(fikit.UsageError, match=f"set_max_dynamic_shared: {size} bytes"):
            kernel.set_max_dynamic_shared(size)
    for ask, told in (
        (lambda: module.kernel(wrong), "kernel: 5 is no str"),
        (lambda: module.global_(wrong), "global_: 5 is no str"),
        (lambda: session.compile(wrong), "compile: CUDA C is a str, not int"),
        (lambda: session.compile("", options="-I."), "compile: options='-I.' is no sequence"),
        (lambda: session.default_stream.add_callback(wrong), "add_callback: 5 cannot be called"),
    ):
        with pytest.raises(TypeError, match=told):
            ask()
    kernel.launch(grid=1, block=1, cooperative=np.bool_(True))
    session.stream(non_blocking=np.bool_(True)).close()


def test_launch_attributes_travel(session: fikit.Session, module: fikit.Module, records: Records) -> None:
    module.kernel("nothing").launch(
        grid=(4, 2), block=(32, 1, 2), shared=48, cooperative=True, cluster=(2, 1)
    )
    session.synchronize()
    launch = [record for record in records() if record["op"] == "launch"][-1]
    assert launch["grid"] == [4, 2, 1]
    assert launch["block"] == [32, 1, 2]
    assert launch["shared"] == 48
    assert launch["attributes"] == [[2, "01" + "00" * 11], [4, "020000000100000001000000"]]
