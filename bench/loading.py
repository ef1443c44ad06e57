"""What loading code does to a high-priority program beside it: python -m bench.loading [--json].

A high-priority program launches an empty kernel and waits for it, over and over; a low-priority one loads PTX
that the driver has never compiled, one kernel of so many --instructions at a time. Both are unmodified
programs of the driver API, natively (two processes, which the driver lets take turns) and under one fikitd,
in one context. Told of launch and wait: median, 99th percentile, worst, in milliseconds, alone and beside the
loading. Options: --device, --seconds for each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from typing import Any, Final

from fikitctl.own_daemon import own_daemon

from bench import machine
from bench.unmodified import FIKITCTL, SIMULATED

HEADER: Final = ".version 8.0\n.target sm_80\n.address_size 64\n"
WARMUP: Final = 200


def module(instructions: int, seed: int) -> bytes:
    """PTX whose one kernel is a long chain of fused products, no two seeds alike."""
    rng = random.Random(seed)
    lines = [HEADER + ".visible .entry long(.param .u64 place) {\n.reg .u64 %p;\n.reg .f32 %f<64>;\n"]
    lines.append("ld.param.u64 %p, [place];\n")
    lines += [f"ld.global.f32 %f{i}, [%p+{4 * i}];\n" for i in range(64)]
    for _ in range(instructions):
        lines.append("fma.rn.f32 %f{}, %f{}, %f{}, %f{};\n".format(*(rng.randrange(64) for _ in range(4))))
    lines += [f"st.global.f32 [%p+{4 * i}], %f{i};\n" for i in range(64)]
    return "".join([*lines, "ret;\n}\n"]).encode()


def play(role: str, seconds: float, instructions: int) -> None:
    """One side, as a program of its own: prints `ready`, begins at a line of input, prints its figures."""
    from cuda.bindings import driver

    def done(answer: tuple[Any, ...]) -> Any:
        assert int(answer[0]) == 0, answer[0]
        return answer[1] if len(answer) == 2 else None

    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))
    done(driver.cuCtxSetCurrent(context))
    readings: list[float] = []
    if role == "launch":
        empty = done(driver.cuModuleLoadData((HEADER + ".visible .entry empty() { ret; }\n").encode()))
        kernel = done(driver.cuModuleGetFunction(empty, b"empty"))
        stream = done(driver.cuStreamCreate(1))

        def step() -> None:
            done(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0))
            done(driver.cuStreamSynchronize(stream))

        for _ in range(WARMUP):
            step()
    else:
        images = [module(instructions, time.time_ns() + number) for number in range(64)]

        def step() -> None:
            done(driver.cuModuleLoadData(images[len(readings) % len(images)]))

    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        step()
        readings.append((time.perf_counter() - begun) * 1e3)
    readings.sort()
    at = {"p50_ms": len(readings) // 2, "p99_ms": len(readings) * 99 // 100, "worst_ms": len(readings) - 1}
    print(json.dumps({"count": len(readings), **{name: readings[each] for name, each in at.items()}}))


def measure(commands: list[list[str]], environment: dict[str, str]) -> list[dict[str, float]]:
    """What these programs say of themselves when they run at the same time."""
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for command in commands
    ]
    for program in running:
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            raise SystemExit("bench.loading: a program did not start")
    for program in running:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    return [json.loads(program.communicate(timeout=120)[0]) for program in running]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.loading", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, sim, or the index of a GPU")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each measurement")
    parser.add_argument("--instructions", type=int, default=10_000, help="of each module that is loaded")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--play", choices=("launch", "load"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        play(options.play, options.seconds, options.instructions)
        return
    device = machine.devices(parser, options.device)[0]

    def side(role: str) -> list[str]:
        size = ["--seconds", str(options.seconds), "--instructions", str(options.instructions)]
        return [sys.executable, "-m", "bench.loading", "--play", role, *size]

    result: dict[str, Any] = {
        **machine.about("loading", device),
        "instructions": options.instructions,
    }
    with own_daemon(options.device) as socket:
        ways: dict[str, tuple[list[str], list[str]]] = {
            "native": (SIMULATED, SIMULATED) if device.simulated else ([], []),
            "fikitd": (
                [*FIKITCTL, "run", "--priority", "high", "--"],
                [*FIKITCTL, "run", "--priority", "low", "--"],
            ),
        }
        environment = {**os.environ, "FIKIT_SOCKET": str(socket)}
        for way, (high, low) in ways.items():
            launch, load = [*high, *side("launch")], [*low, *side("load")]
            (alone,) = measure([launch], environment)
            beside, loading = measure([launch, load], environment)
            result[way] = {"alone": alone, "beside": beside, "loading": loading}
    if options.json:
        print(json.dumps(result))
        return
    for way in ("native", "fikitd"):
        for name, each in result[way].items():
            print(f"{way:8}{name:9}" + "  ".join(f"{key} {value:.3f}" for key, value in each.items()))


if __name__ == "__main__":
    main()
