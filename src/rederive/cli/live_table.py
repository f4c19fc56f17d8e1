"""A view in the terminal: its rows as a table that follows every change and marks the rows that just entered."""

from __future__ import annotations

import json
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rederive.client.blocking import Subscription
from rederive.client.replica import Change

FRAME_LINES: Final = 6  # around the rows


def show_live(view: str, changes: Subscription, console: Console | None = None) -> None:
    """Show the view until an interrupt."""
    console = console or Console()
    # Drawn when a change arrives, and not by a clock.
    with Live(console=console, auto_refresh=False, screen=False) as screen:
        for change in changes:
            screen.update(table(view, changes, change, console.height - FRAME_LINES), refresh=True)


def table(view: str, changes: Subscription, change: Change, max_rows: int) -> Group:
    """Return a table of as many rows as fit: those that just entered first, then the others in order."""
    # A snapshot marks nothing: all its rows are new to the client, and none to the view.
    entered = set(change.plus) if change.kind == "change" else set()
    # By their JSON: rows may hold NULL, which Python does not compare.
    rows = sorted(changes.rows, key=lambda row: (row not in entered, json.dumps(row)))
    title = f"{view} at version {change.version}: {len(rows):,} rows, +{len(change.plus)} -{len(change.minus)}"
    shown = Table(*changes.columns_of(view))
    for row in rows[: max(1, max_rows)]:
        shown.add_row(*map(_cell, row), style="green" if row in entered else None)
    return Group(Text(title), shown, Text(f"and {len(rows) - max_rows:,} more" if len(rows) > max_rows else ""))


def _cell(value: Any) -> Text:
    # As Text, a value that looks like markup of rich is shown as it is.
    return Text(value if isinstance(value, str) else json.dumps(value))
