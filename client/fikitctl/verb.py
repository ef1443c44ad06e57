"""The shape that every verb shares: options for the daemon, examples at the end of the help, a deadline.

The modules of the verbs are imported when a verb is used (``LazyVerbs``): starting fikitctl costs the
import of click and of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

from fikitctl.invocation import Invocation, is_terminal
from fikitctl.quantities import DURATION

ANSWER_SECONDS: Final = 30.0
"""How long a verb that only asks and prints waits for the daemon unless told otherwise."""


def _remember(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(ctx.ensure_object(Invocation), field, value)

    return callback


def shared_options() -> list[click.Parameter]:
    """``-H``, ``--timeout`` and ``--json``: right before or after the verb."""
    return [
        click.Option(
            ["-H", "--socket"],
            type=click.Path(),
            metavar="PATH",
            expose_value=False,
            callback=_remember("socket"),
            help="The daemon's socket (default: FIKIT_SOCKET, then the usual places).",
        ),
        click.Option(
            ["--timeout"],
            type=DURATION,
            metavar="TIME",
            expose_value=False,
            callback=_remember("timeout"),
            help="Give up after this long and exit with 124 (run: 125).",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_remember("as_json"),
            help="Print JSON (errors too, on standard error).",
        ),
    ]


class Verb(click.Command):
    """A click command with the shared options and with examples."""

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        answer_seconds: float | None = ANSWER_SECONDS,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples
        self.answer_seconds = answer_seconds
        self.params += shared_options()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb within its deadline."""
        with ctx.ensure_object(Invocation).deadline(self.answer_seconds):
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, one per line."""
        _write_examples(self.examples, formatter)


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"  {example}\n")


class LazyVerbs(click.Group):
    """A group that knows its verbs by ``module:attribute`` and imports them when they are needed."""

    def __init__(
        self,
        *arguments: Any,
        families: Mapping[str, Mapping[str, str]],
        examples: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples
        self.families = families
        self.places = {verb: place for family in families.values() for verb, place in family.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order of the help."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name; None where there is none."""
        return self.verb(cmd_name) if cmd_name in self.places else None

    def verb(self, name: str) -> click.Command:
        """Import the verb's module."""
        module, _, attribute = self.places[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by family."""
        for family, places in self.families.items():
            commands = {verb: self.get_command(ctx, verb) for verb in places}
            rows = [(verb, command.get_short_help_str(90)) for verb, command in commands.items() if command]
            with formatter.section(family):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, one per line."""
        _write_examples(self.examples, formatter)


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on with something that destroys: ask where somebody can answer, else go on."""
    return yes or not is_terminal() or click.confirm(question, err=True)


yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
