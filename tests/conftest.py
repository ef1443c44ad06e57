"""Tests may import ``bench``. The checkout comes last, so that ``fikitd`` is the installed one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
