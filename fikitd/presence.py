"""Whether there is a file: where nobody can tell, that must not pass for a no.

Standard library only: the runner of a job imports this.
"""

from __future__ import annotations

from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether anything has that name, be it a link to nothing. Raises OSError where that cannot be told."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True
