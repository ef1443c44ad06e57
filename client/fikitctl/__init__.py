"""fikitctl: the command line of fikitd."""

import signal


def start() -> None:
    """The program. Until it can tell of it, Ctrl-C just ends it: importing takes a while."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fikitctl.main import main

    main()
