"""``config``: the daemon's configuration, checked without the daemon."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Final

import click

from fikitctl.failures import refused
from fikitctl.invocation import Invocation, note
from fikitctl.output import print_json
from fikitctl.verb import LazyVerbs, Verb

_ANY_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _is_user(tenant: str) -> bool:
    """Whether somebody may come to have that name; a number may be anybody's."""
    try:
        return tenant.isdecimal() or pwd.getpwnam(tenant).pw_name == tenant
    except KeyError:
        return False


@click.command(
    cls=Verb,
    examples=["fikitctl config check", "fikitctl config check ./fikitd.toml && sudo systemctl reload fikitd"],
)
@click.argument("file", type=_ANY_FILE, required=False)
@click.pass_obj
def check(invocation: Invocation, file: Path | None) -> None:
    """Check FILE (default: /etc/fikitd/fikitd.toml) and the conf.d beside it.

    Exits with 1 and names the file and the key when something is wrong. With --json: every setting as
    the daemon would see it.
    """
    from fikitd.configuration_files import default_file, load, parts
    from fikitd.errors import ConfigurationError

    try:
        configuration = load(file)
    except ConfigurationError as error:
        raise refused(str(error), "fikitd would not start, or keep its settings on reload") from None
    if invocation.as_json:
        print_json(configuration)
    elif read := parts(file or default_file()):
        click.echo("".join(f"{each}: ok\n" for each in read), nl=False)
        for name in configuration.tenants:
            if not _is_user(name):
                note(f"[tenants.{name}]: there is no user of that name here")
    else:
        click.echo(f"{default_file()}: not there, which is right: everything is at its default")


config: Final = LazyVerbs(
    name="config",
    help="Check the daemon's configuration.",
    examples=["fikitctl config check", "fikitctl config check ./fikitd.toml"],
    families={"Verbs": {"check": "fikitctl.commands.config:check"}},
)
