"""A process that replays one workload in one session: ``python -m fikitctl.demonstration.tenant TASK``.

It uses the client library as any program would; see ``messages`` for what it says to whoever started it.
"""

from __future__ import annotations

import gc
import os
import select
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fikit
import msgspec

from fikitctl.demonstration.messages import MEASURE, Failed, Measured, Ready, Task, line
from fikitctl.demonstration.replay import Enqueue, Prepared, Replay, wake_on_time
from fikitctl.demonstration.shapes import Machine, shape_of
from fikitctl.demonstration.timed_kernels import entry_names, module_text
from fikitctl.demonstration.workloads import Operation, Workload, WorkloadError, load_workload

if TYPE_CHECKING:
    from fikit import Kernel, Memory, Session, Stream

WARM_UP_STEPS: Final = 4
"""Also enough for the daemon to have measured every kernel."""
UNLIMITED_SHARED_BYTES: Final = 48 * 1024
"""Up to here a kernel may have dynamic shared memory without asking."""


class Iteration:
    """A workload's operations in a session, ready to be enqueued."""

    def __init__(self, session: Session, workload: Workload) -> None:
        self._session = session
        self._machine = Machine.of(session.device.attributes)
        names = entry_names(each.name for each in workload.operations if each.kind == "kernel")
        module = session.load(module_text(names.values()))
        self._kernels = {name: module.kernel(entry, ["u64"]) for name, entry in names.items()}
        streams = dict.fromkeys(each.stream for each in workload.operations)
        self._streams = {number: session.stream(non_blocking=True) for number in streams}
        self._buffers = _Buffers(session, workload)
        self.operations = [Prepared(each.at_us, self._prepared(each)) for each in workload.operations]
        for name, kernel in self._kernels.items():
            self._allow_shared(kernel, [each for each in workload.operations if each.name == name])

    def synchronize(self) -> None:
        """Wait for all of it."""
        for stream in self._streams.values():
            stream.synchronize()

    def _prepared(self, operation: Operation) -> Enqueue:
        stream = self._streams[operation.stream]
        if operation.kind == "gpu_memset":
            return partial(self._buffers.target.fill, 0, count=operation.bytes, stream=stream)
        if operation.copy is not None:
            return self._buffers.copying(operation, stream)
        shape = shape_of(operation, self._machine)
        return partial(
            self._kernels[operation.name].launch,
            shape.cycles,
            grid=shape.grid,
            block=shape.block,
            shared=shape.shared_bytes,
            stream=stream,
        )

    def _allow_shared(self, kernel: Kernel, launches: list[Operation]) -> None:
        most = max(shape_of(each, self._machine).shared_bytes for each in launches)
        if most > UNLIMITED_SHARED_BYTES:
            kernel.set_max_dynamic_shared(most)


class _Buffers:
    """Memory for the copies and fills: as much as the largest needs, and what none needs, none."""

    def __init__(self, session: Session, workload: Workload) -> None:
        moved = {each.copy: 0 for each in workload.operations}
        for each in workload.operations:
            moved[each.copy] = max(moved[each.copy], each.bytes)
        most = max(moved.values())
        self.target: Memory = session.allocate(max(most, 1))
        self._source: Memory | None = session.allocate(moved["on_device"]) if "on_device" in moved else None
        host_bytes = max(moved.get("to_device", 0), moved.get("to_host", 0))
        # Its stub does not say that it has the buffer protocol.
        self._host: Any = session.allocate_pinned(host_bytes) if host_bytes else None

    def copying(self, operation: Operation, stream: Stream) -> Enqueue:
        """A copy of the recorded size, in the recorded direction."""
        if operation.copy == "on_device":
            assert self._source is not None  # noqa: S101 - made for this
            return partial(self.target.copy_from_memory, self._source, size=operation.bytes, stream=stream)
        part = memoryview(self._host)[: operation.bytes]
        if operation.copy == "to_device":
            return partial(self.target.copy_from, part, wait=False, stream=stream)
        return partial(self.target.copy_to, part, wait=False, stream=stream)


def replay(task: Task) -> Iterator[Ready | Measured]:
    """Warm up, wait for the start, measure, and go on until told to stop."""
    workload = load_workload(task.workload, None if task.traces is None else Path(task.traces))
    with ExitStack() as stack:
        session = stack.enter_context(
            fikit.connect(name=workload.name, priority=task.priority, gpu=task.gpu, socket=task.socket)
        )
        iteration = Iteration(session, workload)
        loop = Replay(
            iteration.operations, workload.pause_us, iteration.synchronize, session.device.time_scale
        )
        for _ in range(WARM_UP_STEPS):
            loop.step()
        yield Ready()
        if os.read(sys.stdin.fileno(), len(MEASURE)) != MEASURE:
            return
        yield Measured(*loop.run(task.seconds, _told_to_stop))
        while not _told_to_stop():
            loop.step()
            loop.pause()


def _told_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> int:
    """Do what the argument says."""
    wake_on_time()
    gc.disable()  # nothing here makes cycles while it runs
    try:
        for message in replay(msgspec.json.decode(sys.argv[1], type=Task)):
            os.write(sys.stdout.fileno(), line(message))
    except WorkloadError as error:
        failure = Failed("invalid", str(error), error.hint)
    except fikit.RefusedError as error:
        failure = Failed(error.reason, str(error), error.hint)
    except fikit.FikitError as error:
        failure = Failed(error.code, str(error))
    except BrokenPipeError:
        return 1
    else:
        return 0
    os.write(sys.stdout.fileno(), line(failure))
    return 1


if __name__ == "__main__":
    sys.exit(main())
