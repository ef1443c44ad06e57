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
        lines += ["", f"{pair['high']} : {pair['low']}", head]
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


def summary(measured: dict[str, Any]) -> str:
    """A line about a pair."""
    rows = [
        f"{each['configuration']} {each['hp_p99_ratio']:.3f} {each['lp_of_bound']:.3f}"
        for each in measured["configurations"]
        if each["hp_p99_ratio"] is not None and each["lp_of_bound"] is not None
    ]
    times = f"{measured['all_seconds']} s, set-up {measured['set_up_seconds']}, {measured['seconds']} each"
    return f"{measured['high']} : {measured['low']} ({times}); p99 and low of bound: {', '.join(rows)}"


def shared(result: dict[str, Any]) -> list[str]:
    """The configurations in which both sides play."""
    names = dict.fromkeys(row["configuration"] for pair in result["pairs"] for row in pair["configurations"])
    return [name for name in names if name not in ("alone", "control") and not name.endswith("-alone")]


def markdown(result: dict[str, Any]) -> str:
    """The README's table: every pair in every configuration in which both sides play."""
    names = shared(result)
    rows = [{row["configuration"]: row for row in pair["configurations"]} for pair in result["pairs"]]

    def line(what: str, cells: Iterable[str]) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    def over_pairs(
        how: Callable[[list[float]], float], worst_low: Callable[[list[float]], float]
    ) -> list[str]:
        cells = []
        for name in names:
            mine = [row[name] for row in rows if name in row]
            figures = ([row[key] for row in mine] for key in ("hp_p99_ratio", "lp_ratio", "lp_of_bound"))
            tail, low, bound = figures
            cells.append(f"{how(tail):.2f}, {worst_low(low):.2f} ({worst_low(bound):.2f} of the bound)")
        return cells

    table_lines = [
        line(
            "high : low", (NAMES.get(name) or f"fikitd, `{name.removeprefix('fikitd-')}`" for name in names)
        ),
        "|---" * (len(names) + 1) + "|",
    ]
    for pair, row in zip(result["pairs"], rows, strict=True):
        found = (row.get(name) for name in names)
        cells = (f"{each['hp_p99_ratio']:.2f}, {each['lp_ratio']:.2f}" if each else "-" for each in found)
        table_lines.append(line(f"{pair['high']} : {pair['low']}", cells))
    table_lines += [line("mean", over_pairs(fmean, fmean)), line("worst", over_pairs(max, min))]
    left_out = [f"Left out: {name} ({reason})." for name, reason in result["skipped"].items()]
    return "\n".join([*table_lines, *(["", *left_out] if left_out else [])])


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
    if options.renew:
        options.renew.write_text(renewed(options.renew.read_text(), options.renew.parent))
    elif options.results:
        print(table(json.loads(options.results.read_text())))
    else:
        parser.error("name a result to print, or --renew a file")


if __name__ == "__main__":
    main()
