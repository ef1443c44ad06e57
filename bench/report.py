"""What a benchmark's result says, for people: a table of all of it, and the tables in documents.

python -m bench.report RESULTS.json          of a sharing benchmark: every pair and configuration
python -m bench.report --renew README.md     the file's tables, from the result that the mark above each names
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, Final

BLOCK: Final = re.compile(r"(<!-- table of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


NAMES: Final = {
    "time-sliced": "time slicing",
    "mps": "MPS",
    "mps-priority": "MPS, low at client priority 1",
    "control": "control: the low side's host work only",
    "streams": "stream priorities in one context",
}


def table(result: dict[str, Any]) -> str:
    """The same for people."""
    head = (
        f"{'':24} {'HP p50 ms':>10} {'p99 ms':>8} {'LP/s':>8} {'p50':>7} {'p99':>7} {'LP':>7} {'of bound':>9}"
    )
    lines = [f"{result['device']}, driver {result['driver'] or 'none'}, commit {result['commit']}"]
    lines += [f"left out: {name}: {reason}" for name, reason in result["skipped"].items()]

    def shown(value: float | None, width: int, places: int = 3) -> str:
        return f"{'-' if value is None else f'{value:.{places}f}':>{width}}"

    for pair in result["pairs"]:
        lines += ["", title(pair), head]
        for each in pair["configurations"]:
            figures = [
                shown(each["hp_p50_ms"], 10),
                shown(each["hp_p99_ms"], 8),
                shown(each["lp_steps_per_second"], 8, 1),
                *(shown(each[name], 7) for name in ("hp_p50_ratio", "hp_p99_ratio", "lp_ratio")),
                shown(each["lp_of_bound"], 9),
            ]
            lines.append(" ".join([f"{each['configuration']:24}", *figures]))
    return "\n".join(lines)


def title(pair: dict[str, Any]) -> str:
    """Which pair it is, and with how many on the low side where that is more than one."""
    several = f"{lows} x " if (lows := pair.get("lows", 1)) > 1 else ""
    return f"{pair['high']} : {several}{pair['low']}"


def workloads_table(result: dict[str, Any]) -> str:
    """What real programs got: start-ups, each alone, then the pairs."""
    lines = []
    if found := result["start_ups"]:
        lines += [
            f"seconds from exec to the first step of {found['workload']}",
            f"{'':8} {'first':>7} second",
        ]
        for way in ("native", "fikitd"):
            lines.append(
                f"{way:8} {found[way]['first']['stepped']:7.2f} {found[way]['second']['stepped']:6.2f}"
            )
        lines.append(f"{'ratio':8} {found['first_ratio']:7.3f} {found['second_ratio']:6.3f}")
    if result["solo"]:
        lines += [
            "",
            f"{'alone':16} {'p50 ms':>8} {'fikitd':>8} {'p99 ms':>8} {'fikitd':>8}    p50    p99  GPU MiB",
        ]
    for each in result["solo"]:
        native, ours = each["configurations"]
        times = (row[name] for name in ("hp_p50_ms", "hp_p99_ms") for row in (native, ours))
        ratios = f"{ours['hp_p50_ratio']:6.3f} {ours['hp_p99_ratio']:6.3f}"
        held = ", ".join("-" if mib is None else f"{mib:.0f}" for mib in each["memory_mib"].values())
        lines.append(f"{each['workload']:16} {' '.join(f'{time:8.3f}' for time in times)} {ratios}  {held}")
    return "\n".join([table(result), "", *lines])


def summary(measured: dict[str, Any]) -> str:
    """A line about a pair."""
    bound = any(each["lp_of_bound"] is not None for each in measured["configurations"])
    low = "lp_of_bound" if bound else "lp_ratio"
    rows = [
        f"{each['configuration']} {each['hp_p99_ratio']:.3f} {each[low]:.3f}"
        for each in measured["configurations"]
        if each["hp_p99_ratio"] is not None and each[low] is not None
    ]
    times = f"{measured['all_seconds']} s, set-up {measured['set_up_seconds']}, {measured['seconds']} each"
    what = "low of bound" if bound else "low of alone"
    return f"{title(measured)} ({times}); p99 and {what}: {', '.join(rows)}"


def shared(result: dict[str, Any]) -> list[str]:
    """The configurations in which both sides play, and of real programs the control."""
    names = dict.fromkeys(row["configuration"] for pair in result["pairs"] for row in pair["configurations"])
    left_out = {"alone"} if result.get("benchmark") == "workloads" else {"alone", "control"}
    return [name for name in names if name not in left_out and not name.endswith("-alone")]


def markdown(result: dict[str, Any]) -> str:
    """The README's tables: who played alone, then every pair in all ways of sharing."""
    names = shared(result)
    pairs = result["pairs"]
    rows = [{row["configuration"]: row for row in pair["configurations"]} for pair in pairs]

    def over_pairs(
        how: Callable[[list[float]], float], worst_low: Callable[[list[float]], float]
    ) -> list[str]:
        cells = []
        for name in names:
            mine = [row[name] for row in rows if name in row]
            tail = how([each["hp_p99_ratio"] for each in mine])
            low, bound = (
                worst_low(present)
                if (present := [row[key] for row in mine if row[key] is not None])
                else None
                for key in ("lp_ratio", "lp_of_bound")
            )
            cells.append(cell(tail, low) + (f" ({bound:.2f} of the bound)" if bound is not None else ""))
        return cells

    lines = solo_lines(result) if result.get("solo") else []
    if not pairs:
        return "\n".join(lines)
    heads = (NAMES.get(name) or f"fikitd, `{name.removeprefix('fikitd-')}`" for name in names)
    lines += [line("high : low", heads), "|---" * (len(names) + 1) + "|"]
    for pair, row in zip(pairs, rows, strict=True):
        found = (row.get(name) for name in names)
        cells = (cell(each["hp_p99_ratio"], each["lp_ratio"]) if each else "-" for each in found)
        lines.append(line(title(pair), cells))
    lines += [line("mean", over_pairs(fmean, fmean)), line("worst", over_pairs(max, min))]
    left_out = [f"Left out: {name} ({reason})." for name, reason in result["skipped"].items()]
    return "\n".join([*lines, *(["", *left_out] if left_out else [])])


def line(what: str, cells: Iterable[str]) -> str:
    """A row of a table."""
    return f"| {what} | {' | '.join(cells)} |"


def cell(tail: float, low: float | None) -> str:
    """The high side's p99 and, where there is one, the low side's rate."""
    return f"{tail:.2f}" if low is None else f"{tail:.2f}, {low:.2f}"


def solo_lines(result: dict[str, Any]) -> list[str]:
    """A table of what workloads take alone, and a sentence about their start."""
    lines = [
        "| alone | native p50, p99 (ms) | under fikitd | ratio | GPU memory of the process (MiB) |",
        "|---|---|---|---|---|",
    ]
    for each in result["solo"]:
        native, ours = each["configurations"]
        times = (f"{row['hp_p50_ms']:.2f}, {row['hp_p99_ms']:.2f}" for row in (native, ours))
        ratios = f"{ours['hp_p50_ratio']:.2f}, {ours['hp_p99_ratio']:.2f}"
        held = " : ".join("-" if mib is None else f"{mib:.0f}" for mib in each["memory_mib"].values())
        lines.append(line(each["workload"], [*times, ratios, held]))
    if found := result["start_ups"]:
        lines += ["", "From exec to the first step of {workload}: {first}, {second}.".format(
            workload=found["workload"],
            **{
                which: f"a {which} process {found['native'][which]['stepped']:.1f} s natively, "
                f"{found['fikitd'][which]['stepped']:.1f} s under fikitd"
                for which in ("first", "second")
            },
        )]  # fmt: skip
    return [*lines, ""]


def renewed(text: str, folder: Path) -> str:
    """The text with the tables between marks made anew; a mark names a result by its path from the folder."""

    def block(found: re.Match[str]) -> str:
        result = json.loads((folder / found[2]).read_text())
        return f"{found[1]}{document_table(result)}\n{found[3]}"

    return BLOCK.sub(block, text)


def document_table(result: dict[str, Any]) -> str:
    """The table that a document shows of a result."""
    return programs(result) if "programs" in result else markdown(result)


def programs(result: dict[str, Any]) -> str:
    """Every unmodified program with what came of it."""
    passed = sum(program["verdict"] == "pass" for program in result["programs"])
    libraries = ", ".join(f"{name} {version}" for name, version in result["libraries"].items())
    said = [f"With {libraries}." if libraries else "", result.get("remarks", "")]
    where = f"{result['device']} ({result['gpus']}), driver {result['driver'] or 'none'}"
    passed_of = f"{passed} of {len(result['programs'])} pass"
    head = " ".join([f"{where}, commit {result['commit']}: {passed_of}.", *filter(None, said)])

    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    rows = [
        f"| `{each['name']}` | {each['covers']} | {each['verdict']} | {seconds(each['native_seconds'])} "
        f"| {seconds(each['fikitd_seconds'])} | {', '.join(each['not_served'])} |"
        for each in result["programs"]
    ]
    titles = "| program | covers | result | natively, s | under fikitd, s | calls not served |"
    return "\n".join([head, "", titles, "|---" * 6 + "|", *rows])


def main() -> None:
    """Print, or renew."""
    parser = argparse.ArgumentParser(prog="bench.report", description="What a benchmark's result says.")
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--renew", type=Path, metavar="FILE")
    options = parser.parse_args()
    named = options.renew or options.results or parser.error("name a result to print, or --renew a file")
    try:
        if options.renew:
            options.renew.write_text(renewed(options.renew.read_text(), options.renew.parent))
        else:
            print(table(json.loads(options.results.read_text())))
    except (OSError, ValueError) as error:
        parser.error(f"cannot read {named}: {error}")
    except (LookupError, TypeError, AttributeError):
        parser.error(f"{named} is no result of a sharing benchmark, or names one that is none")


if __name__ == "__main__":
    main()
