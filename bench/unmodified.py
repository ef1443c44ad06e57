"""Runs programs natively and under fikitd and compares what they print: python -m bench.unmodified.

Each program runs once on the driver and once, in an executor of its own, on a daemon of our own, with a limit
on its time. A program passes when both runs print the same, numbers within a relative 1e-3. What failed under
fikitd runs again with every call logged. Options: --device, --output FOLDER (everything there), names of
programs (all by default), --seconds for each.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fikitctl.own_daemon import own_daemon

PROGRAMS: Final = Path(__file__).with_name("programs")
FIKITCTL: Final = [sys.executable, "-P", "-c", "import sys; from fikitctl.main import main; main()"]
SIMULATED: Final = [sys.executable, "-P", "-m", "fikitd.simcuda", "--"]
GUARD: Final = (
    "import faulthandler, runpy, sys; faulthandler.enable();"
    " faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True);"
    " sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
TOLERANCE: Final = 1e-3
AT_ONCE: Final = 4


@dataclass
class Run:
    """One run of a program."""

    code: int | str
    output: str
    errors: str
    seconds: float


@dataclass
class Place:
    """Where programs run: the daemon's socket, and what stands before a command that runs natively."""

    socket: str
    native: list[str]


def runtime_programs(folder: Path) -> dict[str, list[str]]:
    """The C++ program with both forms of the runtime; nothing where there is no compiler."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        return {}
    found = {}
    for kind in ("static", "shared"):
        program = folder / f"runtime_{kind}"
        source = str(PROGRAMS / "runtime.cu")
        built = subprocess.run(
            [nvcc, "-arch=native", f"--cudart={kind}", "-o", str(program), source],
            capture_output=True,
            text=True,
        )
        if built.returncode == 0:
            found[program.name] = [str(program)]
        else:
            print(f"{program.name}: {built.stderr[-500:]}")
    return found


def run(command: list[str], seconds: float, environment: dict[str, str]) -> Run:
    """Run a command; whatever it does, this comes back."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **environment},
    )
    code: int | str
    try:
        output, errors = process.communicate(timeout=seconds + 5)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            output, errors = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            output = errors = ""
        code = "time is up"
    return Run(code, output, errors, time.monotonic() - began)


def same(one: str, other: str) -> bool:
    """Whether two words are the same, or numbers that hardly differ."""
    strip = "[](),"
    try:
        return math.isclose(
            float(one.strip(strip)), float(other.strip(strip)), rel_tol=TOLERANCE, abs_tol=1e-5
        )
    except ValueError:
        return one == other


def difference(native: str, ours: str) -> str:
    """The first line that differs; empty when none does."""
    for one, other in zip(native.splitlines(), ours.splitlines(), strict=False):
        words, others = one.split(), other.split()
        if len(words) != len(others) or not all(map(same, words, others)):
            return f"natively {one!r}, here {other!r}"
    if len(native.splitlines()) != len(ours.splitlines()):
        return f"{len(native.splitlines())} lines natively, {len(ours.splitlines())} here"
    return ""


def tail(text: str, lines: int) -> str:
    """The last lines, shortened."""
    return "\n".join(line[:400] for line in text.splitlines()[-lines:])


def examine(name: str, command: list[str], place: Place, seconds: float, output: Path) -> tuple[str, str]:
    """Run one program both ways. Returns its line of the table, and what is to be said of a failure."""
    native = run([*place.native, *command], seconds, {})
    log = output / f"{name}.log"
    under = [*FIKITCTL, "-H", place.socket, "run", "--isolate", "-p", "high", "--", *command]
    ours = run(under, seconds, {"FIKIT_SHIM_LOG": str(log)})
    for kind, result in (("native", native), ("fikit", ours)):
        (output / f"{name}.{kind}.out").write_text(result.output)
        (output / f"{name}.{kind}.err").write_text(result.errors)
    said = log.read_text(errors="replace") if log.exists() else ""
    missing = sorted(
        {line.partition("not served: ")[2] for line in said.splitlines() if "not served: " in line}
    )
    differs = difference(native.output, ours.output)
    if native.code != 0:
        verdict = f"native run failed ({native.code})"
    elif ours.code != 0:
        verdict = f"FAIL ({ours.code})"
    else:
        verdict = f"FAIL: {differs}" if differs else "pass"
    line = f"{name:16} {verdict:8} {native.seconds:6.1f} s {ours.seconds:6.1f} s  {' '.join(missing)[:200]}"
    if verdict == "pass":
        return line, ""
    detail = f"=== {name}: {verdict}\n{tail((native if native.code else ours).errors, 12)}\n"
    if native.code == 0:
        traced = output / f"{name}.trace"
        run(under, seconds / 2, {"FIKIT_SHIM_LOG": str(traced), "FIKIT_SHIM_TRACE": "1"})
        last = traced.read_text(errors="replace") if traced.exists() else "(no log)"
        detail += f"--- log\n{tail(said, 14)}\n--- last calls\n{tail(last, 10)}\n"
    return line, detail


def main() -> None:
    """Print a line for each program, then what is known of the failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    output = chosen.output or Path(tempfile.mkdtemp(prefix="fikit-unmodified-"))
    output.mkdir(parents=True, exist_ok=True)
    commands = {} if chosen.programs and "runtime" not in chosen.programs else runtime_programs(output)
    for path in sorted(PROGRAMS.glob("*.py")):
        if not chosen.programs or path.stem in chosen.programs:
            commands[path.stem] = [sys.executable, "-P", "-c", GUARD, str(chosen.seconds), str(path)]
    details = []
    with own_daemon(chosen.device) as socket:
        place = Place(socket, SIMULATED if chosen.device == "sim" else [])
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as several:
            waiting = [
                several.submit(examine, name, command, place, chosen.seconds, output)
                for name, command in commands.items()
            ]
            for each in concurrent.futures.as_completed(waiting):
                line, detail = each.result()
                print(line, flush=True)
                details.append(detail)
        for log in Path(socket).parent.glob("state/logs/*.log"):
            shutil.copy(log, output)
        shutil.copy(Path(socket).with_name("log"), output / "daemon.log")
    print("".join(details), flush=True)


if __name__ == "__main__":
    main()
