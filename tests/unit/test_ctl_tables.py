"""How fikitctl prints tables."""

from __future__ import annotations

from fikitctl.tables import PLAIN, Column, table


def test_what_is_drawn_wide_leaves_the_next_column_where_it_is() -> None:
    """Ideographs and pictures take two columns of a terminal, accents that follow their letter none."""
    names = ("plain", "名前", "\N{ROCKET}x", "e\N{COMBINING ACUTE ACCENT}")
    columns = [
        Column("name", lambda pair: pair[0]),
        Column("right", lambda pair: pair[0], right=True),
        Column("age", lambda pair: pair[1]),
    ]
    assert table(columns, [(name, "1s") for name in names], PLAIN) == (
        "NAME   RIGHT  AGE\n"
        "plain  plain  1s\n"
        "名前    名前  1s\n"
        "\N{ROCKET}x      \N{ROCKET}x  1s\n"
        "e\N{COMBINING ACUTE ACCENT}          e\N{COMBINING ACUTE ACCENT}  1s\n"
    )
