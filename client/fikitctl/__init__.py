"""fikitctl: the command line of fikitd."""
