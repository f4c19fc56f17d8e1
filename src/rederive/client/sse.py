"""Server-Sent Events, as the standard has them, from whatever pieces the network brings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, its data, and its id where one can resume from it."""

    name: str
    data: dict[str, Any]
    id: str | None = None


@dataclass(slots=True)
class SseParser:
    """Lines end at a line feed or a carriage return before one, and nowhere else: a text may hold any other separator.

    >>> parser = SseParser()
    >>> parser.feed(b'event: progress\\nid: 00c0ffee00c0ffee-9\\nda')
    []
    >>> parser.feed(b'ta: {"version":9}\\n\\n')
    [Event(name='progress', data={'version': 9}, id='00c0ffee00c0ffee-9')]
    """

    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end in this piece; an event that the connection did not end is none."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [event for line in lines if (event := self._line(line.removesuffix(b"\r").decode())) is not None]

    def _line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            self._fields[name] = f"{self._fields['data']}\n{value}" if name == "data" and "data" in self._fields else value
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id") or None)
