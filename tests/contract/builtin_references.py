"""What the kernels of builtins.cu should give, by NumPy and Python; see kernel_references.py."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

WORD: Final = (1 << 32) - 1
DOUBLE_WORD: Final = (1 << 64) - 1


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def _tile_of_doubles(v: Any) -> Any:
    w = np.rint(v * 8)
    return (w[:32].reshape(8, 4) @ w[32:].reshape(8, 4).T + 3).T.ravel()


def _scoped_atomics(v: Any) -> Any:
    sums = np.cumsum(v.reshape(4, 64).sum(axis=1, dtype=np.uint32), dtype=np.uint32)
    return [*sums, v.max(), 3, 4, 0]


def _labels(v: Any) -> Any:
    found = []
    for number, tile in enumerate((v % 1000).astype(int).reshape(-1, 16)):
        for lane, value in enumerate(tile):
            same = [other for other in tile if other % 3 == value % 3]
            odd = [other for other in tile if other % 2 == value % 2]
            before = [other for other in tile[:lane] if other % 3 == value % 3]
            rank = sum(other % 2 == value % 2 for other in tile[:lane])
            scanned = int(np.bitwise_xor.reduce(tile[: lane + 1]))
            found += [
                sum(same),
                sum(before),
                max(odd),
                len(odd) * 100 + rank,
                scanned,
                same[0] + number % 4,
            ]
    return found


def joined(parts: list[int], bits: int) -> int:
    return sum((part & ((1 << bits) - 1)) << (bits * k) for k, part in enumerate(parts))


def each(change: Callable[..., int], bits: int, *words: int, plain: bool = False) -> list[int]:
    """Apply a change to the parts of words, signed or plain."""
    parts = [[word >> (bits * k) & ((1 << bits) - 1) for k in range(32 // bits)] for word in words]
    if not plain:
        parts = [[signed(part, bits) for part in word] for word in parts]
    return [int(change(*each)) for each in zip(*parts, strict=True)]


def _words_of(a: int, b: int, c: int) -> list[int]:
    def low(bits: int, plain: bool, value: int) -> int:
        least, most = (0, (1 << bits) - 1) if plain else (-1 << (bits - 1), (1 << (bits - 1)) - 1)
        return min(max(value, least), most)

    def word(change: Callable[..., int], bits: int, *words: int, plain: bool = False) -> int:
        return joined(each(change, bits, *words, plain=plain), bits)

    s, t, u = (signed(word, 32) for word in (a, b, c))
    wrapped = [signed(x, 16) for x in each(lambda x, y: x + y, 16, a, b)]
    added = [max(x, z) for x, z in zip(wrapped, each(lambda z: z, 16, c), strict=True)]
    smaller = each(lambda x, y: x <= y, 16, a, b, plain=True)
    shift = min(c & 63, 32)
    halves = each(lambda x: x, 16, a, plain=True)
    bytes_of_b = each(lambda x: x, 8, b, plain=True)
    return [
        word(lambda x, y: low(16, False, x + y), 16, a, b),
        word(lambda x, y: low(16, True, x + y), 16, a, b, plain=True),
        word(lambda x, y: low(8, False, x - y), 8, a, b),
        word(lambda x, y: low(8, True, x - y), 8, a, b, plain=True),
        word(lambda x, y: (x + y + (x + y >= 0)) >> 1, 16, a, b),
        word(lambda x, y: (x + y + (x + y >= 0)) >> 1, 8, a, b),
        word(lambda x, y: (x + y) >> 1, 16, a, b, plain=True),
        word(lambda x, y: -(x >= y), 16, a, b),
        word(lambda x, y: -(x <= y), 8, a, b, plain=True),
        word(lambda x, y: -(x != y), 16, a, a & b, plain=True),
        word(lambda x, y: x == y, 8, a, b),
        word(lambda x, y: x < y, 16, a, b, plain=True),
        sum(each(lambda x, y: abs(x - y), 16, a, b)),
        sum(each(lambda x, y: abs(x - y), 8, a, b)),
        sum(each(lambda x, y: abs(x - y), 16, a, b, plain=True)),
        word(lambda x: low(8, False, -x), 8, a),
        word(lambda x: low(16, False, abs(x)), 16, a),
        word(lambda x, y: abs(x - y), 8, a, b),
        word(min, 8, a, b),
        word(max, 16, a, b, plain=True),
        max(s, t, u),
        word(min, 16, a, b, c, plain=True),
        joined(added, 16),
        joined([max(x, 0) for x in added], 16),
        word(lambda *x: max(*x, 0), 16, a, b, c),
        min((a + b) & WORD, c),
        word(min, 16, a, b, plain=True),
        smaller[1] + 2 * smaller[0],
        ((b << 32 | a) << shift) >> 32,
        (b << 32 | a) >> (c & 31),
        c + halves[0] * bytes_of_b[2] + halves[1] * bytes_of_b[3],
        ((a + b + 1) >> 1) ^ ((s + t + 1) >> 1),
    ]


def _parts_of_words(v: Any) -> Any:
    words = [int(word) for word in v]
    n = len(words)
    return np.array(
        [
            word & WORD
            for k in range(128)
            for word in _words_of(words[k], words[(k + 7) % n], words[(k + 13) % n])
        ],
        dtype=np.uint32,
    )


def bits_of_double(value: int) -> int:
    return int(struct.unpack("Q", struct.pack("d", float(value)))[0])


def bits_of_float(value: int) -> int:
    """Round an integer once, to the nearest of 24 bits."""
    size = abs(value)
    beyond = max(size.bit_length() - 24, 0)
    kept, rest, half = size >> beyond, size & ((1 << beyond) - 1), (1 << beyond) >> 1
    if beyond and (rest > half or (rest == half and kept & 1)):
        kept += 1
    rounded = float(kept << beyond)
    if rounded > np.finfo(np.float32).max:
        rounded = float("inf")
    return int(struct.unpack("I", struct.pack("f", -rounded if value < 0 else rounded))[0])


def toward_zero(value: int, divisor: int) -> int:
    found = abs(value) // abs(divisor)
    return found if (value < 0) == (divisor < 0) else -found


def _wide_numbers(v: Any) -> Any:
    found = []
    for a, b, c in v.reshape(-1, 3).tolist():
        plain = a << 64 | b
        wide = signed(plain, 128)
        divisor = signed(c | 1, 64)
        quotient = toward_zero(wide, divisor)
        first, second, third = a & 0x1FFF, signed(a >> 13, 29), a >> 42 & 0x3FFFFF
        second = (second * 3 - first) & ((1 << 29) - 1)
        third ^= c & 0x3FFFFF
        found += [
            bits_of_double(wide),
            bits_of_double(plain),
            bits_of_float(wide) | bits_of_float(plain) << 32,
            int(float(signed(a, 64)) * 1048576.0),
            (wide >> (c & 127)) ^ (plain >> (c >> 7 & 127)),
            quotient,
            wide - quotient * divisor,
            (plain * c & ((1 << 128) - 1)) >> 64,
            first | second << 13 | third << 42,
            (wide < c) + 2 * (plain < c) + 4 * (wide == b),
        ]
    return np.array([word & DOUBLE_WORD for word in found], dtype=np.uint64)


REFERENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "builtins.tile_of_doubles": _tile_of_doubles,
    "builtins.scoped_atomics": _scoped_atomics,
    "builtins.labels": _labels,
    "builtins.parts_of_words": _parts_of_words,
    "builtins.wide_numbers": _wide_numbers,
}
