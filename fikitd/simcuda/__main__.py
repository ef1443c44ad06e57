"""Runs a program on the simulated GPU: python -m fikitd.simcuda -- CMD [ARGUMENT...]."""

import os
import signal
import sys

from fikitd.simcuda import library_path


def main() -> None:
    """Replace this process by CMD, with the simulated libcuda.so.1 in front of any other."""
    command = sys.argv[1:]
    if command[:1] == ["--"]:
        command = command[1:]
    if not command or command[0] in ("-h", "--help"):
        sys.exit("usage: python -m fikitd.simcuda -- CMD [ARGUMENT...]")
    try:
        folder = str(library_path().parent)
    except FileNotFoundError as error:
        sys.exit(f"fikitd.simcuda: {error}")
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{folder}:{before}" if before else folder
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, not by who started it
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"fikitd.simcuda: {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
