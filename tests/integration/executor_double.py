"""A stand-in for an executor: the real messages on a real socket, real memories and lifelines, no GPU.

It speaks fikitd.executor.messages as the real one must, from a process of its own, so that all of the
daemon's behaviour can be tested without a device. What a test wants of it goes through session names:
``unattachable`` is refused, ``deaf`` makes it stop answering, ``crash`` ends it, ``busy`` uses memory,
``gated`` has waited at the gate, of ``flood`` there is always more to trace.
"""

from __future__ import annotations

import argparse
import array
import os
import selectors
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

from fikit.protocol import Decoder, Failure, GateStatistics, KernelProfile, TraceOperation, Usage, encode

from fikitd import __version__
from fikitd.executor import messages as m

BUSY_USAGE = Usage(gpu_ns=1000, launches=10, operations=20, memory_bytes=1 << 20, memory_peak_bytes=1 << 20)
GATED = GateStatistics(filled=4, filled_ns=4_000_000, refused={"bound": 7}, delays=2, worst_delay_ns=9000)


@dataclass
class Attachment:
    attach: m.Attach
    lifeline: socket.socket
    pidfd: int
    memories: list[int] = field(default_factory=list)
    paused: bool = False
    priority: int = 5
    weight: float = 1.0

    def listed(self) -> m.AttachedSession:
        return m.AttachedSession(
            session=self.attach.session,
            tenant=self.attach.tenant,
            uid=self.attach.uid,
            pid=self.attach.pid,
            name=self.attach.name,
            job=self.attach.job,
            priority=self.priority,
            weight=self.weight,
            paused=self.paused,
            memory_limit_bytes=self.attach.memory_limit_bytes,
            usage=self.usage(),
            gate=self.gate(),
        )

    def usage(self) -> Usage:
        return BUSY_USAGE if self.attach.name == "busy" else Usage()

    def gate(self) -> GateStatistics:
        return GATED if self.attach.name == "gated" else GateStatistics()


class Double:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.selector = selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(options.socket)
        self.listening.listen()
        self.selector.register(self.listening, selectors.EVENT_READ, self.accept)
        self.daemon: socket.socket | None = None
        self.decoder = Decoder(m.AnyAsk)
        self.received: list[int] = []
        self.sessions: dict[str, Attachment] = {}
        self.tracing = False
        self.deaf = False

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select():
                key.data()

    def accept(self) -> None:
        if self.daemon is not None:
            self.hang_up()
        self.daemon, _ = self.listening.accept()
        self.decoder = Decoder(m.AnyAsk)
        self.selector.register(self.daemon, selectors.EVENT_READ, self.receive)

    def hang_up(self) -> None:
        assert self.daemon is not None
        self.selector.unregister(self.daemon)
        self.daemon.close()
        self.daemon = None

    def receive(self) -> None:
        assert self.daemon is not None
        try:
            data, ancillary, _, _ = self.daemon.recvmsg(65536, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, ancillary = b"", []
        for _, _, content in ancillary:
            descriptors = array.array("i")
            descriptors.frombytes(content)
            self.received.extend(descriptors)
        if not data:
            self.hang_up()
            return
        self.decoder.feed(data)
        for identifier, ask in self.decoder.frames():
            if not self.deaf:
                self.answer(identifier, ask)

    def send(self, identifier: int, body: Any, descriptors: list[int] | None = None) -> None:
        if self.daemon is None:
            return
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        try:
            self.daemon.sendmsg([encode(identifier, body)], rights)
        except ConnectionError:
            return

    def answer(self, identifier: int, ask: Any) -> None:
        match ask:
            case m.Describe():
                self.send(identifier, self.description())
            case m.Attach():
                self.attach(identifier, ask)
            case m.End(session=name, error=error, reason=reason):
                self.send(identifier, m.Ok())
                if name in self.sessions:
                    self.end(name, error, reason)
            case m.Change():
                attachment = self.sessions[ask.session]
                attachment.paused = attachment.paused if ask.paused is None else ask.paused
                attachment.priority = attachment.priority if ask.priority is None else ask.priority
                attachment.weight = attachment.weight if ask.weight is None else ask.weight
                self.send(identifier, m.Ok())
            case m.ListAttached():
                listed = [each.listed() for each in self.sessions.values()]
                self.send(identifier, m.AttachedSessions(sessions=listed, busy_ns=5))
            case m.ReadMemory(limit_bytes=limit, used_bytes=used):
                self.send(identifier, m.MemoryLeft(free_bytes=limit - used, total_bytes=limit))
            case m.TraceControl():
                self.tracing |= ask.on  # what was recorded can be read when it is over
                self.send(identifier, m.Tracing(cursor=0))
            case m.ReadTrace():
                more = any(each.attach.name == "flood" for each in self.sessions.values())
                self.send(identifier, m.Traced(operations=self.traced(), cursor=0, dropped=0, more=more))
            case m.TakeProfiles():
                self.send(identifier, m.ProfilesTaken(profiles=self.learnt()))
            case m.LoadProfiles() | m.ForgetProfiles():
                self.send(identifier, m.Ok())
            case m.Stop():
                self.send(identifier, m.Ok())
                os.unlink(self.options.socket)
                sys.exit(0)

    def description(self) -> m.Description:
        return m.Description(
            executor=self.options.executor,
            pid=os.getpid(),
            gpu=self.options.gpu,
            domain=self.options.domain,
            device_name="double",
            uuid=os.environ.get("FIKIT_DOUBLE_UUID", self.options.uuid),
            memory_bytes=4 << 30,
            time_scale=1.0,
            release=os.environ.get("FIKIT_DOUBLE_RELEASE", __version__),
        )

    def traced(self) -> list[TraceOperation]:
        if not self.tracing:
            return []
        return [TraceOperation(name, 0, "launch", "kernel", 1, 2, 3, 4, 0, 1, 0) for name in self.sessions]

    def learnt(self) -> list[KernelProfile]:
        if not any(each.attach.name == "busy" for each in self.sessions.values()):
            return []
        shape = {"grid": (1, 1, 1), "block": (32, 1, 1), "shared_bytes": 0}
        return [KernelProfile(module="ab", function="busy", samples=3, median_ns=10, p95_ns=20, **shape)]

    def attach(self, identifier: int, ask: m.Attach) -> None:
        lifeline, pidfd = self.received.pop(0), self.received.pop(0)
        if ask.name == "crash":
            os._exit(3)
        if ask.name == "deaf":
            self.deaf = True
            return
        if ask.name == "unattachable":
            os.close(lifeline)
            os.close(pidfd)
            self.send(identifier, Failure(code="unavailable", message="it is called unattachable"))
            return
        attachment = Attachment(
            ask, socket.socket(fileno=lifeline), pidfd, priority=ask.priority, weight=ask.weight
        )
        attachment.memories = [os.memfd_create(name) for name in ("outbox", "inbox")]
        for memory in attachment.memories:
            os.ftruncate(memory, 4096)
        self.sessions[ask.session] = attachment

        def over() -> None:
            if ask.session in self.sessions:
                self.end(ask.session, 0, "its process ended")

        self.selector.register(attachment.lifeline, selectors.EVENT_READ, over)
        self.selector.register(pidfd, selectors.EVENT_READ, over)
        self.send(identifier, m.Attached(), attachment.memories)

    def end(self, name: str, error: int, reason: str) -> None:
        attachment = self.sessions.pop(name)
        self.selector.unregister(attachment.lifeline)
        self.selector.unregister(attachment.pidfd)
        attachment.lifeline.close()
        os.close(attachment.pidfd)
        for memory in attachment.memories:
            os.close(memory)
        usage, gate = attachment.usage(), attachment.gate()
        self.send(0, m.SessionEnded(session=name, error=error, reason=reason, usage=usage, gate=gate))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int)
    names = ("domain", "executor", "daemon", "socket", "device", "uuid", "time-scale")
    for name in (*names, "board", "ledger", "host-ledger", "settings"):
        parser.add_argument(f"--{name}")
    Double(parser.parse_args()).run()


if __name__ == "__main__":
    main()
