"""The cursor of a stream in the store: every finished batch moves it, so it says what the store has of the stream."""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "stream:"


def cursor_of_stream(id: str, source: str) -> str:
    """The name of the cursor of a stream."""
    return f"{_PREFIX}{id} {source}"


def stream_of_cursor(name: str) -> tuple[str, str] | None:
    """The id and the source of the stream that a cursor belongs to; None for the cursor of a subscriber.

    >>> stream_of_cursor(cursor_of_stream("3f", "folder incoming")), stream_of_cursor("mail")
    (('3f', 'folder incoming'), None)
    """
    id, _, source = name.removeprefix(_PREFIX).partition(" ")
    return (id, source) if name.startswith(_PREFIX) else None
