"""Video instructions: bytes and halves of words, one at a time or all at once.

What they must give is worked out here in Python's own integers, from the PTX ISA's section of them and,
where an H200 does otherwise, from what it does.
"""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
from cuda_calls import Cuda

WORDS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01]
CASES = [
    (a, b, c)
    for (a, b), c in zip(itertools.product(WORDS, WORDS), itertools.cycle([*WORDS[5:], 3]), strict=False)
]
CASES += [(each(32), each(32), each(32)) for each in (random.Random(seed).getrandbits for seed in range(112))]
PARTS = [
    ("", "", ""),
    ("b2", "b3", "h1"),
    ("", "h0", "b0"),
    ("h1", "", "b1"),
    ("h0", "b1", ""),
    ("b1", "h1", ""),
]
ACTIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def part(word: int, name: str, kind: str) -> int:
    """Return a byte, a half or all of a word, with its sign if its type has one."""
    bits = {"b": 8, "h": 16}.get(name[:1], 32)
    value = (word >> (bits * int(name[1:] or 0))) & ((1 << bits) - 1)
    return value - (1 << bits) if kind == "s32" and value >> (bits - 1) else value


def clamped(value: int, bits: int, kind: str) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def saturated(value: int, bits: int, kind: str) -> int:
    """What an H200 makes of the result for one part: of bytes and halves the most where it is below zero."""
    if bits == 32:
        return clamped(value, bits, kind) if kind == "s32" else max(0, value)
    most = clamped(1 << 40, bits, kind)
    return value if 0 <= value <= most else most


def merged(value: int, name: str, c: int) -> int:
    bits = {"b": 8, "h": 16}.get(name[:1], 32)
    ones = ((1 << bits) - 1) << (bits * int(name[1:] or 0))
    return (c & ~ones) | (value << (bits * int(name[1:] or 0)) & ones)


def results(cuda: Cuda, instruction: str) -> list[int]:
    """Run `instruction` on w1, w2 and w3 of each case, into w."""
    text = (
        ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 data) {\n"
        ".reg .b32 w, w1, w2, w3, n; .reg .b64 x, y;\n"
        "ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, 16, x;\n"
        "ld.global.v4.b32 {w, w1, w2, w3}, [x];\n"
        f"{instruction}\nst.global.b32 [x], w; ret; }}\n"
    )
    module = cuda.cuModuleLoadData(text.encode())
    data = cuda.cuMemAlloc(16 * len(CASES))
    rows = np.array([(0xDEADBEEF, *case) for case in CASES], np.uint32)
    cuda.cuMemcpyHtoD(data, rows.ctypes.data, rows.nbytes)
    cuda.launch_function(cuda.cuModuleGetFunction(module, b"k"), data, block=len(CASES))
    found = cuda.read(data, 4 * len(CASES), np.uint32)[::4].tolist()
    cuda.cuMemFree(data)
    cuda.cuModuleUnload(module)
    return [int(one) for one in found]


def expect(cuda: Cuda, instruction: str, wanted: Callable[[int, int, int], int]) -> None:
    found = results(cuda, instruction)
    for case, one in zip(CASES, found, strict=True):
        assert (instruction, case, hex(one)) == (instruction, case, hex(wanted(*case) & 0xFFFFFFFF))


def one_field(
    action: Callable[[int, int], int], kinds: list[str], parts: tuple[str, str, str], saturate: bool
) -> Callable[[int, int, int], int]:
    def wanted(a: int, b: int, c: int) -> int:
        value = action(part(a, parts[1], kinds[1]), part(b, parts[2], kinds[2]))
        if saturate:
            value = saturated(value, {"b": 8, "h": 16}.get(parts[0][:1], 32), kinds[0])
        return merged(value >> 16 if parts[0] == "h1" else value, parts[0], c)

    return wanted


@pytest.mark.parametrize("action", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
@pytest.mark.parametrize("kinds", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "u32.s32.u32"])
def test_one_field(cuda: Cuda, action: str, kinds: str) -> None:
    for saturate in (False, True):
        for parts in PARTS:
            name = f"{action}.{kinds}{'.sat' if saturate else ''}"
            places = [
                f"{word}.{one}" if one else word for word, one in zip(("w", "w1", "w2"), parts, strict=True)
            ]
            expect(
                cuda,
                f"{name} {', '.join(places)}{', w3' if parts[0] else ''};",
                one_field(ACTIONS[action], kinds.split("."), parts, saturate),
            )


@pytest.mark.parametrize("then", ["add", "min", "max"])
def test_a_second_operation(cuda: Cuda, then: str) -> None:
    second = ACTIONS[{"add": "vadd", "min": "vmin", "max": "vmax"}[then]]
    expect(
        cuda,
        f"vsub.s32.s32.s32.{then} w, w1.h0, w2.b1, w3;",
        lambda a, b, c: second(part(a, "h0", "s32") - part(b, "b1", "s32"), part(c, "", "s32")),
    )
    expect(
        cuda,
        f"vadd.u32.u32.u32.{then} w, w1.h0, w2.b1, w3;",
        lambda a, b, c: second(part(a, "h0", "u32") + part(b, "b1", "u32"), c),
    )
    expect(
        cuda,
        f"vset.s32.u32.lt.{then} w, w1, w2, w3;",
        lambda a, b, c: second(part(a, "", "s32") < b, part(c, "", "s32")),
    )


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(cuda: Cuda, name: str) -> None:
    act = ACTIONS[name]
    expect(cuda, f"vset.u32.u32.{name} w, w1, w2;", lambda a, b, _: act(a, b))
    expect(
        cuda,
        f"vset.s32.u32.{name} w.b1, w1.b2, w2.h1, w3;",
        lambda a, b, c: merged(act(part(a, "b2", "s32"), part(b, "h1", "u32")), "b1", c),
    )


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_shifts_to_the_right(cuda: Cuda, kind: str) -> None:
    clamped = f"vshr.{kind}.{kind}.u32.clamp w, w1, w2.b0;"
    expect(cuda, clamped, lambda a, b, _: part(a, "", kind) >> min(b & 255, 32))
    wrapped = f"vshr.{kind}.{kind}.u32.wrap.add w, w1.h1, w2, w3;"
    expect(cuda, wrapped, lambda a, b, c: (part(a, "h1", kind) >> (b & 31)) + c)


def test_shifts_saturate_as_words(cuda: Cuda) -> None:
    expect(
        cuda,
        "vshr.u32.s32.u32.sat.clamp w.b1, w1, w2.b0, w3;",
        lambda a, b, c: merged(max(0, part(a, "", "s32") >> min(b & 255, 32)), "b1", c),
    )
    expect(
        cuda,
        "vshr.s32.u32.u32.sat.wrap w.h1, w1, w2.b0, w3;",
        lambda a, b, c: merged(min(a >> (b & 31), 0x7FFFFFFF) >> 16, "h1", c),
    )


def test_shifts_to_the_left(cuda: Cuda) -> None:
    expect(cuda, "vshl.u32.u32.u32.clamp w, w1, w2.b0;", lambda a, b, _: a << min(b & 255, 32))
    expect(cuda, "vshl.u32.u32.u32.wrap w.h0, w1, w2, w3;", lambda a, b, c: merged(a << (b & 31), "h0", c))


@pytest.mark.parametrize("scale", [0, 7, 15])
def test_products(cuda: Cuda, scale: int) -> None:
    suffix = f".shr{scale}" if scale else ""
    expect(
        cuda,
        f"vmad.s32.s32.s32{suffix} w, w1.h0, w2, w3;",
        lambda a, b, c: (part(a, "h0", "s32") * part(b, "", "s32") + part(c, "", "s32")) >> scale,
    )
    expect(
        cuda,
        f"vmad.s32.s32.s32.sat{suffix} w, w1.h0, -w2.b3, w3;",
        lambda a, b, c: clamped(
            (-part(a, "h0", "s32") * part(b, "b3", "s32") + part(c, "", "s32")) >> scale, 32, "s32"
        ),
    )
    expect(
        cuda,
        f"shr.u32 w3, w3, 1; vmad.u32.u32.u32.po.sat{suffix} w, w1.h0, w2.h1, w3;",
        lambda a, b, c: clamped(
            (part(a, "h0", "u32") * part(b, "h1", "u32") + (c >> 1) + 1) >> scale, 32, "u32"
        ),
    )
    expect(
        cuda,
        f"vmad.s32.s32.s32{suffix} w, w1.b0, w2.b1, -w3;",
        lambda a, b, c: (part(a, "b0", "s32") * part(b, "b1", "s32") - part(c, "", "s32")) >> scale,
    )


def fields(count: int, name: str, first: int) -> list[int]:
    """Return which fields a name stands for, the lowest first."""
    return [int(digit) for digit in reversed(name)] if name else [first + at for at in range(count)]


def all_at_once(
    action: Callable[[int, int], int],
    kinds: list[str],
    count: int,
    names: tuple[str, str, str],
    manner: str,
) -> Callable[[int, int, int], int]:
    bits = 32 // count

    def wanted(a: int, b: int, c: int) -> int:
        pair = b << 32 | a

        def field(number: int, kind: str) -> int:
            value = pair >> (bits * number) & ((1 << bits) - 1)
            return value - (1 << bits) if kind == "s32" and value >> (bits - 1) else value

        chosen = fields(count, names[0], 0)
        total = c
        joined = c
        for at, (one, two) in enumerate(
            zip(fields(count, names[1], 0), fields(count, names[2], count), strict=True)
        ):
            if at not in chosen:
                continue
            value = action(field(one, kinds[1]), field(two, kinds[2]))
            if manner == ".sat":
                value = clamped(value, bits, kinds[0])
            total += value
            ones = ((1 << bits) - 1) << (bits * at)
            joined = (joined & ~ones) | (value << (bits * at) & ones)
        return total if manner == ".add" else joined

    return wanted


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("action", ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"])
def test_all_fields(cuda: Cuda, action: str, count: int) -> None:
    mixed = ("1", "31", "02") if count == 2 else ("30", "7210", "0365")
    letter = "h" if count == 2 else "b"
    for kinds in ("u32.u32.u32", "s32.s32.s32"):
        for manner in ("", ".sat", ".add"):
            for names in (("", "", ""), mixed):
                places = [
                    f"{word}.{letter}{name}" if name else word
                    for word, name in zip(("w", "w1", "w2"), names, strict=True)
                ]
                expect(
                    cuda,
                    f"{action}{count}.{kinds}{manner} {', '.join(places)}, w3;",
                    all_at_once(ACTIONS[action], kinds.split("."), count, names, manner),
                )


@pytest.mark.parametrize("count", [2, 4])
def test_comparisons_of_all_fields(cuda: Cuda, count: int) -> None:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        for kinds in ("u32.u32", "s32.s32"):
            for manner in ("", ".add"):
                expect(
                    cuda,
                    f"vset{count}.{kinds}.{name}{manner} w, w1, w2, w3;",
                    all_at_once(ACTIONS[name], ["u32", *kinds.split(".")], count, ("", "", ""), manner),
                )


def test_vectors_move_whole(cuda: Cuda) -> None:
    expect(cuda, "mov.v2.b32 {w1, w2}, {w2, w1}; sub.u32 w, w1, w2;", lambda a, b, _: b - a)
    expect(cuda, ".reg .v2 .u32 v; mov.v2.u32 v, {w3, 5}; add.u32 w, v.x, v.y;", lambda a, b, c: c + 5)
    expect(
        cuda,
        ".reg .v4 .u32 v; mov.v4.u32 v, w1; xor.b32 w, v.y, v.w;",
        lambda a, b, c: (a >> 8 & 255) ^ a >> 24,
    )
    expect(
        cuda,
        ".reg .v2 .u32 v; mov.v2.u32 v, w1; sub.u32 w, v.y, w2;",
        lambda a, b, c: (a >> 16) - b,
    )
