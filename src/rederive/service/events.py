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

from rederive.delta import Sign
from rederive.errors import RederiveError
from rederive.ir.terms import Row
from rederive.result import Change
from rederive.store.codec import encode_rows
from rederive.store.position import Position
from rederive.values import sort_key

MAX_SNAPSHOT_ROWS: Final = 5_000  # in one event; a larger snapshot is several events
Moves = dict[Row, int]
"""Rows, and how many copies of each enter (above zero) or leave (below)."""


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


@dataclass(frozen=True, slots=True)
class Delta:
    """The change of one view. `counts`: how many copies of each row, where that is not always 1."""

    plus: Sequence[Row] = ()
    minus: Sequence[Row] = ()
    counts: Mapping[str, Sequence[int]] | None = None

    @classmethod
    def of(cls, change: Change) -> Delta:
        return cls(change.plus, change.minus, change.counts)

    @classmethod
    def net(cls, moves: Moves) -> Delta:
        """
        >>> Delta.net({("a",): 1, ("b",): -1})
        Delta(plus=[('a',)], minus=[('b',)], counts=None)
        """
        plus = sorted((row for row, count in moves.items() if count > 0), key=sort_key)
        minus = sorted((row for row, count in moves.items() if count < 0), key=sort_key)
        counts = {"plus": [moves[row] for row in plus], "minus": [-moves[row] for row in minus]}
        return cls(plus, minus, counts if any(count != 1 for side in counts.values() for count in side) else None)

    def moves(self) -> Moves:
        counts = self.counts or {"plus": [1] * len(self.plus), "minus": [1] * len(self.minus)}
        moved = dict(zip(self.plus, counts["plus"], strict=True))
        for row, count in zip(self.minus, counts["minus"], strict=True):
            moved[row] = moved.get(row, 0) - count
        return moved

    def only(self, signs: frozenset[Sign]) -> Delta:
        """The part with these signs."""
        if len(signs) == len(Sign):
            return self
        plus, minus = Sign.PLUS in signs, Sign.MINUS in signs
        counts = self.counts and {
            "plus": self.counts["plus"] if plus else [],
            "minus": self.counts["minus"] if minus else [],
        }
        return Delta(self.plus if plus else (), self.minus if minus else (), counts)

    def __bool__(self) -> bool:
        return bool(self.plus or self.minus)

    @property
    def text(self) -> str:
        """Its members of a JSON object."""
        copies = f',"counts":{json.dumps(self.counts)}' if self.counts is not None else ""
        return f'"plus":{encode_rows(self.plus)},"minus":{encode_rows(self.minus)}{copies}'


def merge(into: Moves, later: Moves, *, nervous: bool = False) -> None:
    """The net effect of two changes, one after the other: what entered and left again never happened.

    A nervous change may repeat what was told already; a row is told once all the same.

    >>> moves = {("a",): 1}
    >>> merge(moves, {("a",): -1, ("b",): 1})
    >>> moves
    {('b',): 1}
    """
    for row, count in later.items():
        total = into.get(row, 0) + count
        if nervous:
            total = max(-1, min(1, total))
        if total:
            into[row] = total
        else:
            into.pop(row, None)


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
        if since is not None and since + 1 < version:
            head += f',"from":{since + 1},"coalesced":{json.dumps(why)}'
        parts = [f'"view":{json.dumps(view)},{deltas[view].text}' for view in self.views if deltas.get(view)]
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
        data = f'"view":{json.dumps(view)},"columns":{names},"rows":{encode_rows(rows)},"more":{json.dumps(more)}'
        yield Event("snapshot", f'{{"version":{at.version},{data}}}', None if more else str(at))


def _starts(rows: Sequence[Row]) -> range:
    return range(0, max(1, len(rows)), MAX_SNAPSHOT_ROWS)


def progress(at: Position) -> Event:
    """Return the event that says: the subscriber has every change up to this version."""
    return Event("progress", f'{{"version":{at.version}}}', str(at))


def error_event(name: str, version: int, error: RederiveError) -> Event:
    """Return a `reset` or `problem` event with its reason. It has no id: a client cannot resume from it."""
    data: dict[str, Any] = {"version": version, "code": error.code, "detail": error.message}
    return Event(name, json.dumps(data | ({"hint": error.hint} if error.hint else {}), ensure_ascii=False))


@dataclass(slots=True)
class Segment:
    """The net change of the versions between two points at which somebody fell behind."""

    moves: dict[str, Moves] = field(default_factory=dict)

    def add(self, deltas: Mapping[str, Delta], *, nervous: bool) -> None:
        for view, delta in deltas.items():
            merge(self.moves.setdefault(view, {}), delta.moves(), nervous=nervous)
