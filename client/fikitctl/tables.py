"""Columns and plain tables. A column is declared once: its name, how to fill it, on which side it aligns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from fikitctl.plain import lines, one_line, width

MOST_CELL: Final = 80
"""Characters of a cell that is not the last, unless ``--format`` chose the columns."""


class Column(NamedTuple):
    """One column of a table. ``hidden``: shown only when ``--format`` names it."""

    name: str
    text: Callable[[Any], str]
    right: bool = False
    hidden: bool = False

    def cell(self, record: Any) -> str:
        """What is printed of a record."""
        return one_line(self.text(record))


class Layout(NamedTuple):
    """What ``--format``, ``--no-header`` and ``-q`` said."""

    names: list[str] | None
    header: bool
    quiet: bool


def layout_options(columns: Sequence[Column]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--format``, ``--no-header`` and ``-q`` for a table of these columns; the command gets ``layout``."""

    def names_of(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[str] | None:
        return None if value is None else column_names(columns, value)

    def offered(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{column.name}" for column in columns if column.name.startswith(last)]

    def take(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_layout(**given: Any) -> Any:
            layout = Layout(given.pop("names"), not given.pop("no_header"), given.pop("quiet"))
            return command(layout=layout, **given)

        text = f"Columns to print, in full, parted by commas: {', '.join(each.name for each in columns)}."
        options = (
            click.option(
                "--format",
                "names",
                metavar="COLUMNS",
                callback=names_of,
                shell_complete=offered,
                help=text,
            ),
            click.option("--no-header", is_flag=True, help="Leave the column names out."),
            click.option("-q", "--quiet", is_flag=True, help="Print identifiers only."),
        )
        taking: Callable[..., Any] = with_layout
        for option in reversed(options):
            taking = option(taking)
        return taking

    return take


def column_names(columns: Sequence[Column], text: str) -> list[str]:
    """The columns of ``id,state``. Raises BadParameter for a name that there is not."""
    known = [column.name for column in columns]
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise click.BadParameter(f"no column {', '.join(unknown) or 'named'}; there are {', '.join(known)}")
    return names


def chosen(columns: Sequence[Column], layout: Layout) -> list[Column]:
    """The columns to print."""
    if layout.quiet:
        return [columns[0]]
    if layout.names is None:
        return [column for column in columns if not column.hidden]
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in layout.names]


def table(columns: Sequence[Column], records: Iterable[Any], layout: Layout) -> str:
    """The table as text, each line ended; empty without header and records."""
    columns = chosen(columns, layout)
    rows = [[column.cell(record) for column in columns] for record in records]
    if layout.names is None and not layout.quiet:
        rows = [[*map(_short, row[:-1]), row[-1]] for row in rows]
    if layout.header and not layout.quiet:
        rows.insert(0, [column.name.upper().replace("_", " ") for column in columns])
    widths = [max((width(row[place]) for row in rows), default=0) for place in range(len(columns))]
    return "".join(_line(columns, row, widths) for row in rows)


def _short(cell: str) -> str:
    """Others are aligned behind it: one long name must not push them out of everybody's sight."""
    return cell if len(cell) <= MOST_CELL else f"{cell[: MOST_CELL - 3]}..."


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, cell, widest in zip(columns, row, widths, strict=True):
        room = " " * (widest - width(cell))
        cells.append(f"{room}{cell}" if column.right else f"{cell}{room}")
    return "  ".join(cells).rstrip() + "\n"


def sheet(pairs: Iterable[tuple[str, str]]) -> str:
    """One record as lines of name and value; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    widest = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{name.ljust(widest)}  {lines(value, widest + 2)}\n" for name, value in shown)


PLAIN: Final = Layout(names=None, header=True, quiet=False)
