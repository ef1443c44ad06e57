"""Other people's words, as a terminal may have them: what would steer it is written out instead.

Names, commands and reasons come from whoever submitted the work, and an administrator looks at all of it.
"""

from __future__ import annotations

import unicodedata


def one_line(text: str) -> str:
    """A line break and whatever else does not print, as an escape: ``\\n``, ``\\x1b``."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def lines(text: str, indent: int = 0) -> str:
    """Line breaks stay; the lines behind the first are indented."""
    return ("\n" + " " * indent).join(one_line(line) for line in text.split("\n"))


def width(text: str) -> int:
    """Columns of a terminal that it takes: two for what is drawn wide, none for what lies over another."""
    if text.isascii():
        return len(text)
    over = sum(unicodedata.category(each) in ("Mn", "Me") for each in text)
    return len(text) - over + sum(unicodedata.east_asian_width(each) in "WF" for each in text)
