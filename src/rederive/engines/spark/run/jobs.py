"""Queries as Spark jobs. What they find comes to the driver where it is little, and is cut off from its lineage otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from math import inf
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rederive.engines.protocol import Bulk
from rederive.engines.spark.plan.functors import Functions
from rederive.engines.spark.plan.sources import (
    BROADCAST_ROWS,
    NULL_SAFE,
    Distributed,
    Ends,
    Frame,
    Local,
    Source,
    Types,
    Union,
    Without,
    frames,
    listed,
    same,
    shown,
    union,
)
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.arrow_sets import Signed, comparable, minus, typed
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
from rederive.engines.spark.run.frame_collection import collected
from rederive.engines.spark.session.sessions import executed, fresh_session, from_table, in_session
from rederive.engines.spark.session.types import column, columns, from_arrow, from_spark, schema, to_arrow
from rederive.ir.rules import Program
from rederive.ir.terms import Row

FEW = 8  # times as many rows that are known make others few
_HASHED_ROWS = 4_000_000  # of a partition, that are looked up by a hash table in memory
_DESCRIPTION = "spark.job.description"
_BLOCK = 8 << 20  # bytes of a file that are read or skipped together
_BY_FILE = 100_000  # rows from which on Spark reads a file sooner than it takes them from the driver

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.limit.initialNumPartitions": "100000",  # a small answer is collected in one job
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # What runs here is planned by the sizes known: plans that change on the way lose how rows are partitioned.
    "spark.sql.adaptive.enabled": "false",
    # Spark carries the constraints of a plan over a checkpoint, with columns that are not there any more.
    "spark.sql.constraintPropagation.enabled": "false",
    # And it loses how a checkpoint is partitioned where the plan that made it took out an alias that changes nothing.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases",
}


class Jobs:
    """A session of our own on the given one's context: its configuration and its temporary views stay as they were."""

    def __init__(self, spark: SparkSession, *, decompose: bool = True, scratch: str | None = None) -> None:
        self.session = fresh_session(spark)
        self.decompose = decompose
        for key, value in _SETTINGS.items():
            self.session.conf.set(key, value)
        self.parts = spark.sparkContext.defaultParallelism
        self.session.conf.set("spark.sql.shuffle.partitions", str(self.parts))
        self.functions = Functions(self.session)
        self.equal = "="
        self.touched = 0
        self._numbers = count(1)
        self._named: set[str] = set()
        self.local = (spark.sparkContext.master or "").startswith("local")
        self._folder = mkdtemp(prefix="rederive-")
        finalize(self, rmtree, self._folder, ignore_errors=True)
        self._shared = self._folder if self.local else f"{scratch}/{uuid4().hex}" if scratch is not None else None

    def admit(self, program: Program) -> None:
        """From here on there may be rows of this program."""
        if any(column.nullable for relation in program.relations.values() for column in relation.columns):
            self.equal = NULL_SAFE

    def same(self, types: Types, one: str, other: str) -> str:
        """The condition under which two aliases stand for the same row."""
        return same(types, one, other, self.equal)

    # Names

    @contextmanager
    def described(self, what: str) -> Iterator[None]:
        """Jobs run inside say in Spark's pages what they are for."""
        context = self.session.sparkContext
        before = context.getLocalProperty(_DESCRIPTION)
        context.setJobDescription(what)
        try:
            yield
        finally:
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]

    def named(self, data: DataFrame, types: Types, rows: int, ends: Ends | None = None) -> Distributed:
        """Give data a name that queries can use."""
        return self._distributed(lambda: data, types, rows, ends)

    def tabled(self, table: pa.Table, types: Types, ends: Ends | None = None) -> Frame:
        """Rows of a table in the driver, no two of them alike. Spark is handed them when a query reads them."""
        if table.num_rows <= tables.SMALL:
            return Local(types, frozenset(from_arrow(table, types)))
        return self._in_driver(table, types, ends)

    def _in_driver(self, table: pa.Table, types: Types, ends: Ends | None = None) -> Distributed:
        return self._distributed(partial(self._from_table, table, types), types, table.num_rows, ends, table)

    def _distributed(
        self, make: Callable[[], DataFrame], types: Types, rows: int, ends: Ends | None, table: pa.Table | None = None
    ) -> Distributed:
        name = f"rederive_{next(self._numbers)}"
        return Distributed(types, name, rows, partial(self._registered, name, make), ends, table)

    def _registered(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        data = make()
        data.createOrReplaceTempView(name)
        self._named.add(name)
        return data

    def viewed(self, text: str, types: Types) -> Distributed:
        """The rows of a query, run when they are read; how many there are is not known, so they count as many."""
        return self.named(self.session.sql(text), types, max(BROADCAST_ROWS, tables.MOST) + 1)

    def forget(self, keep: Iterable[str]) -> None:
        """Drop all names but these."""
        for name in self._named.difference(keep):
            self.session.catalog.dropTempView(name)
        self._named.intersection_update(keep)

    # Rows in

    def frame(self, rows: Iterable[Row], types: Types) -> Frame:
        """Rows of the driver."""
        found = frozenset(rows)
        if len(found) <= tables.SMALL:
            return Local(types, found)
        table = to_arrow(found, types)
        if len(found) <= tables.MOST:
            return self.tabled(table, types)
        return self.named(self._from_table(table, types), types, len(found))

    def _from_table(self, table: pa.Table, types: Types) -> DataFrame:
        """A table handed to Spark; many rows go by way of a file, where the workers see this process's files."""
        file = self._path() if self.local and table.num_rows >= _BY_FILE else None
        return from_table(self.session, table, schema(types), file)

    def given(self, rows: Iterable[Row], types: Types) -> Frame:
        """Rows as they are handed in: as such, or in a data frame of any session."""
        if not isinstance(rows, DataFrameRows):
            return self.frame(rows, types)
        if rows.settled is not None and rows.settled_by is self:
            ends = rows.settled.ends
            return self.named(rows.data, types, len(rows), ends) if rows.table is None else self.tabled(rows.table, types, ends)
        return self.settled(self._ours(rows.data, types).distinct(), types)

    def handed(self, given: Iterable[Bulk], types: Types) -> list[Distributed]:
        """The same as they are, not checked yet: a row may be there twice. Each is read once, into the driver if it is little."""
        frames = [rows for rows in given if isinstance(rows, DataFrameRows)]
        return [self._handed(rows, table, types) for rows, table in zip(frames, collected(frames), strict=True)]

    def _handed(self, rows: DataFrameRows, table: pa.Table | None, types: Types) -> Distributed:
        if table is not None:
            return self._in_driver(table, types)
        data = self.cut(self._ours(rows.unchecked, types), types)
        found = self.named(data, types, self._number(data))
        if len(found) <= tables.MOST:
            found.table = typed(data.toArrow(), types)
        return found

    def _ours(self, data: DataFrame, types: Types) -> DataFrame:
        """The same data in our session."""
        ours = in_session(self.session, data)
        return ours.toDF(*columns(types)) if types else ours.selectExpr("TRUE AS c0")

    def stored(self, frame: Frame, by: int) -> Frame:
        """Rows that stay, where they are many in files, ordered by a column: reading a range of it does not read the rest."""
        if not isinstance(frame, Distributed) or not self._by_file(frame.types, len(frame)):
            return frame
        return self._ordered(frame.data, frame.types, len(frame), by)

    def rewritten(self, text: str, types: Types, number: int, by: int | None) -> Frame:
        """The rows of a query, to stay; `number`: how many there are."""
        if by is None or not self._by_file(types, number):
            return self.materialise(text, types)
        return self._ordered(self.session.sql(text), types, number, by)

    def _by_file(self, types: Types, number: int) -> bool:
        return bool(types) and number >= _BY_FILE and self._shared is not None

    def _ordered(self, data: DataFrame, types: Types, number: int, by: int) -> Distributed:
        ordered = data.repartitionByRange(4 * self.parts, column(by)).sortWithinPartitions(column(by))
        path = self._path()
        found = self.named(self._in_files(ordered, types, path), types, number)
        found.files = path if self.local else None
        return found

    def _path(self) -> str:
        """A place for rows that every worker sees."""
        return f"{self._shared}/{next(self._numbers)}.parquet"

    def _in_files(self, data: DataFrame, types: Types, path: str) -> DataFrame:
        data.write.option("parquet.block.size", _BLOCK).parquet(path)
        return self.session.read.schema(schema(types)).parquet(path)

    def frame_of(self, source: Source) -> Frame:
        """The rows of a source at hand."""
        match source:
            case Local() | Distributed():
                return source
            case _ if (table := self.at_hand(source)) is not None:
                return self.tabled(table, source.types)
            case _:
                return self.materialise(f"SELECT {listed(source.types)} FROM {source.text()}", source.types)

    # Rows out

    def few(self, text: str) -> list[Any]:
        """All rows of an answer that is known to be small."""
        return self.session.sql(text).collect()

    def rows(self, source: Source) -> list[Row]:
        """All rows of a source, however many."""
        return list(source.rows) if isinstance(source, Local) else from_arrow(self.table(source), source.types)

    def table(self, source: Source) -> pa.Table:
        """The same as an Arrow table."""
        match source:
            case Local(types, rows):
                return to_arrow(rows, types)
            case Distributed():
                return source.table if source.table is not None else source.data.toArrow()  # the data outlives its name
            case _:
                return self.session.sql(f"SELECT {listed(source.types)} FROM {source.text()}").toArrow()

    def at_hand(self, source: Source) -> pa.Table | None:
        """The same where that takes no job: all of it is in the driver, and not too much."""
        match source:
            case Local():
                return to_arrow(source.rows, source.types) if len(source) <= tables.MOST else None
            case Distributed():
                return source.table
            case Union(_, parts):
                found = self.all_at_hand(parts)
                return pa.concat_tables(found) if found is not None else None
            case Without(one, other):
                found = self.all_at_hand([one, other]) if comparable(one.types) else None
                return minus(*found) if found is not None else None

    def all_at_hand(self, sources: Sequence[Source]) -> list[pa.Table] | None:
        """The same of several, where each is at hand."""
        found = []
        for source in sources:
            table = self.at_hand(source)
            if table is None:
                return None
            found.append(table)
        return found

    def signed_at_hand(self, parts: Sequence[tuple[Source, int]]) -> list[Signed] | None:
        """The same with how often the rows of each count."""
        found = self.all_at_hand([source for source, _ in parts])
        return [(table, sign) for table, (_, sign) in zip(found, parts, strict=True)] if found is not None else None

    def fetched(self, source: Source) -> pa.Table | None:
        """The same, where what is in Spark is not much; that is fetched once, and stays."""
        for frame in frames(source):
            if isinstance(frame, Distributed) and frame.table is None and len(frame) <= tables.MOST:
                frame.table = typed(frame.data.toArrow(), frame.types)
        return self.at_hand(source)

    def size(self, source: Source) -> int:
        match source:
            case Local() | Distributed():
                return len(source)
            case _:
                (row,) = self.few(f"SELECT count(*) FROM {source.text()}")
                return int(row[0])

    # Sets

    def materialise(self, text: str, types: Types) -> Frame:
        """The rows of a query that gives no two alike."""
        return self.settled(self.session.sql(text), types)

    def minus(self, frame: Frame, known: Iterable[Source]) -> Frame:
        """The rows of a frame that are in none of the sources. A small frame asks a large source for its own rows only."""
        there = [source for source in known if not source.empty]
        if isinstance(frame, Distributed):
            if there and (left := self._minus_here(frame, there)) is not None:
                return left
            query = self._without_found if sparse(len(frame), there) else self.without
            return self.settled(self.session.sql(query(frame.text(), frame.types, there)), frame.types) if there else frame
        here = frozenset[Row]().union(*(source.rows for source in there if isinstance(source, Local)))
        left = Local(frame.types, frame.rows - here)
        elsewhere = union(frame.types, (source for source in there if not isinstance(source, Local)))
        return left if left.empty or elsewhere.empty else Local(left.types, left.rows - self.common(left, elsewhere).rows)

    def _minus_here(self, frame: Distributed, known: Sequence[Source]) -> Frame | None:
        """The same where all of it is in the driver."""
        if frame.table is None or not comparable(frame.types):
            return None
        others = self.at_hand(union(frame.types, known))
        return self.tabled(minus(frame.table, others), frame.types, frame.ends) if others is not None else None

    def without(self, rows: str, types: Types, known: Sequence[Source]) -> str:
        """A query for those of some rows that none of the sources has. What is partitioned the same way stays where it is."""
        aliased = {f"k{i}": part for i, part in enumerate(_by_place(types, known))}
        hints = [hint for alias, part in aliased.items() if (hint := self._looked_up(alias, part))]
        joins = (f" LEFT ANTI JOIN {p.text()} {alias} ON {self.same(types, 'f', alias)}" for alias, p in aliased.items())
        hint = f"/*+ {', '.join(hints)} */ " if hints else ""
        return f"SELECT {hint}f.* FROM {rows} f{''.join(joins)}"

    def _without_found(self, rows: str, types: Types, known: Sequence[Source]) -> str:
        """The same for rows that are few beside what is known: they are sent there, and no table of all that is built."""
        on, parts = self.same(types, "k", "f"), _by_place(types, known)
        found = (f"SELECT /*+ BROADCAST(f) */ k.* FROM {part.text()} k LEFT SEMI JOIN {rows} f ON {on}" for part in parts)
        there = " UNION ALL ".join(found)
        return f"SELECT /*+ BROADCAST(t) */ f.* FROM {rows} f LEFT ANTI JOIN ({there}) t ON {self.same(types, 'f', 't')}"

    def _looked_up(self, alias: str, part: Source) -> str | None:
        """How rows are looked up in a source: sent to every worker if it is small, by a hash table if that surely fits."""
        if part.small and not isinstance(part, Distributed):
            return f"BROADCAST({alias})"
        parts = part.parts if isinstance(part, Union) else (part,)
        rows = sum(len(one) if isinstance(one, Distributed) else inf for one in parts)
        return f"SHUFFLE_HASH({alias})" if rows <= _HASHED_ROWS * self.parts else None

    def common(self, few: Local, source: Source) -> Local:
        """The rows of a small frame that a source has as well."""
        if isinstance(source, Local):
            return Local(few.types, few.rows & source.rows)
        hint = "/*+ BROADCAST(f) */ " if few.rows else ""
        text = f"SELECT {hint}k.* FROM {source.text()} k LEFT SEMI JOIN {few.text()} f ON {self.same(few.types, 'k', 'f')}"
        return Local(few.types, frozenset(from_spark(self.few(text), few.types)))

    def plus(self, one: Frame, other: Frame) -> Frame:
        """The rows of either frame."""
        match one, other:
            case _ if one.empty:
                return other
            case _ if other.empty:
                return one
            case Local(types, rows), Local():
                return self.frame(rows | other.rows, types)
        chosen = listed(one.types)
        text = f"SELECT {chosen} FROM {one.text()} UNION SELECT {chosen} FROM {other.text()}"
        return self.materialise(text, one.types)

    def both(self, frame: Frame, source: Source) -> Frame:
        """The rows of a frame that a source has as well."""
        if isinstance(frame, Local):
            return self.common(frame, source)
        text = f"SELECT f.* FROM {frame.text()} f LEFT SEMI JOIN {source.text()} k ON {self.same(frame.types, 'f', 'k')}"
        return self.settled(self.session.sql(text), frame.types)

    def settled(self, data: DataFrame, types: Types) -> Frame:
        """Run a query once: its rows come to the driver where they are few, and are else kept by Spark without their lineage."""
        kept = self.cut(data, types)
        number = self._number(kept)
        self.touched += number
        if number <= tables.SMALL:
            return Local(types, frozenset(from_spark(kept.collect() if number else (), types)))
        return self.named(kept, types, number)

    @staticmethod
    def _number(data: DataFrame) -> int:
        """How many rows there are; counted where they are, which `count` would plan a query and a shuffle for."""
        return int(executed(data).count())

    def chosen(self, frame: Frame, positions: Sequence[int]) -> Frame:
        """Some columns of a frame, by which its rows still differ."""
        types = tuple(frame.types[i] for i in positions)
        if isinstance(frame, Local):
            return Local(types, frozenset(tuple(row[i] for i in positions) for row in frame.rows))
        if frame.table is not None:
            return self.tabled(typed(frame.table.select([column(i) for i in positions]), types), types)
        values = ", ".join(f"{column(p)} AS {column(i)}" for i, p in enumerate(positions))
        return self.named(self.session.sql(f"SELECT {values} FROM {frame.text()}"), types, len(frame))

    def by_sign(
        self, found: Distributed, numbers: Mapping[int, int], ends: tuple[Ends | None, Ends | None] = (None, None)
    ) -> tuple[Frame, Frame]:
        """Rows by the column after their own: those that leave have -1 there, those that enter 1; `numbers`: how many."""
        return self._side(found, -1, numbers.get(-1, 0), ends[0]), self._side(found, 1, numbers.get(1, 0), ends[1])

    def _side(self, found: Distributed, sign: int, number: int, ends: Ends | None) -> Frame:
        types = shown(found.types)
        text = f"SELECT {listed(types)} FROM {found.text()} WHERE {column(len(types))} = {sign}"
        self.touched += number
        if number <= tables.SMALL:
            return Local(found.types, frozenset(from_spark(self.few(text) if number else (), found.types)))
        return self.named(self.session.sql(text), found.types, number, ends)

    def cut(self, data: DataFrame, types: Types) -> DataFrame:
        """The same rows without their lineage: the query runs once, when they are first read.

        On a cluster they are kept in files, if there is a place for them that all workers see: so a lost worker loses nothing.
        """
        files = not self.local and self._shared is not None and types
        return self._in_files(data, types, self._path()) if files else data.localCheckpoint(eager=False)


def _by_place(types: Types, known: Iterable[Source]) -> list[Source]:
    """Sources put together by where they are. What Spark keeps is one: if all is partitioned alike, it stays where it is."""
    whole = union(types, known)
    if whole.small or not isinstance(whole, Union):
        return [] if whole.empty else [whole]
    parts = [part for source in whole.parts for part in (source.parts if isinstance(source, Union) else (source,))]
    there = union(types, (part for part in parts if isinstance(part, Distributed)))
    here = union(types, (part for part in parts if isinstance(part, Local)))
    rest = (part for part in parts if not isinstance(part, Distributed | Local))
    return [source for source in (there, here, *rest) if not source.empty]


def sparse(rows: int, known: Iterable[Source]) -> bool:
    """Whether rows are so few beside what is known that they are better sent there."""
    return rows <= BROADCAST_ROWS and FEW * rows < sum(len(one) for one in known if isinstance(one, Distributed))
