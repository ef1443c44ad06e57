"""Things that are declared once and used twice must agree."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from fikit import protocol

from fikitd.api import reference, requests
from fikitd.api.registry import HANDLERS
from fikitd.configuration import Configuration
from fikitd.configuration_files import convert, default_text, help_of
from fikitd.jobs.model import OVER, TRANSITIONS, Job

ROOT = Path(__file__).resolve().parents[2]


def test_every_request_has_a_handler() -> None:
    assert requests
    assert set(HANDLERS) == set(protocol.REQUESTS)


def test_protocol_page_is_current() -> None:
    assert (ROOT / "docs/protocol.md").read_text() == reference.render()


def test_shipped_configuration_is_current() -> None:
    assert (ROOT / "systemd/fikitd.toml").read_text() == default_text()


def test_every_setting_has_help() -> None:
    defaults = Configuration()
    for name in Configuration.__struct_fields__:
        section = getattr(defaults, name)
        for field in getattr(section, "__struct_fields__", ()):
            assert help_of(type(section), field), f"{name}.{field}"


def test_default_text_is_the_default() -> None:
    lines = [line.removeprefix("# ") for line in default_text().splitlines()]
    settings = [line for line in lines if " = " in line or line.startswith("[")]
    table = tomllib.loads("\n".join(settings))
    del table["tenants"]
    assert convert(table, Path("default")) == Configuration()


def test_job_states() -> None:
    assert set(TRANSITIONS) == set(get_args(get_type_hints(protocol.JobRecord)["state"]))
    assert set(OVER) == {"finished", "failed", "killed", "lost"}
    job = Job(
        number=1,
        tenant="t",
        uid=1,
        gid=1,
        groups=(),
        name="n",
        command=["c"],
        directory="/",
        priority=5,
        gpu_asked=None,
    )
    with pytest.raises(ValueError, match="queued to finished"):
        job.moved("finished")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_units_are_right(tmp_path: Path) -> None:
    for name in ("fikitd.service", "fikitd.socket"):
        text = (ROOT / "systemd" / name).read_text()
        (tmp_path / name).write_text(re.sub(r"(Exec\w+)=fikit\w+", r"\1=/bin/true", text))
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        str(tmp_path / "fikitd.service"),
        str(tmp_path / "fikitd.socket"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    ours = [line for line in result.stderr.splitlines() if "fikitd" in line]
    assert ours == []
