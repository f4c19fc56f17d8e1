"""Where the rows of a relation are: few in the driver, many in Spark, or a combination of both.

Every source knows its column types; whether it is `empty` for certain, so that nothing needs to be asked; whether it is `small`
enough to be sent to every worker; and its `text`, an item of a FROM clause without an alias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from rederive.engines.spark.session.types import CODE, columns, literal, sql_type
from rederive.ir.terms import BOOLEAN, Row, Type, Value

Types = tuple[Type, ...]
Ends = tuple[Value, Value]
BROADCAST_ROWS = 200_000
BROADCAST_CODES = 1_000_000  # rows that have nothing but codes
PUSHED = 200  # values, at most, that a scan is told to look for
NULL_SAFE = "<=>"  # where no column holds NULL, `=` means the same, and lets Spark join rows where they are


@dataclass(frozen=True, slots=True)
class Local:
    """Rows in the driver, written into the query that reads them."""

    types: Types
    rows: frozenset[Row]

    @property
    def empty(self) -> bool:
        return not self.rows

    @property
    def small(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.rows)

    def text(self) -> str:
        if not self.rows:
            typed = zip(shown(self.types), columns(self.types), strict=True)
            nothing = ", ".join(f"CAST(NULL AS {sql_type(t)}) AS {c}" for t, c in typed)
            return f"(SELECT {nothing} WHERE FALSE)"
        types = shown(self.types)
        rows = (", ".join(literal(v, t) for v, t in zip(row or (True,), types, strict=True)) for row in self.rows)
        return f"(SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS v({', '.join(columns(self.types))}))"


@dataclass(eq=False)
class Distributed:
    """Many rows: in Spark, under the name of a temporary view, or in the driver as a table until a query reads them.

    `make` gives them to Spark under that name. `ends`: values between which the first column of their identity is, where that is
    known. `table`: the rows in the driver, where they are there. `files`: the folder that keeps them, ordered, where this process
    can read it.
    """

    types: Types
    name: str
    count: int
    make: Callable[[], DataFrame] = field(repr=False)
    ends: Ends | None = None
    table: pa.Table | None = field(default=None, repr=False)
    files: str | None = None

    @cached_property
    def data(self) -> DataFrame:
        return self.make()

    @property
    def empty(self) -> bool:
        return not self.count

    @property
    def small(self) -> bool:
        return self.count <= (BROADCAST_CODES if set(self.types) == {CODE} else BROADCAST_ROWS)

    def __len__(self) -> int:
        return self.count

    def text(self) -> str:
        _ = self.data  # from here on Spark knows the name
        return self.name


Frame: TypeAlias = Local | Distributed  # rows that are at hand


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of parts that have none in common."""

    types: Types
    parts: tuple[Source, ...]

    @property
    def empty(self) -> bool:
        return all(part.empty for part in self.parts)

    @property
    def small(self) -> bool:
        counted = [len(part) for part in self.parts if isinstance(part, Local | Distributed)]
        return all(part.small for part in self.parts) and sum(counted) <= BROADCAST_ROWS

    def text(self) -> str:
        parts = [part for part in self.parts if not part.empty] or list(self.parts[:1])
        if len(parts) == 1:
            return parts[0].text()
        return f"({' UNION ALL '.join(f'SELECT {listed(self.types)} FROM {part.text()}' for part in parts)})"


@dataclass(frozen=True, slots=True)
class Without:
    """The rows of one source that another one has not."""

    one: Source
    other: Source
    equal: str = NULL_SAFE

    @property
    def types(self) -> Types:
        return self.one.types

    @property
    def empty(self) -> bool:
        return self.one.empty

    @property
    def small(self) -> bool:
        return self.one.small

    def text(self) -> str:
        if self.other.empty:
            return self.one.text()
        hint, on = " /*+ BROADCAST(g) */" if self.other.small else "", same(self.types, "o", "g", self.equal)
        return f"(SELECT{hint} o.* FROM {self.one.text()} o LEFT ANTI JOIN {self.other.text()} g ON {on})"


Source: TypeAlias = Local | Distributed | Union | Without


def frames(source: Source) -> Iterator[Frame]:
    """What a source is made of."""
    match source:
        case Local() | Distributed():
            yield source
        case Union(_, parts):
            for part in parts:
                yield from frames(part)
        case Without(one, other):
            yield from frames(one)
            yield from frames(other)


def union(types: Types, parts: Iterable[Source]) -> Source:
    found = tuple(part for part in parts if not part.empty)
    here = [part for part in found if isinstance(part, Local)]
    if len(here) > 1:
        together = Local(types, frozenset[Row]().union(*(part.rows for part in here)))
        found = (together, *(part for part in found if not isinstance(part, Local)))
    return found[0] if len(found) == 1 else Union(types, found) if found else Local(types, frozenset())


def overlay(old: Source, gone: Source, came: Sequence[Source], equal: str = NULL_SAFE) -> Source:
    """`new = (old - gone) + came`, as an access path."""
    if isinstance(old, Local) and isinstance(gone, Local):
        kept: Source = Local(old.types, old.rows - gone.rows)
    else:
        kept = old if gone.empty else Without(old, gone, equal)
    return union(old.types, (kept, *came))


def shown(types: Types) -> Types:
    return types or (BOOLEAN,)


def listed(types: Types) -> str:
    return ", ".join(columns(types))


def same(types: Types, one: str, other: str, equal: str = NULL_SAFE) -> str:
    """The condition under which two aliases stand for the same row; NULL is identical to NULL."""
    return " AND ".join(f"{one}.{c} {equal} {other}.{c}" for c in columns(types))


def pushed(value: str, among: Collection[Value], type: Type) -> list[str]:
    """The condition that a column has one of a few values. Files are read only where they can have one."""
    if not among or len(among) > PUSHED or None in among:
        return []
    return [f"{value} IN ({', '.join(literal(one, type) for one in among)})"]
