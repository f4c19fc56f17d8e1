"""A client's replica of views.

Laws. A change is applied if and only if its version is greater than the replica's: the service delivers at least once, and the
replica applies exactly once. After every event the rows are those of the views at `version`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rederive.client.sse import Event
from rederive.errors import OutOfStep, Refused

Row = tuple[Any, ...]
"""Values as JSON has them: decimals, dates and timestamps are strings."""
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
    """The rows that entered and left the views at a version.

    `kind`: `snapshot` if `plus` has all rows and replaces what the client had, else `change`. `since`: a net change of several
    versions begins after this one. `coalesced` says why it is a net change: `slow`, `every` or `resumed`; or `reset`, if the
    service could not say what was missed and the replica was compared with a new snapshot.
    """

    version: int
    kind: str
    deltas: Mapping[str, Delta]
    since: int | None = None
    coalesced: str = ""

    @property
    def plus(self) -> tuple[Row, ...]:
        """The rows that entered the views."""
        return tuple(row for delta in self.deltas.values() for row in delta.plus)

    @property
    def minus(self) -> tuple[Row, ...]:
        """The rows that left the views."""
        return tuple(row for delta in self.deltas.values() for row in delta.minus)


@dataclass(slots=True)
class Replica:
    """The rows of some views, as the events build them.

    `version`: the replica has every change up to it. `position`: what the service needs to resume; clients do not parse it.
    Without `holds_rows` the replica has no rows: a subscription to one sign does not determine them. A replica that starts
    with `rows` at a `version` continues the work of an earlier process.

    >>> replica = Replica(("v",))
    >>> data = {"version": 1, "view": "v", "columns": ["x"], "rows": [["a"]], "more": False}
    >>> replica.apply(Event("snapshot", data, "e-1")).plus
    (('a',),)
    >>> replica.apply(Event("change", {"version": 2, "view": "v", "plus": [["b"]], "minus": [["a"]]}, "e-2")).minus
    (('a',),)
    >>> replica.version, replica.position, list(replica.rows["v"])
    (2, 'e-2', [('b',)])
    """

    views: tuple[str, ...]
    holds_rows: bool = True
    version: int | None = None
    rows: dict[str, Counter[Row]] = field(default_factory=dict)
    position: str | None = None
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _pieces: dict[str, Counter[Row]] = field(default_factory=dict)

    def start_stream(self) -> None:
        """Note that a new connection begins: the pieces of an incomplete snapshot are dropped."""
        self._pieces = {}

    def apply(self, event: Event) -> Change | None:
        """Apply an event. Return its change, or None if it changes nothing."""
        match event.name:
            case "snapshot":
                self.position = event.id or self.position
                return self._apply_snapshot(event.data)
            case "change" if self.version is None or event.data["version"] > self.version:
                self.position = event.id or self.position
                return self._apply_change(event.data)
            case "progress":
                self.version, self.position = event.data["version"], event.id or self.position
            case "problem":
                raise Refused(event.data["code"], event.data["detail"], hint=event.data.get("hint"))
        return None

    def _apply_snapshot(self, data: Mapping[str, Any]) -> Change | None:
        view = data["view"]
        self.columns[view] = tuple(data["columns"])
        self._pieces.setdefault(view, Counter()).update(map(tuple, data["rows"]))
        if data["more"]:
            return None
        found, self._pieces = self._pieces, {}
        version, before, known = data["version"], self.version, self.rows
        self.version, self.rows = version, found if self.holds_rows else {}
        if self.holds_rows and before is not None and known:
            deltas = {view: Delta.between(known.get(view, Counter()), rows) for view, rows in found.items()}
            return Change(version, CHANGE, {view: delta for view, delta in deltas.items() if delta}, before, RESET)
        return Change(version, SNAPSHOT, {view: Delta(tuple(rows.elements())) for view, rows in found.items()})

    def _apply_change(self, data: Mapping[str, Any]) -> Change:
        deltas = {part["view"]: _delta(part) for part in data.get("changes", [data])}
        if self.holds_rows and self.rows:
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
                raise OutOfStep(f"the row {row!r} leaves the view, and the replica does not have it")
            if not rows[row]:
                del rows[row]


def _delta(part: Mapping[str, Any]) -> Delta:
    counts = part.get("counts") or {}
    return Delta(*(tuple(_copies(part[side], counts.get(side))) for side in ("plus", "minus")))


def _copies(rows: Sequence[Sequence[Any]], counts: Sequence[int] | None) -> list[Row]:
    return [tuple(row) for row, count in zip(rows, counts or [1] * len(rows), strict=True) for _ in range(count)]
