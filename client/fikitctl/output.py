"""Results as JSON: the protocol's own structs, one object, or one line each in a stream."""

from __future__ import annotations

import time

import click
import msgspec


def json_text(record: object) -> str:
    """One line of JSON."""
    return msgspec.json.encode(record).decode()


def print_json(record: object) -> None:
    """Print one object at once, so that a reader of a stream sees it when it happens. JSON is UTF-8."""
    click.echo(msgspec.json.encode(record))


def moment(unix: float | None) -> str:
    """A point in time as people here write it; empty for none."""
    return "" if unix is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
