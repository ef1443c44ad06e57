"""``python -m fikitd.executor``: started by the daemon, one for each GPU and trust domain."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec
import structlog
import trio

from fikitd import __version__
from fikitd.executor.addresses import usual_stacks
from fikitd.executor.core import DispatchCore
from fikitd.executor.messages import Description
from fikitd.executor.process import ExecutorProcess, listen
from fikitd.executor.set_up import SetUpFailed, set_up
from fikitd.log import Lines, to_lines
from fikitd.scheduling.settings import SchedulingSection


def output_file() -> int:
    """Make standard output, where the driver writes what kernels print, a file that the core reads."""
    descriptor = os.memfd_create("fikit-printed")
    os.dup2(descriptor, sys.stdout.fileno())
    return descriptor


@click.command()
@click.option("--executor", required=True, help="Its name.")
@click.option("--daemon", type=int, required=True, help="Who starts it.")
@click.option("--gpu", type=int, required=True, help="The daemon's number of the GPU.")
@click.option("--device", type=int, required=True, help="The driver's number of the GPU.")
@click.option("--uuid", default="", help="The GPU, whatever its numbers.")
@click.option("--domain", required=True, help="The trust domain.")
@click.option(
    "--socket", type=click.Path(path_type=Path), required=True, help="Where to listen for the daemon."
)
@click.option("--time-scale", type=float, default=1.0, help="Host seconds per device second.")
@click.option("--board", default="", help="The file that this GPU's executors share.")
@click.option("--ledger", default="", help="The file that this tenant's executors on this GPU share.")
@click.option("--host-ledger", default="", help="The file that all of this tenant's executors share.")
@click.option("--settings", default="{}", help="Scheduling settings, as JSON.")
def main(
    executor: str,
    daemon: int,
    gpu: int,
    device: int,
    uuid: str,
    domain: str,
    socket: Path,
    time_scale: float,
    board: str,
    ledger: str,
    host_ledger: str,
    settings: str,
) -> None:
    """Hold one CUDA context and run the dispatch core on it."""
    usual_stacks()
    lines = Lines()
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            lines.name_lost,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=to_lines(lines),
    )
    log = structlog.get_logger()
    try:
        listening = listen(socket, daemon)
        section = msgspec.json.decode(settings, type=SchedulingSection)
        printed = output_file()
        ready = set_up(device, section.partitions)
        core = DispatchCore(ready, section, time_scale, board, ledger, host_ledger, printed, gpu)
    except (SetUpFailed, OSError, RuntimeError, msgspec.ValidationError) as error:
        log.error("start_failed", reason=str(error))
        sys.exit(1)

    measured = {"timer_overhead_ns": core.timer_overhead_ns, "launch_ns": core.launch_ns}
    log.info("started", policy=section.policy, **measured)

    async def serve() -> int:
        description = Description(
            executor=executor,
            pid=os.getpid(),
            gpu=gpu,
            domain=domain,
            device_name=ready.name,
            memory_bytes=ready.memory_bytes,
            time_scale=time_scale,
            policy=section.policy,
            uuid=uuid,
            release=__version__,
        )
        return await ExecutorProcess(core, description).run(listening)

    status = trio.run(serve)
    sys.stderr.flush()
    if status:
        os._exit(status)  # the driver's own clean-up of a lost context may wait for ever
    core.stop()


if __name__ == "__main__":
    main()
