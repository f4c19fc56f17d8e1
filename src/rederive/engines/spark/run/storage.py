"""What stays between transactions: base relations, views, and what strategies keep beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source, listed, overlay, shown, union
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.arrow_sets import comparable, net
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column
from rederive.ir.terms import NUMBER

MOST_PENDING = 16  # changes that are not summed up; whoever needs them summed does it sooner
MOST_IN_TABLES = 2_000_000  # rows of changes of one relation in the driver; beyond it Spark sums them up, and keeps them
COMPACTED_FROM = 0.3  # of a relation's rows: from so many changes on they are worked in


@dataclass(frozen=True, slots=True)
class Held:
    """Rows as they were once, and what changed since: a change does not touch the rows.

    `pending`: changes after those, the oldest first, as rows that left and rows that entered. `by`: the column that files of the
    rows are ordered by, where they are kept so.
    """

    rows: Frame
    gone: tuple[Frame, ...] = ()
    came: tuple[Frame, ...] = ()
    pending: tuple[tuple[Frame, Frame], ...] = ()
    by: int | None = None

    @property
    def signed(self) -> list[tuple[Frame, int]]:
        """All changes: how often each row of a frame counts. The sum for a row and the rows themselves is 1 if it is there."""
        gone = (*self.gone, *(gone for gone, _ in self.pending))
        came = (*self.came, *(came for _, came in self.pending))
        return [(f, -1) for f in gone if not f.empty] + [(f, 1) for f in came if not f.empty]

    @property
    def changes(self) -> int:
        return sum(len(frame) for frame, _ in self.signed)

    @property
    def in_tables(self) -> int:
        """How many rows of changes the driver keeps in tables."""
        frames = (frame for frame, _ in self.signed if isinstance(frame, Distributed) and frame.table is not None)
        return sum(map(len, frames))

    @property
    def size(self) -> int:
        """How many rows there are, without a look at them."""
        return len(self.rows) + sum(sign * len(frame) for frame, sign in self.signed)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return (self.rows, *(frame for frame, _ in self.signed))


class Kept:
    """Relations by name: in the driver where they are small, else in Spark, with the changes since beside them."""

    def __init__(self, jobs: Jobs, held: Mapping[str, Held] | None = None) -> None:
        self.jobs = jobs
        self.held = dict(held or {})

    def source(self, name: str) -> Source:
        held = self.held[name] = self._summed(self.held[name])
        return overlay(held.rows, union(held.rows.types, held.gone), held.came, self.jobs.equal)

    def size(self, name: str) -> int:
        return self.held[name].size

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
            case Held(Local(types, rows), (), (), ()), Local(), Local():
                return Held(self.jobs.frame((rows - gone.rows) | came.rows, types), by=held.by)
            case _:
                added = replace(held, pending=(*held.pending, (self.jobs.frame_of(gone), self.jobs.frame_of(came))))
                return self._compacted(added)

    def _summed(self, held: Held) -> Held:
        """Work the pending changes into those before. A row that came and goes again, or went and comes again, is as it was."""
        if not held.pending:
            return held
        if all(isinstance(frame, Local) for frame, _ in held.signed):
            left, entered = held.gone, held.came
            for gone, came in held.pending:
                before = left
                left = self._gathered([*(self.jobs.minus(f, [came]) for f in left), self.jobs.minus(gone, entered)])
                entered = self._gathered([*(self.jobs.minus(f, [gone]) for f in entered), self.jobs.minus(came, before)])
        elif len(held.pending) == 1 and not held.gone and not held.came:
            left, entered = map(self._gathered, ([frame] for frame in held.pending[0]))
        else:
            left, entered = map(self._gathered, ([frame] for frame in self._by_sum(held.signed)))
        return Held(held.rows, left, entered, by=held.by)

    def _by_sum(self, signed: Sequence[tuple[Frame, int]]) -> tuple[Frame, Frame]:
        """The rows that are gone in the end, and those that are there."""
        types = signed[0][0].types
        few = sum(len(frame) for frame, _ in signed) <= tables.MOST and comparable(types)
        here = self.jobs.signed_at_hand(signed) if few else None
        if here is not None:
            gone, came = net(here)
            return self.jobs.tabled(gone, types), self.jobs.tabled(came, types)
        chosen, sign = listed(shown(types)), column(len(shown(types)))
        rows = " UNION ALL ".join(f"SELECT {chosen}, {way}L AS {sign} FROM {frame.text()}" for frame, way in signed)
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
        if len(held.pending) > MOST_PENDING or held.in_tables > MOST_IN_TABLES:
            held = self._summed(held)
        if held.changes <= max(tables.SMALL, COMPACTED_FROM * len(held.rows)):
            return held
        number, held, types = held.size, self._summed(held), held.rows.types
        source = overlay(held.rows, union(types, held.gone), held.came, self.jobs.equal)
        return Held(self.jobs.rewritten(f"SELECT {listed(types)} FROM {source.text()}", types, number, held.by), by=held.by)

    def fork(self, names: Iterable[str]) -> Kept:
        """A copy to build on, with these relations only; whoever made it takes its place when it stands."""
        return Kept(self.jobs, {name: self.held[name] for name in names if name in self.held})

    @property
    def names(self) -> list[str]:
        """The temporary views in use."""
        frames = (frame for held in self.held.values() for frame in held.frames)
        return [frame.name for frame in frames if isinstance(frame, Distributed)]
