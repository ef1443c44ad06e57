"""A picture of a sharing benchmark: high-priority p99 against low-priority throughput, by configuration."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any


def draw(result: dict[str, Any], image: Path) -> None:
    """Write the picture, in the format that its name ends in: a small mark for each pair, a large median."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points: dict[str, list[tuple[float, float]]] = {}
    for pair in result["pairs"]:
        for each in pair["configurations"]:
            if each["hp_p99_ratio"] is None or each["lp_ratio"] is None or each["configuration"] == "alone":
                continue
            points.setdefault(each["configuration"], []).append((each["lp_ratio"], each["hp_p99_ratio"]))
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for name, places in points.items():
        across, up = zip(*places, strict=True)
        (line,) = axes.plot(across, up, "o", markersize=4, alpha=0.5)
        axes.plot([median(across)], [median(up)], "o", markersize=10, color=line.get_color(), label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(
        xlabel="low-priority throughput, of alone",
        ylabel="high-priority p99, of alone",
        yscale="log",
        title=f"{result['device']}: {len(result['pairs'])} pairs, medians large",
    )
    for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatter("{x:g}")
    axes.legend(loc="best", fontsize="small")
    figure.savefig(image)
