"""Instructions for each launch on the three hot paths, against their limits.

    python bench/instruction_counts.py [--json] [--launches N] [--where PATH]

``producer``: from the caller to the ring. ``high``, ``gated``: the dispatch core, from the ring to the
driver call and its completion, without the driver and without the policy, for a high-priority session and for
one that passes the gate. ``strict`` and ``fikit``: the gate's decision with four sessions waiting.
``foretell``: what ``fikit`` does for each launch of a high session. ``shim``: what an unmodified program's
calls cost it in the installed libcuda.so.1, up to the ring, on a simulated GPU. Exits with 1 when one exceeds
its limit; with ``--against``, when one takes a tenth more than what is kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also when run as a file

from fikit.unmodified import variables

from bench import build, callgrind, machine
from bench.configurations import settings_of
from bench.daemon import daemon

POLICY: Final = "fikit::scheduling::"
NULL_DRIVER: Final = "libfikit_null_driver.so"


@dataclass(frozen=True)
class HotPath:
    """A hot path: what bench_instructions calls it, and the most it may take."""

    name: str
    limit: int
    what: str


PATHS: Final = (
    HotPath("producer", 250, "producer, a launch with 64 bytes of parameters"),
    HotPath("high", 600, "dispatch core, high priority, without driver and policy"),
    HotPath("gated", 600, "dispatch core, through the gate, without driver and policy"),
    HotPath("strict", 400, "gate: decide, issued, arrived, completed; 4 sessions waiting"),
    HotPath("fikit", 400, "gate that fills: the same, between launches of a high session"),
    HotPath("foretell", 400, "gate that fills: a launch of the high session, foretold and followed"),
)


SHIM: Final = (
    HotPath("launch", 300, "shim: cuLaunchKernel, eight parameters, a stream of the program's own"),
    HotPath("launch_default", 330, "shim: the same on the legacy default stream"),
    HotPath("launch_structs", 400, "shim: the same, parameters of 4, 1, 24 and 416 bytes"),
    HotPath("launch_ex", 380, "shim: cuLaunchKernelEx, eight parameters"),
    HotPath("event_record", 250, "shim: cuEventRecord"),
    HotPath("event_query_done", 100, "shim: cuEventQuery"),
    HotPath("wait_event_done", 150, "shim: cuStreamWaitEvent on an event that is over"),
    HotPath("stream_query_idle", 120, "shim: cuStreamQuery, nothing to do"),
    HotPath("stream_synchronize_idle", 120, "shim: cuStreamSynchronize, nothing to do"),
    HotPath("synchronize_idle", 400, "shim: cuCtxSynchronize, nothing to do on three streams"),
    HotPath("fill", 400, "shim: cuMemsetD8Async"),
    HotPath("copy_on_device", 600, "shim: cuMemcpyDtoDAsync"),
    HotPath("copy_pinned", 800, "shim: cuMemcpyHtoDAsync, pinned memory"),
    HotPath("copy_pageable", 1200, "shim: cuMemcpyHtoDAsync, 64 bytes of pageable memory"),
    HotPath("capturing", 80, "shim: cuStreamIsCapturing"),
    HotPath("context_state", 60, "shim: cuDevicePrimaryCtxGetState"),
    HotPath("get_device", 60, "shim: cuCtxGetDevice"),
    HotPath("get_current", 60, "shim: cuCtxGetCurrent"),
    HotPath("attribute", 60, "shim: cuFuncGetAttribute"),
    HotPath("pointer_attribute", 250, "shim: cuPointerGetAttribute"),
)
GROWTH: Final = 1.1
"""Times what a result has; compilers differ by less."""
SHIM_CALLS: Final = 200
"""Of each; all of them fit into the ring, so that none waits for room."""
SHIM_RUNS: Final = 4


@dataclass(frozen=True)
class Count:
    """Instructions for each launch."""

    name: str
    instructions: float
    limit: int
    driver: float
    """In the null driver beside them, not counted."""


def count(program: Path, path: HotPath, launches: int, top: int) -> Count:
    """Measure one path; with ``top``, say on standard error where most of it goes."""
    costs = callgrind.run([str(program), path.name, str(launches)], "fikit_bench_*")
    driver = sum(cost for place, cost in costs.items() if place.object.startswith(NULL_DRIVER))
    policy = path.name in ("strict", "fikit", "foretell")
    ours = {
        place: cost
        for place, cost in costs.items()
        if not place.object.startswith(NULL_DRIVER) and (policy or POLICY not in place.function)
    }
    for place, cost in sorted(ours.items(), key=lambda item: -item[1])[:top]:
        print(f"  {cost / launches:8.1f}  {place.function[:90]}", file=sys.stderr)
    return Count(path.name, sum(ours.values()) / launches, path.limit, driver / launches)


def count_shim(program: Path) -> list[Count]:
    """Measure the shim's calls, with a daemon of our own on a simulated GPU.

    The least of several runs: who finds the executor asleep wakes it, which takes 32 instructions more.
    """
    runs = []
    with daemon("sim", settings_of("strict")) as socket:
        environment = {**os.environ, **variables(str(socket), os.environ)}
        for _ in range(SHIM_RUNS):
            costs = callgrind.run(
                [str(program), str(SHIM_CALLS)], "fikit_bench_*", environment=environment, with_callees=True
            )
            runs.append({place.function: cost for place, cost in costs.items()})
    least = {path.name: min(run[f"fikit_bench_{path.name}"] for run in runs) for path in SHIM}
    return [Count(path.name, least[path.name] / SHIM_CALLS, path.limit, 0.0) for path in SHIM]


def limits(against: Path | None) -> dict[str, float]:
    """Return the most that each path may take: its limit, or a tenth above a kept result."""
    if against is None:
        return {path.name: path.limit for path in (*PATHS, *SHIM)}
    kept = json.loads(against.read_text())["instructions"]
    return {each["name"]: GROWTH * each["instructions"] for each in kept}


def main() -> None:
    """Build, count, print."""
    parser = argparse.ArgumentParser(description="Instructions for each launch, under callgrind.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--launches", type=int, default=4000)
    parser.add_argument("--top", type=int, default=0, help="show the most expensive functions of each path")
    parser.add_argument("--programs", type=Path, help="folder of bench_instructions; built when not given")
    parser.add_argument("--against", type=Path, help="a kept result that nothing is to exceed by a tenth")
    options = parser.parse_args()
    allowed = limits(options.against)
    folder = options.programs or build.build(["bench_instructions", "bench_shim_calls"])
    counts = [count(folder / "bench_instructions", path, options.launches, options.top) for path in PATHS]
    counts += count_shim(folder / "bench_shim_calls")
    if options.json:
        result = {"commit": machine.commit(), "machine": machine.machine(), "launches": options.launches}
        print(json.dumps({**result, "instructions": [asdict(each) for each in counts]}, indent=1))
    else:
        for path, each in zip((*PATHS, *SHIM), counts, strict=True):
            verdict = "" if each.instructions <= allowed[each.name] else "   EXCEEDED"
            print(f"{each.instructions:8.1f} of {allowed[each.name]:.0f}  {path.what}{verdict}")
    sys.exit(any(each.instructions > allowed[each.name] for each in counts))


if __name__ == "__main__":
    main()
