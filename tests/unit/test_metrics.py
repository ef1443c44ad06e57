"""The text that Prometheus reads."""

from __future__ import annotations

import pytest

from fikitd.metrics import Family


def test_a_counter_s_name_says_so_and_labels_come_in_order() -> None:
    family = Family("counter", "fikit_launches", "Kernels launched.", ["tenant", "gpu"])
    family.add(["ada", "0"], 3)
    family.add(["bob", "1"], 0.25)
    assert str(family) == (
        "# HELP fikit_launches_total Kernels launched.\n"
        "# TYPE fikit_launches_total counter\n"
        'fikit_launches_total{gpu="0",tenant="ada"} 3.0\n'
        'fikit_launches_total{gpu="1",tenant="bob"} 0.25\n'
    )


def test_a_gauge_without_values_is_declared() -> None:
    assert str(Family("gauge", "fikit_jobs", "Jobs.", ["state"])) == (
        "# HELP fikit_jobs Jobs.\n# TYPE fikit_jobs gauge\n"
    )


def test_no_name_of_a_tenant_ends_its_label() -> None:
    family = Family("gauge", "fikit_sessions", "Sessions.", ["tenant"])
    family.add(['a"} 1\n\\'], 1)
    assert str(family).splitlines()[2:] == [r'fikit_sessions{tenant="a\"} 1\n\\"} 1.0']


def test_every_label_has_a_value() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Family("gauge", "fikit_jobs", "Jobs.", ["tenant", "state"]).add(["ada"], 1)
