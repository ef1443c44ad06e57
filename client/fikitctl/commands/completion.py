"""``completion``: what a shell loads to complete fikitctl's verbs, options and identifiers."""

from __future__ import annotations

import click

from fikitctl.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        "source <(fikitctl completion bash)    # in ~/.bashrc",
        "source <(fikitctl completion zsh)     # in ~/.zshrc, after compinit",
        "fikitctl completion fish | source     # in ~/.config/fish/config.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    from fikitctl.main import COMPLETE
    from fikitctl.shells import SHELLS

    click.echo(SHELLS[shell](ctx.find_root().command, {}, "fikitctl", COMPLETE).source())
