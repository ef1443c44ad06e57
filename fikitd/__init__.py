"""fikitd: a daemon that lets several tenants share a machine's GPUs by priority."""

import signal

from fikit import __version__ as __version__


def start() -> None:
    """The program. Until it has something to put right, Ctrl-C just ends it: importing takes a while."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fikitd.main import main

    main()
