"""Benchmarks: what fikit costs, measured beside the driver itself (see DESIGN.md)."""
