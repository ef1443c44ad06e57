"""Runs programs natively and under fikitd and compares what they print: python -m bench.unmodified.

Each program runs once on the driver and once, in an executor of its own, on a daemon of our own, with a limit
on its time. A program passes when both runs print the same, numbers within a relative 1e-3. What failed under
fikitd runs again with every call logged. What lacks a library or GPUs is not run, and named.
Options: --device, --output FOLDER (everything there), --json FILE (the result), names of programs (all by
default), --seconds for each, --at-once, --beside COMMAND: that runs at high priority, and once it has printed
something the programs at low, in its executor. So the gate is tested, too; errors of one are those of all.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fikitctl.own_daemon import own_daemon

from bench import machine
from bench.found import Program, programs, versions

FIKITCTL: Final = [sys.executable, "-P", "-c", "import sys; from fikitctl.main import main; main()"]
SIMULATED: Final = [sys.executable, "-P", "-m", "fikitd.simcuda", "--"]
TOLERANCE: Final = 1e-3
PASSED: Final = "pass"
READY_SECONDS: Final = 120.0


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
    shared: Sequence[str] = ("run", "--isolate", "-p", "high", "--gpus", "all")
    """How a program is run under fikitd: by default with the GPUs that it sees natively."""


@dataclass
class Outcome:
    """A program's line of the matrix."""

    name: str
    covers: str
    verdict: str
    native_seconds: float | None = None
    fikitd_seconds: float | None = None
    not_served: list[str] = field(default_factory=list)
    detail: str = ""
    """What is to be said of a failure."""

    def line(self) -> str:
        """For people."""
        times = [
            f"{each:6.1f} s" if each is not None else " " * 8
            for each in (self.native_seconds, self.fikitd_seconds)
        ]
        return f"{self.name:24} {self.verdict:8} {' '.join(times)}  {' '.join(self.not_served)}"


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


def examine(program: Program, place: Place, seconds: float, output: Path) -> Outcome:
    """Run one program both ways."""
    name, command, seconds = program.name, program.command, max(seconds, program.seconds)
    if program.lacks:
        return Outcome(name, program.covers, program.lacks)
    native = run([*place.native, *command], seconds, {})
    log = output / f"{name}.log"
    log.unlink(missing_ok=True)  # of an earlier run
    under = [*FIKITCTL, "-H", place.socket, *place.shared, "--", *command]
    ours = run(under, seconds, {"FIKIT_SHIM_LOG": str(log)})
    for kind, result in (("native", native), ("fikit", ours)):
        (output / f"{name}.{kind}.out").write_text(result.output)
        (output / f"{name}.{kind}.err").write_text(result.errors)
    said = log.read_text(errors="replace") if log.exists() else ""
    differs = difference(native.output, ours.output)
    outcome = Outcome(
        name,
        program.covers,
        f"native run failed ({native.code})"
        if native.code != 0
        else f"FAIL ({ours.code})"
        if ours.code != 0
        else f"FAIL: {differs}"
        if differs
        else PASSED,
        round(native.seconds, 1),
        round(ours.seconds, 1),
        sorted({line.partition("not served: ")[2] for line in said.splitlines() if "not served: " in line}),
    )
    if outcome.verdict == PASSED:
        return outcome
    worse = native if native.code else ours
    outcome.detail = f"=== {name}: {outcome.verdict}\n{tail(worse.errors, 12)}\n"
    if native.code == 0:
        traced = output / f"{name}.trace"
        run(under, seconds / 2, {"FIKIT_SHIM_LOG": str(traced), "FIKIT_SHIM_TRACE": "1"})
        last = traced.read_text(errors="replace") if traced.exists() else "(no log)"
        outcome.detail += f"--- log\n{tail(said, 14)}\n--- last calls\n{tail(last, 10)}\n"
    return outcome


@contextlib.contextmanager
def beside(command: str, socket: str, output: Path) -> Iterator[None]:
    """A program of high priority that runs meanwhile, from when it has printed something on."""
    if not command:
        yield
        return
    said = output / "beside.out"
    with said.open("w") as log:
        high = subprocess.Popen(
            [*FIKITCTL, "-H", socket, "run", "-p", "high", "--", *shlex.split(command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            until = time.monotonic() + READY_SECONDS
            while said.stat().st_size == 0 and high.poll() is None:
                if time.monotonic() > until:
                    raise SystemExit(f"{command!r} printed nothing within {READY_SECONDS:.0f} s")
                time.sleep(0.05)
            yield
            if high.poll() is not None:
                raise SystemExit(f"{command!r} ended meanwhile: {said}")
        finally:
            high.terminate()
            high.wait(10)


def examine_all(found: list[Program], options: argparse.Namespace, output: Path) -> Iterator[Outcome]:
    """Several at once; each when it is done."""
    with own_daemon(options.device) as socket:
        natively = SIMULATED if options.device == "sim" else []
        place = Place(socket, natively, ("run", "-p", "low")) if options.beside else Place(socket, natively)
        with (
            beside(options.beside, socket, output),
            concurrent.futures.ThreadPoolExecutor(options.at_once) as several,
        ):
            waiting = [several.submit(examine, each, place, options.seconds, output) for each in found]
            for each in concurrent.futures.as_completed(waiting):
                yield each.result()
        for log in Path(socket).parent.glob("state/logs/*.log"):
            shutil.copy(log, output)
        shutil.copy(Path(socket).with_name("log"), output / "daemon.log")


def matrix(outcomes: list[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    """The result so far."""
    rows = [asdict(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.name)]
    for row in rows:
        del row["detail"]
    return {**about, "programs": rows}


def main() -> None:
    """Print a line for each program, then what is known of the failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--beside", default="", metavar="COMMAND")
    options = parser.parse_args()
    devices = machine.devices(parser, options.device)
    output = options.output or Path(tempfile.mkdtemp(prefix="fikit-unmodified-"))
    output.mkdir(parents=True, exist_ok=True)
    try:
        found = programs(options.programs, output, options.seconds, len(devices))
    except ValueError as error:
        parser.error(str(error))
    about: dict[str, Any] = {
        **machine.about("unmodified", devices[0]),
        "gpus": len(devices),
        "libraries": versions(found),
    }
    outcomes = []
    for outcome in examine_all(found, options, output):
        outcomes.append(outcome)
        print(outcome.line(), flush=True)
        if options.json:  # anew each time: a run that is cut leaves what it has
            options.json.write_text(json.dumps(matrix(outcomes, about), indent=1) + "\n")
    print("".join(outcome.detail for outcome in outcomes), flush=True)


if __name__ == "__main__":
    main()
