"""What the kernels of algorithms.cu should give, by NumPy; see kernel_references.py."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

MASK: Final = (1 << 64) - 1


def _keep_in_order(v: Any) -> Any:
    kept = v[v % 2 == 1]
    return np.concatenate([[len(kept)], kept, np.zeros(1024 - len(kept), np.uint32)])


def _digests(v: Any) -> Any:
    found = b"".join(hashlib.sha256(row.tobytes()).digest() for row in v.reshape(-1, 8))
    return np.frombuffer(found, dtype=np.uint32)


def _bytes_of_images(v: Any) -> Any:
    index = np.arange(128)[:, None] + np.arange(8)
    pixels = v[index % len(v)]
    weights = np.broadcast_to(v[len(v) - 1 - np.arange(8)], pixels.shape).copy()

    def parts(words: Any, kind: Any) -> Any:
        return words.view(kind).reshape(*words.shape, -1).astype(np.int64)

    signed, plain = parts(weights, np.int8), parts(weights, np.uint8)
    total = (parts(pixels, np.int8) * signed).sum(axis=(1, 2))
    total += (parts(pixels, np.int16) * signed[..., :2]).sum(axis=(1, 2))
    positive = (parts(pixels, np.uint8) * plain).sum(axis=(1, 2))
    positive += (parts(pixels, np.uint16) * plain[..., 2:]).sum(axis=(1, 2))
    return np.stack([total, positive], axis=1).astype(np.uint64).astype(np.uint32).ravel()


def _packed_words(v: Any) -> Any:
    pairs = v.reshape(-1, 2)
    a, b = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    def apply(kind: Any, change: Callable[[Any, Any], Any]) -> Any:
        wide = change(a.view(kind).astype(np.int64), b.view(kind).astype(np.int64))
        return wide.astype(np.dtype(f"u{np.dtype(kind).itemsize}")).view(np.uint32)

    def each(change: Callable[[int, int], int]) -> Any:
        words = [change(int(x), int(y)) & 0xFFFFFFFF for x, y in pairs]
        return np.array(words, dtype=np.uint32)

    def signed(x: int, bits: int = 32) -> int:
        x &= (1 << bits) - 1
        return x - (x >> (bits - 1) << bits)

    def permuted(x: int, y: int) -> int:
        source = (y << 32 | x).to_bytes(8, "little")
        return int.from_bytes(bytes(source[x >> (4 * k) & 7] for k in range(4)), "little")

    def counted(x: int, y: int) -> int:
        first = (y & -y).bit_length()
        return int(f"{x:032b}"[::-1], 2) ^ first ^ (32 - x.bit_length())

    def multiplied(x: int, y: int) -> int:
        narrow = signed(x, 24) * signed(y, 24)
        return narrow + (x * y >> 32) + (signed(x) + signed(y) >> 1)

    difference = apply(np.uint8, lambda x, y: abs(x - y))
    found = [
        apply(np.uint8, lambda x, y: x + y),
        apply(np.uint16, lambda x, y: x - y),
        apply(np.uint8, lambda x, y: (x + y + 1) >> 1),
        difference,
        apply(np.int8, np.maximum),
        apply(np.uint16, np.minimum),
        apply(np.uint8, lambda x, y: np.minimum(x + y, 255)),
        apply(np.int16, lambda x, y: np.clip(x - y, -32768, 32767)),
        apply(np.uint8, lambda x, y: np.where(x > y, 255, 0)),
        difference.view(np.uint8).reshape(-1, 4).sum(axis=1, dtype=np.uint32),
        each(permuted),
        each(counted),
        apply(np.int16, lambda x, _: abs(x)),
        apply(np.int8, lambda _, y: -y),
        each(lambda x, y: abs(signed(x) - signed(y)) + 5),
        each(multiplied),
    ]
    return np.stack(found, axis=1).ravel()


def _wide_integers(v: Any) -> Any:
    def signed(x: int) -> int:
        return x - (x >> 63 << 64)

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    rows = []
    for a, b, c in (map(int, row) for row in v.reshape(-1, 3)):
        c |= 1
        divisor = signed(b) >> 20 | 1
        modulus = 1000003
        rows.append(
            [
                pow(a, b, c),
                a * b >> 64,
                signed(a) * signed(b) >> 64,
                math.gcd(a, c),
                quotient(signed(a), divisor),
                a.bit_count() | (64 - b.bit_length()) << 8 | (c & -c).bit_length() << 16,
                int(f"{a:064b}"[::-1], 2) ^ b >> (c & 63) ^ a << (b & 63),
                signed(b) - quotient(signed(b), modulus) * modulus + a // 10,
            ]
        )
    return np.array([[word & MASK for word in row] for row in rows], dtype=np.uint64).ravel()


def _bessel(order: int, x: float) -> float:
    angle = np.arange(64) * (2 * np.pi / 64)
    return float(np.cos(order * angle - x * np.sin(angle)).mean())


def _inverse_erf(y: float) -> float:
    x = 0.0
    for _ in range(60):
        x -= (math.erf(x) - y) * math.sqrt(math.pi) / 2 * math.exp(x * x)
    return x


def _special_functions(v: Any) -> Any:
    rows = []
    for x in map(float, v):
        p, u = abs(x) + 0.25, x / 4.1
        rows.append(
            [
                math.erf(x),
                math.erfc(x),
                math.gamma(p),
                math.lgamma(p),
                math.cbrt(x),
                math.expm1(u),
                math.log1p(p),
                math.asinh(x),
                math.acosh(p + 1),
                math.atanh(u),
                math.sin(math.pi * math.remainder(x, 2)),
                p**x,
                math.fmod(x, 0.7),
                math.remainder(x, 0.7),
                math.hypot(x, p),
                math.atan2(x, u + 2),
                10**u,
                math.erfc(-u / math.sqrt(2)) / 2,
                math.ldexp(x, int(p * 4))
                + 2 * (math.frexp(p)[1] - 1)
                + math.nextafter(x, 9.0)
                + round(x)
                + math.copysign(math.floor(abs(x) + 0.5), x)
                + math.trunc(x),
                _bessel(0, p)
                + _bessel(1, p)
                + float(np.i0(u))
                + _inverse_erf(u)
                + math.exp(p * p) * math.erfc(p)
                + p**-0.5
                + p ** (-1 / 3)
                + math.hypot(x, p, u),
            ]
        )
    return np.array(rows).ravel()


def _special_singles(v: Any) -> Any:
    rows = []
    for x in map(float, v):
        p, u = abs(x) + 0.25, x / 4.1
        far = float(np.float32(x) * np.float32(100))
        fraction, exponent = math.frexp(p)
        rest = math.remainder(x, 0.75)
        rows.append(
            [
                math.erf(x),
                math.gamma(p),
                math.lgamma(p),
                math.cbrt(x),
                math.tanh(x),
                p**x,
                math.fmod(x, 0.75),
                math.sin(far) + math.cos(far),
                math.tan(u),
                math.log(p) + math.log2(p) + math.log10(p) + math.log1p(p),
                math.atan2(x, u + 2) + math.asin(u) + math.acos(u),
                fraction + exponent + rest + (round((x - rest) / 0.75) & 7) + max(x - u, 0) + math.sinh(u),
            ]
        )
    return np.array(rows).ravel()


def _cholesky(v: Any) -> Any:
    a = v[:1024].reshape(32, 32)
    return np.linalg.solve(np.eye(32) + a @ a.T, v[1024:])


def _softmax_of_pairs(v: Any) -> Any:
    rows = np.exp(v.astype(np.float64).reshape(4, 64))
    return (rows / rows.sum(axis=1, keepdims=True)).ravel()


def _attention(v: Any) -> Any:
    queries = v[:256].astype(np.float64).reshape(16, 16)
    keys, values = v[256:].astype(np.float64).reshape(8, 2, 8, 16).transpose(1, 0, 2, 3).reshape(2, 64, 16)
    weights = np.exp(queries @ keys.T / 4)
    return (weights / weights.sum(axis=1, keepdims=True) @ values).ravel()


def _components(v: Any) -> Any:
    label = list(range(128))
    for a, b in (v % 128).reshape(-1, 2):
        low, high = sorted((label[a], label[b]))
        label = [low if one == high else one for one in label]
    return label


def _small_floats(v: Any) -> Any:
    x = v.astype(np.float64)

    def rounded(values: Any, bits: int, least: int) -> Any:
        exponent = np.maximum(np.floor(np.log2(np.abs(values) + 1e-300)), least)
        unit = 2.0 ** (exponent - bits)
        return np.rint(values / unit) * unit

    four = sum(rounded(part, 3, -6) for part in (x, -x, x * 2, x / 2))
    half = v.astype(np.float16).astype(np.float64)
    found = [
        rounded(x, 3, -6),
        rounded(np.float32(100) * v.astype(np.float64), 2, -14),
        four,
        np.sin(half) + np.cos(half),
        np.exp(half),
        np.log1p(abs(half)) + np.sqrt(abs(half)),
        2 ** rounded(x, 7, -126),
        np.maximum(half * half - 1, 0) + np.rint(half) + np.tanh(half),
    ]
    return np.stack(found, axis=1).ravel()


def _structures(v: Any) -> Any:
    steps: list[Callable[[int], int]] = [lambda x: x + 1, lambda x: x * 3, lambda x: ~x, lambda x: x >> 1]
    middles: list[Callable[[int], int]] = [
        lambda m: m + 1,
        lambda m: m * 3,
        lambda m: m ^ 0xFF,
        lambda _: 7,
        lambda m: m - 9,
        lambda m: m << 2,
        lambda m: ~m,
        lambda m: m >> 1,
    ]
    rows = []
    for index, (head, bits, last) in enumerate(v.reshape(-1, 3).astype(object)):
        tag, more, middle = head & 7, head >> 3 & 31, head >> 16
        middle = middles[more](middle) if more < 8 else middle | more
        bits = steps[tag & 3](bits) & 0xFFFFFFFF
        tail = [np.int8(np.uint8(last >> (8 * k) & 0xFF)) for k in range(4)]
        changed = -int(tail[3 - (tag & 3)]) >> 1
        last = last & ~(0xFF << (8 * (tag & 3))) | (changed & 0xFF) << (8 * (tag & 3))
        more ^= 1 if tag & 3 == index & 3 else 0
        rows.append([head & 0xFF00 | tag | more << 3 | (middle & 0xFFFF) << 16, bits, last])
    return np.array(rows, dtype=np.uint32).ravel()


def _kinds_of_atomics(v: Any) -> Any:
    out = np.zeros(16, dtype=np.uint32)
    greatest = (v >> 8).astype(np.float32).max(keepdims=True)
    out[0], out[1] = 256 % 100, 1000 - 255
    out[2] = np.minimum(v.view(np.int32).min(), 0).view(np.uint32)
    out[4:6] = np.array([int(v.max()) << 7], dtype=np.uint64).view(np.uint32)
    out[6:8] = np.array([(v % 1000).sum()], dtype=np.float64).view(np.uint32)
    out[8] = np.bitwise_xor.reduce(v)
    out[10] = np.bitwise_or.reduce(v & 0xFF00)
    out[11] = np.array([(v % 2).sum(), (v % 3).sum()], dtype=np.float16).view(np.uint32)[0]
    out[12] = np.array([(v % 8).sum()], dtype=np.float32).view(np.uint32)[0]
    blocks = v.reshape(4, 64)
    out[13] = (v & 1).sum() + 1000 * (blocks == 0).any(axis=1).sum()
    out[13] += 10000 * (blocks != 1).all(axis=1).sum()
    out[14] = greatest.view(np.uint32)[0]
    out[15] = 4 * 3 * 64
    return out


def _complex_numbers(v: Any) -> Any:
    w = v.astype(np.float64).reshape(-1, 4)
    a, b = w[:, 0] + 1j * w[:, 1], w[:, 2] + 1j * w[:, 3]
    product, ratio = a * b, a / b
    return np.stack([product.real + abs(a), product.imag, ratio.real, ratio.imag], axis=1).ravel()


def _sorted_rows(v: Any) -> Any:
    return np.sort(v.reshape(-1, 32), axis=1).ravel()


def _wide_tiles(v: Any) -> Any:
    tiles = v.reshape(-1, 64)
    mixed = tiles.sum(axis=1, dtype=np.uint32) ^ tiles[:, 35]
    return np.repeat(mixed + (tiles % 64 == 5).any(axis=1) + 2, 64)


REFERENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "algorithms.keep_in_order": _keep_in_order,
    "algorithms.add_for_all": lambda v: np.bincount(v[v % 3 != 0] % 8, minlength=8),
    "algorithms.digests": _digests,
    "algorithms.bytes_of_images": _bytes_of_images,
    "algorithms.packed_words": _packed_words,
    "algorithms.wide_integers": _wide_integers,
    "algorithms.special_functions": _special_functions,
    "algorithms.special_singles": _special_singles,
    "algorithms.quick_sorts": _sorted_rows,
    "algorithms.trees": _sorted_rows,
    "algorithms.cholesky": _cholesky,
    "algorithms.softmax_of_pairs": _softmax_of_pairs,
    "algorithms.attention": _attention,
    "algorithms.components": _components,
    "algorithms.small_floats": _small_floats,
    "algorithms.structures": _structures,
    "algorithms.kinds_of_atomics": _kinds_of_atomics,
    "algorithms.complex_numbers": _complex_numbers,
    "algorithms.wide_tiles": _wide_tiles,
}
