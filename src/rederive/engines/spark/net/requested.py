"""What the operations of a transaction wish of each row that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rederive.engines.protocol import Action, Bulk, Operation
from rederive.engines.spark.plan.sources import Ends, Frame, Local, listed, shown
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.arrow_sets import whole
from rederive.engines.spark.run.data_frame_rows import lacking
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import identity
from rederive.engines.spark.session.types import column, columns, from_spark
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER

_DENSE = 4  # rows of a range for each that is wished for, at most, for all of it to be taken


@dataclass(frozen=True, slots=True)
class Wishes:
    """Rows with two columns more: the last wish for each, `2 * number`, one more where it shall be there; and the number of the
    last upsert of it, or 0. `table`: the same in the driver, where they are not too many.

    `ends`: the least and greatest values of the identity's first column, for rows that shall leave and for those that shall be
    there. `upserts`: whether rows leave that are not named.
    """

    relation: Relation
    rows: Frame
    ends: Mapping[bool, Ends]
    upserts: bool
    table: pa.Table | None = None

    @property
    def ranges(self) -> list[Ends]:
        """The values between which the identity's first column is, where it is not NULL."""
        return [ends for ends in self.ends.values() if None not in ends]

    @property
    def nulls(self) -> bool:
        """Whether it may be NULL."""
        return self.relation.columns[identity(self.relation)[0]].nullable

    @property
    def around(self) -> tuple[Ends | None, Ends | None]:
        """Values between which the rows that leave are, and those that enter; NULL is between none."""
        if not self.relation.arity or self.nulls:
            return None, None
        return None if self.upserts else self.ends.get(False), self.ends.get(True)

    def meet(self, frame: Frame) -> bool:
        """Whether rows can be among those wished for, as far as can be told here."""
        if isinstance(frame, Local) or frame.ends is None:
            return True
        low, high = frame.ends
        return any(
            None in (low, high, least, greatest) or (low <= greatest and least <= high)  # type: ignore[operator]
            for least, greatest in self.ends.values()
        )

    @property
    def dense(self) -> bool:
        """Whether the ranges of a key cannot hold many more rows than there are wishes."""
        key, types = self.relation.key, self.relation.types
        if len(key) != 1 or types[key[0]] != NUMBER:
            return False
        most = sum(high - low + 1 for low, high in self.ends.values() if isinstance(low, int) and isinstance(high, int))
        return most <= _DENSE * len(self.rows)


def beside(relation: Relation) -> tuple[str, str]:
    """The two columns beside those of a relation."""
    width = len(shown(relation.types))
    return column(width), column(width + 1)


def by_identity(relation: Relation) -> list[str]:
    return [column(i) for i in identity(relation)] or columns(())


def wishes_of(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> Wishes:
    """What operations on one relation wish, in order; refused where a row lacks a value."""
    given = list(_given(operations, relation, jobs))
    upserts = any(operation.action is Action.UPSERT for operation in operations)
    table = _table(given, relation, jobs)
    rows, ends = _asked(given, relation, jobs) if table is None else _told(table, relation, jobs)
    return Wishes(relation, rows, ends, upserts, table)


@dataclass(frozen=True, slots=True)
class _Given:
    """The rows of an operation, and its number; where it is None, each row has its own in a column more."""

    action: Action
    rows: Frame
    number: int | None = None

    @property
    def there(self) -> int:
        return int(self.action is not Action.DELETE)

    @property
    def upserted(self) -> int:
        return int(self.action is Action.UPSERT)


def _given(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> Iterator[_Given]:
    """Operations, numbered. The rows of a list are wished for one after the other, those of a data frame at once."""
    frames = iter(jobs.handed([one.rows for one in operations if isinstance(one.rows, Bulk)], relation.types))
    number = 1
    for operation in operations:
        if isinstance(operation.rows, Bulk):
            yield _Given(operation.action, next(frames), number)
            number += 1
        else:
            rows = {row or (True,): n for n, row in enumerate(operation.rows, number)}
            yield _Given(operation.action, jobs.frame(((*row, n) for row, n in rows.items()), (*shown(relation.types), NUMBER)))
            number += len(operation.rows)


# In the driver


def _table(given: Sequence[_Given], relation: Relation, jobs: Jobs) -> pa.Table | None:
    """The wishes as a table, where they are in the driver and not too many."""
    if not relation.arity or not tables.comparable(relation.types) or sum(len(one.rows) for one in given) > tables.MOST:
        return None
    found = jobs.all_at_hand([one.rows for one in given])
    if found is None:
        return None
    wish, upsert = beside(relation)
    parts = []
    for one, table in zip(given, found, strict=True):
        number = table[wish] if one.number is None else pa.repeat(whole(one.number), table.num_rows)
        wishes = pc.add(pc.multiply(number, 2), one.there)
        rows = table.select(columns(relation.types))
        parts.append(rows.append_column(wish, wishes).append_column(upsert, pc.multiply(number, one.upserted)))
    return tables.typed(pa.concat_tables(parts), (*relation.types, NUMBER, NUMBER))


def _told(table: pa.Table, relation: Relation, jobs: Jobs) -> tuple[Frame, dict[bool, Ends]]:
    for i, one in enumerate(relation.columns):
        if not one.nullable and table.column(i).null_count:
            raise lacking(relation, i)
    wish, _ = beside(relation)
    by = identity(relation)[0]
    there = pc.equal(pc.bit_wise_and(table[wish], whole(1)), whole(1))
    ends = {}
    for side in (False, True):
        values = table.column(by).filter(there if side else pc.invert(there))
        if len(values):
            ends[side] = tables.ends(values, relation.types[by])
    return jobs.tabled(table, (*relation.types, NUMBER, NUMBER)), ends


# In Spark


def _asked(given: Sequence[_Given], relation: Relation, jobs: Jobs) -> tuple[Frame, dict[bool, Ends]]:
    types = shown(relation.types)
    wish, _ = beside(relation)
    rows = " UNION ALL ".join(_select(one, relation) for one in given)
    found = jobs.named(jobs.session.sql(rows), types, sum(len(one.rows) for one in given))
    first = by_identity(relation)[0]
    nulls = (f"WHEN {column(i)} IS NULL THEN {i}" for i, c in enumerate(relation.columns) if not c.nullable)
    null = f"min(CASE {' '.join(nulls)} WHEN FALSE THEN 0 END)"
    told = jobs.few(f"SELECT {wish} % 2, {null}, min({first}), max({first}) FROM {found.text()} GROUP BY {wish} % 2")
    for row in told:
        if row[1] is not None:
            raise lacking(relation, row[1])
    by = types[identity(relation)[0]] if relation.arity else types[0]
    values = from_spark((row[2:] for row in told), (by, by))
    return found, {bool(row[0]): (low, high) for row, (low, high) in zip(told, values, strict=True)}


def _select(given: _Given, relation: Relation) -> str:
    wish, upsert = beside(relation)
    number = wish if given.number is None else str(given.number)
    return (
        f"SELECT {listed(shown(relation.types))}, CAST(2 * {number} + {given.there} AS BIGINT) AS {wish}, "
        f"CAST({given.upserted} * {number} AS BIGINT) AS {upsert} FROM {given.rows.text()}"
    )
