"""``events``: what happens, as it happens."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Final, get_args

import click
from fikit.control import MOST_RESTARTS, Connection
from fikit.errors import UnreachableError
from fikit.protocol import Event, EventKind, Subscribe

from fikitctl.invocation import Invocation, note, successor
from fikitctl.output import print_json
from fikitctl.plain import one_line
from fikitctl.verb import Verb

_WORD: Final = re.compile(r'[^ ="]+')


def event_text(event: Event) -> str:
    """One event as a line."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.unix))
    named = {"tenant": event.tenant, "job": event.job, "session": event.session, "gpu": event.gpu}
    fields = [f"{name}={value}" for name, value in named.items() if value is not None]
    fields += [f"{name}={_value(value)}" for name, value in event.detail.items()]
    return one_line(" ".join([f"{clock}.{int(event.unix % 1 * 1000):03}", event.kind, *fields]))


def _value(value: object) -> str:
    """As it is where it is one word; else in quotes, as it may hold what looks like another field."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)


def _as_they_happen(control: Connection, most_restarts: int = MOST_RESTARTS) -> Iterator[Event]:
    """What happens while no daemon runs, which nobody tells, is said to be missing."""
    heard = False
    try:
        subscription = control.send(Subscribe())
        while True:
            event = control.receive(subscription)
            if isinstance(event, Event):
                heard = True
                yield event
    except UnreachableError:
        if most_restarts == 0:
            raise
    with successor(control.path) as following:
        if heard:
            note("the daemon was replaced; what happened meanwhile is missing")
        yield from _as_they_happen(following, most_restarts - 1)


@click.command(
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl events -f",
        "fikitctl events --json | jq -r .kind",
        "fikitctl events --count 1 --kind job_ended --timeout 10m",
    ],
)
@click.option("-f", "--follow", is_flag=True, help="The default: there is no past to print.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many.")
@click.option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(get_args(EventKind)),
    metavar="KIND",
    help="Only this kind; may be repeated.",
)
@click.pass_obj
def events(invocation: Invocation, follow: bool, count: int | None, kinds: tuple[str, ...]) -> None:
    """Print events as they happen, until Ctrl-C.

    Also those of a daemon that replaces this one. With --json: one event per line.
    -k subscribed prints, too, that from here on none is missed.
    """
    # Of all, what our own asking made happen is none.
    chosen = kinds or set(get_args(EventKind)) - {"subscribed"}
    printed = 0
    with invocation.connected() as control:
        for event in _as_they_happen(control):
            if event.kind not in chosen:
                continue
            if invocation.as_json:
                print_json(event)
            else:
                click.echo(event_text(event))
            printed += 1
            if printed == count:
                return
