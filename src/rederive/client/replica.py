"""A client's copy of views: each event applied once, whatever happens to the connection in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rederive.client.sse import Event
from rederive.errors import OutOfStep, Refused

Row = tuple[Any, ...]
"""Values as JSON has them: decimals, dates and timestamps are texts."""
SNAPSHOT, CHANGE = "snapshot", "change"
RESET = "reset"


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that entered and left a view; of a bag, as often as copies of them did.

    >>> Delta.between(Counter({("a",): 1, ("b",): 2}), Counter({("b",): 1, ("c",): 1}))
    Delta(plus=(('c',),), minus=(('a',), ('b',)))
    """

    plus: tuple[Row, ...] = ()
    minus: tuple[Row, ...] = ()

    @classmethod
    def between(cls, old: Counter[Row], new: Counter[Row]) -> Delta:
        return cls(tuple((new - old).elements()), tuple((old - new).elements()))

    def __bool__(self) -> bool:
        return bool(self.plus or self.minus)


@dataclass(frozen=True, slots=True)
class Change:
    """What a subscriber is told: `plus` and `minus` of the views at a version.

    `kind`: `snapshot` where `plus` is all there is and whatever was there before is void, else `change`. `since`: the version
    that a net change of several begins after, for the reason in `coalesced`: slow, every, resumed; or reset, where the service
    could not tell what was missed and the copy was compared with a new snapshot.
    """

    version: int
    kind: str
    deltas: Mapping[str, Delta]
    since: int | None = None
    coalesced: str = ""

    @property
    def plus(self) -> tuple[Row, ...]:
        """The rows that entered, of the only view, or of all together."""
        return tuple(row for delta in self.deltas.values() for row in delta.plus)

    @property
    def minus(self) -> tuple[Row, ...]:
        return tuple(row for delta in self.deltas.values() for row in delta.minus)


@dataclass(slots=True)
class Replica:
    """The rows of some views as the events tell them. `version`: everything up to it is in the copy; `position`: where the
    service is to go on, which only the service can read.

    Without `kept`, no rows are held: of a subscription that is told one sign alone there is no copy to hold. Rows that begin it
    at a `version` let a later process go on where an earlier one was.

    >>> copy = Replica(("v",))
    >>> copy.hear(Event("snapshot", {"version": 1, "view": "v", "columns": ["x"], "rows": [["a"]], "more": False}, "e-1")).plus
    (('a',),)
    >>> copy.hear(Event("change", {"version": 2, "view": "v", "plus": [["b"]], "minus": [["a"]]}, "e-2")).minus
    (('a',),)
    >>> copy.version, copy.position, list(copy.rows["v"])
    (2, 'e-2', [('b',)])
    """

    views: tuple[str, ...]
    kept: bool = True
    version: int | None = None
    rows: dict[str, Counter[Row]] = field(default_factory=dict)
    position: str | None = None
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _pieces: dict[str, Counter[Row]] = field(default_factory=dict)

    def begin(self) -> None:
        """A new connection: pieces of a snapshot that did not end are void."""
        self._pieces = {}

    def hear(self, event: Event) -> Change | None:
        """Apply an event; what it changed, where it changed something."""
        match event.name:
            case "snapshot":
                self.position = event.id or self.position
                return self._snapshot(event.data)
            case "change" if self.version is None or event.data["version"] > self.version:
                self.position = event.id or self.position
                return self._change(event.data)
            case "progress":
                self.version, self.position = event.data["version"], event.id or self.position
            case "problem":
                raise Refused(event.data["code"], event.data["detail"], hint=event.data.get("hint"))
        return None

    def _snapshot(self, data: Mapping[str, Any]) -> Change | None:
        view = data["view"]
        self.columns[view] = tuple(data["columns"])
        self._pieces.setdefault(view, Counter()).update(map(tuple, data["rows"]))
        if data["more"]:
            return None
        found, self._pieces = self._pieces, {}
        version, before, known = data["version"], self.version, self.rows
        self.version, self.rows = version, found if self.kept else {}
        if self.kept and before is not None and known:
            deltas = {view: Delta.between(known.get(view, Counter()), rows) for view, rows in found.items()}
            return Change(version, CHANGE, {view: delta for view, delta in deltas.items() if delta}, before, RESET)
        return Change(version, SNAPSHOT, {view: Delta(tuple(rows.elements())) for view, rows in found.items()})

    def _change(self, data: Mapping[str, Any]) -> Change:
        deltas = {part["view"]: _delta(part) for part in data.get("changes", [data])}
        if self.kept and self.rows:
            for view, delta in deltas.items():
                self._apply(self.rows.setdefault(view, Counter()), delta)
        self.version = data["version"]
        since = data["from"] - 1 if "from" in data else None
        return Change(data["version"], CHANGE, deltas, since, data.get("coalesced", ""))

    @staticmethod
    def _apply(rows: Counter[Row], delta: Delta) -> None:
        rows.update(delta.plus)
        for row in delta.minus:
            rows[row] -= 1
            if rows[row] < 0:
                raise OutOfStep(f"the row {row!r} left, and was not there")
            if not rows[row]:
                del rows[row]


def _delta(part: Mapping[str, Any]) -> Delta:
    counts = part.get("counts") or {}
    return Delta(*(tuple(_copies(part[side], counts.get(side))) for side in ("plus", "minus")))


def _copies(rows: Sequence[Sequence[Any]], counts: Sequence[int] | None) -> list[Row]:
    return [tuple(row) for row, count in zip(rows, counts or [1] * len(rows), strict=True) for _ in range(count)]
