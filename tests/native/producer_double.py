"""A double of daemon and executor for tests of the client: one process, no GPU, nothing of fikitd in it.

    python producer_double.py SOCKET [LOG]

It speaks the control protocol on SOCKET, and for each session consumes a real channel (sealed memfds,
lifeline) as shim/abi.h and shim/calls.h describe it; the offsets below were written from those headers by
hand, so they also check the producer's. Operations of all streams run in ring order, at once. Kernels are
known by name (KERNELS); parameter layouts come from the PTX. Each record is written to LOG as a JSON line.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import re
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fikit import protocol

VERSION = 7
RING, STAGING = 1 << 17, 1 << 21
RING_OFFSET, STAGING_OFFSET = 1 << 16, 1 << 18
OUTBOX_BYTES = STAGING_OFFSET + STAGING
MARKS, REPLY = 4096, 4096 + 4096 * 64
INBOX_BYTES = REPLY + 65536
HEAD, WAITERS, HOST_DONE = 64, 128, 4096
ENDED, ERROR, TAIL, PARKED, WAKES = 8, 12, 16, 24, 28
CALL_DONE, CALL_STATUS, CALL_BYTES = 64, 72, 76
DEFERRED_COUNT, DEFERRED_ERROR, DEFERRED_TEXT, ERROR_TEXT = 128, 136, 192, 1216
OPERATIONS = [
    "pad", "launch", "graph", "copy", "fill", "event_record", "event_wait", "sync", "host_function",
    "stream_create", "stream_destroy", "event_destroy", "free", "host_free", "call",
]  # fmt: skip
CALLS = [
    "", "device_attributes", "memory_allocate", "memory_information", "host_allocate", "module_load",
    "module_unload", "module_global", "function_get", "function_set_attribute", "function_occupancy",
    "event_elapsed",
]  # fmt: skip
FIRST_ADDRESS, TOTAL = 0x7000_0000_0000, 1 << 30
SYS_FUTEX, FUTEX_WAKE = 202, 1
libc = ctypes.CDLL(None, use_errno=True)


class CudaError(Exception):
    """A CUresult that an operation or call ends with."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


def sealed(name: str, size: int) -> int:
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


PTX_TYPES = {"8": 1, "16": 2, "32": 4, "64": 8}


def parameters_of(ptx: str, name: str) -> list[tuple[int, int]]:
    """(offset, size) of each parameter of an entry."""
    found = re.search(rf"\.entry\s+{re.escape(name)}\s*\(([^)]*)\)", ptx)
    if found is None:
        raise CudaError(500)
    layout, end = [], 0
    for declaration in filter(None, (part.strip() for part in found[1].split(","))):
        scalar = re.match(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)\s+\w+(?:\[(\d+)\])?", declaration)
        assert scalar is not None, declaration
        element = PTX_TYPES[scalar[2]]
        size = element * int(scalar[3] or 1)
        align = int(scalar[1] or element)
        offset = -(-end // align) * align
        layout.append((offset, size))
        end = offset + size
    return layout


class Executor(threading.Thread):
    """Consumes one session's channel."""

    def __init__(self, name: str, lifeline: socket.socket, log: Path | None) -> None:
        super().__init__(daemon=True)
        self.outbox_fd, self.inbox_fd = sealed("outbox", OUTBOX_BYTES), sealed("inbox", INBOX_BYTES)
        self.outbox = mmap.mmap(self.outbox_fd, OUTBOX_BYTES)
        self.inbox = mmap.mmap(self.inbox_fd, INBOX_BYTES)
        places = (RING_OFFSET, RING, STAGING_OFFSET, STAGING)
        struct.pack_into("<IIQQQQ", self.outbox, 0, 0x584F464B, VERSION, *places)
        struct.pack_into("<II", self.inbox, 0, 0x5849464B, VERSION)
        self.wakes = ctypes.c_uint32.from_buffer(self.inbox, WAKES)
        self.name, self.lifeline, self.log = name, lifeline, log and log.open("a")
        self.tail = 0
        self.steps = [0] * 4096
        self.memory: dict[int, bytearray] = {}
        self.next_address = FIRST_ADDRESS
        self.host: dict[int, mmap.mmap | memoryview] = {0: memoryview(self.outbox)[STAGING_OFFSET:]}
        self.modules: dict[int, str] = {}
        self.functions: dict[int, tuple[str, list[tuple[int, int]]]] = {}
        self.events: dict[int, float] = {}
        self.gone = False

    def get(self, area: mmap.mmap, layout: str, offset: int) -> int:
        return int(struct.unpack_from("<" + layout, area, offset)[0])

    def put(self, layout: str, offset: int, value: int) -> None:
        # As one store: struct.pack_into clears the place first, and the producer may read it meanwhile.
        memoryview(self.inbox)[offset : offset + struct.calcsize(layout)].cast(layout)[0] = value

    def wake(self) -> None:
        if self.get(self.outbox, "I", WAITERS):
            self.wakes.value += 1
            libc.syscall(SYS_FUTEX, ctypes.byref(self.wakes), FUTEX_WAKE, 1 << 30, None, None, 0)

    def run(self) -> None:
        try:
            while not self.gone and self.wait_for_work():
                self.consume()
        except CudaError as failure:  # the context is lost
            self.put("i", ERROR, failure.status)
            self.inbox[ERROR_TEXT : ERROR_TEXT + len(failure.text)] = failure.text.encode()
            self.put("I", ENDED, 1)
            self.wake()
        finally:
            self.lifeline.close()

    def wait_for_work(self) -> bool:
        """Looks a while, then parks until the doorbell rings. False: the tenant hung up."""
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            if self.get(self.outbox, "Q", HEAD) != self.tail:
                return True
        parked = self.get(self.inbox, "I", PARKED)
        self.put("I", PARKED, parked + 1)
        if self.get(self.outbox, "Q", HEAD) == self.tail:
            select.select([self.lifeline], [], [])
        self.put("I", PARKED, parked + 2)
        try:
            return self.lifeline.recv(64, socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def consume(self) -> None:
        head = self.get(self.outbox, "Q", HEAD)
        while self.tail != head and not self.gone:
            at = RING_OFFSET + self.tail % RING
            size, number, flags, stream, _ = struct.unpack_from("<IHHII", self.outbox, at)
            assert size % 64 == 0
            assert 64 <= size <= 40960 or number == 0
            assert self.tail % RING + size <= RING
            record = bytes(self.outbox[at : at + size])
            self.tail += size
            self.put("Q", TAIL, self.tail)
            self.execute(OPERATIONS[number], flags, stream, record)
            self.wake()

    def execute(self, operation: str, flags: int, stream: int, record: bytes) -> None:
        entry: dict[str, Any] = {"op": operation, "stream": stream, "flags": flags}
        is_step = operation in OPERATIONS[1:9]
        try:
            getattr(self, "do_" + operation)(entry, stream, record)
        except CudaError as failure:
            if failure.status >= 700:
                raise
            self.defer(failure)
        if is_step:
            self.steps[stream] += 1
            self.put("Q", MARKS + 64 * stream, self.steps[stream])
            if operation == "host_function":
                self.wake()
                while self.get(self.outbox, "Q", HOST_DONE + 8 * stream) < self.steps[stream]:
                    time.sleep(0.0005)
        if self.log:
            self.log.write(json.dumps(entry) + "\n")
            self.log.flush()

    def defer(self, failure: CudaError) -> None:
        self.put("i", DEFERRED_ERROR, failure.status)
        text = failure.text.encode() + b"\0"
        self.inbox[DEFERRED_TEXT : DEFERRED_TEXT + len(text)] = text
        self.put("Q", DEFERRED_COUNT, self.get(self.inbox, "Q", DEFERRED_COUNT) + 1)

    def at(self, address: int, size: int) -> memoryview:
        for base, content in self.memory.items():
            if base <= address and address + size <= base + len(content):
                return memoryview(content)[address - base : address - base + size]
        raise CudaError(1, f"no memory of this session at {address:#x} + {size}")

    # --- operations ---

    def do_pad(self, entry: dict[str, Any], stream: int, record: bytes) -> None: ...
    def do_sync(self, entry: dict[str, Any], stream: int, record: bytes) -> None: ...
    def do_host_function(self, entry: dict[str, Any], stream: int, record: bytes) -> None: ...
    def do_stream_destroy(self, entry: dict[str, Any], stream: int, record: bytes) -> None: ...

    def do_stream_create(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        entry["non_blocking"], entry["priority"] = struct.unpack_from("<Ii", record, 16)

    def do_launch(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        fields = struct.unpack_from("<10I", record, 16)
        function, grid, block = fields[0], fields[1:4], fields[4:7]
        shared, parameter_bytes, attributes = fields[7:10]
        at = 64 + 72 * attributes
        parameters = record[at : at + parameter_bytes]
        entry |= {"grid": grid, "block": block, "shared": shared, "parameters": parameters.hex()}
        entry["attributes"] = [
            [
                struct.unpack_from("<I", record, 64 + 72 * each)[0],
                record[72 + 72 * each : 84 + 72 * each].hex(),
            ]
            for each in range(attributes)
        ]
        name, layout = self.functions[function]
        entry["kernel"] = name
        values = [parameters[offset : offset + size] for offset, size in layout]
        if kernel := KERNELS.get(name):
            kernel(self, values)

    def do_copy(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        kind, buffer, device, other, size = struct.unpack_from("<IIQQQ", record, 16)
        entry |= {"kind": kind, "buffer": buffer, "size": size}
        if kind == 2:
            self.at(device, size)[:] = bytes(self.at(other, size))
        elif kind == 0:
            self.at(device, size)[:] = self.host[buffer][other : other + size]
        else:
            self.host[buffer][other : other + size] = bytes(self.at(device, size))

    def do_fill(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        device, count, value, width = struct.unpack_from("<QQII", record, 16)
        entry |= {"count": count, "value": value, "width": width}
        self.at(device, count * width)[:] = value.to_bytes(4, "little")[:width] * count

    def do_event_record(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        entry["event"], entry["timing"] = struct.unpack_from("<II", record, 16)
        self.events[entry["event"]] = time.monotonic()

    def do_event_wait(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        entry["event"] = struct.unpack_from("<I", record, 16)[0]

    def do_event_destroy(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        self.do_event_wait(entry, stream, record)

    def do_free(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        address = struct.unpack_from("<Q", record, 16)[0]
        if self.memory.pop(address, None) is None:
            raise CudaError(1, f"free of {address:#x}, which is not allocated")

    def do_host_free(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        del self.host[struct.unpack_from("<Q", record, 16)[0]]

    # --- calls ---

    def do_call(self, entry: dict[str, Any], stream: int, record: bytes) -> None:
        number, size = struct.unpack_from("<II", record, 16)
        entry["call"] = CALLS[number]
        status, reply = 0, b""
        try:
            reply = getattr(self, "call_" + CALLS[number])(record[24 : 24 + size])
        except CudaError as failure:
            status, reply = failure.status, failure.text.encode()
        self.inbox[REPLY : REPLY + len(reply)] = reply
        self.put("i", CALL_STATUS, status)
        self.put("I", CALL_BYTES, len(reply))
        self.put("Q", CALL_DONE, self.get(self.inbox, "Q", CALL_DONE) + 1)

    def call_device_attributes(self, request: bytes) -> bytes:
        attributes = [-(1 << 31)] * 160
        attributes[1], attributes[16], attributes[75], attributes[76] = 1024, 132, 9, 0
        known = struct.pack("<160iQ16s128s", *attributes, TOTAL, bytes(range(16)), b"Double of a GPU")
        return known + struct.pack("<iiQQ", 13000, -5, 0, 0)

    def call_memory_allocate(self, request: bytes) -> bytes:
        (size,) = struct.unpack("<Q", request)
        if size + sum(map(len, self.memory.values())) > TOTAL:
            raise CudaError(2)
        address = self.next_address
        self.next_address += -(-size // 512) * 512 + 512
        self.memory[address] = bytearray(size)
        return struct.pack("<QQ", address, size)

    def call_memory_information(self, request: bytes) -> bytes:
        return struct.pack("<QQ", TOTAL - sum(map(len, self.memory.values())), TOTAL)

    def call_host_allocate(self, request: bytes) -> bytes:
        handle, _, size = struct.unpack("<IIQ", request)
        size = -(-size // 4096) * 4096
        assert handle not in self.host
        descriptor = sealed("pinned", size)
        self.host[handle] = mmap.mmap(descriptor, size)
        socket.send_fds(self.lifeline, [b"\0"], [descriptor])
        os.close(descriptor)
        return struct.pack("<QQ", size, 0x6000_0000_0000 + (handle << 32))

    def call_module_load(self, request: bytes) -> bytes:
        handle, _, offset, size = struct.unpack("<IIQQ", request)
        assert handle not in self.modules
        image = bytes(self.host[0][offset : offset + size]).rstrip(b"\0").decode()
        if "no instruction" in image:
            log = "ptxas fatal: no such instruction"
            raise CudaError(218, "\x22\0\0\0\0\0\0\0" + log)
        self.modules[handle] = image
        return struct.pack("<II", 0, 0)

    def call_module_unload(self, request: bytes) -> bytes:
        del self.modules[struct.unpack("<II", request)[0]]
        return bytes(8)

    def call_module_global(self, request: bytes) -> bytes:
        raise CudaError(500)

    def call_function_get(self, request: bytes) -> bytes:
        module, handle, size, _ = struct.unpack_from("<IIII", request)
        name = request[16 : 16 + size].decode()
        layout = parameters_of(self.modules[module], name)
        self.functions[handle] = (name, layout)
        end = max((offset + each for offset, each in layout), default=0)
        attributes = [1024, 0, 0, 0, 16, 80, 90, 0, 49152] + [0] * 9
        head = struct.pack("<18iII", *attributes, end, len(layout))
        return head + b"".join(struct.pack("<II", *each) for each in layout)

    def call_function_set_attribute(self, request: bytes) -> bytes:
        return bytes(8)

    def call_function_occupancy(self, request: bytes) -> bytes:
        _, threads, _, _, _ = struct.unpack("<IIQII", request)
        return struct.pack("<iI", 2048 // threads, 0)

    def call_event_elapsed(self, request: bytes) -> bytes:
        start, end = struct.unpack("<II", request)
        return struct.pack("<d", (self.events[end] - self.events[start]) * 1e3)


def axpy(executor: Executor, values: list[bytes]) -> None:
    """Y[i] += a * x[i] for n floats."""
    count = int.from_bytes(values[3], "little")
    (factor,) = struct.unpack("<f", values[0])
    x, y = (executor.at(int.from_bytes(each, "little"), 4 * count).cast("f") for each in values[1:3])
    for index in range(count):
        y[index] += factor * x[index]


def trap(executor: Executor, values: list[bytes]) -> None:
    """An illegal address."""
    raise CudaError(700, "kernel trap: an illegal address")


def vanish(executor: Executor, values: list[bytes]) -> None:
    """The executor dies."""
    executor.gone = True


def stall(executor: Executor, values: list[bytes]) -> None:
    """Runs until a file ``go`` is beside the log."""
    assert executor.log is not None
    while not Path(executor.log.name).with_name("go").exists():
        time.sleep(1e-3)


KERNELS = {"axpy": axpy, "trap": trap, "vanish": vanish, "stall": stall}


def serve(connection: socket.socket, log: Path | None) -> None:
    """One control connection: hello, one session."""
    decoder = protocol.Decoder(protocol.AnyRequest)
    while data := connection.recv(65536):
        decoder.feed(data)
        for identifier, request in decoder.frames():
            reply, descriptors = answer(request, log)
            frame = protocol.encode(identifier, reply)
            if descriptors:
                socket.send_fds(connection, [frame], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
            else:
                connection.sendall(frame)


def answer(request: protocol.Request, log: Path | None) -> tuple[Any, list[int]]:
    if isinstance(request, protocol.Hello):
        return protocol.Welcome(
            version=1, daemon="double", uid=os.getuid(), tenant="t", administrator=False, priority_ceiling=0
        ), []
    if not isinstance(request, protocol.OpenSession):
        return protocol.Failure(code="invalid", message=f"the double does not know {request}"), []
    if request.gpu not in (None, 0):
        return protocol.Failure(code="not_found", message=f"no GPU {request.gpu}", hint="there is GPU 0"), []
    ours, theirs = socket.socketpair()
    executor = Executor(request.name, ours, log)
    descriptors = [os.dup(executor.outbox_fd), os.dup(executor.inbox_fd), theirs.detach()]
    executor.start()
    return protocol.SessionOpened(
        session="s-1",
        gpu=0,
        device_name="Double of a GPU",
        time_scale=1.0,
        priority=protocol.PRIORITIES["normal"] if request.priority is None else request.priority,
        memory_limit_bytes=request.memory_limit_bytes,
    ), descriptors


def main(path: str, log: str | None = None) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, Path(log) if log else None), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
