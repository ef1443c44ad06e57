"""fikitd: a daemon that lets several tenants share a machine's GPUs by priority."""

__version__ = "0.1.0"
