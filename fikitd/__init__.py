"""fikitd: a daemon that lets several tenants share a machine's GPUs by priority."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fikitd")
except PackageNotFoundError:  # run from a source tree
    __version__ = "0.1.0"
