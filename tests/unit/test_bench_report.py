"""python -m bench.report: what is no result of it is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import report


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("no JSON", "cannot read"),
        ('{"commit": "a", "pairs": []}', "no result of a sharing benchmark"),
        ("null", "no result of a sharing benchmark"),
    ],
)
def test_what_is_no_result_is_named(
    content: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(sys, "argv", ["bench.report", str(path)])
    with pytest.raises(SystemExit, match="2"):
        report.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert said in last
    assert str(path) in last
