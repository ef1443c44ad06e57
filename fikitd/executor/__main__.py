"""``python -m fikitd.executor``: started by the daemon, one for each GPU and trust domain."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import msgspec
import structlog
import trio

from fikitd import __version__
from fikitd.executor.addresses import usual_stacks
from fikitd.executor.core import DispatchCore
from fikitd.executor.messages import Description, Start
from fikitd.executor.process import ExecutorProcess, listen
from fikitd.executor.set_up import SetUpFailed, set_up
from fikitd.log import Lines, to_lines
from fikitd.scheduling.settings import SchedulingSection


def output_file() -> int:
    """Make standard output, where the driver writes what kernels print, a file that the core reads."""
    descriptor = os.memfd_create("fikit-printed")
    os.dup2(descriptor, sys.stdout.fileno())
    return descriptor


def main() -> None:
    """Hold one CUDA context and run the dispatch core on it."""
    usual_stacks()
    lines = Lines()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            lines.name_lost,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=to_lines(lines),
    )
    log = structlog.get_logger()
    try:
        start = Start.of(sys.argv[1:])
        listening = listen(Path(start.socket), start.daemon)
        section = msgspec.json.decode(start.settings, type=SchedulingSection)
        printed = output_file()
        ready = set_up(start.device, section.partitions)
        core = DispatchCore(
            ready,
            section,
            start.time_scale,
            start.board,
            start.ledger,
            start.host_ledger,
            printed,
            start.gpu,
        )
    except (SetUpFailed, OSError, RuntimeError, msgspec.ValidationError) as error:
        log.error("start_failed", reason=str(error))
        sys.exit(1)

    measured = {"timer_overhead_ns": core.timer_overhead_ns, "launch_ns": core.launch_ns}
    log.info("started", policy=section.policy, **measured)

    async def serve() -> int:
        description = Description(
            executor=start.executor,
            pid=os.getpid(),
            gpu=start.gpu,
            domain=start.domain,
            device_name=ready.name,
            memory_bytes=ready.memory_bytes,
            time_scale=start.time_scale,
            policy=section.policy,
            uuid=start.uuid,
            release=__version__,
        )
        return await ExecutorProcess(core, description).run(listening)

    gc.freeze()  # what importing made stays: nothing of it is ever garbage, nor when Python ends
    status = trio.run(serve)
    sys.stderr.flush()
    if status:
        os._exit(status)  # the driver's own clean-up of a lost context may wait for ever
    core.stop()


if __name__ == "__main__":
    main()
