"""A client's replica of views.

Laws. A change is applied if and only if its version is greater than the replica's: the service delivers at least once, and the
replica applies exactly once. After every event the rows are those of the views at `version`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rederive.client.json_rows import json_rows
from rederive.client.sse import Event
from rederive.delta import Delta, Row, Rows, copies, counted
from rederive.errors import OutOfStep, Refused

SNAPSHOT, CHANGE = "snapshot", "change"
RESET = "reset"


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
        """The rows that entered the views; each row of a bag as often as copies of it entered."""
        return tuple(row for delta in self.deltas.values() for row in copies(delta.plus))

    @property
    def minus(self) -> tuple[Row, ...]:
        """The rows that left the views; each row of a bag as often as copies of it left."""
        return tuple(row for delta in self.deltas.values() for row in copies(delta.minus))


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
                # Only the last piece of a snapshot has an id: a connection
                # that breaks before it resumes from the old position.
                self.position = event.id or self.position
                return self._apply_snapshot(event.data)
            # A version that the replica has is a repetition after a reconnect.
            case "change" if self.version is None or event.data["version"] > self.version:
                self.position = event.id or self.position
                return self._apply_change(event.data)
            case "progress":
                # The versions up to this one changed nothing that the replica follows.
                self.version, self.position = event.data["version"], event.id or self.position
            case "problem":
                raise Refused(event.data["code"], event.data["detail"], hint=event.data.get("hint"))
        return None

    def _apply_snapshot(self, data: Mapping[str, Any]) -> Change | None:
        view = data["view"]
        self.columns[view] = tuple(data["columns"])
        # Pieces are collected apart from the rows, which stay those of the old version until the last piece is there.
        self._pieces.setdefault(view, Counter()).update(json_rows(data["rows"]))
        if data["more"]:
            return None
        found, self._pieces = self._pieces, {}
        version, before, known = data["version"], self.version, self.rows
        self.version, self.rows = version, found if self.holds_rows else {}
        # A snapshot after a reset: the caller gets the difference to the rows that it has, not all rows again.
        if self.holds_rows and before is not None and known:
            deltas = {view: Delta.between(known.get(view, ()), rows) for view, rows in found.items()}
            return Change(version, CHANGE, {view: delta for view, delta in deltas.items() if delta}, before, RESET)
        return Change(version, SNAPSHOT, {view: Delta(_side(rows)) for view, rows in found.items()})

    def _apply_change(self, data: Mapping[str, Any]) -> Change:
        deltas = {part["view"]: _delta(part) for part in data.get("changes", [data])}
        # A replica that resumes without saved rows has none to change, and passes the deltas on.
        if self.holds_rows and self.rows:
            for view, delta in deltas.items():
                missing = delta.apply(self.rows.setdefault(view, Counter()))
                if missing:
                    raise OutOfStep(f"the row {missing[0]!r} leaves the view, and the replica does not have it")
        self.version = data["version"]
        # On the wire `from` is the first version that the net change covers; `since` is the last one before it.
        since = data["from"] - 1 if "from" in data else None
        return Change(data["version"], CHANGE, deltas, since, data.get("coalesced", ""))


def _side(rows: Counter[Row]) -> Rows:
    """A copy of the rows of a view; of a set, without multiplicities."""
    # A copy: the caller may keep the change while the replica goes on.
    return tuple(rows) if len(rows) == rows.total() else Counter(rows)


def _delta(part: Mapping[str, Any]) -> Delta:
    counts = part.get("counts") or {}
    plus, minus = (tuple(json_rows(part[side])) for side in ("plus", "minus"))
    return Delta(counted(plus, counts["plus"]), counted(minus, counts["minus"])) if counts else Delta(plus, minus)
