"""What is told of the flags of pinned memory that lies beside other pinned memory.

A line for each allocation: what it was asked with, then what is told of all that there are. Every order of
flags has a process of its own, so nothing is left of the one before.
"""

import os
import sys

from calls import done, start
from cuda.bindings import driver

SIZES = (50, 1 << 20, 2 << 20)
ORDERS = ("0102303", "1010010", "2021001", "4040104")  # of flags


def tell(flags, live):
    print(f"{flags}:", *(int(done(driver.cuMemHostGetFlags(address))) for address in live))


def run(size, order):
    start()
    print(size, "bytes")
    live = []
    for flags in order:
        live.append(int(done(driver.cuMemHostAlloc(size, int(flags)))))
        tell(flags, live)
    for address in live[::2]:
        done(driver.cuMemFreeHost(address))
    print("every second freed")
    live = live[1::2]
    for flags in reversed(order):
        live.append(int(done(driver.cuMemHostAlloc(size, int(flags)))))
        tell(flags, live)


for size in SIZES:
    for order in ORDERS:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            run(size, order)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
