"""Sources: where the rows of a relation are. Few are in the driver, many in Spark; a source may combine several of both.

Every source knows its column types, and whether it is certainly `empty`, so that no query is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, assert_never

import pyarrow as pa
from pyspark.sql import DataFrame

from rederive.engines.spark.plan.expressions import AllColumns, Expression, InList, TypedValue, refs, same_row
from rederive.engines.spark.plan.nodes import Aliased, Hint, Join, JoinKind, Plan, Projection, Scan, UnionAll, Values
from rederive.engines.spark.session.types import CODE
from rederive.engines.spark.tuning import Tuning
from rederive.ir.terms import BOOLEAN, Row, Type, Value

Types = tuple[Type, ...]
Ends = tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class Local:
    """Rows in the driver, written into the query that reads them."""

    types: Types
    # At most `Tuning.driver_rows`, where an engine makes it: they are written into the SQL text as literals.
    rows: frozenset[Row]

    @property
    def empty(self) -> bool:
        """Whether it has no rows."""
        return not self.rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(eq=False)
class Distributed:
    """Many rows: in Spark, under the name of a temporary view, or in the driver as an Arrow table until a query reads them.

    `make` registers them with Spark under that name. `ends`: values between which the first column of their identity is, where
    that is known. `table`: the rows in the driver, where they are there. `files`: the folder that stores them, ordered, where
    this process can read it. `is_in_place`: the rows of a Delta table at one commit, which are not copied. `read`: reads them
    from local files without a job, or gives None. `saved`: their name among the saved frames, where they are there.
    """

    types: Types
    name: str
    count: int
    # Called once, by `data`: rows in the driver are sent to Spark only where a query reads them.
    make: Callable[[], DataFrame] = field(repr=False)
    ends: Ends | None = None
    table: pa.Table | None = field(default=None, repr=False)
    files: str | None = None
    is_in_place: bool = False
    read: Callable[[], pa.Table | None] | None = field(default=None, repr=False)
    saved: str | None = None

    @cached_property
    def data(self) -> DataFrame:
        """The rows as a data frame, which registers them."""
        return self.make()

    @property
    def empty(self) -> bool:
        """Whether it has no rows."""
        return not self.count

    def __len__(self) -> int:
        return self.count


Frame: TypeAlias = Local | Distributed  # rows that were evaluated


@dataclass(frozen=True, slots=True)
class Combined:
    """The rows of parts that are disjoint."""

    types: Types
    parts: tuple[Source, ...]

    @property
    def empty(self) -> bool:
        """Whether no part has rows."""
        return all(part.empty for part in self.parts)


@dataclass(frozen=True, slots=True)
class Difference:
    """The rows of one source that another does not have."""

    one: Source
    other: Source
    # False where no column may hold NULL: Spark then joins rows that are partitioned alike without moving them.
    null_safe: bool = True

    @property
    def types(self) -> Types:
        """The types of the columns."""
        return self.one.types

    @property
    def empty(self) -> bool:
        """Whether there are certainly no rows."""
        return self.one.empty


Source: TypeAlias = Local | Distributed | Combined | Difference


def frames(source: Source) -> Iterator[Frame]:
    """The frames that a source consists of."""
    match source:
        case Local() | Distributed():
            yield source
        case Combined(_, parts):
            for part in parts:
                yield from frames(part)
        case Difference(one, other):
            yield from frames(one)
            yield from frames(other)
        case _:
            assert_never(source)


def is_small(source: Source, tuning: Tuning) -> bool:
    """Whether a source can be sent to every executor."""
    match source:
        case Local():
            return True
        case Distributed():
            has_codes_only = set(source.types) == {CODE}
            # The bound is one of memory on each executor: rows of codes alone are several times smaller.
            return source.count <= (tuning.broadcast_code_rows if has_codes_only else tuning.broadcast_rows)
        case Combined(_, parts):
            counted = sum(len(part) for part in parts if isinstance(part, Local | Distributed))
            return all(is_small(part, tuning) for part in parts) and counted <= tuning.broadcast_rows
        case Difference(one):
            # A difference has no more rows than its left side.
            return is_small(one, tuning)
        case _:
            assert_never(source)


def broadcast_hint(source: Source, tuning: Tuning) -> Hint | None:
    """The hint that sends a source to every executor, where it is small."""
    return Hint.BROADCAST if is_small(source, tuning) else None


def scan(source: Source, tuning: Tuning) -> Plan:
    """The plan that reads a source. It registers the frames of the source with Spark."""
    match source:
        case Local(types, rows):
            return Values(types, tuple(rows))
        case Distributed():
            _ = source.data
            return Scan(source.name)
        case Combined(types, parts):
            # A union of no parts has no columns in SQL: one empty part stays.
            filled = [part for part in parts if not part.empty] or list(parts[:1])
            if len(filled) == 1:
                return scan(filled[0], tuning)
            return UnionAll(tuple(Projection(scan(part, tuning), refs(types)) for part in filled))
        case Difference(one, other, null_safe):
            if other.empty:
                return scan(one, tuning)
            right = Aliased(scan(other, tuning), "g", broadcast_hint(other, tuning))
            on = same_row(source.types, "o", "g", null_safe=null_safe)
            return Projection(Join(Aliased(scan(one, tuning), "o"), right, JoinKind.ANTI, on), (AllColumns("o"),))
        case _:
            assert_never(source)


def combine(types: Types, parts: Iterable[Source]) -> Source:
    """The rows of all parts; those in the driver become one part."""
    found = tuple(part for part in parts if not part.empty)
    local = [part for part in found if isinstance(part, Local)]
    if len(local) > 1:
        together = Local(types, frozenset[Row]().union(*(part.rows for part in local)))
        found = (together, *(part for part in found if not isinstance(part, Local)))
    return found[0] if len(found) == 1 else Combined(types, found) if found else Local(types, frozenset())


def overlay(old: Source, minus: Source, plus: Sequence[Source], *, null_safe: bool = True) -> Source:
    """The new state as an access path: new = (old - minus) + plus (decision 1)."""
    if isinstance(old, Local) and isinstance(minus, Local):
        rest: Source = Local(old.types, old.rows - minus.rows)
    else:
        # The parts are disjoint: `plus` has no row of `old - minus`.
        rest = old if minus.empty else Difference(old, minus, null_safe)
    return combine(old.types, (rest, *plus))


def shown(types: Types) -> Types:
    """The types of the columns that Spark sees: a relation without columns has a stand-in, which is TRUE."""
    return types or (BOOLEAN,)


def pushed_filter(value: Expression, among: Collection[Value], type: Type, tuning: Tuning) -> tuple[Expression, ...]:
    """The condition that a column has one of a few values; of files, a scan reads only row groups that can have one."""
    # IN never matches NULL, so a NULL among the values would lose rows.
    if not among or len(among) > tuning.pushed_values or None in among:
        return ()
    return (InList(value, tuple(TypedValue(one, type) for one in among)),)
