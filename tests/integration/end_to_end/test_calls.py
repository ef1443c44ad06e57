"""Calls that wait, are interrupted, or carry much; host functions that do not return; traces side by side."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import fikit
import pytest
from fikit import protocol as p

from tests.integration.conftest import Client, Daemon
from tests.integration.end_to_end.conftest import PTX, SETTINGS

pytestmark = pytest.mark.shares_daemon

Connect = Callable[..., fikit.Session]
Program = Callable[[str], "subprocess.Popen[str]"]

INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests may ignore it
session = fikit.connect(name="interrupted")
held, event = session.allocate(16 << 20), session.event()
print(session.identifier, flush=True)
sys.stdin.readline()
print("calling", flush=True)
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
with session.allocate(1 << 20) as memory, session.load(PTX) as module:
    pinned = session.allocate_pinned(4096)
    memory.fill(7)
    module.kernel("nothing").launch(grid=1, block=1)
    session.synchronize()
    print(memory.read()[:2].hex(), flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "session.allocate(4096)",
        "session.allocate_pinned(4096)",
        "session.load(PTX)",
        "held.read()",
        "held.copy_from(bytes(held.size))",
        "while True: held.fill(1, count=1)",
        "while True: held.copy_from_memory(held, size=1, offset=1)",
        "while True: event.record()",
        "while True: session.stream().close()",
        "while True: session.default_stream.add_callback(int)",
    ],
)
def test_ctrl_c_interrupts_a_call_that_waits(daemon: Daemon, program: Program, call: str) -> None:
    running = program(INTERRUPTED.replace("CALL", call))
    assert running.stdin is not None
    assert running.stdout is not None
    session = running.stdout.readline().strip()
    client = daemon.client()
    assert client.ask(p.Pause(target=session)) == p.Done()

    def go_on() -> None:
        print(file=running.stdin, flush=True)

    go_on()
    assert running.stdout.readline() == "calling\n"
    threading.Event().wait(0.2)  # nothing tells from outside that it waits now
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == "interrupted\n"
    assert client.ask(p.Resume(target=session)) == p.Done()
    go_on()
    assert running.stdout.readline() == "0707\n"
    assert running.wait(20) == 0


def test_a_full_channel(connect: Connect) -> None:
    """What has a limit keeps it, and what waits for room does not hold up the callback that makes some."""
    session = connect()
    go = threading.Event()
    with session.load(PTX) as module, session.allocate(4) as memory, session.event() as event:
        nothing = module.kernel("nothing")
        for wait in (event.record, lambda: memory.fill(1), session.stream, session.event().close):
            session.default_stream.add_callback(go.wait)
            while nothing.launch_nowait(grid=1, block=1):
                pass
            assert not session.default_stream.query()
            assert not session.attempt(0.0)
            with pytest.raises(TimeoutError):
                session.default_stream.synchronize(0.01)
            go.set()
            wait()
            session.synchronize()
            go.clear()


def test_refused_types_leak_no_handle(connect: Connect) -> None:
    """There are 65535 handles of functions in a session."""
    with connect().load(PTX) as module:

        def refused(types: list[str]) -> str:
            try:  # pytest.raises would take longer than all the rest
                module.kernel("spin", types)
            except fikit.UsageError as error:
                return str(error)
            return ""

        for _ in range(33_000):
            assert "has 1 parameters, 2 types" in refused(["u64", "u64"])
            assert "8 bytes; it is no u32" in refused(["u32"])
        module.kernel("spin", ["u64"]).launch(1, grid=1, block=1)


def test_an_image_larger_than_the_staging_area_loads(connect: Connect) -> None:
    session = connect()
    padded = PTX + "// " + "x" * (9 << 20) + "\n"
    with session.load(padded) as module, session.allocate(4) as memory:
        module.kernel("store").launch(memory, 41, grid=1, block=1)
        assert memory.read() == (41).to_bytes(4, "little")


def test_what_limits_an_image_is_host_memory(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    limited = SETTINGS.replace("[scheduling]", f"[scheduling]\npinned_limit_bytes = {8 << 20}")
    stopped_daemon.configure(settings=limited)
    stopped_daemon.start()
    session = connect_to()
    with pytest.raises(fikit.OutOfMemoryError):
        session.load(PTX + "// " + "x" * (9 << 20) + "\n")
    session.load(PTX).unload()


def test_what_sessions_of_a_user_take_of_the_host_is_limited_together(
    stopped_daemon: Daemon, connect_to: Callable[..., fikit.Session]
) -> None:
    """Pinned memory and images of code, in whichever executor."""
    limited = SETTINGS.replace("[scheduling]", f"[scheduling]\nhost_memory_limit_bytes = {8 << 20}")
    stopped_daemon.configure(settings=limited)
    stopped_daemon.start()
    one, other = connect_to(), connect_to(isolated=True)
    pinned = one.allocate_pinned(5 << 20)
    long = PTX + "// " + "x" * (4 << 20) + "\n"
    for take in (lambda: other.allocate_pinned(4 << 20), lambda: other.load(long)):
        with pytest.raises(fikit.OutOfMemoryError):
            take()
    other.load(PTX).unload()
    pinned.free()
    loaded = None
    while loaded is None:  # it is back once nothing is in flight
        with suppress(fikit.OutOfMemoryError):
            loaded = other.load(long)
    with pytest.raises(fikit.OutOfMemoryError):
        one.allocate_pinned(5 << 20)


def test_no_such_gpu(daemon: Daemon) -> None:
    with pytest.raises(fikit.RefusedError) as caught:
        fikit.connect(socket=daemon.socket, gpu=99)
    assert caught.value.reason == "not_found"
    client = daemon.client()
    submit = p.Submit(command=["true"], environment={}, directory="/", gpus=[99])
    for request in (submit, p.StartTrace(gpu=99), p.ReadTrace(gpu=99)):
        assert client.ask(request).code == "not_found"


def launched(session: fikit.Session, kernel: fikit.Kernel, times: int) -> None:
    """So often, and over."""
    for _ in range(times):
        kernel.launch(grid=1, block=1)
    session.synchronize()


def test_two_traces_see_the_same(daemon: Daemon, connect: Connect) -> None:
    session = connect()
    one, other = daemon.client(), daemon.client()
    with session.load(PTX) as module:
        launch = partial(launched, session, module.kernel("nothing"))

        def seen(client: Client, stop: bool = False) -> int:
            trace = client.ask(p.ReadTrace(stop=stop))
            return sum(each.kind == "launch" for each in trace.operations)

        assert one.ask(p.StartTrace()) == p.Done()
        launch(3)
        assert other.ask(p.StartTrace()) == p.Done()
        launch(2)
        assert (seen(one), seen(other)) == (5, 2)
        launch(4)
        assert (seen(one, stop=True), seen(other)) == (4, 4)
        launch(1)
        assert seen(other, stop=True) == 1
        assert one.ask(p.ReadTrace()).code == "invalid"


def test_a_trace_ends_with_the_daemon_that_was_killed(stopped_daemon: Daemon, connect_to: Connect) -> None:
    """Else each launch there would be measured, which takes time, until the executor ends."""
    client, session = stopped_daemon.start().client(), connect_to()
    explain = p.Explain(session=session.identifier)

    def measured(client: Client, launches: int) -> int:
        """Of so many."""
        while (now := client.ask(explain).gated).session.usage.launches < launches:
            pass
        return int(now.gate.measured)

    with session.load(PTX) as module:
        launch = partial(launched, session, module.kernel("nothing"))

        assert client.ask(p.StartTrace()) == p.Done()
        launch(100)
        assert measured(client, 100) == 100
        stopped_daemon.stop(signal.SIGKILL)
        client = stopped_daemon.start().client()
        launch(500)
        assert measured(client, 600) < 350


def test_a_long_trace_is_read_in_pieces(daemon: Daemon, connect: Connect) -> None:
    """No reply is so long that the daemon is held up by passing it on, and nothing is lost between them."""
    session = connect()
    reader = daemon.client()
    assert reader.ask(p.StartTrace()) == p.Done()
    with session.allocate(4096) as memory:
        for _ in range(45_000):
            memory.fill(1)
        session.synchronize()
    sizes = [len((part := reader.ask(p.ReadTrace(stop=True))).operations)]
    while part.more:
        part = reader.ask(p.ReadTrace(stop=True))
        sizes.append(len(part.operations))
        assert part.dropped == 0
    assert sum(sizes) == 45_000
    assert max(sizes) == 20_000
    assert reader.ask(p.ReadTrace()).code == "invalid"


def test_a_host_function_that_does_not_return_is_shown_and_holds_up_nobody(
    daemon: Daemon, connect: Connect
) -> None:
    stuck, other = connect(name="stuck"), connect(name="other")
    may_return = threading.Event()
    with other.load(PTX) as module, stuck.load(PTX) as own:
        kernel = module.kernel("nothing")
        kernel.launch(grid=1, block=1)
        other.synchronize()
        stuck.default_stream.add_callback(may_return.wait)
        own.kernel("nothing").launch(grid=1, block=1)
        for _ in range(20):
            kernel.launch(grid=1, block=1)
            other.synchronize(timeout=10)
        client = daemon.client()
        for _ in range(100):
            shown = client.ask(p.Show(target=stuck.identifier)).session
            if shown.host_functions:
                break
            threading.Event().wait(0.05)
        assert shown.host_functions == 1
        with connect(name="loader") as loader, loader.load(PTX) as late:  # the driver has nothing to wait for
            late.kernel("nothing").launch(grid=1, block=1)
            loader.synchronize(timeout=10)
        may_return.set()
        stuck.synchronize(timeout=10)
