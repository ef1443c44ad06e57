"""``config check``: the daemon's own reading of a file, without the daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fikitd.configuration_files", reason="the daemon package is not here")
Fikitctl = Any


def test_a_file_that_is_right(fikitctl: Fikitctl, tmp_path: Path) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text("[jobs]\nmax_running = 3\n")
    assert fikitctl("config", "check", str(file)) == (0, f"{file}: ok\n", "")
    assert json.loads(fikitctl("config", "check", "--json", str(file)).out)["jobs"]["max_running"] == 3


def test_a_file_that_is_wrong_is_named_with_its_key(fikitctl: Fikitctl, tmp_path: Path) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text("[jobs]\nmax_runing = 3\n")
    result = fikitctl("config", "check", str(file))
    assert (result.code, result.out) == (1, "")
    assert str(file) in result.err
    assert "max_runing" in result.err


@pytest.mark.parametrize(
    "key", ["executor.start_seconds", "executor.unresponsive_seconds", "profiles.interval_seconds"]
)
def test_no_time_at_all_is_wrong(fikitctl: Fikitctl, tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    file = tmp_path / "fikitd.toml"
    file.write_text(f"[{section}]\n{name} = 0.0\n")
    result = fikitctl("config", "check", str(file))
    assert (result.code, key in result.err) == (1, True)


@pytest.mark.parametrize(
    ("scale", "code"), [("1e-300", 1), ("0.0009", 1), ("0.001", 0), ("1e6", 0), ("2e6", 1)]
)
def test_time_is_scaled_as_far_as_a_device_can(
    fikitctl: Fikitctl, tmp_path: Path, scale: str, code: int
) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text(f"[device]\ntime_scale = {scale}\n")
    result = fikitctl("config", "check", str(file))
    assert (result.code, "device.time_scale" in result.err) == (code, code != 0)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("daemon", "socket", '"a\\u0000b"'),
        ("daemon", "socket_group", '"a\\u0000b"'),
        ("daemon", "administrator_group", '"a\\u0000b"'),
        ("executor", "command", '["a\\u0000b"]'),
    ],
)
def test_what_no_path_or_name_can_be_is_wrong(
    fikitctl: Fikitctl, tmp_path: Path, section: str, name: str, value: str
) -> None:
    """A daemon ended with it, in the middle of its work where a reload had brought it."""
    file = tmp_path / "fikitd.toml"
    file.write_text(f"[{section}]\n{name} = {value}\n")
    result = fikitctl("config", "check", str(file))
    assert (result.code, f"{section}.{name}" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("tenant_defaults", "priority_ceiling", "high"),
        ("daemon", "socket_mode", "0660"),
        ("device", "choice", "sim"),
    ],
)
def test_a_line_break_is_no_part_of_a_word(
    fikitctl: Fikitctl, tmp_path: Path, section: str, name: str, value: str
) -> None:
    """As a text over several lines ends with one. With such a ceiling nobody could connect."""
    file = tmp_path / "fikitd.toml"
    file.write_text(f'[{section}]\n{name} = "{value}"\n')
    assert fikitctl("config", "check", str(file)).code == 0
    file.write_text(f'[{section}]\n{name} = """\n{value}\n"""\n')
    result = fikitctl("config", "check", str(file))
    assert (result.code, f"{section}.{name}" in result.err) == (1, True)


def test_a_file_that_cannot_be_looked_for(fikitctl: Fikitctl) -> None:
    assert "File name too long" in fikitctl("config", "check", "x" * 300).err


def test_a_file_that_is_not_there(fikitctl: Fikitctl, tmp_path: Path) -> None:
    assert fikitctl("config", "check", str(tmp_path / "none.toml")).code == 1


def test_the_configuration_of_an_own_daemon_is_right(fikitctl: Fikitctl, tmp_path: Path) -> None:
    from fikitctl.own_daemon import configuration_text

    file = tmp_path / "fikitd.toml"
    file.write_text(configuration_text(tmp_path, "sim"))
    assert fikitctl("config", "check", str(file)).code == 0


def test_no_file_at_all_is_right(fikitctl: Fikitctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", str(tmp_path))
    result = fikitctl("config", "check")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{tmp_path / 'fikitd.toml'}: not there")
    (tmp_path / "fikitd.toml").touch()
    assert fikitctl("config", "check").out == f"{tmp_path / 'fikitd.toml'}: ok\n"


def test_every_file_that_holds_is_named(
    fikitctl: Fikitctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything was said to be at its default where a file in conf.d says otherwise."""
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", str(tmp_path))
    (tmp_path / "conf.d").mkdir()
    part = tmp_path / "conf.d" / "10-jobs.toml"
    part.write_text("[jobs]\nmax_running = 3\n")
    assert fikitctl("config", "check") == (0, f"{part}: ok\n", "")
    (tmp_path / "fikitd.toml").touch()
    assert fikitctl("config", "check").out == f"{tmp_path / 'fikitd.toml'}: ok\n{part}: ok\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[daemon]\ndrain_seconds = nan", "daemon.drain_seconds"),
        ("[scheduling]\npartitions = [0.5, nan]", "scheduling.partitions[1]"),
    ],
)
def test_what_is_no_number_is_named_with_its_key(
    fikitctl: Fikitctl, tmp_path: Path, text: str, key: str
) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text(text)
    result = fikitctl("config", "check", str(file))
    assert (result.code, f"nan is no number - at `{key}`" in result.err) == (1, True)


def test_what_is_there_and_no_file_is_not_said_to_be_missing(fikitctl: Fikitctl) -> None:
    assert "/dev/null: no regular file" in fikitctl("config", "check", "/dev/null").err


def test_a_tenant_whom_nobody_can_be_is_named(fikitctl: Fikitctl, tmp_path: Path) -> None:
    """A name that is misspelt has limits that hold for nobody."""
    file = tmp_path / "fikitd.toml"
    file.write_text(
        "[tenants.root]\nmax_jobs = 1\n[tenants.rot]\nmax_jobs = 1\n[tenants.4711]\nmax_jobs = 1\n"
    )
    told = "fikitctl: [tenants.rot]: there is no user of that name here\n"
    assert fikitctl("config", "check", str(file)) == (0, f"{file}: ok\n", told)
