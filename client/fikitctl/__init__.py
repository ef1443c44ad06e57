"""fikitctl: the command line of fikitd."""

import atexit
import gc
import signal


def start() -> None:
    """The program. Until it can tell of it, Ctrl-C just ends it: importing takes a while."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # what importing makes stays: nothing of it is garbage, now
    atexit.register(gc.freeze)  # or when Python ends
    from fikitctl.main import main

    gc.freeze()
    gc.enable()
    main()
