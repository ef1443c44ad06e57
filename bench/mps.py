"""NVIDIA's Multi-Process Service, started and stopped for a benchmark in directories of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CONTROL: Final = "nvidia-cuda-mps-control"
START_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 20.0


class MpsUnavailableError(Exception):
    """MPS cannot be had here; the message says why."""


class Mps:
    """A control daemon. Clients are processes that are started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        if shutil.which(CONTROL) is None:
            raise MpsUnavailableError(f"{CONTROL} is not installed")
        pipes, logs = folder / "mps-pipes", folder / "mps-logs"
        pipes.mkdir()
        logs.mkdir()
        self.environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(logs),
        }
        self._log = logs / "control.log"
        self._process = subprocess.Popen(
            [CONTROL, "-f"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + START_SECONDS
        while not (pipes / "control").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise MpsUnavailableError(f"{CONTROL} did not start: {self._last_words()}")
            time.sleep(0.05)

    def expect_clients(self, pids: Iterable[int]) -> None:
        """Raise MpsUnavailableError unless these processes are clients: who finds no MPS goes without."""
        servers = self._ask("get_server_list").split()
        clients = {word for server in servers for word in self._ask(f"get_client_list {server}").split()}
        if missing := [pid for pid in pids if str(pid) not in clients]:
            raise MpsUnavailableError(f"processes {missing} did not become clients: {self._last_words()}")

    def close(self) -> None:
        """Stop it; its clients have ended."""
        if self._process.poll() is None:
            try:
                self._ask("quit -t 5")
                self._process.wait(ANSWER_SECONDS)
            except (MpsUnavailableError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()

    def _ask(self, command: str) -> str:
        try:
            done = subprocess.run(
                [CONTROL], input=command + "\n", env=self.environment, capture_output=True, text=True,
                timeout=ANSWER_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise MpsUnavailableError(f"{CONTROL} does not answer {command}") from None
        return done.stdout

    def _last_words(self) -> str:
        return (
            self._log.read_text(errors="replace")[-300:].strip() if self._log.exists() else "it wrote no log"
        )
