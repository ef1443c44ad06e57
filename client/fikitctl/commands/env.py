"""``env``: the variables that let an unmodified CUDA program run under fikitd."""

from __future__ import annotations

import os
import shlex

import click
from fikit.place import PRIORITY_VARIABLE
from fikit.unmodified import variables

from fikitctl.failures import refused
from fikitctl.invocation import Invocation
from fikitctl.output import print_json
from fikitctl.quantities import PRIORITY
from fikitctl.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        'eval "$(fikitctl env)"',
        "fikitctl env --plain > /etc/notebook.env",
        "S=/run/fikitd.sock; docker run --env-file <(fikitctl env --plain)"
        " -v $S:$S -v /opt/fikitd:/opt/fikitd image",
    ],
)
@click.option(
    "-p", "--priority", type=PRIORITY, help="Of its sessions; else normal, or the highest that you may."
)
@click.option("--plain", is_flag=True, help="NAME=VALUE lines, as systemd and docker read them.")
@click.pass_obj
def env(invocation: Invocation, priority: int | None, plain: bool) -> None:
    """Print the variables that make CUDA programs use fikitd.

    For a shell, a Dockerfile, a systemd unit, a notebook's kernel. 'run' and 'submit' set them by themselves.
    """
    try:
        found = variables(invocation.path, os.environ)
    except FileNotFoundError as error:
        raise refused(str(error), "fikitd's package is not installed whole") from None
    if priority is not None:
        found[PRIORITY_VARIABLE] = str(priority)
    if invocation.as_json:
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name}={value}" if plain else f"export {name}={shlex.quote(value)}")
