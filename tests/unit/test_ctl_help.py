"""Every verb explains itself, starts lean, and completes in three shells."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from fikitctl import main
from fikitctl.commands.profile import profile_columns
from fikitctl.commands.tenants import tenant_columns
from fikitctl.commands.wait import wait_columns
from fikitctl.commands.work import work_columns
from fikitctl.tables import Column
from fikitctl.verb import LazyVerbs, Verb


def _verbs(group: LazyVerbs, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, LazyVerbs):
            yield from _verbs(command, (*path, name))


VERBS = list(_verbs(main.cli))


def test_the_verbs_are_all_there() -> None:
    expected = (
        "submit run env ps show logs wait kill pause resume priority top explain events trace profile"
        " tenants status config doctor drain undrain demo completion"
    )
    assert set(expected.split()) == {verb[0] for verb in VERBS}
    assert {("profile", "list"), ("profile", "clear"), ("config", "check")} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_ends_with_examples(verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call([*verb, "--help"]) == 0
    text = capsys.readouterr().out
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert 2 <= len(examples) <= 4
    assert all("fikitctl" in example for example in examples)
    assert any(" ".join(("fikitctl", *verb)) in example for example in examples)
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb not in {("profile",), ("config",)}], ids=" ".join
)
def test_every_verb_takes_the_shared_options(verb: tuple[str, ...]) -> None:
    command: click.Command | None = main.cli
    for name in verb:
        assert isinstance(command, LazyVerbs)
        command = command.get_command(click.Context(command), name)
    assert isinstance(command, Verb)
    names = {option for parameter in command.params for option in parameter.opts}
    assert {"-H", "--socket", "--timeout", "--json"} <= names


@pytest.mark.parametrize("program", ["fikitctl", "fikitd"])
def test_each_program_is_a_module_of_python_s_too(program: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", program, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"{program} [OPTIONS]" in told.stdout.splitlines()[0]


def test_help_tells_how_run_gives_up(capsys: pytest.CaptureFixture[str]) -> None:
    """124 could be its command's."""
    assert main.call(["run", "--help"]) == 0
    assert "exit with 124 (run: 125)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("verb", "columns"),
    [
        ("ps", work_columns()),
        ("tenants", tenant_columns()),
        ("wait", wait_columns()),
        ("profile list", profile_columns()),
    ],
)
def test_help_names_every_column(
    verb: str, columns: list[Column], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call([*verb.split(), "--help"]) == 0
    told = capsys.readouterr().out.partition("--format")[2].partition("\n  --no-header")[0].split()
    assert [column.name for column in columns] == [word.rstrip(",.") for word in told[-len(columns) :]]


@pytest.mark.parametrize("group", [[], ["profile"], ["config"]], ids=" ".join)
def test_verbs_are_listed_unabridged(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call([*group, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.replace("[ARGS]...", "")


@pytest.mark.parametrize("arguments", [["--version"], ["ps", "-H", "/nonexistent/socket"], ["--help"]])
def test_starting_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"trio", "rich", "numpy", "fikitd", "asyncio", "cuda", "structlog"}
    code = (
        f"import sys\nfrom fikitctl.main import call\ncall({arguments!r})\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("shell", "mark"),
    [
        ("bash", "complete -o nosort -F"),
        ("zsh", "#compdef fikitctl"),
        ("fish", "complete --no-files --command fikitctl"),
    ],
)
def test_completion_scripts(shell: str, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert mark in script
    assert "_FIKITCTL_COMPLETE" in script


def completed(line: str) -> list[str]:
    """What bash is told of the last word."""
    code = "from fikitctl.main import main; main()"
    asked = {"_FIKITCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=asked | {"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.splitlines()


def test_bash_takes_the_script_and_completes_a_verb() -> None:
    code = "from fikitctl.main import main; main()"
    script = subprocess.run(
        [sys.executable, "-c", code, "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert completed("fikitctl und") == ["plain,undrain"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("priority n", ["plain,normal"]),
        ("run --priority h", ["plain,high"]),
        ("submit -g a", ["plain,all"]),
        ("kill -s US", ["plain,USR1", "plain,USR2"]),
        ("ps --format id,st", ["plain,id,state", "plain,id,started"]),
        ("ps -H /t", ["file,/t"]),
    ],
)
def test_what_an_option_takes_is_completed(line: str, offered: list[str]) -> None:
    assert completed(f"fikitctl {line}") == offered


@pytest.mark.parametrize("verb", ["run", "submit", "profile measure", "doctor"])
def test_the_words_of_a_command_are_completed_as_files(verb: str) -> None:
    assert completed(f"fikitctl {verb} -- python tra") == ["file,tra"]


def test_the_daemon_explains_itself_as_its_verbs_do() -> None:
    from fikitd.main import main as daemon

    asked = CliRunner().invoke(daemon, ["-h"])
    assert (asked.exit_code, asked.output.startswith("Usage: ")) == (0, True)
