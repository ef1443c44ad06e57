"""Runs cuda-python's own tests on the simulated driver and counts what passes, and why what does not.

    python -m bench.cuda_python_suite --tests DIR [--python FILE] [--output FILE] [PYTEST_ARGUMENT...]

DIR is a checkout of https://github.com/NVIDIA/cuda-python at the tags of the installed cuda-bindings and
cuda-core (--python names an interpreter that has them, with pytest); nothing of it is part of this project.
It takes two to six minutes. A failure is sorted by what it needs that the simulated driver does not have;
the rest is unexplained. The share is that of the tests which need neither managed memory, graphics, NVML, a
second device nor the CUDA runtime library, whose private interface to the driver is not imitated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Final

from fikitd.simcuda import library_path

SUITES: Final = {
    "cuda_bindings/tests": [
        "test_cuda.py",
        "test_kernelParams.py",
        "test_interoperability.py",
        "test_basics.py",
    ],
    "cuda_core/tests": ["."],
}
IGNORED: Final = (
    "cython",
    "system",
    "example_tests",
    "test_program_cache.py",
    "test_program_cache_multiprocess.py",
)
"""They build extensions, ask NVML, or call no driver."""

OUTSIDE: Final = {
    "managed memory": re.compile(r"Managed|managed|UnifiedMemory|\bunified\b"),
    "graphics": re.compile(r"[Gg]raphics|OpenGL|EGL|pyglet"),
    "NVML": re.compile(r'"nvml" is an NVIDIA driver library'),
    "second device": re.compile(r"peer|multi_gpu|_x2\b|two devices|GpuMigration", re.IGNORECASE),
    "CUDA runtime library": re.compile(r"cudaErrorNotSupported|cudaErrorInitializationError|Cudart Error"),
}
"""What nobody expects of it, and how a failure shows that this is what it wanted."""

MISSING: Final = {
    "graphs launched by the device": re.compile(r"device_launch|DEVICE_LAUNCH|test_graph_complete_options"),
    "textures, surfaces, mipmaps": re.compile(
        r"test_texture_surface|[Mm]ipmapped|_texture_object|_surface_object"
    ),
    "checkpoints": re.compile(r"[Cc]heckpoint"),
    "machine code": re.compile(
        r"np\.\w+\(0(\.0)?\)|, got (0|0\.0|False)\b|\(0, 0, 0\) ==|0 == 22|_launch_fill"
    ),
    "linking machine code or LTO": re.compile(r"ltoir|_rdc"),
}
"""Parts of the driver's interface that the simulated one lacks."""


def reason_of(text: str) -> str:
    """What a failure's text says that it needed."""
    for reasons in (OUTSIDE, MISSING):
        for reason, pattern in reasons.items():
            if pattern.search(text):
                return reason
    return "unexplained"


def run_suite(python: str, folder: Path, files: list[str], extra: list[str]) -> list[ElementTree.Element]:
    """Run one suite and return its test cases."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_path().parent)}
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        command += [f"--ignore={name}" for name in IGNORED] + files + extra
        subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, timeout=1200, check=False
        )
        if not report.is_file():
            raise SystemExit(f"{folder}: pytest wrote no report; run it by hand: {' '.join(command)}")
        return list(ElementTree.parse(report).getroot().iter("testcase"))


def count(cases: list[ElementTree.Element]) -> dict[str, object]:
    """Count results; failures and skipped tests by reason."""
    failed: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    passed = 0
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if problem is not None:
            reason = reason_of(f"{name}\n{problem.get('message')}\n{problem.text}")
            failed[reason] += 1
            names.setdefault(reason, []).append(name)
        elif skip is not None:
            skipped[str(skip.get("message"))[:100]] += 1
        else:
            passed += 1
    inside = passed + sum(number for reason, number in failed.items() if reason not in OUTSIDE)
    return {
        "passed": passed,
        "failed": dict(failed.most_common()),
        "skipped": dict(skipped.most_common()),
        "share": round(passed / inside, 4) if inside else None,
        "failures": {reason: sorted(found) for reason, found in names.items()},
    }


def main() -> None:
    """Run both suites and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tests", type=Path, required=True, help="a checkout of cuda-python")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with cuda-bindings and cuda-core"
    )
    parser.add_argument("--output", type=Path, help="write the result here too")
    options, extra = parser.parse_known_args()
    result = {}
    for name, files in SUITES.items():
        folder = options.tests / name
        if not folder.is_dir():
            parser.error(f"{folder}: no such folder")
        result[name] = count(run_suite(options.python, folder, files, extra))
    text = json.dumps(result, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
