"""Operations on sets of rows: in the driver where both sides are there, else as Spark jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from rederive.engines.spark.plan.expressions import AllColumns, Expression, equal, number, ref, refs, renumbered, same_row
from rederive.engines.spark.plan.nodes import Aliased, Filter, Hint, Join, JoinKind, Plan, Projection, union_all
from rederive.engines.spark.plan.sources import (
    Combined,
    Difference,
    Distributed,
    Ends,
    Frame,
    Local,
    Source,
    Types,
    combine,
    is_small,
    shown,
)
from rederive.engines.spark.run.arrow_sets import can_compare, cast_columns, select_matching, subtract
from rederive.engines.spark.run.queries import Queries
from rederive.engines.spark.session.types import column, columns, from_arrow, from_spark, to_arrow
from rederive.ir.terms import Row


class Sets:
    """Set operations over frames and sources. `null_safe`: whether columns may hold NULL, which is then identical to NULL."""

    def __init__(self, queries: Queries, parts: int) -> None:
        self.queries = queries
        self.frames = queries.frames
        self.tuning = queries.tuning
        self.parts = parts
        # Set by `Jobs.admit` and never reset: stored rows of an earlier program may hold NULL.
        self.null_safe = False

    def same_row(self, types: Types, one: str, other: str) -> tuple[Expression, ...]:
        """The conditions under which two aliases have the same row."""
        return same_row(types, one, other, null_safe=self.null_safe)

    # Difference

    def minus(self, frame: Frame, known: Iterable[Source]) -> Frame:
        """The rows of a frame that no source has. A small frame asks a large source for its own rows only."""
        filled = [source for source in known if not source.empty]
        if not filled:
            return frame
        if isinstance(frame, Distributed):
            if (rest := self._minus_in_driver(frame, filled)) is not None:
                return rest
            plan = self._minus_found if self.are_sparse(len(frame), filled) else self.minus_plan
            return self.queries.materialize(plan(self.queries.scan(frame), frame.types, filled), frame.types)
        # What is in the driver is subtracted there; only the rest is looked for in Spark.
        local = frozenset[Row]().union(*(source.rows for source in filled if isinstance(source, Local)))
        rest = Local(frame.types, frame.rows - local)
        distributed = combine(frame.types, (source for source in filled if not isinstance(source, Local)))
        if rest.empty or distributed.empty:
            return rest
        # f - k = f - (f & k): Spark returns at most as many rows as the small frame has.
        return Local(rest.types, rest.rows - self._common(rest, distributed).rows)

    def difference(self, one: Source, other: Source) -> Frame:
        """The rows of one source that another does not have."""
        if isinstance(one, Local):
            return self.minus(one, [other])
        return self.queries.frame_of(one if other.empty else Difference(one, other, self.null_safe))

    def minus_plan(self, rows: Plan, types: Types, known: Sequence[Source]) -> Plan:
        """Those of some rows that no source has. Rows that are partitioned the same way stay where they are (decision 39)."""
        plan: Plan = Aliased(rows, "f")
        for i, part in enumerate(self._by_place(types, known)):
            right = Aliased(self.queries.scan(part), f"k{i}", self._lookup_hint(part))
            plan = Join(plan, right, JoinKind.ANTI, self.same_row(types, "f", f"k{i}"))
        return Projection(plan, (AllColumns("f"),))

    def are_sparse(self, rows: int, known: Iterable[Source]) -> bool:
        """Whether rows are so few next to the known ones that they are better sent there."""
        most = sum(len(one) for one in known if isinstance(one, Distributed))
        # Both: few in absolute numbers, as they are broadcast, and few next to the known ones.
        return rows <= self.tuning.broadcast_rows and self.tuning.sparse_factor * rows < most

    def _minus_in_driver(self, frame: Distributed, known: Sequence[Source]) -> Frame | None:
        if frame.table is None or not can_compare(frame.types):
            return None
        others = self.queries.fetch(combine(frame.types, known))
        return self.frames.of_table(subtract(frame.table, others), frame.types, frame.ends) if others is not None else None

    def _minus_found(self, rows: Plan, types: Types, known: Sequence[Source]) -> Plan:
        """The same for sparse rows: they are broadcast to the known ones, of which no hash table is built."""
        sought = Aliased(rows, "f", Hint.BROADCAST)
        # k & f first, which is small, and then f - (k & f): the known rows are streamed, never hashed.
        found = union_all(
            Projection(
                Join(Aliased(self.queries.scan(part), "k"), sought, JoinKind.SEMI, self.same_row(types, "k", "f")),
                (AllColumns("k"),),
            )
            for part in self._by_place(types, known)
        )
        known_rows = Aliased(found, "t", Hint.BROADCAST)
        join = Join(Aliased(rows, "f"), known_rows, JoinKind.ANTI, self.same_row(types, "f", "t"))
        return Projection(join, (AllColumns("f"),))

    def _by_place(self, types: Types, known: Iterable[Source]) -> list[Source]:
        """Sources combined by where their rows are. Those in Spark are one union, which keeps a partitioning that all share."""
        whole = combine(types, known)
        if is_small(whole, self.tuning) or not isinstance(whole, Combined):
            return [] if whole.empty else [whole]
        # A union of frames that are partitioned alike keeps the partitioning; mixed with literal rows it would not.
        parts = [part for source in whole.parts for part in (source.parts if isinstance(source, Combined) else (source,))]
        distributed = combine(types, (part for part in parts if isinstance(part, Distributed)))
        local = combine(types, (part for part in parts if isinstance(part, Local)))
        rest = (part for part in parts if not isinstance(part, Distributed | Local))
        return [source for source in (distributed, local, *rest) if not source.empty]

    def _lookup_hint(self, part: Source) -> Hint | None:
        """How rows are looked up in a source: broadcast if it is small, by a hash table if that surely fits into memory."""
        if is_small(part, self.tuning) and not isinstance(part, Distributed):
            return Hint.BROADCAST
        parts = part.parts if isinstance(part, Combined) else (part,)
        rows = sum(len(one) if isinstance(one, Distributed) else inf for one in parts)
        # Without the hint Spark sorts both sides, because it does not know that a partition fits.
        return Hint.SHUFFLE_HASH if rows <= self.tuning.hashed_rows * self.parts else None

    # Intersection

    def intersection(self, frame: Frame, source: Source) -> Frame:
        """The rows of a frame that a source has as well."""
        if isinstance(frame, Local):
            return self._common(frame, source)
        left, right = Aliased(self.queries.scan(frame), "f"), Aliased(self.queries.scan(source), "k")
        join = Join(left, right, JoinKind.SEMI, self.same_row(frame.types, "f", "k"))
        return self.queries.materialize(Projection(join, (AllColumns("f"),)), frame.types)

    def _common(self, few: Local, source: Source) -> Local:
        if isinstance(source, Local):
            return Local(few.types, few.rows & source.rows)
        if few.types and can_compare(few.types) and (table := self.queries.fetch(source)) is not None:
            common = select_matching(table, columns(few.types), to_arrow(few.rows, few.types))
            if common is not None:
                return Local(few.types, frozenset(from_arrow(common, few.types)))
        # The few rows go to the many.
        right = Aliased(self.queries.scan(few), "f", Hint.BROADCAST if few.rows else None)
        join = Join(Aliased(self.queries.scan(source), "k"), right, JoinKind.SEMI, self.same_row(few.types, "k", "f"))
        found = self.queries.collect(Projection(join, (AllColumns("k"),)))
        return Local(few.types, frozenset(from_spark(found, few.types)))

    # Columns

    def choose_columns(self, frame: Frame, positions: Sequence[int]) -> Frame:
        """Some columns of a frame, by which its rows still differ."""
        types = tuple(frame.types[i] for i in positions)
        if isinstance(frame, Local):
            return Local(types, frozenset(tuple(row[i] for i in positions) for row in frame.rows))
        if frame.table is not None:
            return self.frames.of_table(cast_columns(frame.table.select([column(i) for i in positions]), types), types)
        data = self.queries.data(Projection(self.queries.scan(frame), renumbered(positions)))
        return self.frames.of_data(data, types, len(frame))

    def split_by_sign(
        self, found: Distributed, numbers: Mapping[int, int], ends: tuple[Ends | None, Ends | None] = (None, None)
    ) -> tuple[Frame, Frame]:
        """The rows that leave, with -1 in the column after their own, and those that enter, with 1; `numbers`: how many."""
        return self._with_sign(found, -1, numbers.get(-1, 0), ends[0]), self._with_sign(found, 1, numbers.get(1, 0), ends[1])

    def _with_sign(self, found: Distributed, sign: int, rows: int, ends: Ends | None) -> Frame:
        types = shown(found.types)
        has_sign = equal(ref(len(types)), number(sign), null_safe=False)
        plan = Projection(Filter(self.queries.scan(found), (has_sign,)), refs(types))
        self.queries.touch(rows)
        if rows <= self.tuning.driver_rows:
            return Local(found.types, frozenset(from_spark(self.queries.collect(plan) if rows else (), found.types)))
        return self.frames.of_data(self.queries.data(plan), found.types, rows, ends)
