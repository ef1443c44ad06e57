"""The figures, the table and the JSON of the demonstration."""

from __future__ import annotations

import json

from fikitctl.demo import usual_seconds
from fikitctl.demonstration.messages import Failed, Measured, Ready, answer, line
from fikitctl.demonstration.results import Figures, Result, figures, report
from fikitctl.output import json_text

RESULT = Result(
    device="some GPU",
    alone=Figures(10.0, 11.0, 40.0),
    equal=Figures(12.5, 22.0, 38.0),
    priority=Figures(10.1, 11.55, 32.0),
)


def test_figures_of_a_phase() -> None:
    high = Measured([float(step) for step in range(201)], 2.0)
    assert figures(high, Measured([1.0] * 30, 1.5)) == Figures(100.0, 198.0, 20.0)


def test_the_table() -> None:
    assert report(RESULT, "serving", "training").splitlines() == [
        "some GPU: serving (high) beside training (low)",
        "PHASE           HIGH P50 MS  OF ALONE  HIGH P99 MS  OF ALONE  LOW STEPS/S  OF ALONE",
        "each alone            10.00      1.00        11.00      1.00         40.0      1.00",
        "equal priority        12.50      1.25        22.00      2.00         38.0      0.95",
        "high and low          10.10      1.01        11.55      1.05         32.0      0.80",
    ]


def test_the_json() -> None:
    document = json.loads(json_text(RESULT))
    assert list(document) == ["device", "alone", "equal", "priority"]
    assert document["device"] == "some GPU"
    assert document["equal"] == {"hp_p50_ms": 12.5, "hp_p99_ms": 22.0, "lp_per_s": 38.0}
    assert all(document[phase].keys() == document["equal"].keys() for phase in ("alone", "priority"))


def test_it_takes_about_as_long_on_every_device() -> None:
    assert usual_seconds(1.0) == 5
    assert usual_seconds(8.0) * 8 == 10


def test_answers_travel() -> None:
    for message in (Ready(), Measured([1.0], 2.0), Failed("permission", "no", "ask")):
        assert answer(line(message)) == message
