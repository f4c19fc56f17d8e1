"""The database's side of subscriptions: which parts of which views are followed, and what a version did to them.

A bound part of a view that is not kept is computed from its binding alone. Parts of a view that is followed as a whole are found
by their values: a change is sorted into them by one look-up for each of its rows and each set of bound columns, however many
parts there are. Everything here runs in the thread that owns the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rederive.commit.announce import Subscription
from rederive.database import Database
from rederive.engines.protocol import Query
from rederive.errors import Expired, Mismatch, NoStore, RederiveError, UnknownRelation
from rederive.ir.rules import Column
from rederive.ir.terms import Row, Value
from rederive.result import Change, Result
from rederive.service.events import Delta, Event, Segment, progress, snapshot, told
from rederive.service.hub import PublishedVersion, SubscriptionRequest
from rederive.store.position import Position

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Events that bring a new subscriber to a version."""

    version: int
    events: list[Event]


class FollowedViews:
    """What is followed of a database."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._wanted: Counter[Query] = Counter()
        self._sources: dict[Query, Query] = {}  # what each part is followed by: itself, or its whole view
        self._followed: dict[Query, tuple[Subscription, int]] = {}
        self._columns: dict[str, tuple[Column, ...]] = {}
        self._parts: dict[str, dict[tuple[int, ...], dict[Values, Query]]] = {}

    # Who follows what

    def follow(self, part: Query) -> None:
        if self._wanted[part] == 0:
            apart = bool(part.bindings) and self._db.answers_apart(part.view)
            source = part if apart else Query(part.view, ())
            self._follow_source(source)
            self._sources[part] = source
            self._columns[part.view] = self._db.program.relations[part.view].columns
            columns, values = _split(part)
            self._parts.setdefault(part.view, {}).setdefault(columns, {})[values] = part
        self._wanted[part] += 1

    def unfollow(self, part: Query) -> None:
        self._wanted[part] -= 1
        if self._wanted[part] == 0:
            del self._wanted[part]
            self._unfollow_source(self._sources.pop(part))
            columns, values = _split(part)
            patterns = self._parts[part.view]
            del patterns[columns][values]
            if not patterns[columns]:
                del patterns[columns]

    def _follow_source(self, source: Query) -> None:
        subscription, users = self._followed.get(source) or (self._db.follow(source, _unheard), 0)
        self._followed[source] = (subscription, users + 1)

    def _unfollow_source(self, source: Query) -> None:
        subscription, users = self._followed.pop(source)
        if users > 1:
            self._followed[source] = (subscription, users - 1)
        else:
            subscription.cancel()

    # What a version did

    def version(self, result: Result) -> PublishedVersion:
        """The changes of the parts that are followed."""
        found = {part: Delta.of(change) for part, change in result.bound.items() if part in self._wanted}
        for view, change in result.changes.items():
            for columns, parts in self._parts.get(view, {}).items():
                for part, delta in _sorted_into(change, columns, parts):
                    found.setdefault(part, delta)
        return PublishedVersion(result.version, found)

    def ended(self) -> dict[Query, RederiveError]:
        """The parts that a new program has no place for."""
        return {part: error for part in self._wanted if (error := self._refusal(part.view)) is not None}

    def _refusal(self, view: str) -> RederiveError | None:
        program = self._db.program
        if view not in program.relations or not program.is_view(view):
            return UnknownRelation(view, ())  # all who followed it are told, whatever else they may know of
        if program.relations[view].columns != self._columns[view]:
            return Mismatch(f"'{view}' has other columns now", hint="subscribe again")
        return None

    # CatchUp

    def begin(self, wish: SubscriptionRequest, since: Position | None, most: int) -> CatchUp:
        """Follow the parts of a wish, and bring its subscriber to the present version: by what it missed, or by all rows."""
        followed: list[Query] = []
        try:
            for part in wish.parts:
                self.follow(part)
                followed.append(part)
            return CatchUp(self._db.version, list(self._events(wish, since, most)))
        except BaseException:
            for part in followed:
                self.unfollow(part)
            raise

    def end(self, wish: SubscriptionRequest) -> None:
        """Follow the parts of a wish no more."""
        for part in wish.parts:
            self.unfollow(part)

    def _events(self, wish: SubscriptionRequest, since: Position | None, most: int) -> Iterator[Event]:
        if since is not None:
            try:
                yield from self._missed(wish, self._db.version_at(since), most)
                return
            except (Expired, Mismatch, NoStore) as error:
                yield told("reset", self._db.version, error)
        yield from snapshot(self._at, {part.view: self.answer(part) for part in wish.parts})

    def answer(self, part: Query) -> tuple[list[str], list[Row]]:
        """The columns and rows of a part now."""
        names = [column.name for column in self._db.program.relations[part.view].columns]
        return names, self._db.rows(part.view, {names[i]: value for i, value in part.bindings})

    def _missed(self, wish: SubscriptionRequest, since: int, most: int) -> list[Event]:
        """The versions after `since`, one by one where they are few, or else their net change."""
        single: list[tuple[int, dict[str, Delta]]] = []
        net: Segment | None = Segment() if wish.every else None
        for version, deltas in self.past(wish.parts, since):
            single.append((version, deltas))
            if net is None and len(single) > most:
                net = Segment()
            if net is not None:
                for _, one in single:
                    net.add(one, nervous=self._db.precision == "nervous")
                single.clear()
        return [*self._told(wish, since, single, net), progress(self._at)]

    @property
    def _at(self) -> Position:
        return Position(self._db.version, self._db.epoch)

    def _told(
        self, wish: SubscriptionRequest, since: int, single: Sequence[tuple[int, Mapping[str, Delta]]], net: Segment | None
    ) -> Iterator[Event]:
        if net is not None:
            single = [(self._db.version, {view: Delta.net(moves) for view, moves in net.moves.items()})]
        for version, deltas in single:
            wanted = {view: delta for view, d in deltas.items() if (delta := d.only(wish.signs))}
            if wanted:
                yield wish.shape.change(version, wanted, since if net is not None else None, "resumed")

    def past(self, parts: Sequence[Query], since: int | Position) -> Iterator[tuple[int, dict[str, Delta]]]:
        """The versions after `since` that changed some of these parts."""
        bindings = {part.view: dict(part.bindings) for part in parts}
        for version, changes in self._db.history(list(bindings), since):
            parted = {view: change.where(bindings[view]) if bindings[view] else change for view, change in changes.items()}
            if deltas := {view: Delta.of(change) for view, change in parted.items() if change}:
                yield version, deltas


def _unheard(change: Change) -> None:
    """Results are read as a whole, version by version; a subscription only makes the database work them out."""


def _split(part: Query) -> tuple[tuple[int, ...], Values]:
    return tuple(i for i, _ in part.bindings), tuple(value for _, value in part.bindings)


def _sorted_into(change: Change, columns: tuple[int, ...], parts: Mapping[Values, Query]) -> Iterable[tuple[Query, Delta]]:
    if not columns:
        return [(parts[()], Delta.of(change))]
    found: dict[Query, dict[str, tuple[list[Row], list[int]]]] = {}
    whole = Delta.of(change)
    for sign, rows in (("plus", whole.plus), ("minus", whole.minus)):
        counts = whole.counts[sign] if whole.counts is not None else [1] * len(rows)
        for row, count in zip(rows, counts, strict=True):
            if (part := parts.get(tuple(row[i] for i in columns))) is not None:
                side = found.setdefault(part, {"plus": ([], []), "minus": ([], [])})[sign]
                side[0].append(row)
                side[1].append(count)
    return [(part, _delta(sides, whole.counts is not None)) for part, sides in found.items()]


def _delta(sides: Mapping[str, tuple[list[Row], list[int]]], counted: bool) -> Delta:
    counts = {sign: numbers for sign, (_, numbers) in sides.items()}
    return Delta(sides["plus"][0], sides["minus"][0], counts if counted else None)
