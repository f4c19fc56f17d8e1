"""Tables as HTML, for notebooks: they need no script and no style sheet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from rederive.values import to_json

_COLORS = {"plus": "#d7f5dd", "minus": "#fbdcdc"}  # entering and leaving rows
_SIGNS = {"plus": "+", "minus": "−"}


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, more: int = 0, caption: str = "") -> str:
    """A table of rows. `more`: how many further rows there are.

    >>> html_table(["x"], [("<a>",)])
    '<table><thead><tr><th>x</th></tr></thead><tbody><tr><td>&lt;a&gt;</td></tr></tbody></table>'
    """
    return _table(columns, "".join(_row(row) for row in rows), more, caption)


def html_change(
    columns: Sequence[str], plus: Sequence[Sequence[Any]], minus: Sequence[Sequence[Any]], most: int, caption: str
) -> str:
    """A table of the rows that leave and enter, at most so many of each."""
    body = "".join(_row(row, sign) for sign, side in (("minus", minus), ("plus", plus)) for row in side[:most])
    return _table(("", *columns), body, sum(max(0, len(side) - most) for side in (plus, minus)), caption)


def _table(columns: Sequence[str], body: str, more: int, caption: str) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    title = f'<caption style="text-align: left">{escape(caption)}</caption>' if caption else ""
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _row(row: Sequence[Any], sign: str = "") -> str:
    # The text is dark on these light colors in a dark notebook, too.
    style = f' style="background: {_COLORS[sign]}; color: black"' if sign else ""
    first = f"<td>{_SIGNS[sign]}</td>" if sign else ""
    return f"<tr{style}>{first}{''.join(f'<td>{escape(cell(value))}</td>' for value in row)}</tr>"


def cell(value: Any) -> str:
    """A value as the cell of a table shows it: text as it is, NULL and everything else as JSON writes it.

    >>> cell("a"), cell(None), cell(1.5), cell(True)
    ('a', 'NULL', '1.5', 'true')
    """
    if value is None:
        return "NULL"
    shown = to_json(value) if not isinstance(value, str) else value
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
