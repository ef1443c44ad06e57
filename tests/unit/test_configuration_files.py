"""The configuration's files: what holds of several, and what is wrong with them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fikitd import _core
from fikitd.configuration import IN_WORDS, Configuration, allowance
from fikitd.configuration_files import load
from fikitd.errors import ConfigurationError
from fikitd.executor.core import settings_of
from fikitd.scheduling.settings import SchedulingSection


def test_configuration_files(tmp_path: Path) -> None:
    main = tmp_path / "fikitd.toml"
    main.write_text('[tenant_defaults]\nmax_jobs = 5\n[tenants.ann]\npriority_ceiling = "high"\n')
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1.toml").write_text(
        "[tenants.ann]\nmax_sessions = 2\n[tenants.12]\nmax_jobs = 1\n"
    )
    configuration = load(main)
    ann = allowance(configuration, "ann", "11")
    assert (ann.priority_ceiling, ann.max_sessions, ann.max_jobs) == (0, 2, 5)
    assert allowance(configuration, "bob", "12").max_jobs == 1
    (tmp_path / "conf.d" / "2.toml").write_text("[jobs]\nmax_runing = 1\n")
    with pytest.raises(ConfigurationError, match=r"2\.toml.*max_runing.*jobs"):
        load(main)
    with pytest.raises(ConfigurationError, match="no such file"):
        load(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[daemon]\nlog_level = "verbose"', "`daemon.log_level`; it is one of debug, info, warning, error"),
        ("[daemon]\nlog_levle = 1", "`log_levle` - at `daemon`; do you mean log_level?"),
        ("[tenants.ann]\nmemory_limit_byte = 1", "at `tenants.ann`; do you mean memory_limit_bytes?"),
        ("[shceduling]", "`shceduling`; do you mean scheduling?"),
        ('log_level = "info"', "`log_level`; it belongs in [daemon]"),
        ("max_sessions = 1", "; it belongs in [device] or [tenant_defaults] or [tenants.NAME]"),
        ("[jobs]\nqqq = 1", "unknown field `qqq` - at `jobs`"),
    ],
)
def test_what_may_be_meant_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "fikitd.toml").write_text(text)
    with pytest.raises(ConfigurationError) as wrong:
        load(tmp_path / "fikitd.toml")
    assert str(wrong.value).endswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[tenant_defaults]\npriority_ceiling = "urgent"',
            'Expected one of "high", "normal", "low" and "0" (highest) to "9"'
            " - at `tenant_defaults.priority_ceiling`",
        ),
        ('[tenants.ann]\npriority_ceiling = "10"', '"9" - at `tenants.ann.priority_ceiling`'),
        (
            '[daemon]\nsocket_mode = "666"',
            'Expected four octal digits with a 0 in front, as "0660" - at `daemon.socket_mode`',
        ),
        (
            '[device]\nchoice = "0,1"',
            'Expected "auto", "sim" or the index of a GPU, as "0" - at `device.choice`',
        ),
        ('[daemon]\nsocket = "a\\u0000"', "Expected text without a zero character - at `daemon.socket`"),
        (
            '[tenant_defaults]\nmemory_limit_bytes = "8G"',
            "Expected `int`, got `str` - at `tenant_defaults.memory_limit_bytes`",
        ),
    ],
)
def test_what_a_setting_takes_is_told_in_words(tmp_path: Path, text: str, told: str) -> None:
    """No regular expression, nor a null, which TOML has not."""
    (tmp_path / "fikitd.toml").write_text(text)
    with pytest.raises(ConfigurationError) as wrong:
        load(tmp_path / "fikitd.toml")
    assert str(wrong.value).endswith(told)


def test_every_pattern_of_a_setting_has_its_words() -> None:
    written = msgspec.json.schema(Configuration)
    patterns = set(re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps(written)))
    assert {json.loads(f'"{pattern}"') for pattern in patterns} == IN_WORDS.keys()


def test_the_native_core_presumes_what_is_configured_by_default() -> None:
    """The replay and the native tests go by its defaults, the daemon by the configuration's."""
    ours, presumed = settings_of(SchedulingSection()), _core.Settings()
    bounds = [name for name in dir(presumed.bounds) if not name.startswith("_")]
    assert {name: getattr(ours.bounds, name) for name in bounds} == {
        name: getattr(presumed.bounds, name) for name in bounds
    }
    for name in ("spin_host_ns", "poll_host_ns", "staging_bytes", "host_limit_bytes"):
        assert getattr(ours, name) == getattr(presumed, name), name


def test_a_daemon_that_nobody_could_reach_is_not_configured(tmp_path: Path) -> None:
    """No connection at all would keep administrators out, too."""
    (tmp_path / "fikitd.toml").write_text("[daemon]\nmax_connections_per_user = 0\n")
    with pytest.raises(ConfigurationError, match="max_connections_per_user"):
        load(tmp_path / "fikitd.toml")


def test_a_gpu_is_not_given_more_executors_than_have_a_place_on_its_board(tmp_path: Path) -> None:
    """One that finds none does not start, for which the GPU would be doubted."""
    (tmp_path / "fikitd.toml").write_text("[executor]\nmax_per_gpu = 64\n")
    with pytest.raises(ConfigurationError, match="max_per_gpu"):
        load(tmp_path / "fikitd.toml")


def test_a_link_that_leads_nowhere_is_no_file_without_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits that an operator meant would not hold. One to /dev/null means none, as systemd has it."""
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", str(tmp_path))
    more = tmp_path / "conf.d"
    more.mkdir()
    for link in (more / "limits.toml", tmp_path / "fikitd.toml"):
        link.symlink_to(tmp_path / "moved")
        with pytest.raises(ConfigurationError, match=f"{link}: No such file"):
            load(None)
        link.unlink()
        link.symlink_to("/dev/null")
        assert load(None) == Configuration()
        link.unlink()
    more.rmdir()
    more.symlink_to(tmp_path / "moved")
    with pytest.raises(ConfigurationError, match=f"{more}: No such file"):
        load(None)


@pytest.mark.parametrize(
    ("text", "word"), [("drain_seconds = nan", "nan"), ("drain_seconds = 1" + "0" * 5000, "digits")]
)
def test_a_number_that_is_none(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text(f"[daemon]\n{text}\n")
    with pytest.raises(ConfigurationError, match=word):
        load(file)


def test_of_many_tenants_the_one_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "fikitd.toml"
    file.write_text("[tenants.ann]\nweight = 2\n[tenants.bob]\nwieght = 2\n[tenants.cy]\nweight = 2\n")
    with pytest.raises(ConfigurationError, match=r"`wieght` - at `tenants\.bob`"):
        load(file)
    file.write_text("[tenants.ann]\nweight = 2\n[tenants.bob]\nweight = 0.0\n")
    with pytest.raises(ConfigurationError, match=r"at `tenants\.bob\.weight`"):
        load(file)


def test_files_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    """As TOML is. In Latin-1 a tenant's limits were those of somebody else, who does not exist."""
    file = tmp_path / "fikitd.toml"
    file.write_bytes('[tenants."jürgen"]\nmax_jobs = 1\n'.encode())
    reading = (
        "import sys; from fikitd.configuration_files import *; print(ascii(load(Path(sys.argv[1])).tenants))"
    )
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    told = subprocess.run(
        [sys.executable, "-c", reading, str(file)],
        env={**os.environ, **locale},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (told.stderr, told.stdout[:12]) == ("", r"{'j\xfcrgen'")
