"""``profile``: what the daemon has learnt of kernels, to look at, to carry to another machine, to forget."""

from __future__ import annotations

from typing import IO, Final

import click
import msgspec
from fikit.protocol import (
    MOST_PROFILES,
    UNDECODABLE,
    ClearProfiles,
    Done,
    ImportProfiles,
    ListProfiles,
    ProfileRecord,
    Profiles,
    portions,
)

from fikitctl.failures import refused
from fikitctl.invocation import Invocation, note
from fikitctl.output import print_json
from fikitctl.quantities import duration_text, size_text
from fikitctl.tables import Column, Layout, layout_options, table
from fikitctl.verb import ANSWER_SECONDS, LazyVerbs, Verb, confirm, yes_option
from fikitctl.whole_file import read_whole


def read_profiles(invocation: Invocation, limit: int) -> Profiles:
    """The most sampled ones, in as many requests as it takes."""
    found: list[ProfileRecord] = []
    with invocation.connected() as control:
        while True:
            request = ListProfiles(limit=limit - len(found), offset=len(found))
            reply = control.expect(Profiles, request)
            found += reply.profiles
            if not reply.more:
                return Profiles(profiles=found)
            invocation.answered()


def _extent(extent: tuple[int, int, int]) -> str:
    return "x".join(str(size) for size in extent)


def _block_time(profile: ProfileRecord) -> str:
    return duration_text(profile.block_ns / 1e9)


def _gaps(profile: ProfileRecord) -> str:
    """The host's gaps before it, the usual predecessor's first."""
    ranked = sorted(profile.gaps, key=lambda gap: -gap.samples)
    return ", ".join(duration_text(gap.median_ns / 1e9) for gap in ranked) or "-"


def profile_columns() -> list[Column]:
    """What can be printed of a kernel's profile."""
    return [
        Column("function", lambda profile: profile.function),
        Column("grid", lambda profile: _extent(profile.grid), right=True),
        Column("block", lambda profile: _extent(profile.block), right=True),
        Column("samples", lambda profile: str(profile.samples), right=True),
        Column("median", lambda profile: duration_text(profile.median_ns / 1e9), right=True),
        Column("p95", lambda profile: duration_text(profile.p95_ns / 1e9), right=True),
        Column("block_time", _block_time, right=True, hidden=True),
        Column("wrong", lambda profile: str(profile.wrong), right=True, hidden=True),
        Column("gap", _gaps, right=True, hidden=True),
        Column("key", lambda profile: profile.key, hidden=True),
        Column("shared", lambda profile: size_text(profile.shared_bytes), right=True, hidden=True),
        Column("device", lambda profile: profile.device, hidden=True),
        Column("module", lambda profile: profile.module, hidden=True),
    ]


@click.command(
    "list",
    cls=Verb,
    examples=["fikitctl profile list", "fikitctl profile list --limit 20 --format function,samples,p95"],
)
@click.option("--limit", type=click.IntRange(1, MOST_PROFILES), default=1000, show_default=True)
@layout_options(profile_columns())
@click.pass_obj
def list_profiles(invocation: Invocation, limit: int, layout: Layout) -> None:
    """List kernel profiles, the most sampled first."""
    reply = read_profiles(invocation, limit)
    if invocation.as_json:
        print_json(reply)
        return
    click.echo(table(profile_columns(), reply.profiles, layout), nl=False)


@click.command(
    "export",
    cls=Verb,
    examples=["fikitctl profile export > profiles.json", "fikitctl profile export profiles.json"],
)
@click.argument("file", type=click.File("wb", lazy=True), default="-")
@click.pass_obj
def export_profiles(invocation: Invocation, file: IO[bytes]) -> None:
    """Write every profile as JSON to FILE (default: standard output)."""
    reply = read_profiles(invocation, MOST_PROFILES)
    file.write(msgspec.json.format(msgspec.json.encode(reply)) + b"\n")


@click.command(
    "import",
    cls=Verb,
    answer_seconds=None,
    examples=[
        "fikitctl profile import profiles.json",
        "ssh other fikitctl profile export | fikitctl profile import",
    ],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.pass_obj
def import_profiles(invocation: Invocation, file: str) -> None:
    """Take over profiles that 'export' wrote (default: standard input)."""
    try:
        with click.open_file(file, "rb") as opened:  # not while the command line is read: --timeout holds
            content = read_whole(opened)
        profiles: list[ProfileRecord] = msgspec.json.decode(content, type=Profiles).profiles
    except (ValueError, *UNDECODABLE) as error:
        name = "standard input" if file == "-" else file
        raise refused(f"{name}: no profiles: {error}", "it must be what 'profile export' wrote") from None
    with invocation.deadline(ANSWER_SECONDS), invocation.connected() as control:
        left = len(profiles)
        for portion in portions(profiles):
            left -= len(portion)
            control.request(ImportProfiles(profiles=portion, more=left > 0))
            invocation.answered()
    note(f"{len(profiles)} profiles taken over")
    if invocation.as_json:
        print_json(Done())


@click.command(
    "clear",
    cls=Verb,
    answer_seconds=None,
    examples=["fikitctl profile clear", "fikitctl profile clear --yes --timeout 5s"],
)
@yes_option
@click.pass_obj
def clear_profiles(invocation: Invocation, yes: bool) -> None:
    """Forget every profile; they are learnt again as kernels run."""
    if not confirm("Forget every kernel profile?", yes=yes):
        raise click.Abort
    with invocation.deadline(ANSWER_SECONDS):
        reply = invocation.request(ClearProfiles())
    if invocation.as_json:
        print_json(reply)


_HERE: Final = "fikitctl.commands.profile"
profile: Final = LazyVerbs(
    name="profile",
    help="Measure, list, carry over or forget what is known of kernels.",
    examples=["fikitctl profile list", "fikitctl profile export profiles.json"],
    families={
        "Verbs": {
            "measure": "fikitctl.commands.measure:measure",
            "list": f"{_HERE}:list_profiles",
            "export": f"{_HERE}:export_profiles",
            "import": f"{_HERE}:import_profiles",
            "clear": f"{_HERE}:clear_profiles",
        }
    },
)
