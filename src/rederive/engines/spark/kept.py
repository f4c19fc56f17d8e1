"""What stays between transactions: base relations, views, and what strategies keep beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rederive.engines.spark.jobs import SMALL, Jobs
from rederive.engines.spark.sources import Distributed, Frame, Local, Source, listed, overlay, shown, union
from rederive.engines.spark.types import column
from rederive.ir.terms import NUMBER

COMPACTED_FROM = 0.1  # of a relation's rows: from so many changes on they are worked in


@dataclass(frozen=True, slots=True)
class Held:
    """Rows as they were once, and what changed since: a small change does not touch the rows.

    `by`: the column that files of them are ordered by, where they are kept so.
    """

    rows: Frame
    gone: tuple[Frame, ...] = ()
    came: tuple[Frame, ...] = ()
    by: int | None = None

    def source(self, equal: str) -> Source:
        return overlay(self.rows, union(self.rows.types, self.gone), self.came, equal)

    @property
    def changes(self) -> int:
        return sum(map(len, (*self.gone, *self.came)))

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.rows, *self.gone, *self.came)


class Kept:
    """Relations by name: in the driver where they are small, else in Spark, with the changes since beside them."""

    def __init__(self, jobs: Jobs, held: Mapping[str, Held] | None = None) -> None:
        self.jobs = jobs
        self.held = dict(held or {})

    def source(self, name: str) -> Source:
        return self.held[name].source(self.jobs.equal)

    def __contains__(self, name: str) -> bool:
        return name in self.held

    def write(self, name: str, rows: Frame, by: int | None = None) -> None:
        """Create a relation, or replace all its rows."""
        self.held[name] = Held(self.jobs.stored(rows, by) if by is not None else rows, by=by)

    def apply(self, changes: Mapping[str, tuple[Source, Source]]) -> None:
        """Take out and put in rows of several relations, all or none: what goes is there, what comes is not."""
        self.held.update({name: self._moved(self.held[name], gone, came) for name, (gone, came) in changes.items()})

    def _moved(self, held: Held, gone: Source, came: Source) -> Held:
        match held, gone, came:
            case Held(Local(types, rows), (), ()), Local(), Local():
                return Held(self.jobs.frame((rows - gone.rows) | came.rows, types), by=held.by)
            case _:
                return self._compacted(self._beside(held, self.jobs.frame_of(gone), self.jobs.frame_of(came)))

    def _beside(self, held: Held, gone: Frame, came: Frame) -> Held:
        """A row that came and goes again, or went and comes again, is as it was."""
        frames = (*held.gone, *held.came, gone, came)
        if not held.gone and not held.came:
            left, stayed = self._gathered([gone]), self._gathered([came])
        elif all(isinstance(frame, Local) for frame in frames):
            left = self._gathered([*(self.jobs.minus(frame, [came]) for frame in held.gone), self.jobs.minus(gone, held.came)])
            stayed = self._gathered([*(self.jobs.minus(frame, [gone]) for frame in held.came), self.jobs.minus(came, held.gone)])
        else:
            ways = [*((frame, -1) for frame in (*held.gone, gone)), *((frame, 1) for frame in (*held.came, came))]
            left, stayed = map(self._gathered, ([frame] for frame in self._summed(ways)))
        return Held(held.rows, left, stayed, held.by)

    def _summed(self, ways: Sequence[tuple[Frame, int]]) -> tuple[Frame, Frame]:
        """Rows that leave and rows that enter, some of them in turn: those that are gone in the end, and those that are there."""
        types = ways[0][0].types
        chosen, sign = listed(shown(types)), column(len(shown(types)))
        rows = " UNION ALL ".join(f"SELECT {chosen}, {way}L AS {sign} FROM {f.text()}" for f, way in ways if not f.empty)
        text = f"SELECT {chosen}, sum({sign}) AS {sign} FROM ({rows}) GROUP BY {chosen} HAVING sum({sign}) <> 0"
        found = self.jobs.named(self.jobs.cut(self.jobs.session.sql(text), (*shown(types), NUMBER)), types, 0)
        numbers = self.jobs.few(f"SELECT {sign}, count(*) FROM {found.text()} GROUP BY {sign}")
        return self.jobs.by_sign(found, {row[0]: row[1] for row in numbers})

    def _gathered(self, frames: Iterable[Frame]) -> tuple[Frame, ...]:
        """The rows in the driver as one frame, and the others as they are."""
        there = [frame for frame in frames if not frame.empty]
        rows = [frame for frame in there if isinstance(frame, Local)]
        rest = tuple(frame for frame in there if isinstance(frame, Distributed))
        if not rows:
            return rest
        return (self.jobs.frame(frozenset().union(*(frame.rows for frame in rows)), rows[0].types), *rest)

    def _compacted(self, held: Held) -> Held:
        """Work the changes in where they are many."""
        if held.changes <= max(SMALL, COMPACTED_FROM * len(held.rows)):
            return held
        types = held.rows.types
        rows = self.jobs.materialise(f"SELECT {listed(types)} FROM {held.source(self.jobs.equal).text()}", types)
        return Held(self.jobs.stored(rows, held.by) if held.by is not None else rows, by=held.by)

    def fork(self, names: Iterable[str]) -> Kept:
        """A copy to build on, with these relations only; whoever made it takes its place when it stands."""
        return Kept(self.jobs, {name: self.held[name] for name in names if name in self.held})

    @property
    def names(self) -> list[str]:
        """The temporary views in use."""
        frames = (frame for held in self.held.values() for frame in held.frames)
        return [frame.name for frame in frames if isinstance(frame, Distributed)]
