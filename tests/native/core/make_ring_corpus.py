"""Write the seed corpus of fuzz_ring: one record of each kind, and rings that are refused by name.

    python tests/native/core/make_ring_corpus.py

An input is the head (8 bytes) and the ring from its start; the layouts are those of shim/abi.h.
"""

from __future__ import annotations

import struct
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data/fuzz/ring"
CALLS = {
    "device_attributes": (1, struct.pack("<Q", 0)),
    "memory_allocate": (2, struct.pack("<Q", 3 << 20)),
    "memory_information": (3, struct.pack("<Q", 0)),
    "host_allocate": (4, struct.pack("<IIQ", 1, 0, 8192)),
    "module_load": (5, struct.pack("<IIQQ", 1, 0, 0, 64)),
    "module_unload": (6, struct.pack("<II", 1, 0)),
    "module_global": (7, struct.pack("<II", 1, 4) + b"name"),
    "function_get": (8, struct.pack("<IIII", 1, 1, 4, 0) + b"name"),
    "function_set_attribute": (9, struct.pack("<IiiI", 1, 8, 1024, 0)),
    "function_occupancy": (10, struct.pack("<IIQ", 1, 128, 0)),
    "event_elapsed": (11, struct.pack("<II", 1, 2)),
    "graph_create": (22, struct.pack("<IIQQII", 1, 0, 0, 72, 0, 0)),
    "graph_destroy": (23, struct.pack("<II", 1, 0)),
    "session_identity": (24, struct.pack("<Q", 0)),
    "memory_export": (25, struct.pack("<QII", 1 << 40, 0, 0)),
    "memory_import": (26, struct.pack("<16sII", b"", 1, 1)),
    "link_create": (32, struct.pack("<II", 1, 0) + struct.pack("<iI", 0, 32)),
    "link_add": (33, struct.pack("<IIIIQQ", 1, 1, 0, 1, 0, 64) + struct.pack("<iI", 0, 32) + b"name"),
    "link_complete": (34, struct.pack("<II", 1, 0)),
    "link_read": (35, struct.pack("<IIQ", 1, 64, 0)),
    "link_destroy": (36, struct.pack("<II", 1, 0)),
    "condition_create": (37, struct.pack("<IIII", 1, 0, 1, 0)),
    "conditions_destroy": (38, struct.pack("<II", 1, 0)),
    "stack_grow": (39, struct.pack("<Q", 4096)),
    "heap_grow": (45, struct.pack("<Q", 64 << 20)),
    "array_create": (40, struct.pack("<II", 1, 0) + struct.pack("<QQQIIII", 64, 16, 0, 0x20, 1, 2, 3)),
    "array_destroy": (41, struct.pack("<II", 1, 0)),
    "texture_create": (42, struct.pack("<8I4Q", 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0).ljust(280, b"\0")),
    "texture_destroy": (43, struct.pack("<QII", 1, 0, 0)),
}


def record(op: int, body: bytes = b"", *, flags: int = 0, stream: int = 0, size: int | None = None) -> bytes:
    """A record, padded to whole cache lines."""
    whole = (16 + len(body) + 63) // 64 * 64
    header = struct.pack("<IHHII", whole if size is None else size, op, flags, stream, 0)
    return (header + body).ljust(whole, b"\0")


def launch(function: int = 0, attributes: int = 0, parameters: int = 16, stream: int = 0) -> bytes:
    """A launch with parameters of so many bytes."""
    shape = struct.pack("<11I", function, 132, 1, 1, 128, 1, 1, 0, parameters, attributes, 0)
    body = shape + b"\0" * 4
    return record(1, body + b"\x01" * (72 * attributes + parameters), stream=stream)


def inputs() -> dict[str, bytes]:
    """The rings by name."""
    rings = {
        f"call_{name}": record(14, struct.pack("<II", number, len(body)) + body)
        for name, (number, body) in CALLS.items()
    }
    copy = struct.pack("<IIQQQ", 0, 0, 1 << 40, 0, 4096)
    rings |= {
        "launch": launch(),
        "launch_attributes": launch(attributes=2),
        "launch_largest": launch(parameters=32764),
        "copy": record(3, copy),
        "copy_rows": record(
            3,
            struct.pack("<IIQQQ", 0, 0, 0, 0, 1024)
            + struct.pack("<IIQQQQQ", 1, 1, 0, 0, 0, 0, 0)
            + struct.pack("<IIQQQQQ", 0, 0, 0, 0, 0, 128, 8)
            + struct.pack("<QQQ", 128, 8, 1),
            flags=2,
        ),
        "graph": record(2, struct.pack("<II", 1, 0)),
        "fill": record(4, struct.pack("<QQII", 1 << 40, 100, 0, 4)),
        "event_record": record(5, struct.pack("<II", 1, 1)),
        "event_wait": record(6, struct.pack("<II", 1, 0)),
        "synchronise": record(7, flags=1),
        "host_function": record(8) + record(7, flags=1),
        "stream": record(9, struct.pack("<Ii", 0, -1), stream=3)
        + launch(stream=3)
        + record(7, flags=1, stream=3)
        + record(10, stream=3),
        "events": b"".join(record(5, struct.pack("<II", 1 + i % 2, i % 2)) for i in range(8)),
        "values": record(
            15,
            struct.pack("<II", 2, 0)
            + struct.pack("<IIIIQQ", 3, 0, 1, 0, 64, 1)
            + struct.pack("<IIIIQQ", 4, 0, 0, 0, 1 << 40, 1),
        ),
        "free": record(12, struct.pack("<Q", 1 << 40)) + record(13, struct.pack("<Q", 1)),
        "many": b"".join(record(7, flags=i % 2) for i in range(600)),
        "pad": record(0),
        "unknown": record(99),
        "size_zero": record(7, size=0),
        "size_odd": record(7, size=65),
        "size_beyond": record(7, size=1 << 20),
    }
    rings["allocate_and_use"] = (
        rings["call_memory_allocate"]
        + rings["call_host_allocate"]
        + rings["copy"]
        + rings["fill"]
        + rings["free"]
    )
    rings["arrays"] = (
        rings["call_array_create"]
        + rings["call_texture_create"]
        + rings["copy_rows"]
        + rings["call_texture_destroy"]
        + rings["call_array_destroy"]
    )
    heads = {name: struct.pack("<Q", len(ring)) + ring for name, ring in rings.items()}
    heads["head_odd"] = struct.pack("<Q", 63) + rings["synchronise"]
    heads["head_far"] = struct.pack("<Q", 1 << 40) + rings["synchronise"]
    heads["head_back"] = struct.pack("<Q", (1 << 64) - 64) + rings["synchronise"]
    return heads


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in inputs().items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
