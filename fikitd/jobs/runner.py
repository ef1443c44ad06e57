"""One job's parent: ``python -m fikitd.jobs.runner DIRECTORY``. Outlives the daemon, like containerd's shims.

It switches to the submitting user only in the child, so the user can change neither the output files nor
the exit code. It is the command's parent, so the signal it sends always reaches the right process group.
When the command ends, what is left of its process group is killed, so a job that is over holds nothing; the
daemon does that when the runner itself was killed. Of the group only what is the job's user's is meant
(process_group.py).
Standard library only, one thread: it may fork safely and starts quickly.
"""

from __future__ import annotations

import errno
import gc
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from fikitd.clock import LATE_SECONDS, LONGEST_SECONDS
from fikitd.jobs import files
from fikitd.process_group import signal_group
from fikitd.process_times import start_time

CHUNK_BYTES: Final = 65536
MARK_ROOM_BYTES: Final = 8192
"""Whole blocks of a file system are free once these are."""
SHORT: Final = {errno.EAGAIN, errno.ENFILE, errno.ENOMEM}
"""What a command needs to begin there may be none of just now (fork(2), execve(2)): a job that has waited for
its turn is not given up for that."""
PAUSE_SECONDS: Final = 0.1
LINGER_SECONDS: Final = 1.0
"""After the command's end, read what is still in its pipes for at most this long."""


class Output:
    """One output of the command: kept in a file up to the limit, then discarded behind a marker."""

    def __init__(self, path: Path, limit: int) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)  # the command may open /dev/stdout and take what was there
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = limit
        self._limit = limit
        self._stopped = False

    def pump(self) -> bool:
        """Move what is there; False at the end."""
        try:
            data = os.read(self.reader, CHUNK_BYTES)
        except BlockingIOError:
            return True
        if data and not self._stopped:
            kept = data[: self._left]
            try:
                self._write(kept)
                self._left -= len(kept)
                if len(kept) < len(data):
                    self._stop(f"limit of {self._limit} bytes reached")
            except OSError as error:
                self._stop(str(error.strerror))
        return bool(data)

    def _stop(self, why: str) -> None:
        self._stopped = True
        mark = f"\n[fikitd: {why}; further output is discarded]\n".encode()
        try:
            self._write(mark)
        except OSError:
            with suppress(OSError):  # no room even for that: it takes the place of the last output
                os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - MARK_ROOM_BYTES))
                self._write(mark)

    def _write(self, data: bytes) -> None:
        """All of it. Raises OSError: a file system that is nearly full takes a part first."""
        while data:
            data = data[os.write(self._file, data) :]


class Runner:
    """The loop around one command."""

    def __init__(self, directory: Path, spec: dict[str, Any]) -> None:
        self._directory = directory
        self._spec = spec
        self._exit = files.take_space(directory / files.EXIT)
        limit = int(spec["output_limit_bytes"])
        self._outputs = [Output(directory / name, limit) for name in files.OUTPUTS]
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._control = os.open(files.make_control(directory), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._kill_at: float | None = None
        self._pid = 0
        self._error = b""
        """What kept the child from becoming the command."""

    def run(self) -> None:
        """Start the command, see it through, write down how it ended."""
        if not self._start():
            self._end(128 + signal.SIGTERM, "")
            return
        while not self._turn():
            pass
        self._signal(signal.SIGKILL)
        for key in list(self._selector.get_map().values()):
            if key.data == "ended":
                self._selector.unregister(key.fd)
            elif key.data == "told":
                while self._hear(key.fd):
                    pass
                self._selector.unregister(key.fd)
        self._drain()
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)  # negative: the signal that ended it
        self._end(code if code >= 0 else 128 - code, self._error.decode(errors="replace"))

    def _end(self, code: int, error: str) -> None:
        ending = {"exit_code": code, "unix": time.time(), "error": error[: files.MOST_WHY]}
        files.fill_space(self._directory / files.EXIT, self._exit, ending)

    def _turn(self) -> bool:
        """Serve what is ready; True once the command has ended. It stays unreaped, so its pid is ours."""
        ended = False
        for key, _ in self._wait():
            if isinstance(key.data, Output):
                self._pump(key.data)
            elif key.data == "control":
                self._obey()
            elif key.data == "told":
                if not self._hear(key.fd):
                    self._selector.unregister(key.fd)
            else:
                ended = True
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)
        return ended

    def _wait(self) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready. While the machine is paused the command has none of its grace."""
        if self._kill_at is None:
            return self._selector.select()
        begun = time.monotonic()
        waits = min(LONGEST_SECONDS, max(0.0, self._kill_at - begun))
        ready = self._selector.select(waits)
        self._kill_at += max(0.0, time.monotonic() - begun - waits - LATE_SECONDS)
        return ready

    def _hear(self, told: int) -> bool:
        """What the child says; False once it has become the command, or cannot."""
        said = os.read(told, CHUNK_BYTES)
        self._error += said
        return bool(said)

    def _pump(self, output: Output) -> None:
        if not output.pump():
            self._selector.unregister(output.reader)

    def _drain(self) -> None:
        """Processes outside the group may hold the pipes open: wait for their end only so long."""
        end = time.monotonic() + LINGER_SECONDS
        while any(isinstance(key.data, Output) for key in self._selector.get_map().values()):
            ready = self._selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                if isinstance(key.data, Output):
                    self._pump(key.data)
            if not ready or time.monotonic() > end:
                return

    def _obey(self) -> None:
        for line in os.read(self._control, 4096).decode(errors="replace").splitlines():
            number, _, grace = line.partition(" ")
            if number.isdigit() and grace.isdigit():
                self._signal(int(number))
                kill_at = time.monotonic() + int(grace) / 1000
                self._kill_at = min(kill_at, self._kill_at or kill_at)

    def _signal(self, number: int) -> None:
        while True:
            try:
                return signal_group(self._pid, number, self._spec["uid"])
            except (ProcessLookupError, PermissionError):
                return None
            except OSError as error:
                if error.errno not in SHORT:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _start(self) -> bool:
        """Fork, and let the child become the command; False where the job was asked to end before.

        It begins once it is noted and followed: whatever kills us, the daemon knows what is left to be ended,
        and if what we need cannot be had, nothing has begun: there will be another runner. It is noted once
        it leads its session and is its user's: who sets a nice value or sends a signal means all of that.
        """
        path = self._directory / files.STARTED
        space = files.take_space(path)
        told, tell = os.pipe2(os.O_CLOEXEC)
        noted, note = os.pipe2(os.O_CLOEXEC)
        while not (self._directory / files.KILL).exists():
            try:
                self._pid = os.fork()
                break
            except OSError as error:
                if error.errno not in SHORT:
                    raise
            time.sleep(PAUSE_SECONDS)
        else:
            return False
        if self._pid == 0:
            os.close(note)
            become(self._spec, self._null, self._outputs, tell, noted)
        os.close(tell)
        os.close(noted)
        os.read(told, 1)
        for output in self._outputs:
            os.close(output.writer)
            self._selector.register(output.reader, selectors.EVENT_READ, output)
        self._selector.register(self._control, selectors.EVENT_READ, "control")
        self._selector.register(os.pidfd_open(self._pid), selectors.EVENT_READ, "ended")
        self._selector.register(told, selectors.EVENT_READ, "told")
        started = {"pid": self._pid, "began": start_time(self._pid), "unix": time.time()}
        files.fill_space(path, space, started)
        with suppress(BrokenPipeError):
            os.write(note, b".")
        os.close(note)
        return True


def become(spec: dict[str, Any], null: int, outputs: list[Output], tell: int, noted: int) -> NoReturn:
    """In the child: turn into the command, as its user; the directory is entered as that user, too."""
    code, subject = 126, f"user {spec['uid']}"
    try:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)  # before it is known: what it is sent then must not be lost
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        try:
            if os.geteuid() == 0:
                for output in outputs:  # else its user may not open /dev/stderr, which is a pipe of ours
                    os.fchown(output.writer, spec["uid"], spec["gid"])
                os.setgroups(spec["groups"])
                os.setresgid(spec["gid"], spec["gid"], spec["gid"])
                os.setresuid(spec["uid"], spec["uid"], spec["uid"])
        finally:
            os.write(tell, b".")
        if not os.read(noted, 1):  # our parent is gone
            os._exit(code)
        for target, source in enumerate([null, outputs[0].writer, outputs[1].writer]):
            os.dup2(source, target)
        os.umask(spec.get("umask", 0o022))  # an older daemon wrote none
        while True:
            try:
                subject = spec["directory"]
                os.chdir(subject)
                subject = spec["command"][0]  # of the ways that PATH has to it, an error names the last
                if not subject:  # to Python a wrong argument
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                os.execvpe(subject, spec["command"], spec["environment"])
            except OSError as error:
                if error.errno not in SHORT:
                    raise
            time.sleep(PAUSE_SECONDS)
    except OSError as error:
        why = error.strerror
        if error.errno == errno.ENOEXEC:
            why = "No program for this machine, nor a script that begins with #! (as in #!/bin/sh)"
        elif isinstance(error, FileNotFoundError) and is_there(subject, spec["environment"]):
            why = "Interpreter not found"
        elif isinstance(error, FileNotFoundError):
            code = 127
        say(f"{why}: {subject or repr(subject)}", tell, outputs)
    except Exception as error:
        say(f"{type(error).__name__}: {error}", tell, outputs)
    finally:
        os._exit(code)


def is_there(name: str, environment: dict[str, str]) -> bool:
    """Whether a file has this name, or the PATH's way to one: then what it is run by is missing."""
    folders = [""] if "/" in name else os.get_exec_path(environment)
    return any(os.path.isfile(os.path.join(folder, name)) for folder in folders)


def say(why: str, tell: int, outputs: list[Output]) -> None:
    """For the job's record, and among its output, as a shell would; the pipes have room for as much."""
    why = why[: files.MOST_WHY]
    os.write(tell, why.encode())
    os.write(outputs[1].writer, f"fikitd: {why}\n".encode())


def leave_protection() -> None:
    """A job must not inherit the daemon's protection from the out-of-memory killer."""
    try:
        Path("/proc/self/oom_score_adj").write_text("0")
    except OSError:
        return


def main() -> int:
    """Run the job of the directory named on the command line."""
    directory = Path(sys.argv[1])
    gc.freeze()  # what importing made stays: it is not looked through as we end, which is waited for
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, as our caller may, learns no exit code
    leave_protection()
    if files.lock(directory) is None or (directory / files.EXIT).exists():
        return 1
    spec = files.read(directory / files.SPEC)
    if spec is None:
        return 1
    Runner(directory, spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
