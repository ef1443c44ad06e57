"""The demonstration behind ``fikitctl demo``: what priorities do to two tenants of one GPU.

Three phases, with the same two workloads: each alone, at high priority, so that nothing holds it back; both
at normal priority; and one at high priority, the other at low.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from fikit.protocol import GpuRecord, ListSessions, ReadTrace, Sessions, StartTrace, Trace

from fikitctl.chrome_trace import chrome_trace
from fikitctl.demonstration.messages import Measured, Task
from fikitctl.demonstration.phases import measured
from fikitctl.demonstration.results import Result, figures, report
from fikitctl.demonstration.workloads import WorkloadError, load_workload
from fikitctl.failures import ExitCode, refused
from fikitctl.invocation import Invocation, note
from fikitctl.output import print_json
from fikitctl.quantities import duration_text
from fikitctl.served import served

if TYPE_CHECKING:
    from fikit.control import Connection

MOST_SECONDS: Final = 5.0
MOST_HOST_SECONDS: Final = 10.0
TRACED_SECONDS: Final = 0.02
"""Of the device."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9.,_-]")
_MOST_NAME: Final = 100


def run(
    *,
    socket: str,
    gpu: int | str | None,
    seconds: float | None,
    as_json: bool,
    output: Path,
    high: str,
    low: str,
    traces: Path | None,
) -> int:
    """Measure all phases and print them. ``seconds`` of the device; None: as many as do not take long."""
    try:
        for workload in (high, low):
            load_workload(workload, traces)
    except WorkloadError as error:
        raise refused(str(error), error.hint) from error
    with Invocation(socket=socket).connected() as control:
        device = served(control, gpu)
        demonstration = _Demonstration(control, device, seconds, output, traces)
        result = demonstration.result(high, low)
    if as_json:
        print_json(result)
    else:
        click.echo(report(result, high, low), nl=False)
    return ExitCode.DONE


def usual_seconds(time_scale: float) -> float:
    """How long to measure, in the device's time, unless told otherwise."""
    return min(MOST_SECONDS, MOST_HOST_SECONDS / time_scale)


def file_name(phase: str) -> str:
    """Of its trace. A workload may be called as no file can be: by a path, or at length."""
    return f"{_UNFIT.sub('_', phase)[:_MOST_NAME]}.json"


class _Demonstration:
    """The phases on one GPU."""

    def __init__(
        self,
        control: Connection,
        device: GpuRecord,
        seconds: float | None,
        output: Path,
        traces: Path | None,
    ) -> None:
        self._control = control
        self._device = device
        self._seconds = usual_seconds(device.time_scale) if seconds is None else seconds
        self._output = output
        self._traces = traces

    def result(self, high: str, low: str) -> Result:
        """Measure."""
        self._output.mkdir(parents=True, exist_ok=True)
        each = duration_text(self._seconds * self._device.time_scale)
        note(f"four measurements of {each} on {self._device.name}; traces go to {self._output}")
        (high_alone,) = self._phase(f"alone-{high}", [(high, "high")])
        (low_alone,) = self._phase(f"alone-{low}", [(low, "high")])
        equal = self._phase("equal", [(high, "normal"), (low, "normal")])
        priority = self._phase("priority", [(high, "high"), (low, "low")])
        return Result(
            device=self._device.name,
            alone=figures(high_alone, low_alone),
            equal=figures(*equal),
            priority=figures(*priority),
        )

    def _phase(self, name: str, sides: Sequence[tuple[str, str]]) -> list[Measured]:
        """What each workload measures at its priority, beside the others."""
        note(" and ".join(f"{workload} at {priority} priority" for workload, priority in sides))
        tasks = [
            Task(
                socket=str(self._control.path),
                gpu=self._device.index,
                priority=priority,
                workload=workload,
                traces=None if self._traces is None else str(self._traces),
                seconds=self._seconds,
            )
            for workload, priority in sides
        ]
        with measured(tasks, self._device.time_scale) as results:
            self._record(self._output / file_name(name))
        return results

    def _record(self, path: Path) -> None:
        """Trace a few milliseconds of what runs now."""
        gpu = self._device.index
        self._control.request(StartTrace(gpu=gpu))
        time.sleep(TRACED_SECONDS * self._device.time_scale)
        recorded = self._control.expect(Trace, ReadTrace(gpu=gpu, stop=True))
        sessions = self._control.expect(Sessions, ListSessions()).sessions
        with path.open("wb") as file:
            file.writelines(chrome_trace(recorded, sessions, gpu))
