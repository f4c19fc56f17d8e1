"""A view in the terminal: its rows as a table that follows every change; what came last is marked."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rederive.client.blocking import Subscription
from rederive.client.replica import Change

FRAME = 6  # lines around the rows


def live(view: str, changes: Subscription, console: Console | None = None) -> None:
    """Show the view until an interrupt."""
    console = console or Console()
    with Live(console=console, auto_refresh=False, screen=False) as screen:
        for change in changes:
            screen.update(table(view, changes, change, console.height - FRAME), refresh=True)


def table(view: str, changes: Subscription, change: Change, most: int) -> Group:
    """As many rows as fit: those that just entered first, then the others in order."""
    entered = set(change.plus) if change.kind == "change" else set()
    held = sorted(changes.rows, key=lambda row: (row not in entered, json.dumps(row)))
    title = f"{view} at version {change.version}: {len(held):,} rows, +{len(change.plus)} -{len(change.minus)}"
    shown = Table(*changes.columns_of(view))
    for row in held[: max(1, most)]:
        shown.add_row(*map(_cell, row), style="green" if row in entered else None)
    return Group(Text(title), shown, Text(f"and {len(held) - most:,} more" if len(held) > most else ""))


def _cell(value: Any) -> Text:
    """As it is: a text that looks like markup is none."""
    return Text(value if isinstance(value, str) else json.dumps(value))
