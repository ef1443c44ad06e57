"""Executors: the processes that hold one CUDA context each."""
