"""fikitd: a daemon that lets several tenants share a machine's GPUs by priority."""

import atexit
import gc
import signal

from fikit import __version__ as __version__


def start() -> None:
    """The program. Until it has something to put right, Ctrl-C just ends it: importing takes a while."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # what importing makes stays: nothing of it is garbage, now
    atexit.register(gc.freeze)  # or when Python ends
    from fikitd.main import main

    gc.freeze()
    gc.enable()
    main()
