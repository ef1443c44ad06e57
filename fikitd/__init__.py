"""fikitd: a daemon that lets several tenants share a machine's GPUs by priority."""
