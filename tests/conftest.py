"""Tests may import ``bench``. The checkout comes last, so that ``fikitd`` is the installed one.

How long a test takes is no finding of Hypothesis: a busy machine may hold any example up.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.append(str(Path(__file__).resolve().parents[1]))

# What a shell runs in the background has SIGINT ignored, and so have its children; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
