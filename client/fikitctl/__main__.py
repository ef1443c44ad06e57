"""``python -m fikitctl``: in a notebook, or where a virtual environment is not in PATH."""

from fikitctl import start

start()
