"""What the engine stores between transactions: base relations, views, and the auxiliary state of strategies; keys are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from rederive.engines.spark.plan.expressions import AllColumns, Named, call, count_rows, equal, infix, number, ref, refs
from rederive.engines.spark.plan.nodes import Aliased, GroupBy, Join, JoinKind, Limit, Plan, Projection, union_all
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source, Types, combine, overlay, shown
from rederive.engines.spark.run.arrow_sets import can_compare, net_tables
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column, from_spark
from rederive.errors import DuplicateKey
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """Rows as they were once, and their deltas since: a transaction does not rewrite the rows.

    `minus` and `plus`: the sum of the older deltas. `pending`: the later ones, the oldest first, each as (minus, plus). `by`: the
    column that the files of the rows are ordered by, where they are in files.

    Invariant: for each row, its multiplicity in `rows` plus the sum of its signs in `signed` is 1 if it is there, else 0.
    """

    rows: Frame
    minus: tuple[Frame, ...] = ()
    plus: tuple[Frame, ...] = ()
    pending: tuple[tuple[Frame, Frame], ...] = ()
    by: int | None = None

    @property
    def signed(self) -> list[tuple[Frame, int]]:
        """All frames of deltas, with the sign of their rows."""
        # Their order has no meaning: signs are summed, and addition commutes.
        minus = (*self.minus, *(minus for minus, _ in self.pending))
        plus = (*self.plus, *(plus for _, plus in self.pending))
        return [(f, -1) for f in minus if not f.empty] + [(f, 1) for f in plus if not f.empty]

    @property
    def changed_rows(self) -> int:
        """The number of rows in deltas."""
        return sum(len(frame) for frame, _ in self.signed)

    @property
    def arrow_rows(self) -> int:
        """The number of rows in deltas that are Arrow tables in the driver."""
        frames = (frame for frame, _ in self.signed if isinstance(frame, Distributed) and frame.table is not None)
        return sum(map(len, frames))

    @property
    def size(self) -> int:
        """The number of rows, by the invariant without a query."""
        return len(self.rows) + sum(sign * len(frame) for frame, sign in self.signed)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames of rows and deltas."""
        return (self.rows, *(frame for frame, _ in self.signed))


class Storage:
    """Stored relations by name."""

    def __init__(self, jobs: Jobs, relations: Mapping[str, StoredRelation] | None = None) -> None:
        self.jobs = jobs
        self.relations = dict(relations or {})
        self._lock = Lock()

    def source(self, name: str) -> Source:
        """The rows of a relation; pending deltas are summed for it."""
        # Once, also where several views of a version read the relation at the same time.
        return self._overlay(self.summed(name))

    def summed(self, name: str) -> StoredRelation:
        """A relation without pending deltas."""
        with self._lock:
            stored = self.relations[name] = self._sum_pending(self.relations[name])
        return stored

    def size(self, name: str) -> int:
        """The number of rows of a relation."""
        return self.relations[name].size

    def __contains__(self, name: str) -> bool:
        return name in self.relations

    def is_in_place(self, name: str) -> bool:
        """Whether the rows of a relation are those of a Delta table, which are not copied."""
        rows = self.relations[name].rows
        return isinstance(rows, Distributed) and rows.is_in_place

    def write(self, name: str, rows: Frame, by: int | None = None) -> None:
        """Create a relation, or replace all its rows."""
        if isinstance(rows, Distributed) and rows.is_in_place:
            self.relations[name] = StoredRelation(rows, by=by)
            return
        # In files, so that a scan with a range of the column skips what it does not need.
        if by is not None and isinstance(rows, Distributed) and self.jobs.scratch.can_store(rows.types, len(rows)):
            data, folder = self.jobs.scratch.write_ordered(rows.data, rows.types, by)
            rows = self.jobs.frames.of_data(data, rows.types, len(rows))
            rows.files = folder
        self.relations[name] = StoredRelation(rows, by=by)

    def apply(self, deltas: Mapping[str, tuple[Source, Source]]) -> None:
        """Apply the (minus, plus) of several relations, all or none. Rows that leave are there, rows that enter are not."""
        # All new values are computed before any is assigned: a failure leaves every relation as it was.
        self.relations.update({name: self._add(self.relations[name], minus, plus) for name, (minus, plus) in deltas.items()})

    def fork(self, names: Iterable[str]) -> Storage:
        """A copy with these relations only, which a new program builds on; the present one stays as it is."""
        return Storage(self.jobs, {name: self.relations[name] for name in names if name in self.relations})

    @property
    def names(self) -> list[str]:
        """The temporary views in use."""
        frames = (frame for stored in self.relations.values() for frame in stored.frames)
        return [frame.name for frame in frames if isinstance(frame, Distributed)]

    def _overlay(self, stored: StoredRelation) -> Source:
        minus = combine(stored.rows.types, stored.minus)
        return overlay(stored.rows, minus, stored.plus, null_safe=self.jobs.sets.null_safe)

    def _add(self, stored: StoredRelation, minus: Source, plus: Source) -> StoredRelation:
        match stored, minus, plus:
            # Few rows, few changes: a new set in the driver, no deltas to carry along.
            case StoredRelation(Local(types, rows), (), (), ()), Local(), Local():
                return StoredRelation(self.jobs.frames.of_rows((rows - minus.rows) | plus.rows, types), by=stored.by)
            case _:
                delta = (self.jobs.queries.frame_of(minus), self.jobs.queries.frame_of(plus))
                return self._compact(replace(stored, pending=(*stored.pending, delta)))

    def _sum_pending(self, stored: StoredRelation) -> StoredRelation:
        """Work the pending deltas into the sum. A row that enters and leaves again is as it was."""
        if not stored.pending:
            return stored
        if all(isinstance(frame, Local) for frame, _ in stored.signed):
            minus, plus = self._sum_local(stored)
        # The first delta is the sum; it is net, so nothing in it cancels.
        elif len(stored.pending) == 1 and not stored.minus and not stored.plus:
            minus, plus = map(self._merge_local, ([frame] for frame in stored.pending[0]))
        else:
            minus, plus = map(self._merge_local, ([frame] for frame in self._sum(stored.signed)))
        return StoredRelation(stored.rows, minus, plus, by=stored.by)

    def _sum_local(self, stored: StoredRelation) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
        sets, minus, plus = self.jobs.sets, stored.minus, stored.plus
        for leaving, entering in stored.pending:
            # minus' = (minus - entering) + (leaving - plus), plus' = (plus - leaving) + (entering - minus)
            before = minus
            minus = self._merge_local([*(sets.minus(f, [entering]) for f in minus), sets.minus(leaving, plus)])
            plus = self._merge_local([*(sets.minus(f, [leaving]) for f in plus), sets.minus(entering, before)])
        return minus, plus

    def _sum(self, signed: Sequence[tuple[Frame, int]]) -> tuple[Frame, Frame]:
        """The sum of signed frames: the rows below zero, and those above."""
        types, jobs = signed[0][0].types, self.jobs
        fits = sum(len(frame) for frame, _ in signed) <= jobs.tuning.arrow_rows and can_compare(types)
        tables = jobs.queries.signed_driver_tables(signed) if fits else None
        if tables is not None:
            minus, plus = net_tables(tables)
            return jobs.frames.of_table(minus, types), jobs.frames.of_table(plus, types)
        own, name = refs(shown(types)), column(len(shown(types)))
        sign = ref(len(shown(types)))
        parts = (Projection(jobs.queries.scan(f), (*own, Named(number(way), name))) for f, way in signed)
        summed = call("sum", sign)
        # The union of deltas (`delta`): signs add up, and what sums to zero is as it was.
        plan = GroupBy(union_all(parts), own, (*own, Named(summed, name)), infix("<>", summed, number(0)))
        data = jobs.queries.cut_lineage(jobs.queries.data(plan), (*shown(types), NUMBER))
        found = jobs.frames.of_data(data, types, 0)
        numbers = jobs.queries.collect(GroupBy(jobs.queries.scan(found), (sign,), (sign, count_rows())))
        return jobs.sets.split_by_sign(found, {row[0]: row[1] for row in numbers})

    def _merge_local(self, frames: Iterable[Frame]) -> tuple[Frame, ...]:
        """The rows in the driver as one frame, and the other frames as they are."""
        filled = [frame for frame in frames if not frame.empty]
        local = [frame for frame in filled if isinstance(frame, Local)]
        rest = tuple(frame for frame in filled if isinstance(frame, Distributed))
        if not local:
            return rest
        return (self.jobs.frames.of_rows(frozenset().union(*(frame.rows for frame in local)), local[0].types), *rest)

    def _compact(self, stored: StoredRelation) -> StoredRelation:
        """Work the deltas into the rows where they are many."""
        tuning = self.jobs.tuning
        if len(stored.pending) > tuning.pending_deltas or stored.arrow_rows > tuning.pending_rows:
            stored = self._sum_pending(stored)
        # The deltas of a table that others write are dropped as soon as its next commit is read (`SparkEngine.rebase`).
        if stored.by is None and isinstance(stored.rows, Distributed) and stored.rows.is_in_place:
            return stored
        # Amortized: a rewrite costs the whole relation, and is paid by a fixed fraction of changed rows.
        if stored.changed_rows <= max(tuning.driver_rows, tuning.compacted_fraction * len(stored.rows)):
            return stored
        return self._rewrite(self._sum_pending(stored), stored.rows.types, stored.size)

    def _rewrite(self, stored: StoredRelation, types: Types, rows: int) -> StoredRelation:
        # rows' = (rows - minus) + plus, without deltas from then on.
        queries, state = self.jobs.queries, self._overlay(stored)
        if stored.by is None or not self.jobs.scratch.can_store(types, rows):
            return StoredRelation(queries.frame_of(state), by=stored.by)
        data, folder = self.jobs.scratch.write_ordered(queries.data(queries.select(state)), types, stored.by)
        frame = self.jobs.frames.of_data(data, types, rows)
        frame.files = folder
        return StoredRelation(frame, by=stored.by)


def identity(relation: Relation) -> tuple[int, ...]:
    """The columns that identify a row: the key, or all columns."""
    return relation.key or tuple(range(relation.arity))


def check_keys(relation: Relation, state: Source, plus: Source, jobs: Jobs) -> None:
    """Refuse a state in which two rows share the key of a row that entered."""
    if not relation.key or plus.empty:
        return
    rows = duplicate_rows(relation, jobs.queries.scan(state), jobs.queries.scan(plus))
    found = from_spark(jobs.queries.collect(rows), relation.types)
    if found:
        raise duplicate_key(relation, found)


def duplicate_rows(relation: Relation, state: Plan, plus: Plan) -> Plan:
    """Two rows of a state that share the key of a row that entered; none if every key has one row."""
    key = tuple(ref(i) for i in relation.key)
    same_key = tuple(equal(ref(i, "s"), ref(i, "k")) for i in relation.key)
    entered = Projection(Join(Aliased(state, "s"), Aliased(plus, "k"), JoinKind.SEMI, same_key), (AllColumns("s"),))
    # One key suffices for the message.
    shared = Limit(GroupBy(entered, key, key, infix(">", count_rows(), number(1))), 1)
    # The key's columns of a group are named as in the relation, whatever their positions.
    pairs = Join(Aliased(state, "s"), Aliased(shared, "k"), JoinKind.SEMI, same_key)
    return Limit(Projection(pairs, (AllColumns("s"),)), 2)


def duplicate_key(relation: Relation, rows: Sequence[Row]) -> DuplicateKey:
    """The error of two rows that share a key."""
    return DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], rows[0], rows[1])
