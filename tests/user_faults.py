"""Whether this process can have writers to its pages wait, as fikitd's libcuda does (userfaultfd(2))."""

import ctypes
import fcntl
import os
import platform
import struct
from functools import cache

_CALLS = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1
_API, _GET_API = 0xAA, 0xC018AA3F
_WRITES, _WRITES_TO_SHARED = 1 << 0, 1 << 12

REASON = "private memory is shared in programs of several threads where there is userfaultfd, of Linux 5.19"


@cache
def there_are() -> bool:
    """Not where the kernel is older than Linux 5.19, or a container may not."""
    system, call = ctypes.CDLL(None), _CALLS.get(platform.machine())
    if call is None:
        return False
    faults = [system.syscall(call, os.O_CLOEXEC | flags) for flags in (0, _USER_MODE_ONLY)]
    opened = [number for number in faults if number >= 0]
    try:
        if opened:
            fcntl.ioctl(opened[0], _GET_API, struct.pack("QQQ", _API, _WRITES | _WRITES_TO_SHARED, 0))
    except OSError:
        return False
    finally:
        for number in opened:
            os.close(number)
    return bool(opened)
