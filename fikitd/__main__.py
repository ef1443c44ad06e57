"""``python -m fikitd``: where a virtual environment is not in PATH."""

from fikitd import start

start()
