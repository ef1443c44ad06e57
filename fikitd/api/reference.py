"""Writes docs/protocol.md from the protocol's own structs.

Run ``python -m fikitd.api.reference > docs/protocol.md``; a test holds the page to the structs.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any, get_args, get_type_hints

import msgspec
from fikit import protocol

HEAD = """# The control protocol

Written by `python -m fikitd.api.reference` from `client/fikit/protocol`; do not edit.

{introduction}

Protocol version {version}. A frame has at most {limit} bytes.

The first request of a connection is `hello`; any other request first, a wrong version or a broken frame ends
the connection with an `error` under id 0. Requests of one connection may be answered out of order. At most 64
of them, and 1024 of one user's, are outstanding at a time; of those of one user that do not wait for
something to happen, a few are served at a time. A client that does not read its replies is disconnected, and
one that shuts down its half of the connection has left: what it has asked for may not be answered.
`subscribe` is answered by events under its id, the first of kind `subscribed`, and by nothing else; a user
may have 32 of them.

## Error codes

`error.code` is one of: {codes}. `message` names what was wrong, `hint` what to do next.

## Kinds of events

{kinds}.
"""


def type_text(hint: Any) -> str:
    """A field's type as a reader wants it: without the limits' spelling."""
    if getattr(hint, "__metadata__", None):
        return type_text(hint.__origin__)
    arguments = get_args(hint)
    name = getattr(hint, "__name__", str(hint)).replace("NoneType", "nothing")
    if not arguments:
        return repr(hint) if isinstance(hint, str) else name
    parts = [type_text(argument) for argument in arguments]
    if isinstance(hint, types.UnionType) or name in ("Union", "Optional", "Literal"):
        return " or ".join(parts)
    return f"{name} of {', '.join(parts)}"


def struct_text(struct: type[msgspec.Struct]) -> list[str]:
    """One struct: its meaning, then its fields."""
    config = struct.__struct_config__
    title = f"`{config.tag}`" if config.tag else struct.__name__
    lines = [f"### {title}", "", inspect.cleandoc(struct.__doc__ or ""), ""]
    if config.array_like:
        lines += ["A list of these, in this order:", ""]
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        line = f"- `{field.name}`: {type_text(hints[field.name])}"
        if field.default is not msgspec.NODEFAULT:
            line += f", by default `{field.default!r}`"
        lines.append(line)
    return [*lines, ""] if lines[-1] else lines


def names(words: Any) -> str:
    """Those of a ``Literal``."""
    return ", ".join(f"`{word}`" for word in get_args(words))


def render() -> str:
    """The whole page."""
    introduction = inspect.cleandoc(protocol.__doc__ or "").partition("\n\n")[2].partition("\n\nNo I/O")[0]
    text = HEAD.format(
        introduction=introduction,
        version=protocol.PROTOCOL_VERSION,
        limit=protocol.MAX_FRAME_BYTES,
        codes=names(protocol.ErrorCode),
        kinds=names(protocol.EventKind),
    )
    parts = [text]
    for title, structs in (
        ("Requests", protocol.REQUESTS),
        ("Replies", protocol.REPLIES),
        ("Records", protocol.RECORDS),
    ):
        parts.append(f"## {title}\n")
        parts += ["\n".join(struct_text(struct)) for struct in structs]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
