"""Benchmarks: what fikit costs, measured beside the driver itself (see DESIGN.md)."""

import sys
from pathlib import Path

# Run from a checkout, `python -m bench.NAME` puts the checkout first on the path; what is measured is the
# installed fikitd, whose native parts a checkout does not have.
_ROOT = str(Path(__file__).resolve().parents[1])
sys.path[:] = [entry for entry in sys.path if str(Path(entry or ".").resolve()) != _ROOT] + [_ROOT]
