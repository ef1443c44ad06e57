"""Where an executor has its mappings: below those of the programs whose private memory it maps.

Private memory that a program registers lies at one address in both processes (``native/pinned.cpp``), so the
executor's own libraries, heaps and stacks must not be there already. The kernel puts what a process maps
below its stack, at a random distance of up to 2^vm.mmap_rnd_bits pages, which is a terabyte unless somebody
raised it (Linux, admin-guide/sysctl/vm). How much room it leaves to the stack before is that stack's limit
when the program is executed (setrlimit(2)).
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Sequence
from typing import Final

ROOM_BYTES: Final = 2 << 40
"""For the stack: programs' mappings begin in the first half, and have the second."""
STACK_BYTES: Final = 8 << 20
"""What Linux gives a process of which nothing was said."""
ATTRIBUTES_BYTES: Final = 64
"""At least of a pthread_attr_t (pthreadtypes-arch.h)."""


def apart(command: Sequence[str]) -> list[str]:
    """The command, so that it has its mappings there, unless this user's stacks may not be that large."""
    return ["/bin/sh", "-c", f'ulimit -S -s {ROOM_BYTES >> 10} 2>&-; exec "$@"', "sh", *command]


def usual_stacks() -> None:
    """In a process that was started so: stacks as of any other, of threads that start from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != ROOM_BYTES:
        return
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, hard))
    library = ctypes.CDLL(None)
    attributes = (ctypes.c_uint64 * (ATTRIBUTES_BYTES // 8))()
    library.pthread_attr_init(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
    library.pthread_setattr_default_np(attributes)
    library.pthread_attr_destroy(attributes)
