"""What a sharing benchmark says, for people: a table of all of it, and the README's.

python -m bench.report RESULTS.json                     every pair and configuration
python -m bench.report RESULTS.json --readme README.md  renews the part between the README's marks
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any, Final

BEGIN: Final = "<!-- python -m bench.report {name} --readme {readme} -->"
END: Final = "<!-- end -->"
NAMES: Final = {
    "time-sliced": "two processes, time slicing",
    "mps": "MPS",
    "mps-priority": "MPS, low side at client priority 1",
    "streams": "stream priorities in one context (the bound)",
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


def markdown(result: dict[str, Any]) -> str:
    """The README's table: a row for each configuration, over all pairs."""
    lines = [
        f"{len(result['pairs'])} pairs on one {result['device']}, driver {result['driver'] or 'none'}; mean "
        "over the pairs, and the worst of them:",
        "",
        "| | high side's p99, of alone | low side's throughput, of alone | of the bound |",
        "|---|---|---|---|",
    ]
    shared = [
        each["configuration"] for pair in result["pairs"] for each in pair["configurations"]
        if each["configuration"] not in ("alone", "control") and not each["configuration"].endswith("-alone")
    ]  # fmt: skip
    for name in dict.fromkeys(shared):
        rows = [each for pair in result["pairs"] for each in pair["configurations"]
                if each["configuration"] == name]  # fmt: skip

        def figures(key: str, worst: Any, rows: list[dict[str, Any]] = rows) -> str:
            values = [row[key] for row in rows if row[key] is not None]
            return f"{fmean(values):.2f}, {worst(values):.2f}" if values else "-"

        told = NAMES.get(name) or f"fikitd, policy `{name.removeprefix('fikitd-')}`"
        cells = [figures("hp_p99_ratio", max), figures("lp_ratio", min), figures("lp_of_bound", min)]
        if len(rows) < len(result["pairs"]):
            told += f" ({len(rows)} pairs)"
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return "\n".join(lines)


def renewed(text: str, readme: str, name: str, table_text: str) -> str:
    """The text with the part between the marks replaced. Raises ValueError where they are not there."""
    begin = BEGIN.format(name=name, readme=readme)
    head, found, rest = text.partition(BEGIN.partition("{")[0])
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{readme} has no lines {begin} and {END}")
    return f"{head}{begin}\n{table_text}\n{END}{tail}"


def main() -> None:
    """Print, or renew."""
    parser = argparse.ArgumentParser(description="What a sharing benchmark says.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--readme", type=Path)
    options = parser.parse_args()
    result = json.loads(options.results.read_text())
    if options.readme is None:
        print(table(result))
        return
    text = options.readme.read_text()
    names = (str(options.readme), str(options.results))
    options.readme.write_text(renewed(text, *names, markdown(result)))


if __name__ == "__main__":
    main()
