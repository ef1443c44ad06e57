"""What bench.unmodified finds out about its programs, and the matrix that it becomes in the documents."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import found, report, unmodified


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    text = (
        '"""Does one thing,\nand another. Yes."""\nimport os\nimport no_such.part\nfrom nor_this import x\n'
    )
    read = found.python_program(program(tmp_path, text), 5.0, gpus=1)
    assert read.covers == "Does one thing, and another"
    assert read.lacks == "not installed: no_such, nor_this"


def test_a_program_may_need_more_gpus(tmp_path: Path) -> None:
    path = program(tmp_path, '"""Two."""\nGPUS = 2\n')
    assert found.python_program(path, 5.0, gpus=1).lacks == "needs 2 GPUs"
    assert found.python_program(path, 5.0, gpus=2).lacks == ""


def test_every_program_says_what_it_covers(tmp_path: Path) -> None:
    for path in found.PROGRAMS.glob("*.py"):
        assert found.python_program(path, 1.0, gpus=2).covers, path
    for path in found.PROGRAMS.glob("*.cu"):
        assert path.read_text().startswith("// "), path


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such program: nothing"):
        found.programs(["nothing"], tmp_path, 1.0, 1)


def test_what_is_absent_is_not_run_and_not_passed(tmp_path: Path) -> None:
    absent = found.Program("p", "what", (sys.executable, "-c", "raise SystemExit(1)"), "not installed: q")
    outcome = unmodified.examine(absent, unmodified.Place("/none", []), 1.0, tmp_path)
    assert (outcome.verdict, outcome.native_seconds) == ("not installed: q", None)
    assert not list(tmp_path.iterdir())


def test_output_is_compared_word_by_word() -> None:
    assert unmodified.difference("a 1.0000 [2,\n", "a 1.0004 [2,\n") == ""
    assert unmodified.difference("a 1.0\n", "a 1.1\n") == "natively 'a 1.0', here 'a 1.1'"
    assert unmodified.difference("a\nb\n", "a\n") == "2 lines natively, 1 here"


def test_the_matrix_is_a_document_s_table(tmp_path: Path) -> None:
    result = {
        "benchmark": "unmodified",
        "device": "GPU",
        "gpus": 1,
        "driver": "",
        "commit": "abc",
        "libraries": {"torch": "2"},
        "programs": [
            {"name": "a", "covers": "one", "verdict": "pass", "native_seconds": 1.04,
             "fikitd_seconds": 2.0, "not_served": ["cuX"]},
            {"name": "b", "covers": "two", "verdict": "not installed: jax", "native_seconds": None,
             "fikitd_seconds": None, "not_served": []},
        ],
    }  # fmt: skip
    assert report.document_table(result).splitlines()[-2:] == [
        "| `a` | one | pass | 1.0 | 2.0 | cuX |",
        "| `b` | two | not installed: jax | - | - |  |",
    ]
    assert "GPU (1), driver none, commit abc: 1 of 2 pass. With torch 2." in report.document_table(result)
    assert "With torch 2. Slowly." in report.document_table({**result, "remarks": "Slowly."})
