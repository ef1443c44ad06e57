"""Sizes, durations, signals: read and written."""

from __future__ import annotations

import pytest
from fikitctl.quantities import (
    duration_text,
    parse_duration,
    parse_gpus,
    parse_priority,
    parse_signal,
    parse_size,
    size_text,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512M", 512 << 20),
        ("8G", 8 << 30),
        ("8gib", 8 << 30),
        ("1.5K", 1536),
        ("7B", 7),
        (" 2 TB ", 2 << 40),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "G", "-1", "8 gallons", "1e9", "1.2.3G", "8GG", "inf"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400, "99999999T", "5000000000G"])
def test_sizes_that_nothing_has(text: str) -> None:
    with pytest.raises(ValueError, match="more than there can be"):
        parse_size(text)


def test_a_size_is_exact() -> None:
    assert parse_size("9007199254740993") == 9007199254740993
    assert parse_size("0.0001") == 1  # 0 would be no limit at all


@pytest.mark.parametrize("text", ["9" * 400, "100000d"])
def test_durations_that_nobody_waits(text: str) -> None:
    with pytest.raises(ValueError, match="longer than can be waited"):
        parse_duration(text)


def test_gpus_by_number_or_uuid() -> None:
    uuid = "8932f937-d72c-4106-c12f-20bd9faed9f6"
    assert parse_gpus(f"1,GPU-8932F,MIG-{uuid}") == [1, "GPU-8932f", f"GPU-{uuid}"]
    assert (parse_gpus(""), parse_gpus("all")) == ([], "all")


@pytest.mark.parametrize(
    "text", ["-1", "0,", "²", "99999999999999999999", "GPU-", "GPU-x", "MIG-8932f937", "0,all"]
)
def test_no_gpus(text: str) -> None:
    with pytest.raises(ValueError, match="is no list of GPUs"):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("1.5s", 1.5), ("500ms", 0.5), ("2m", 120), ("1h", 3600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1y", "1m30s", "nan"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


def test_signals() -> None:
    assert [parse_signal(text) for text in ("TERM", "sigint", "9")] == [15, 2, 9]
    for text in ("65", "²", "0", "9" * 5000):
        with pytest.raises(ValueError, match="is no signal"):
            parse_signal(text)


def test_priorities() -> None:
    assert [parse_priority(text) for text in ("high", "normal", "low", "3")] == [0, 5, 9, 3]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "-"),
        (300, "300B"),
        (1536, "1.5K"),
        ((1 << 20) - 513, "1023K"),
        ((1 << 20) - 1, "1.0M"),
        (200 << 20, "200M"),
        (8 << 30, "8.0G"),
        (3 << 40, "3.0T"),
    ],
)
def test_size_text(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "-"),
        (5e-9, "5ns"),
        (2e-6, "2.0us"),
        (0.0015, "1.5ms"),
        (9.994e-7, "999ns"),
        (9.996e-7, "1.0us"),
        (0.99994, "999.9ms"),
        (0.99996, "1.0s"),
        (59, "59.0s"),
        (59.94, "59.9s"),
        (59.96, "1m00s"),
        (60.5, "1m00s"),
        (310, "5m10s"),
        (7500, "2h05m"),
    ],
)
def test_duration_text(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.integers(min_value=0, max_value=1 << 50))
def test_written_sizes_can_be_read_again(count: int) -> None:
    text = size_text(count)
    read = 0 if text == "-" else parse_size(text)
    assert abs(read - count) <= max(1, count * 0.06)


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_written_durations_are_short(seconds: float) -> None:
    assert len(duration_text(seconds)) <= 9
