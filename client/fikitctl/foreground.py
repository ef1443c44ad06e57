"""Run a child as a shell would: its own process group, our signals passed on, its exit code ours.

The child leads a process group of its own, because that is what the daemon ends when the job is killed;
sharing ours would end the caller's script with it. At a terminal a background group may write but is
stopped when it reads; then we lend it the terminal (``_lend_terminal``), so that a debugger's prompt works
and ``fikitctl run ... | less`` still leaves the keyboard to less. Signals are taken one at a time with
sigwaitinfo: nothing is lost between the start of the child and the wait for it.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from fikitctl.failures import CommandError, ExitCode

_PASSED_ON: Final = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGTSTP,
        signal.SIGCONT,
    }
)
_WATCHED: Final = _PASSED_ON | {signal.SIGCHLD}
_NOT_FOUND: Final = b"?"
_NO_FORMAT: Final = "no program for this machine, nor a script that begins with #! (as in #!/bin/sh)"
"""Shells run a script without that by themselves; who calls execve(2) does not."""


def _ways(name: str, environment: Mapping[str, str]) -> list[str]:
    """Where a command may be, as its own PATH says (posix_spawnp(3) would go by ours)."""
    if "/" in name:
        return [name]
    return [os.path.join(folder, name) for folder in os.get_exec_path(environment) if name]


def _execute(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Become the command; why it is not to be executed, None where it is not to be found."""
    failure: str | None = None
    for way in _ways(command[0], environment):
        try:
            os.execve(way, list(command), dict(environment))
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                failure = failure or (_NO_FORMAT if error.errno == errno.ENOEXEC else error.strerror)
            elif os.path.exists(way):  # what a script's first line names, or a program's loader
                failure = failure or "interpreter not found"
    return failure


class Foreground:
    """A child and the signals between it and us. Use as a context manager around the child's life."""

    def __init__(self) -> None:
        self.pid = 0
        self._mask: set[int] = set()
        self._child_handler: Any = None
        self._terminal: int | None = None
        self._wants_terminal = False
        self.had_terminal = False
        """At its end."""

    def __enter__(self) -> Foreground:
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED))
        # Ignored, as our caller may have it, it never comes.
        self._child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *_error: object) -> None:
        self._take_terminal()
        if self._terminal is not None:
            os.close(self._terminal)
        signal.signal(signal.SIGCHLD, self._child_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], known: Callable[[int], None]
    ) -> int:
        """Start the child; its process id. Raises CommandError as the shell's 126 and 127.

        It becomes the command once ``known`` was told of it, and ends with us before: nobody would watch it.
        """
        try:
            heard, say = os.pipe2(os.O_CLOEXEC)
            told, tell = os.pipe2(os.O_CLOEXEC)
            self.pid = os.fork()
        except OSError as error:
            message = f"{command[0]}: {error.strerror}"
            raise CommandError(ExitCode.NOT_EXECUTABLE, "not_executable", message) from None
        if self.pid == 0:
            os.close(say)
            self._become(command, environment, heard, tell)
        os.close(heard)
        os.close(tell)
        # Signals that come now have a group to go to.
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(self.pid, self.pid)
        known(self.pid)
        with suppress(BrokenPipeError):
            os.write(say, b".")
        os.close(say)
        with open(told, "rb") as failed:
            failure = failed.read()
        if not failure:
            return self.pid
        os.waitpid(self.pid, 0)
        if failure == _NOT_FOUND:
            message = f"{command[0] or repr(command[0])}: command not found"
            raise CommandError(ExitCode.COMMAND_NOT_FOUND, "command_not_found", message)
        message = f"{command[0]}: {failure.decode(errors='replace')}"
        raise CommandError(ExitCode.NOT_EXECUTABLE, "not_executable", message)

    def _become(
        self, command: Sequence[str], environment: Mapping[str, str], heard: int, tell: int
    ) -> NoReturn:
        """In the child: wait until we are known, and turn into the command or tell why not."""
        try:
            os.setpgid(0, 0)
            ours = [number for number in _PASSED_ON if callable(signal.getsignal(number))]
            for number in (*ours, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
                signal.signal(number, signal.SIG_DFL)
            if os.read(heard, 1):
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
                os.write(tell, (_execute(command, environment) or "").encode() or _NOT_FOUND)
        except Exception as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(ExitCode.NOT_EXECUTABLE)

    def wait(self) -> int:
        """Pass signals on until the child has ended; its exit code, minus the signal when one ended it."""
        while True:
            received = signal.sigwaitinfo(_WATCHED).si_signo
            if received != signal.SIGCHLD:
                self._pass_on(received)
                continue
            ended, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if ended == 0:
                continue
            if os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
                continue
            self.had_terminal = self._take_terminal()
            return os.waitstatus_to_exitcode(status)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGCONT and self._wants_terminal:
            self._lend_terminal()
        with suppress(ProcessLookupError, PermissionError):  # its group is another's by now
            os.killpg(self.pid, number)

    def _stopped(self, number: int) -> None:
        """The child was stopped: by the terminal, then stop like it, so that the shell's fg and bg work.

        Where it has the terminal, also if it was stopped outright, as some programs suspend themselves (nano,
        bash): nobody else could be typed to.
        """
        if number == signal.SIGSTOP:
            if self._take_terminal():
                os.kill(0, signal.SIGSTOP)
            return
        self._wants_terminal = self._wants_terminal or number != signal.SIGTSTP
        if number != signal.SIGTSTP and self._lend_terminal():
            os.killpg(self.pid, signal.SIGCONT)
            return
        # Where the child had the terminal, its group was stopped in place of ours: a script, a pipe. In one
        # call: once one of ours has stopped, the shell may continue us all.
        os.kill(0 if self._take_terminal() else os.getpid(), signal.SIGSTOP)

    def _lend_terminal(self) -> bool:
        """Make the child's group the terminal's foreground; false where that is not ours to do."""
        try:
            if self._terminal is None:
                self._terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
            if os.tcgetpgrp(self._terminal) != os.getpgrp():
                return False
            os.tcsetpgrp(self._terminal, self.pid)
        except OSError:
            return False
        return True

    def _take_terminal(self) -> bool:
        """Undo ``_lend_terminal``; false where the child had it not. Needs SIGTTOU out of the way."""
        if self._terminal is None:
            return False
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        taken = False
        with suppress(OSError):  # the terminal may be gone
            if taken := os.tcgetpgrp(self._terminal) == self.pid:
                os.tcsetpgrp(self._terminal, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU} - self._mask)
        return taken
