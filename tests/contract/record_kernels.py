"""Writes what the corpus of kernels gives on this device: run on real hardware, it makes tests/data/kernels.

python -P tests/contract/record_kernels.py [--compile] [--outputs FILE.npz] [--output FILE.json] [GROUP]

--compile only makes the PTX anew, with NVRTC. Each group runs in a process of its own, so that a fault ends
no other. FIKIT_TEST_DEVICE=real chooses the real driver.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import kernel_corpus as corpus
import ptx_sequences as sequences
from cuda_calls import Cuda, CudaError


def run_group(group: str, place: pathlib.Path) -> None:
    """Run one group in this process; its outputs go into a file, what failed to standard error."""
    cuda = Cuda()
    cuda.start()
    outputs = {}
    if group in sequences.GROUPS:
        outputs = sequences.run_group(cuda, group)
    else:
        module = cuda.cuModuleLoadData(corpus.stored_ptx(group))
        for kernel in corpus.KERNELS.values():
            if kernel.group != group:
                continue
            try:
                function = cuda.cuModuleGetFunction(module, kernel.name.encode())
                outputs[kernel.key] = corpus.run(cuda, function, kernel)
            except CudaError as error:
                print(f"{kernel.key}: {error}", file=sys.stderr)
    np.savez_compressed(place, **outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "groups", nargs="*", default=[source.stem for source in corpus.SOURCES] + sequences.GROUPS
    )
    parser.add_argument("--compile", action="store_true", help="make the PTX anew with NVRTC")
    parser.add_argument("--outputs", type=pathlib.Path, help="keep all outputs here")
    parser.add_argument("--output", type=pathlib.Path, default=corpus.EXPECTED, help="where the record goes")
    parser.add_argument("--one", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_group(arguments.groups[0], arguments.one)
        return
    if arguments.compile:
        for source in corpus.SOURCES:
            ptx = corpus.compile_source(source)
            (corpus.DATA / f"{source.stem}.ptx.z").write_bytes(zlib.compress(ptx, 9))
        return
    outputs = {}
    with tempfile.TemporaryDirectory() as folder:
        for group in arguments.groups:
            place = pathlib.Path(folder) / f"{group}.npz"
            command = [sys.executable, "-P", __file__, "--one", str(place), group]
            status = subprocess.run(command, timeout=300).returncode
            if place.exists():
                with np.load(place) as found:
                    outputs.update({name: found[name] for name in found.files})
            print(f"{group}: {'done' if status == 0 else f'ended with {status}'}")
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for name, values in outputs.items():
        kernel = corpus.KERNELS.get(name)
        known[name] = corpus.record(kernel, values) if kernel else sequences.record(name, values)
    arguments.output.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    if arguments.outputs:
        np.savez_compressed(arguments.outputs, **outputs)
    print(f"{len(outputs)} results in {arguments.output}")


if __name__ == "__main__":
    main()
