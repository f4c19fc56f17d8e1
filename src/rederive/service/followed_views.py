"""The database's side of subscriptions: which parts of which views are followed, and how a version changes them.

A bound part of a view that is not stored is followed by itself: the engine computes it from its bindings. The parts of a stored
view share one subscription to the whole view. A change is split among them by one lookup for each row and each set of bound
columns, however many parts there are.

Everything in this module runs in the writer's thread, which owns the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rederive.commit.announce import Subscription
from rederive.commit.monitoring import is_bound_alone
from rederive.database import Database
from rederive.delta import BOTH, Delta, Rows, Sign, multiplicities
from rederive.engines.protocol import Query
from rederive.errors import Expired, Mismatch, NoStore, RederiveError, UnknownRelation
from rederive.ir.rules import Column
from rederive.ir.terms import Row, Value
from rederive.result import Change, Result
from rederive.service.events import Event, Segment, error_event, progress, snapshot
from rederive.service.hub import PassedVersion, PublishedVersion
from rederive.service.subscription_request import SubscriptionRequest
from rederive.store.position import Position

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The events that bring a new subscriber to a version."""

    version: int
    events: list[Event]


class FollowedViews:
    """The parts of views that subscribers follow, with the number of subscribers of each."""

    def __init__(self, database: Database) -> None:
        self._state = database.pipeline.state
        self._users: Counter[Query] = Counter()  # subscribers of each part
        self._sources: dict[Query, Query] = {}  # by part: what the database follows for it, the part itself or its whole view
        self._followed: dict[Query, tuple[Subscription, int]] = {}
        self._columns: dict[str, tuple[Column, ...]] = {}
        self._parts: dict[str, dict[tuple[int, ...], dict[Values, Query]]] = {}

    # Parts

    def follow(self, part: Query) -> None:
        """Follow a part for one more subscriber."""
        if self._users[part] == 0:
            # A view that is not stored has no rows to split: its bound part is computed by itself.
            is_bound = bool(part.bindings) and is_bound_alone(self._state.program, self._state.settings, part.view)
            source = part if is_bound else Query(part.view, ())
            self._follow_source(source)
            self._sources[part] = source
            self._columns[part.view] = self._state.program.relations[part.view].columns
            columns, values = _bound_columns(part)
            self._parts.setdefault(part.view, {}).setdefault(columns, {})[values] = part
        self._users[part] += 1

    def unfollow(self, part: Query) -> None:
        """Follow a part for one subscriber less."""
        self._users[part] -= 1
        if self._users[part] == 0:
            del self._users[part]
            self._unfollow_source(self._sources.pop(part))
            columns, values = _bound_columns(part)
            patterns = self._parts[part.view]
            del patterns[columns][values]
            if not patterns[columns]:
                del patterns[columns]

    def _follow_source(self, source: Query) -> None:
        # Without a callback: the writer reads the changes from the results, and hands them on in its own order.
        subscription, users = self._followed.get(source) or (self._state.subscribe(source, None, BOTH), 0)
        self._followed[source] = (subscription, users + 1)

    def _unfollow_source(self, source: Query) -> None:
        # The engine stops computing a source only when its last part is gone.
        subscription, users = self._followed.pop(source)
        if users > 1:
            self._followed[source] = (subscription, users - 1)
        else:
            subscription.cancel()

    # Versions

    def published_version(self, result: Result) -> PublishedVersion:
        """Return the changes of a committed version in the parts that are followed."""
        found = {part: change.ordered for part, change in result.bound.items() if part in self._users}
        for view, change in result.changes.items():
            for columns, parts in self._parts.get(view, {}).items():
                for part, delta in _split_change(change, columns, parts):
                    # A part that the engine computed for itself is in `found` already.
                    found.setdefault(part, delta)
        return PublishedVersion(result.version, found, passed=self._passed(result))

    def _passed(self, result: Result) -> PassedVersion:
        changed = {view: (_count(c.delta.plus), _count(c.delta.minus)) for view, c in result.changes.items()}
        timings: dict[str, float] = {}
        for name, seconds in result.timings.items():
            owner = _owner(name)
            timings[owner] = timings.get(owner, 0.0) + seconds
        return PassedVersion(
            result.version,
            datetime.now(UTC).isoformat(),
            result.engine,
            result.strategy,
            result.seconds,
            result.touched,
            {_owner(name): rows for name, rows in result.net.items()} | changed,
            timings,
        )

    def ended_parts(self) -> dict[Query, RederiveError]:
        """Return the parts whose view the present program does not define, or defines with other columns."""
        return {part: error for part in self._users if (error := self._refusal(part.view)) is not None}

    def _refusal(self, view: str) -> RederiveError | None:
        program = self._state.program
        if view not in program.relations or not program.is_view(view):
            return UnknownRelation(view, ())  # without the known names: the error goes to every subscriber, whatever it may read
        if program.relations[view].columns != self._columns[view]:
            return Mismatch(f"the columns of '{view}' have changed", hint="subscribe again")
        return None

    # Subscribers

    def start(self, request: SubscriptionRequest, since: Position | None, max_events: int) -> CatchUp:
        """Follow the parts of a request. Return the events that bring its subscriber to the present version.

        They are the changes since a position, or else a snapshot.
        """
        followed: list[Query] = []
        try:
            for part in request.parts:
                self.follow(part)
                followed.append(part)
            return CatchUp(self._state.version, list(self._events(request, since, max_events)))
        except BaseException:  # the counts of subscribers must not keep a part of a failed start
            for part in followed:
                self.unfollow(part)
            raise

    def stop(self, request: SubscriptionRequest) -> None:
        """Stop following the parts of a request."""
        for part in request.parts:
            self.unfollow(part)

    def _events(self, request: SubscriptionRequest, since: Position | None, max_events: int) -> Iterator[Event]:
        if since is not None:
            try:
                yield from self._missed(request, self._state.durable("a position").journal.version_at(since), max_events)
                return
            except (Expired, Mismatch, NoStore) as error:
                # A position that cannot be resumed from is not an error of the request: an EventSource of a browser would stop
                # for good. After a reset, the same connection goes on with a snapshot.
                yield error_event("reset", self._state.version, error)
        yield from snapshot(self._position, {part.view: self._answer(part) for part in request.parts})

    def _answer(self, part: Query) -> tuple[list[str], list[Row]]:
        """Return the columns and the present rows of a part."""
        names = [column.name for column in self._state.program.relations[part.view].columns]
        return names, self._state.rows(part.view, {names[i]: value for i, value in part.bindings})

    def _missed(self, request: SubscriptionRequest, since: int, max_events: int) -> list[Event]:
        """Return the versions after `since`: one by one up to `max_events`, else as one net change."""
        single: list[tuple[int, dict[str, Delta]]] = []
        is_nervous = self._state.settings.precision == "nervous"
        net: Segment | None = Segment(is_nervous) if request.every else None
        for version, deltas in self.changes_since(request.parts, since):
            single.append((version, deltas))
            # More changes than a queue holds become one net change: whoever was away long is treated like a slow subscriber.
            if net is None and len(single) > max_events:
                net = Segment(is_nervous)
            if net is not None:
                for _, one in single:
                    net.add(one)
                single.clear()
        return [*self._change_events(request, since, single, net), progress(self._position)]

    @property
    def _position(self) -> Position:
        return Position(self._state.version, self._state.epoch)

    def _change_events(
        self, request: SubscriptionRequest, since: int, single: Sequence[tuple[int, Mapping[str, Delta]]], net: Segment | None
    ) -> Iterator[Event]:
        if net is not None:
            single = [(self._state.version, net.deltas())]
        for version, deltas in single:
            # The sign is selected from the net change, not before it: a row that entered and left again has not entered.
            requested = {view: delta for view, d in deltas.items() if (delta := d.restrict(request.signs))}
            if requested:
                yield request.shape.change(version, requested, since if net is not None else None, "resumed")

    def _history(self, views: Sequence[str], since: int | Position) -> Iterator[tuple[int, dict[str, Change]]]:
        store = self._state.durable("reading past changes")
        return store.history(self._state.program, views, store.journal.version_at(since))

    def changes_since(self, parts: Sequence[Query], since: int | Position) -> Iterator[tuple[int, dict[str, Delta]]]:
        """Return the versions after `since` that changed one of these parts, oldest first."""
        bindings = {part.view: dict(part.bindings) for part in parts}
        for version, changes in self._history(list(bindings), since):
            parted = {view: change.where(bindings[view]) if bindings[view] else change for view, change in changes.items()}
            if deltas := {view: change.ordered for view, change in parted.items() if change}:
                yield version, deltas


def _owner(name: str) -> str:
    """The relation that a user knows: an auxiliary one is named after it."""
    return name.partition(".")[0]


def _count(side: Rows) -> int:
    return sum(side.values()) if isinstance(side, Mapping) else len(side)


def _bound_columns(part: Query) -> tuple[tuple[int, ...], Values]:
    return tuple(i for i, _ in part.bindings), tuple(value for _, value in part.bindings)


def _split_change(change: Change, columns: tuple[int, ...], parts: Mapping[Values, Query]) -> Iterable[tuple[Query, Delta]]:
    if not columns:
        return [(parts[()], change.ordered)]
    found: dict[Query, dict[Sign, dict[Row, int]]] = {}
    for sign in Sign:
        for row, count in multiplicities(change.ordered.side(sign)).items():
            # One lookup for each row, however many parts are followed.
            if (part := parts.get(tuple(row[i] for i in columns))) is not None:
                found.setdefault(part, {Sign.PLUS: {}, Sign.MINUS: {}})[sign][row] = count
    return [(part, Delta(sides[Sign.PLUS], sides[Sign.MINUS])) for part, sides in found.items()]
