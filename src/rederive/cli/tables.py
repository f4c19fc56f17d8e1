"""Rows and changes as tables of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rederive.html_tables import cell
from rederive.ir.terms import Row
from rederive.result import Change, Result

_SIGNS = (("minus", "-", "red"), ("plus", "+", "green"))


def print_rows(console: Console, columns: Sequence[str], rows: Sequence[Row], most: int | None = None) -> None:
    """Print a table of rows, at most so many, and then how many there are."""
    table = _empty(columns)
    for row in rows[:most]:
        table.add_row(*_cells(row))
    if columns:
        console.print(table)
    if most is not None:
        console.print(_number(len(rows), most))


def print_result(console: Console, result: Result, most: int) -> None:
    """Print what a version did: the change of each monitored view, and the rules that fired; or the answer to a query."""
    if result.answer is not None:
        print_rows(console, result.answer.columns, result.answer.rows, most)
        return
    console.print(f"version {result.version}, {result.seconds * 1e3:.1f} ms", style="dim", highlight=False)
    for change in result.changes.values():
        _print_change(console, change, most)
    for firing in result.firings:
        shown = f"{firing.rule} fired: {firing.action}, {firing.outcome}, {len(firing.plus) + len(firing.minus):,} rows"
        console.print(Text(shown, style="yellow"))


def _print_change(console: Console, change: Change, most: int) -> None:
    sides = {"plus": change.plus, "minus": change.minus}
    console.print(Text(f"{change.view}: +{len(change.plus):,} -{len(change.minus):,}", style="bold"))
    table = _empty(("", *change.plus.columns))
    for side, sign, style in _SIGNS:
        for row in sides[side][:most]:
            table.add_row(sign, *_cells(row), style=style)
    console.print(table)
    if (rest := sum(max(0, len(rows) - most) for rows in sides.values())) > 0:
        console.print(f"and {rest:,} more", highlight=False)


def _empty(columns: Iterable[str]) -> Table:
    table = Table()
    for name in columns:
        table.add_column(Text(name))
    return table


def _cells(row: Iterable[object]) -> list[Text]:
    # As Text, a value that looks like markup of rich is shown as it is.
    return [Text(cell(value)) for value in row]


def _number(rows: int, most: int) -> Text:
    shown = "1 row" if rows == 1 else f"{rows:,} rows"
    return Text(shown if rows <= most else f"{shown}, the first {most} shown", style="dim")
