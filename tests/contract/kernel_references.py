"""What kernels of the corpus should give, by NumPy: from a kernel's input to its output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import algorithm_references
import builtin_references
import numpy as np


def _histogram(values: Any) -> Any:
    return np.bincount(values % 251, minlength=256)


def _collatz(values: Any) -> Any:
    def steps(value: int) -> int:
        count = 0
        while value != 1:
            value = 3 * value + 1 if value & 1 else value // 2
            count += 1
        return count

    return [steps(int(value) % 10000 + 1) for value in values]


def _scan(values: Any) -> Any:
    return np.cumsum(values, dtype=np.uint32)


# --- programs.cu


def _sparse_rows(v: Any) -> Any:
    rows = []
    for row in range(256):
        first = row * 7 % 1024
        columns = v[first : first + int(v[row]) % 23]
        rows.append((columns * v[1024 + columns % 1024]).sum(dtype=np.uint32))
    return rows


def _fourier(v: Any) -> Any:
    signal = v.astype(np.float64).reshape(2, 256, 2)
    found = np.fft.fft(signal[..., 0] + 1j * signal[..., 1])
    return np.stack([found.real, found.imag], axis=-1).ravel()


def _n_bodies(v: Any) -> Any:
    bodies = v.astype(np.float64).reshape(128, 4)
    to = bodies[None, :, :3] - bodies[:, None, :3]
    return (to * (bodies[:, 3] / ((to**2).sum(axis=2) + 0.1) ** 1.5)[..., None]).sum(axis=1).ravel()


def _edges_of_image(v: Any) -> Any:
    image = np.pad(v.astype(np.float64).reshape(32, 32), 1, mode="edge")
    weights = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    across, down = (windows * weights).sum(axis=(2, 3)), (windows * weights.T).sum(axis=(2, 3))
    return np.hypot(across, down).ravel()


def _mandelbrot(_: Any) -> Any:
    pixel = np.arange(4096)
    cx, cy = pixel % 64 / 64.0 * 3 - 2, pixel // 64 / 64.0 * 2 - 1
    x, y, turns = np.zeros(4096), np.zeros(4096), np.zeros(4096, int)
    for _turn in range(200):
        inside = x * x + y * y < 4
        turns += inside
        x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, 2 * x * y + cy, y)
    return turns


def _lower_upper(v: Any) -> Any:
    m = v.reshape(32, 32) + 100 * np.eye(32)
    for k in range(31):
        m[k + 1 :, k] /= m[k, k]
        m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return m.ravel()


def _k_means(v: Any) -> Any:
    points = v.reshape(512, 2).astype(np.int64) % 1000
    centres = np.array([[c % 4 * 250 + 125, c // 4 * 500 + 250] for c in range(8)])
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return np.ravel([[*points[nearest == c].sum(axis=0), (nearest == c).sum()] for c in range(8)])


def _text_search(v: Any) -> Any:
    text = "".join("abab"[byte & 3] for byte in v.view(np.uint8))
    found = [text.startswith("abba", at) for at in range(509)]
    out = np.zeros(64, np.uint32)
    out[:16] = np.packbits([*found, False, False, False], bitorder="little").view(np.uint32)
    out[32] = sum(found)
    return out


def _hash_table(v: Any) -> Any:
    out = np.zeros(2048, np.uint32)
    keys = v % 300 + 1
    for key in np.unique(keys):
        slot = int(key) * 2654435761 % 2**32 >> 22
        while out[slot]:
            slot = (slot + 1) % 1024
        out[slot] = 1
    out[1024:] += np.bincount(keys, minlength=1024).astype(np.uint32)
    out[1024] = len(v)
    return out


def _counter_random(v: Any) -> Any:
    with np.errstate(over="ignore"):
        index = np.arange(256, dtype=np.uint64)
        c = [index, index * 0, index * 0 + 1, index * 0 + 2]
        k = [np.uint64(v[0]), np.uint64(v[1])]
        word = np.uint64(0xFFFFFFFF)
        for _round in range(10):
            p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
            upper_p, upper_q = p >> np.uint64(32), q >> np.uint64(32)
            c = [upper_q ^ c[1] ^ k[0], q & word, upper_p ^ c[3] ^ k[1], p & word]
            k = [(k[0] + np.uint64(0x9E3779B9)) & word, (k[1] + np.uint64(0xBB67AE85)) & word]
    return np.stack(c, axis=1).ravel()


def _objects(v: Any) -> Any:
    size = [
        [v[(t + k) % 64].astype(np.float64) ** 2 * (3 if k & 1 else 1) for k in range(t % 5 + 1)]
        for t in range(64)
    ]
    return [sum(sizes) for sizes in size]


def _edit_distance(v: Any) -> Any:
    def distance(mine: Any) -> int:
        left, right = mine & 3, mine >> 7 & 3
        row = list(range(17))
        for i in range(1, 17):
            corner, row[0] = row[0], i
            for k in range(1, 17):
                above = row[k]
                row[k] = min(row[k] + 1, row[k - 1] + 1, corner + int(left[i - 1] != right[k - 1]))
                corner = above
        return row[16]

    return [distance(v[16 * t : 16 * t + 16]) for t in range(128)]


def _breadth_first(v: Any) -> Any:
    level = [0] + [999] * 255
    front = [0]
    while front:
        found = []
        for node in front:
            for neighbour in v[4 * node : 4 * node + 4] % 256:
                if level[neighbour] == 999:
                    level[neighbour] = level[node] + 1
                    found.append(int(neighbour))
        front = found
    return level


def _scan_in_one_pass(v: Any) -> Any:
    sums = _scan(v & 0xFFFF)
    return np.concatenate([sums, sums[63::64] + np.uint32(1)])


# --- libraries.cu


def _cub_scan(v: Any) -> Any:
    blocks = v.reshape(2, 512)
    sums = np.cumsum(blocks, axis=1, dtype=np.uint32)
    return np.concatenate([sums.ravel(), np.stack([sums[:, -1], blocks.max(axis=1)], axis=1).ravel()])


def _cluster_histogram(v: Any) -> Any:
    bins = np.concatenate([np.bincount(part % 128, minlength=128) for part in v.reshape(2, 256)])
    ranks = np.arange(512) // 64 % 4 << 8 | 4
    return np.concatenate([bins, ranks, np.zeros(256, int)])


def _pipelines(v: Any) -> Any:
    thread = np.arange(64)
    out = np.zeros((2, 64), np.uint32)
    with np.errstate(over="ignore"):
        for block in range(2):
            for use in range(4):
                stage = v[block * 1024 + use * 256 :][:256]
                for k in range(4):
                    out[block] = out[block] * np.uint32(31) + stage[(thread * 7 + k * 64) % 256]
    return out.ravel()


def _barriers(v: Any) -> Any:
    mixed = v.reshape(2, 1024) + np.arange(1024, dtype=np.uint32)
    sums = [[np.bitwise_xor.reduce(block[t::96]) for t in range(96)] for block in mixed]
    return np.array(sums)[:, ::-1].ravel()


def _atomic_refs(v: Any) -> Any:
    out = np.zeros(16, np.uint64)
    out[0], out[1] = v.sum(dtype=np.uint64), v.max()
    out[3] = np.float64((v & 0xFF).sum()).view(np.uint64)
    out[4:6] = np.full(16, 16, np.uint8).view(np.uint64)
    word = 0
    for _ in range(256):
        word = (word * 3 + 1) % 2**64
    out[6] = word
    return out


def _groups(v: Any) -> Any:
    tiles = v.reshape(16, 16)
    odd = (tiles & 1).astype(bool)
    scans = np.concatenate(
        [np.zeros((16, 1), np.uint32), np.bitwise_xor.accumulate(tiles, axis=1)[:, :-1]], axis=1
    )
    sums = np.repeat(tiles.sum(axis=1, dtype=np.uint32)[:, None], 16, axis=1)
    warps, warp_odd = v.reshape(8, 32), (v.reshape(8, 32) & 1).astype(bool)
    more = warp_odd.sum(axis=1) + np.where(warp_odd, warps, 0).max(axis=1)
    sums = np.where(odd, sums + np.repeat(more, 2)[:, None].astype(np.uint32), sums)
    first = (sums ^ scans).astype(np.uint32).ravel()
    third = tiles % 3 == 0
    same = third[:, :, None] == third[:, None, :]
    rank = (same & (np.arange(16) < np.arange(16)[:, None])).sum(axis=2)
    labels = (tiles[:, :, None] % 4 == tiles[:, None, :] % 4).sum(axis=2)
    out = np.zeros(1024, np.uint32)
    out[:256], out[256:512], out[512:768] = first, (same.sum(axis=2) << 16 | rank).ravel(), labels.ravel()
    out[768] = first.sum(dtype=np.uint32)
    return out


def _standard_library(v: Any) -> Any:
    z, w = v[:64] + 1j * v[64:128].astype(np.float64), v[128:192] + 0.5j
    z = z * w + np.conj(z) / (w + 5)
    parts = np.stack([z.real, z.imag, np.abs(w), np.abs(z) ** 2], axis=1)
    return np.stack([parts.max(axis=1), parts[np.arange(64), np.arange(64) % 4]], axis=1).ravel()


# --- hopper.cu


def _half(v: Any) -> Any:
    return v.astype(np.float16).astype(np.float64)


def _brain(v: Any) -> Any:
    bits = v.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def _sums_begin(values: list[int], columns: int) -> Any:
    """A matrix of 64 rows in which each thread of a warpgroup has these."""
    thread, number = np.meshgrid(np.arange(128), np.arange(len(values)), indexing="ij")
    begin = np.zeros((64, columns))
    rows = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
    begin[rows, number // 4 * 8 + thread % 4 * 2 + number % 2] = values
    return begin


def _warpgroup_plain(v: Any) -> Any:
    a, b = _half(v[:1024]).reshape(64, 16), _half(v[1024:]).reshape(16, 16)
    return (_sums_begin(list(range(1, 9)), 16) - a @ b.T).ravel()


def _warpgroup_swizzled(v: Any) -> Any:
    a, b = _brain(v[:4096]).reshape(64, 64), _brain(v[4096:5120]).reshape(16, 64)
    c = _brain(v[(np.arange(4096) * 5 + 2048) % 6144]).reshape(64, 64)
    return np.concatenate([(a @ b.T).ravel(), (a @ c)[:, :16].ravel()])


def _warpgroup_turned(v: Any) -> Any:
    a, b = _half(v[:1024]).reshape(64, 16), _half(v[1024:1152]).reshape(8, 16)
    return np.concatenate([(a @ b.T).ravel(), (_sums_begin([1, 1, 1, 2], 8) - a @ b.T).ravel()])


def _warpgroup_bytes(v: Any) -> Any:
    def stored(words: Any, kind: Any, rows: int) -> Any:
        """Core matrices of 8 rows of 16 bytes, first along the rows, then along k."""
        return (
            words.view(kind).astype(int).reshape(2, rows // 8, 8, 16).transpose(1, 2, 0, 3).reshape(rows, 32)
        )

    product = stored(v[:512], np.int8, 64) @ stored(v[512:640], np.uint8, 16).T
    thread, number = np.meshgrid(np.arange(128), np.arange(8), indexing="ij")
    rows = thread // 32 * 16 + thread % 32 // 4 + number // 2 % 2 * 8
    return (
        product[rows, number // 4 * 8 + thread % 4 * 2 + number % 2].astype(np.int32).view(np.uint32).ravel()
    )


def _stretches(v: Any) -> Any:
    with np.errstate(over="ignore"):
        base = np.arange(512, dtype=np.uint32) * np.uint32(0x01010101)
    out = base.copy()
    out[:64] += v[:64]
    out[64:128] = np.maximum(base[64:128].view(np.int32), v[64:128].view(np.int32)).view(np.uint32)
    out[128:192] ^= v[128:192]
    halves = [words.view(np.uint16).astype(np.uint32) << 16 for words in (base[192:256], v[192:256])]
    with np.errstate(invalid="ignore", over="ignore"):
        exact = halves[0].view(np.float32).astype(np.float64) + halves[1].view(np.float32)
    out[192:256] = np.where(np.isnan(exact), 0x7FFF, _brain_bits(exact)).astype(np.uint16).view(np.uint32)
    out[256:] = v
    return out


def _brain_bits(exact: Any) -> Any:
    """Rounded once to bf16, ties to even: through f32 rounded to odd."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = exact.astype(np.float32)
        bits = single.view(np.uint32).astype(np.int64)
        inexact = np.isfinite(single) & (single.astype(np.float64) != exact) & (bits & 1 == 0)
        away = np.abs(single.astype(np.float64)) < np.abs(exact)
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _neighbours(v: Any) -> Any:
    out = np.zeros((2, 4, 32, 4), np.uint32)
    out[..., 0] = v.reshape(2, 128)[:, None, :32]
    out[..., 1] = (np.arange(4)[:, None] + 3) % 4 * 1000 + np.arange(32)
    out[..., 2] = 7 + 31 * 16
    out[..., 3] = np.arange(4)[:, None]
    return out.ravel()


def _quarter(words: Any, fraction: int) -> Any:
    """Numbers of 8 bits, none of them infinite or NaN."""
    bits = words.view(np.uint8).astype(int)
    bias = 7 if fraction == 3 else 15
    exponent, rest = bits >> fraction & (0x7F >> fraction), bits & ((1 << fraction) - 1)
    normal = (2.0**fraction + rest) * 2.0 ** (exponent - bias - fraction)
    size = np.where(exponent == 0, rest * 2.0 ** (1 - bias - fraction), normal)
    return np.where(bits & 0x80, -size, size)


def _operands(v: Any, elements: Callable[[Any], Any], a_words: int = 4, b_words: int = 2) -> tuple[Any, Any]:
    """a and b of an mma.sync of 16 rows and 8 columns; their registers: v[4 * lane] and v[128 + 2 * lane]."""
    each = len(elements(v[:1]))
    a, b = np.zeros((16, 2 * a_words * each)), np.zeros((4 * b_words * each, 8))
    for lane in range(32):
        for k in range(a_words):
            column = lane % 4 * each + k // 2 * 4 * each
            a[lane // 4 + k % 2 * 8, column : column + each] = elements(v[lane * 4 + k :][:1])
        for k in range(b_words):
            row = lane % 4 * each + k * 4 * each
            b[row : row + each, lane // 4] = elements(v[128 + lane * 2 + k :][:1])
    return a, b


def _held(matrix: Any, begin: list[int]) -> Any:
    """Of 16 rows and 8 columns, as the lanes hold it."""
    lane, k = np.meshgrid(np.arange(32), np.arange(4), indexing="ij")
    return (matrix[lane // 4 + k // 2 * 8, lane % 4 * 2 + k % 2] + begin).ravel()


def _mma_quarters(v: Any) -> Any:
    words = v & np.uint32(0xBFBFBFBF)
    wide, narrow = functools.partial(_quarter, fraction=3), functools.partial(_quarter, fraction=2)
    first = _operands(words, wide)[0] @ _operands(words, narrow)[1]
    second = _operands(words, narrow)[0] @ _operands(words, wide)[1]
    return np.concatenate([_held(first, [0, 1, 2, 3]), _held(second, [0, 0, 0, 0])])


def _mma_small(v: Any) -> Any:
    def nibbles(words: Any) -> Any:
        return words[0] >> np.arange(0, 32, 4).astype(np.uint32) & 15

    def bits(words: Any) -> Any:
        return words[0] >> np.arange(32).astype(np.uint32) & 1

    a, b = _operands(v, lambda w: (nibbles(w).astype(int) ^ 8) - 8)[0], _operands(v, nibbles)[1]
    first = _held(a @ b, [1, 2, 3, 4])
    a, b = _operands(v, bits)
    second = _held(a @ b, [0, 0, 0, 0])
    a, b = _operands(v, bits, 2, 1)
    third = _held((a[:, :, None] != b[None]).sum(axis=1), [5, 6, 7, 8])
    halves = v[:128:4].copy().view(np.uint16).reshape(8, 8)
    turned = np.ascontiguousarray(halves.T).view(np.uint32).ravel()
    sums = np.concatenate([first, second, third]).astype(np.int64).astype(np.int32).view(np.uint32)
    return np.concatenate([sums, turned])


def _mma_double(v: Any) -> Any:
    w = np.rint(v * 8)
    first = w[:32].reshape(8, 4) @ w[32:64].reshape(8, 4).T
    a, b = np.zeros((16, 8)), np.zeros((8, 8))
    for lane in range(32):
        for k in range(4):
            a[lane // 4 + k % 2 * 8, lane % 4 + k // 2 * 4] = w[64 + 32 * k + lane]
        for k in range(2):
            b[lane % 4 + k * 4, lane // 4] = w[192 + 32 * k + lane]
    lane, k = np.meshgrid(np.arange(32), np.arange(2), indexing="ij")
    held = first[lane // 4, lane % 4 * 2 + k] + [1, 2]
    return np.concatenate([held.ravel(), _held(a @ b, [0, 0, 0, 0])])


def _wide_atomics(v: Any) -> Any:
    return [v.sum(dtype=np.uint64), len(v), 0, 0, 0, 0, 0, 0]


REFERENCES: Final[dict[str, Callable[[Any], Any]]] = {
    "elementwise.saxpy": lambda v: (2.5 * v.astype(np.float64) + v[::-1]).astype(np.float32),
    "reductions.hillis_steele_scan": _scan,
    "reductions.blelloch_scan": lambda v: np.concatenate([[0], _scan(v)[:-1]]),
    "reductions.warp_scan": lambda v: np.cumsum(v.reshape(-1, 32), axis=1, dtype=np.uint32).ravel(),
    "reductions.histogram": _histogram,
    "tiles.transpose": lambda v: v.reshape(64, 64).T.ravel(),
    "tiles.bitonic_sort": np.sort,
    "tiles.radix_sort": np.sort,
    "tiles.odd_even_sort": lambda v: np.sort(v % 1000),
    "control.collatz": _collatz,
    "control.local_arrays": lambda v: np.sort((v % 997).reshape(-1, 16), axis=1).ravel(),
    "reductions.look_back": lambda v: np.concatenate(
        [_scan(v & 0xFF), np.ones(32, np.uint32), _scan(v & 0xFF)[63::64], np.zeros(32, np.uint32)]
    ),
    "programs.sparse_rows": _sparse_rows,
    "programs.fourier": _fourier,
    "programs.n_bodies": _n_bodies,
    "programs.edges_of_image": _edges_of_image,
    "programs.mandelbrot": _mandelbrot,
    "programs.lower_upper": _lower_upper,
    "programs.k_means": _k_means,
    "programs.text_search": _text_search,
    "programs.hash_table": _hash_table,
    "programs.message_queue": lambda v: v ^ np.uint32(0x5A5A5A5A),
    "programs.counter_random": _counter_random,
    "programs.objects": _objects,
    "programs.edit_distance": _edit_distance,
    "programs.breadth_first": _breadth_first,
    "programs.merge_sort": np.sort,
    "programs.scan_in_one_pass": _scan_in_one_pass,
    "libraries.cub_sort": lambda v: np.sort(v.reshape(2, 256), axis=1).ravel(),
    "libraries.cub_scan": _cub_scan,
    "libraries.cub_histogram": lambda v: np.bincount(v % 64, minlength=64),
    "libraries.cub_merge_sort": lambda v: np.sort(v.reshape(2, 128), axis=1).ravel(),
    "libraries.groups": _groups,
    "libraries.cluster_histogram": _cluster_histogram,
    "libraries.pipelines": _pipelines,
    "libraries.barriers": _barriers,
    "libraries.atomic_refs": _atomic_refs,
    "libraries.standard_library": _standard_library,
    "hopper.warpgroup_plain": _warpgroup_plain,
    "hopper.warpgroup_swizzled": _warpgroup_swizzled,
    "hopper.warpgroup_turned": _warpgroup_turned,
    "hopper.warpgroup_bytes": _warpgroup_bytes,
    "hopper.stretches": _stretches,
    "hopper.neighbours": _neighbours,
    "hopper.mma_quarters": _mma_quarters,
    "hopper.mma_small": _mma_small,
    "hopper.mma_double": _mma_double,
    "hopper.wide_atomics": _wide_atomics,
    **algorithm_references.REFERENCES,
    **builtin_references.REFERENCES,
}
