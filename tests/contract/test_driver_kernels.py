"""Kernels in CUDA C and instructions one by one: the same results on both drivers.

What the real GPU gave lies in tests/data/kernels/expected.json, which record_kernels.py writes; NumPy judges
some kernels as well.
"""

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import kernel_corpus as corpus
import numpy as np
import ptx_sequences as sequences
import pytest
from cuda_calls import Cuda

EXPECTED = json.loads(corpus.EXPECTED.read_text()) if corpus.EXPECTED.exists() else {}


def output_of(cuda: Cuda, kernel: corpus.Kernel, ptx: bytes) -> Any:
    module = cuda.cuModuleLoadData(ptx)
    try:
        return corpus.run(cuda, cuda.cuModuleGetFunction(module, kernel.name.encode()), kernel)
    finally:
        cuda.cuModuleUnload(module)


@pytest.mark.parametrize("key", corpus.KERNELS)
def test_a_kernel_of_the_corpus(cuda: Cuda, key: str) -> None:
    kernel = corpus.KERNELS[key]
    values = output_of(cuda, kernel, corpus.stored_ptx(kernel.group))
    if key in EXPECTED:
        assert corpus.difference(kernel, values, EXPECTED[key]) == ""
    assert values.any()


@pytest.mark.parametrize("group", sequences.GROUPS)
def test_instructions_one_by_one_and_in_sequences(cuda: Cuda, group: str) -> None:
    results = sequences.run_group(cuda, group)
    known = {name: values for name, values in results.items() if name in EXPECTED}
    assert [name for name, values in known.items() if sequences.record(name, values) != EXPECTED[name]] == []
    assert len(results) == len(sequences.FORMS.get(group, range(sequences.SEQUENCES)))


@pytest.mark.skipif(importlib.util.find_spec("cuda.bindings.nvrtc") is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("source", corpus.SOURCES, ids=lambda source: source.stem)
def test_what_nvrtc_makes_today_runs_as_well(cuda: Cuda, source: Any) -> None:
    ptx = corpus.compile_source(source)
    for kernel in corpus.kernels_of(source):
        values = output_of(cuda, kernel, ptx)
        if kernel.key in EXPECTED:
            assert corpus.difference(kernel, values, EXPECTED[kernel.key]) == "", kernel.key


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


REFERENCES: dict[str, Callable[[Any], Any]] = {
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
}


@pytest.mark.parametrize("key", REFERENCES)
def test_a_kernel_against_numpy(cuda: Cuda, key: str) -> None:
    kernel = corpus.KERNELS[key]
    values = output_of(cuda, kernel, corpus.stored_ptx(kernel.group))
    np.testing.assert_array_equal(values, REFERENCES[key](corpus.input_values(kernel)))
