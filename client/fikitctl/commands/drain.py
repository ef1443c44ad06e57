"""``drain`` and ``undrain``: take no new work before maintenance, and take it again."""

from __future__ import annotations

import click
from fikit.protocol import Drain, Undrain

from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.verb import Verb


def _done(invocation: Invocation, reply: object) -> None:
    if invocation.as_json:
        print_json(reply)


@click.command(
    cls=Verb,
    examples=["fikitctl drain --reason 'driver update at noon'", "fikitctl drain && fikitctl ps"],
)
@click.option("--reason", default="", metavar="TEXT", help="Shown to everybody whose work is refused.")
@click.pass_obj
def drain(invocation: Invocation, reason: str) -> None:
    """Refuse new jobs and sessions; what runs goes on."""
    _done(invocation, invocation.request(Drain(reason=reason)))


@click.command(cls=Verb, examples=["fikitctl undrain", "fikitctl undrain -H /run/fikitd.sock"])
@click.pass_obj
def undrain(invocation: Invocation) -> None:
    """Accept new work again."""
    _done(invocation, invocation.request(Undrain()))
