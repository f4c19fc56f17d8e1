"""Decoding of Server-Sent Events, from pieces of any size."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event. A client can resume from an event with an id."""

    name: str
    data: dict[str, Any]
    id: str | None = None


@dataclass(slots=True)
class SseParser:
    """Decodes a stream piece by piece.

    Lines end with LF or CRLF only: other separators of Unicode may be part of a text.

    >>> parser = SseParser()
    >>> parser.feed(b'event: progress\\nid: 00c0ffee00c0ffee-9\\nda')
    []
    >>> parser.feed(b'ta: {"version":9}\\n\\n')
    [Event(name='progress', data={'version': 9}, id='00c0ffee00c0ffee-9')]
    """

    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events that this piece completes. An event that the connection cuts off is not an event."""
        # Split as bytes and decoded by line: a piece may end inside a character.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [event for line in lines if (event := self._read_line(line.removesuffix(b"\r").decode())) is not None]

    def _read_line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            # One space after the colon belongs to the format, and further ones to the value. Lines of data are joined by LF.
            value = value.removeprefix(" ")
            self._fields[name] = f"{self._fields['data']}\n{value}" if name == "data" and "data" in self._fields else value
            return None
        # An empty line ends the event.
        fields, self._fields = self._fields, {}
        # `retry:` alone, or a comment: the specification dispatches no event without data.
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id") or None)
