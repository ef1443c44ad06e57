"""What bench.workloads measures: start-ups, every workload alone, pairs in every way of sharing."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any, Final

from bench.configurations import ALONE, Plays, await_clients
from bench.daemon import explained
from bench.mps import MpsUnavailableError
from bench.playing import Process, Reading, play
from bench.sharing import BETWEEN_SECONDS, SETTLE_SHARE, in_turn, row
from bench.workload_processes import STAGES, Place, Stepper

NATIVE: Final = "native"
LEAST_SECONDS: Final = 1.0
"""Of a measurement: shorter ones are anecdotes."""
LEARN_SHARE: Final = 0.5
"""Of a measurement's time: for fikitd to measure the kernels of a workload, which it then keeps."""


def measured(
    what: str, plays: Mapping[str, Plays], options: Namespace, left: float, scale: float
) -> tuple[dict[str, list[Reading]], float]:
    """Everything in every round, every other one backwards: the readings, and the seconds of each.

    As many rounds as fit into the seconds that are left, of ``LEAST_SECONDS`` for each measurement at least.
    Raises RuntimeError where not even one does, or nothing is to be measured.
    """
    count = sum(len(each) for each in plays.values())
    if count == 0:
        raise RuntimeError("not one of the programs runs")
    least = min(LEAST_SECONDS, options.seconds)
    round_seconds = count * (least * (1 + SETTLE_SHARE) * scale + BETWEEN_SECONDS)
    rounds = min(options.rounds, int(left / round_seconds))
    if rounds < 1:
        need = f"{count} measurements of {least:g} s need {round_seconds:.0f} s"
        raise RuntimeError(f"{need}, and {left:.0f} s are left: raise --within")
    every = list(plays)
    order = [every[:: -1 if number % 2 else 1] for number in range(rounds)]

    def tell(name: str, reading: Reading) -> None:
        figures = {"p50": reading.hp_p50_ms, "p99": reading.hp_p99_ms, "low/s": reading.lp_steps_per_second}
        shown = (f"{figure} {value:.2f}" for figure, value in figures.items() if value is not None)
        print(f"{what} {name}: {', '.join(shown)}", file=sys.stderr, flush=True)

    return in_turn(plays, order, options.seconds, left, scale, tell)


def dismiss(processes: Iterable[Process]) -> None:
    """Let them all end at the same time, which takes a program of PyTorch's a second."""
    for each in processes:
        each.dismiss()


def learn(place: Place, sessions: Iterable[Process], seconds: float) -> None:
    """Let fikitd see each of them alone."""
    for session in sessions:
        play(None, [session], seconds * LEARN_SHARE, 0.0, place.device.time_scale)


def start_ups(place: Place, workload: str, policy: str, count: int) -> dict[str, Any]:
    """Seconds from exec to each stage of a first process, and of ``count`` second ones while the first lives.

    One native process before all that brings the libraries' files into memory.
    """
    found: dict[str, Any] = {"workload": workload}
    warm = place.natively(workload)
    try:
        warm.await_ready()
    finally:
        warm.close()
    ways: dict[str, Callable[[], Stepper]] = {
        NATIVE: partial(place.natively, workload),
        "fikitd": partial(place.under, policy, workload, "high"),
    }
    alive: list[Process] = []
    with ExitStack() as keep:

        def started(way: str) -> dict[str, float]:
            process = ways[way]()
            keep.callback(process.close)
            alive.append(process)
            process.await_ready()
            return process.stages_seconds()

        first = {way: started(way) for way in ways}
        second: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for number in range(count):
            for way in list(ways)[:: -1 if number % 2 else 1]:
                second[way].append(started(way))
        dismiss(alive)
    for way in ways:
        typical = {stage: median(each[stage] for each in second[way]) for stage in STAGES}
        found[way] = {"first": first[way], "second": typical, "seconds_to_each_stage": second[way]}
    found["first_ratio"] = first["fikitd"][STAGES[-1]] / first[NATIVE][STAGES[-1]]
    found["second_ratio"] = found["fikitd"]["second"][STAGES[-1]] / found[NATIVE]["second"][STAGES[-1]]
    return found


def solo(place: Place, options: Namespace, within: float, skipped: dict[str, str]) -> list[dict[str, Any]]:
    """Every workload alone on the GPU, natively and under the first policy, its priority high."""
    begin = time.monotonic()
    policy = options.policies[0]
    scale = place.device.time_scale
    with ExitStack() as keep:
        started: dict[str, list[Stepper]] = {}
        for name in options.solo:
            started[name] = [place.natively(name), place.under(policy, name, "high")]
            for each in started[name]:
                keep.callback(each.close)
        keep.callback(dismiss, [each for both in started.values() for each in both])
        ready: dict[str, list[Stepper]] = {}
        for name, both in started.items():
            try:
                for each in both:
                    each.await_ready()
                ready[name] = both
            except RuntimeError as error:
                skipped[name] = str(error)
        memory = {name: place.memory_mib(both) for name, both in ready.items()}
        learn(place, (ours for _, ours in ready.values()), options.seconds)
        plays: dict[str, Plays] = {}
        for name, (native, ours) in ready.items():
            plays[f"{name} {NATIVE}"] = [(native, [])]
            plays[f"{name} fikitd"] = [(ours, [])]
        left = within - (time.monotonic() - begin)
        readings, seconds = measured("alone", plays, options, left, scale)
    found = []
    for name in ready:
        alone, ours_alone = (readings[f"{name} {way}"] for way in (NATIVE, "fikitd"))
        ways = ((NATIVE, alone), (f"fikitd-{policy}-alone", ours_alone))
        rows = [asdict(row(way, each, alone, [])) for way, each in ways]
        native_mib, ours_mib = memory[name]
        found.append(
            {
                "workload": name,
                "seconds": round(seconds, 3),
                "memory_mib": {NATIVE: native_mib, "fikitd": ours_mib},
                "configurations": rows,
            }
        )
    return found


def paired(
    place: Place, high: str, low: str, options: Namespace, within: float, skipped: dict[str, str]
) -> list[dict[str, Any]]:
    """A pair in every way of sharing, with each number of low-priority processes.

    Numbers after the first are measured under fikitd alone. The low side's rate is the sum of its processes',
    compared to that of one process alone. What the gates explain is that of all numbers together.
    """
    begin = time.monotonic()
    with ExitStack() as keep:
        plays = prepared(place, high, low, options, keep, skipped)
        set_up = time.monotonic() - begin
        left, scale = within - set_up, place.device.time_scale
        readings, seconds = measured(f"{high}:{low}", plays, options, left, scale)
        treated = {policy: explained(socket) for policy, socket in place.sockets.items()}
    host_only = readings["control"]
    readings["control"] = [Reading(each.hp_p50_ms, each.hp_p99_ms, None) for each in host_only]
    rows = {name: row(name.partition("*")[0], each, readings[ALONE], []) for name, each in readings.items()}
    told = {
        "high": high,
        "low": low,
        "seconds": round(seconds, 3),
        "set_up_seconds": round(set_up, 2),
        "all_seconds": round(time.monotonic() - begin, 2),
    }
    return [
        {
            **told,
            "lows": count,
            "configurations": [
                asdict(each) for name, each in rows.items() if lows_of(name, options) == count
            ],
            "explained": treated,
        }
        for count in options.lows
    ]


def lows_of(name: str, options: Namespace) -> int:
    """With how many low-priority processes a configuration is played."""
    return int(name.partition("*")[2] or options.lows[0])


def prepared(
    place: Place, high: str, low: str, options: Namespace, keep: ExitStack, skipped: dict[str, str]
) -> dict[str, Plays]:
    """Every configuration of a pair, its processes ready. A number behind ``*`` is that of the low side's."""

    def start(make: Callable[[], Stepper], count: int = 1) -> list[Process]:
        made: list[Process] = []
        for _ in range(count):
            made.append(make())
            keep.callback(made[-1].close)
        waited.extend(made)
        return made

    waited: list[Process] = []
    several = options.lows[0]
    (alone,) = start(partial(place.natively, high))
    beside = start(partial(place.natively, low), several)
    host_only = start(partial(place.host_only, low), several)
    plays: dict[str, Plays] = {
        ALONE: [(alone, []), (None, beside[:1])],
        "control": [(alone, host_only)],
    }
    if not place.device.simulated:
        plays["time-sliced"] = [(alone, beside)]
    ours: list[Process] = []
    for policy in place.sockets:
        (mine,) = start(partial(place.under, policy, high, "high"))
        others = start(partial(place.under, policy, low, "low"), max(options.lows))
        plays[f"fikitd-{policy}-alone"] = [(mine, []), (None, others[:1])]
        plays[f"fikitd-{policy}"] = [(mine, others[:several])]
        plays |= {f"fikitd-{policy}*{count}": [(mine, others[:count])] for count in options.lows[1:]}
        ours += [mine, others[0]]
    natively = list(waited)
    if place.mps is not None:
        (first,) = start(partial(place.as_client, high))
        equal = start(partial(place.as_client, low), several)
        lesser = start(partial(place.as_client, low, CUDA_MPS_CLIENT_PRIORITY="1"), several)
        try:
            await_clients(place.mps, [first, *equal, *lesser])
            plays |= {"mps": [(first, equal)], "mps-priority": [(first, lesser)]}
        except MpsUnavailableError as error:
            skipped["mps"] = str(error)
            place.mps = None
    keep.callback(dismiss, waited)
    for process in natively:
        process.await_ready()
    learn(place, ours, options.seconds)
    return plays
