"""The nice value that stands for a CPU weight, for host threads that are in no control group of their own.

Each step of the nice value is worth a factor of 1.25 of processor time. Where the kernel groups tasks by
session (autogroups), it compares nice values within a session only, and sessions by the value of their
autogroup: who leads a session of its own gets both. Source: sched(7), "The nice value and group scheduling".
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from fikitd.launch import USUAL_CPU_WEIGHT
from fikitd.process_group import outranks, owned, owned_members

STEP: Final = 1.25
LARGEST: Final = 19


def nice_of(cpu_weight: int) -> int:
    """0 for the usual weight and those above, which would need a privilege."""
    return min(LARGEST, max(0, round(math.log(USUAL_CPU_WEIGHT / cpu_weight, STEP))))


def set_nice(pid: int, nice: int, uid: int) -> None:
    """Of all threads of the user's in the process group that ``pid`` leads.

    A child that is being forked may be missed. Raises OSError; PermissionError to lower it.
    """
    leads = os.getpgid(pid) == pid
    if not outranks(uid):
        os.setpriority(os.PRIO_PGRP if leads else os.PRIO_PROCESS, pid, nice)
    elif leads:
        for member, _ in owned_members(pid, uid):
            _set_nice_of_process(member, nice, uid)
    else:
        _set_nice_of_process(pid, nice, uid)


def _set_nice_of_process(pid: int, nice: int, uid: int) -> None:
    """Thread by thread, each asked for its user just before, as there is no such call by pidfd."""
    with suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):
                if owned(f"{pid}/task/{thread}", uid):
                    os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def set_autogroup_nice(pid: int, nice: int, uid: int) -> None:
    """Of the session that ``pid`` leads, where the kernel has autogroups and the user may.

    Raises OSError; BlockingIOError where another autogroup, whosever, changed in the last 100 ms: the kernel
    lets one at a time for who is not its administrator.
    """
    if os.getsid(pid) != pid:
        return
    try:
        with Path(f"/proc/{pid}/autogroup").open("w") as autogroup:
            if uid in (0, os.fstat(autogroup.fileno()).st_uid):
                autogroup.write(str(nice))
    except BlockingIOError:
        raise
    except OSError:  # no autogroups here
        return
