"""One process of bench.workloads: player.py MODELS WORKLOAD, told what to do on standard input.

Builds the workload, makes some steps, says `ready` with when it got how far; then steps from each `start` to
the `stop` that follows, and tells when each step began and ended, in nanoseconds of the monotonic clock, like
bench/native/sharing.cpp. A step's `pause_s`, if it has one, is slept through before each: so long, or as long
as it says each time. In between it sleeps in a read. Ends with its input.
"""

import json
import os
import runpy
import select
import sys
import time

WARM_STEPS = 10


def main():
    reached = {"pid": os.getpid(), "started": time.monotonic_ns()}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    commands = os.fdopen(0, "rb", buffering=0)
    workloads = runpy.run_path(sys.argv[1])["WORKLOADS"]
    reached["imported"] = time.monotonic_ns()
    step = workloads[sys.argv[2]]()
    pause_s = getattr(step, "pause_s", 0)
    pauses = pause_s if callable(pause_s) else lambda: pause_s
    reached["built"] = time.monotonic_ns()
    step()
    reached["stepped"] = time.monotonic_ns()
    for _ in range(WARM_STEPS):
        step()
    print("ready", json.dumps(reached), file=answers, flush=True)
    while commands.readline():  # start
        bounds = []
        while not select.select([commands], [], [], pauses())[0]:
            bounds.append(time.monotonic_ns())
            step()
            bounds.append(time.monotonic_ns())
        commands.readline()  # stop
        print(*bounds, file=answers, flush=True)


if __name__ == "__main__":
    main()
