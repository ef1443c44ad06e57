"""NVIDIA's Multi-Process Service: its control daemon, which ours starts, watches and stops.

Executors of several trust domains on one GPU take turns by the driver's time slices (1.9 ms on an H200)
unless they are clients of MPS, whose kernels run side by side (15 us from launch to completion beside another
client's). What they share then is also a fault: one that takes a client's context takes all of them. So an
isolated executor is never a client.

Like an executor it outlives a daemon that is killed, and the next one takes it over: what it started is noted
with the pid and the start time. Source: NVIDIA, "Multi-Process Service", sections 4 and 5.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio
from fikit.protocol import UNDECODABLE

from fikitd.events import Events
from fikitd.launch import Launch, launch
from fikitd.process_times import began_then, start_time
from fikitd.processes import Process
from fikitd.scarcity import in_thread, once_there_is_a_thread, patiently

CONTROL: Final = "nvidia-cuda-mps-control"
UNIT: Final = "fikitd-executor-mps"
"""Under systemd; it may what an executor may."""
START_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
STOP_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.01, 0.2
"""After its end, before it is started again."""


class Note(msgspec.Struct, frozen=True):
    """Which process it is."""

    pid: int
    started: int


class Mps:
    """The control daemon. ``environment`` makes a process its client; empty while it does not serve."""

    def __init__(self, wanted: bool, runtime: Path, logs: Path, events: Events) -> None:
        self._wanted = wanted
        self._pipes = runtime / "mps"
        self._note = runtime / "mps.json"
        self._logs = logs
        self._events = events
        self._process: Process | None = None
        self._stopping = False
        self._beginning = trio.Lock()
        """Held while it is taken over or started: whoever stops it must know of it by then."""
        self._over = trio.Event()
        self.environment: Mapping[str, str] = {}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it running; started once it serves, or is known not to. Never raises."""
        try:
            while self._wanted and not self._stopping:
                async with self._beginning:
                    process, taken_over = await self._adopt(), True
                    if process is None:
                        process, taken_over = await self._start(), False
                    if process is None:
                        return
                    self._process, self.environment = process, self._places()
                self._events.tell("mps_started", pid=process.pid, taken_over=taken_over)
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await process.wait()
                self._process, self.environment = None, {}
                process.close()
                if not self._stopping:
                    self._events.tell("mps_ended", warning=True)
                    await trio.sleep(RETRY_SECONDS)
        finally:
            self._over.set()
            task_status.started()

    async def stop(self) -> None:
        """Stop it, once its clients have ended."""
        self._stopping = True
        async with self._beginning:
            process = self._process
        if process is None:
            return
        await self._ask(f"quit -t {STOP_SECONDS:.0f}")
        with trio.move_on_after(STOP_SECONDS) as patience:
            await self._over.wait()
        if patience.cancelled_caught:
            process.send(signal.SIGKILL)
            await self._over.wait()
        await in_thread(self._note.unlink, True)

    def _places(self) -> dict[str, str]:
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self._pipes), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}

    async def _adopt(self) -> Process | None:
        """What an earlier daemon started, if it lives and answers.

        One that hangs is ended: it would keep the GPU and its unit's name, and nobody would know of it.
        """
        try:
            note = msgspec.json.decode(await in_thread(self._note.read_bytes), type=Note)
        except (OSError, *UNDECODABLE):
            return None
        process = Process.by_pid(note.pid)
        if process is None:
            return None
        if await patiently(lambda: began_then(note.pid, note.started)):
            if await self._serves(process):
                return process
            await process.end(STOP_SECONDS)
        process.close()
        return None

    async def _start(self) -> Process | None:
        """A new one; None, and an event with the reason, where there can be none."""
        program = shutil.which(CONTROL)
        if program is None:
            self._unavailable(f"{CONTROL} is not installed")
            return None
        log = self._logs / "mps-control.log"
        try:
            await in_thread(self._clear)
            process = await launch(Launch(UNIT, [program, "-f"], log, self._places()))
        except OSError as error:
            self._unavailable(str(error))
            return None
        began = await patiently(lambda: start_time(process.pid))
        note = Note(process.pid, began or 0)
        try:
            await in_thread(self._note.write_bytes, msgspec.json.encode(note))
        except OSError as error:  # the next daemon could not take it over
            await self._give_up(process, str(error))
            return None
        if await self._serves(process):
            return process
        await self._give_up(process, f"it did not serve within {START_SECONDS:g} s; see {log}")
        return None

    async def _serves(self, process: Process) -> bool:
        """Whether it does before it ends or patience does."""
        serves = False
        with trio.move_on_after(START_SECONDS):
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await process.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                await self._serving()
                serves = True
                nursery.cancel_scope.cancel()
        return serves

    async def _give_up(self, process: Process, reason: str) -> None:
        await process.end(STOP_SECONDS)
        process.close()
        self._unavailable(reason)

    async def _serving(self) -> None:
        """Return once it serves, of which it tells nobody: ask at growing intervals."""
        pause = FIRST_RETRY_SECONDS
        while True:
            if await self._ask("get_server_list"):
                return
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_SECONDS)

    def _clear(self) -> None:
        shutil.rmtree(self._pipes, ignore_errors=True)
        self._pipes.mkdir(mode=0o700)

    def _unavailable(self, reason: str) -> None:
        self._events.tell("mps_unavailable", reason=reason, warning=True)

    async def _ask(self, command: str) -> bool:
        """Say something to it; whether it took it."""
        if not await in_thread((self._pipes / "control").exists):
            return False
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                done = await once_there_is_a_thread(
                    partial(
                        trio.run_process,
                        [CONTROL],
                        stdin=f"{command}\n".encode(),
                        capture_stdout=True,
                        capture_stderr=True,
                        check=False,
                        env={**os.environ, **self._places()},
                    )
                )
            except OSError:  # no descriptor or process is left just now
                return False
            return done.returncode == 0
        return False
