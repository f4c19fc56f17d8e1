"""The events that subscribers receive, and their encoding. An event is encoded once, for all its subscribers.

Over Server-Sent Events an event has a name, data in JSON and, where a client can resume from it, an id: a position, which is
an epoch and a version. Over WebSocket an event is one JSON object, with the name as `event` and the id as `id`.

    snapshot  {"version": 7, "view": "closure", "columns": ["x", "y"], "rows": [["a", "b"]], "more": false}
    change    {"version": 8, "view": "closure", "plus": [["b", "c"]], "minus": []}
    progress  {"version": 9}
    reset     {"version": 9, "code": "expired", "detail": "..."}
    problem   {"version": 9, "code": "unknown_relation", "detail": "..."}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from rederive.delta import Delta, DeltaSum
from rederive.errors import RederiveError
from rederive.ir.terms import Row
from rederive.store.codec import rows_text
from rederive.store.position import Position

MAX_SNAPSHOT_ROWS: Final = 5_000  # in one event; a larger snapshot is several events


@dataclass(frozen=True)
class Event:
    """One event; `data` is the text of a JSON object. A client can resume from an event with an id."""

    name: str
    data: str
    id: str | None = None

    @cached_property
    def sse(self) -> bytes:
        """The event as Server-Sent Events encode it.

        >>> Event("progress", '{"version":9}', "00c0ffee00c0ffee-9").sse
        b'event: progress\\nid: 00c0ffee00c0ffee-9\\ndata: {"version":9}\\n\\n'
        """
        number = f"id: {self.id}\n" if self.id is not None else ""
        # JSON text has no line feed, so one `data:` line holds all of it. A blank line ends an event.
        return f"event: {self.name}\n{number}data: {self.data}\n\n".encode()

    @cached_property
    def message(self) -> str:
        """The event as one WebSocket message.

        >>> Event("progress", '{"version":9}', "00c0ffee00c0ffee-9").message
        '{"event":"progress","id":"00c0ffee00c0ffee-9","version":9}'
        """
        number = f'"id":"{self.id}",' if self.id is not None else ""
        return f'{{"event":"{self.name}",{number}{self.data[1:]}'

    @cached_property
    def size(self) -> int:
        """The length of the data, in characters."""
        return len(self.data)


def delta_text(delta: Delta) -> str:
    """A delta as members of a JSON object; `counts` is there where some row has another multiplicity than 1.

    >>> delta_text(Delta([("a",)], [("b",)]))
    '"plus":[["a"]],"minus":[["b"]]'
    >>> delta_text(Delta({("a",): 2}))
    '"plus":[["a"]],"minus":[],"counts":{"plus": [2], "minus": []}'
    """
    text = f'"plus":{rows_text(delta.plus)},"minus":{rows_text(delta.minus)}'
    counts = delta.counts
    return text if counts is None else f'{text},"counts":{json.dumps({"plus": counts[0], "minus": counts[1]})}'


@dataclass(frozen=True, slots=True)
class EventShape:
    """The layout of a subscription's events: flat for one view, a list of changed views for several."""

    views: tuple[str, ...]
    together: bool
    epoch: str = ""

    def change(self, version: int, deltas: Mapping[str, Delta], since: int | None = None, why: str = "") -> Event:
        """Return the event of one version or, with `since`, of the net change of all versions after it.

        >>> EventShape(("v",), False).change(8, {"v": Delta([("a",)])}, 5, "every").data
        '{"version":8,"from":6,"coalesced":"every","view":"v","plus":[["a"]],"minus":[]}'
        >>> EventShape(("v", "w"), True).change(8, {"w": Delta([("a",)])}).data
        '{"version":8,"changes":[{"view":"w","plus":[["a"]],"minus":[]}]}'
        """
        head = f'"version":{version}'
        # `from` is inclusive: the net change covers the versions from..version.
        if since is not None and since + 1 < version:
            head += f',"from":{since + 1},"coalesced":{json.dumps(why)}'
        parts = [f'"view":{json.dumps(view)},{delta_text(deltas[view])}' for view in self.views if deltas.get(view)]
        body = f'"changes":[{",".join(f"{{{part}}}" for part in parts)}]' if self.together else parts[0]
        return Event("change", f"{{{head},{body}}}", str(Position(version, self.epoch)))


def snapshot(at: Position, answers: Mapping[str, tuple[Sequence[str], Sequence[Row]]]) -> Iterator[Event]:
    """Return all rows of some views at one version, in pieces. Only the last piece has an id: a client cannot resume in between.

    >>> [event.data for event in snapshot(Position(7), {"v": (["x"], [("a",)])})]
    ['{"version":7,"view":"v","columns":["x"],"rows":[["a"]],"more":false}']
    """
    pieces = [
        (view, columns, rows[i : i + MAX_SNAPSHOT_ROWS]) for view, (columns, rows) in answers.items() for i in _starts(rows)
    ]
    for number, (view, columns, rows) in enumerate(pieces, 1):
        more = number < len(pieces)
        names = json.dumps(list(columns), ensure_ascii=False, separators=(",", ":"))
        data = f'"view":{json.dumps(view)},"columns":{names},"rows":{rows_text(rows)},"more":{json.dumps(more)}'
        yield Event("snapshot", f'{{"version":{at.version},{data}}}', None if more else str(at))


def _starts(rows: Sequence[Row]) -> range:
    # A view without rows has one empty piece: the client learns its columns, and that the snapshot is complete.
    return range(0, max(1, len(rows)), MAX_SNAPSHOT_ROWS)


def progress(at: Position) -> Event:
    """Return the event that says: the subscriber has every change up to this version."""
    return Event("progress", f'{{"version":{at.version}}}', str(at))


def error_event(name: str, version: int, error: RederiveError) -> Event:
    """Return a `reset` or `problem` event with its reason. It has no id: a client cannot resume from it."""
    # Without the place of the error, which may be a folder of the server.
    data: dict[str, Any] = {"version": version, "code": error.code, "detail": error.message}
    return Event(name, json.dumps(data | ({"hint": error.hint} if error.hint else {}), ensure_ascii=False))


@dataclass(slots=True)
class Segment:
    """The sum of the deltas of several versions, by view.

    `is_nervous`: deltas of nervous precision may repeat what is known, so that a row is counted once.
    """

    is_nervous: bool
    sums: dict[str, DeltaSum] = field(default_factory=dict)

    def add(self, deltas: Mapping[str, Delta]) -> None:
        """Add the deltas of one more version."""
        for view, delta in deltas.items():
            self._sum(view).add(delta)

    def merge(self, later: Segment) -> None:
        """Add the sum of later versions."""
        for view, total in later.sums.items():
            self._sum(view).merge(total)

    def deltas(self) -> dict[str, Delta]:
        """The net effect of the versions on each view, rows in order."""
        return {view: total.delta().ordered() for view, total in self.sums.items()}

    def _sum(self, view: str) -> DeltaSum:
        return self.sums.setdefault(view, DeltaSum(is_clamped=self.is_nervous))
