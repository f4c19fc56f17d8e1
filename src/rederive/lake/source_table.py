"""A Delta table that others write, as the rows of a base relation: its columns, its rows at a commit, and what commits changed.

The rows are never copied: they are read at a commit, which stays as it is until its files are vacuumed. Changes come from the
change data feed where the table has one, else from the files that the log adds and removes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rederive.delta import Delta
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.session.sessions import described, like_session
from rederive.errors import DuplicateKey, NotATable, Redefined, SchemaMismatch, SourceChanged, SourceGone, UnknownName
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import FLOAT, NUMBER, UNSIGNED, Row
from rederive.lake.bags import NET, expand_copies, number_copies
from rederive.lake.delta_log import FAILURES, TableState, commit_changes, java_reason, table_state
from rederive.lake.frame_rows import PROBLEM, check_rows, check_times, convert_frame, values
from rederive.lake.local_source import LeftToSpark, LocalSource, ReadBudget
from rederive.lake.names import column_names, quote
from rederive.lake.types import BITS, collect, column_type, frame_of, rows_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

LOG: Final = logging.getLogger("rederive.tables")
CHANGE_TYPE: Final = "_change_type"
_ENTERS: Final = ("insert", "update_postimage")
_FEED: Final = "delta.enableChangeDataFeed"
_OTHER_SCHEMA: Final = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_"  # _SCHEMA_CHANGE, _DATA_SCHEMA
_COLUMN_MAPPING: Final = "delta.columnMapping.mode"
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
RESYNC: Final = "db.tables.resync(): it compares the views with the table as it is, and reports the difference"
_MISSING: Final = ("FILE_NOT_EXIST", "FileNotFoundException", "does not exist")
_FEW_ROWS: Final = 20_000  # of a change: up to here they are collected, so that the journal can hold them
_PRESENT: Final = "_present"


def is_missing_file(error: Exception) -> bool:
    """Whether Spark failed because a file of a table no longer exists."""
    return isinstance(error, FAILURES) and any(sign in str(error) for sign in _MISSING)


@dataclass(frozen=True)
class SourceTable:
    """The Delta table at a location, for readers of a database in a time zone.

    A local table is read by this process where it understands it and the rows fit `Tuning`; else Spark reads it.
    """

    given: SparkSession
    location: str
    zone: str

    @cached_property
    def spark(self) -> SparkSession:
        """A session of our own: Delta adds settings to the session that reads it."""
        return like_session(self.given)

    def _local(self, version: int | None = None) -> LocalSource:
        tuning = SparkEngine.default_tuning
        return LocalSource.open(self.location, self.zone, ReadBudget(tuning.local_file_rows, tuning.local_rows), version)

    def state(self, version: int | None = None) -> TableState:
        """The table as it is now, or at a commit."""
        try:
            return self._local(version).log.state()
        except LeftToSpark:
            found = table_state(self.spark, self.location, version)
        if found is None:
            raise NotATable("no Delta table", hint="give the folder that holds _delta_log, or a name of the catalog").at(
                self.location
            )
        return found

    def columns(self) -> list[Column]:
        """The columns that a base relation can have. Columns of other types, such as arrays, are left out."""
        fields = self.state().schema.fields
        return [column for field in fields if (column := _column(field)) is not None]

    def check_columns(self, table: Relation, state: TableState) -> None:
        """Refuse a table that lacks a column of the relation, or has it with another type. New columns are left alone."""
        found = {field.name.lower(): field for field in state.schema.fields}
        for column in table.columns:
            field = found.get(column.name.lower())
            other = _column(field) if field is not None else None
            if other is None or other.type != column.type or not _has_width(other, column):
                shown = "is missing" if field is None else f"is {field.dataType.simpleString()}"
                raise SourceChanged(
                    f"column '{column.name}' of the table behind '{table.name}' {shown} since commit {state.version}",
                    hint=f"db.attach('{table.name}', ...) once more: it takes the columns that the table has now",
                ).at(self.location)

    def check_identities(self, table: Relation, before: TableState, now: TableState) -> None:
        """Refuse a column that was dropped or renamed, and whose name another column has now: no commit reports its values."""
        old, new = (_identities(state.schema) for state in (before, now))
        for column in table.columns:
            if (name := column.name.lower()) in old and old[name] != new.get(name):
                raise SourceChanged(
                    f"column '{column.name}' of the table behind '{table.name}' is another one since commit {now.version}",
                    hint=RESYNC,
                ).at(self.location)

    # Rows

    def frame(self, table: Relation, version: int) -> DataFrame:
        """The rows at a commit, with the columns of the relation; of a bag, each as often as it occurs."""
        return values(self._converted(self._read(version), table), table)

    def pinned_rows(self, table: Relation, base: Relation, version: int) -> DataFrameRows:
        """The rows at a commit, as a base relation has them. They are not read yet."""
        if base.name == table.name:
            with suppress(LeftToSpark):
                source = self._local(version)
                read, make = partial(_read_all, source, table), partial(self.frame, table, version)
                return DataFrameRows.in_local_files(read, make, base.types, source.number_of_rows)
        rows = self.frame(table, version)
        return DataFrameRows.in_place(rows if base.name == table.name else number_copies(rows), base.types, self._count(version))

    def check_all(self, table: Relation, version: int) -> None:
        """Refuse rows that the relation cannot hold, and two rows with one key."""
        converted = self._converted(self._read(version), table)
        with described(self.spark, f"{table.name}: check all rows at commit {version}"):
            check_rows(converted, table)
            if identity := _identity(table):
                self._check_key(values(converted, table), table, identity)

    def _read(self, version: int) -> DataFrame:
        try:
            return self.spark.read.format("delta").option("versionAsOf", version).load(self.location)
        except FAILURES as error:
            raise self._gone(error, version) from error

    def _count(self, version: int) -> int:
        # Delta answers this from the statistics of its log.
        return self._read(version).count()

    def _converted(self, frame: DataFrame, table: Relation, extra: Sequence[str] = ()) -> DataFrame:
        # By name, and without regard to case, as Spark finds columns. Columns that came later are left out.
        chosen = frame.select(*(F.col(quote(c.name)).alias(c.name) for c in table.columns), *extra)
        check_times(chosen.schema, self.zone)
        return convert_frame(chosen, table, extra)

    def _check_key(self, rows: DataFrame, table: Relation, identity: Sequence[int]) -> None:
        names = [rows.columns[i] for i in identity]
        shared = rows.groupBy(*map(quote, names)).agg(F.count("*").alias(_PRESENT)).where(F.col(_PRESENT) > 1).limit(1)
        found = collect(rows.join(shared.drop(_PRESENT), names, "left_semi").limit(2), table)
        if found:
            raise DuplicateKey(table.name, [table.columns[i].name for i in identity], found[0], found[-1]).at(self.location)

    # Changes

    @contextmanager
    def net_change(self, table: Relation, base: Relation, after: int, upto: int) -> Iterator[Delta]:
        """What the commits after `after` up to `upto` did to the base relation, which can be read inside the block."""
        what = f"{table.name}: changes of commits {after + 1} to {upto}"
        try:
            minus, plus = self._local(upto).net_change(table, after)
        except LeftToSpark as reason:
            LOG.info("%s: read by Spark: %s", what, reason)
        else:
            LOG.info("%s: %d rows read in this process", what, len(minus) + len(plus))
            yield Delta(self._side(plus, table), self._side(minus, table))
            return
        # Once: both sides and the checks are read from these rows, not from the files again.
        net = self._net(table, after, upto).persist()
        try:
            try:
                with described(self.spark, what):
                    found = self._delta(net, table, base, upto)
            except FAILURES as error:
                raise self._gone(error, after) from error
            yield found
        finally:
            net.unpersist()

    def _side(self, rows: pa.Table, table: Relation) -> Sequence[Row] | DataFrameRows:
        if rows.num_rows <= _FEW_ROWS:
            return rows_of(rows, table)
        named = rows.rename_columns(list(column_names(table)))
        return DataFrameRows.in_driver(rows, table.types, lambda: frame_of(self.spark, named, schema_of(table)))

    def rows_before(self, table: Relation, base: Relation, after: int, upto: int, number: int) -> DataFrameRows:
        """The `number` rows at commit `after` as the new state minus the change: where the files of that commit are gone."""
        net = self._net(table, after, upto)
        changed = net.select(*(F.col(f"v{i}").alias(name) for i, name in enumerate(column_names(table))), NET)
        plus, minus = (expand_copies(changed.where(F.col(NET) * sign > 0).withColumn(NET, F.abs(NET)), NET) for sign in (1, -1))
        rows = self.frame(table, upto).exceptAll(plus).unionAll(minus)
        return DataFrameRows.in_place(rows if base.name == table.name else number_copies(rows), base.types, number)

    def _delta(self, net: DataFrame, table: Relation, base: Relation, upto: int) -> Delta:
        nulls = [F.max(F.col(f"v{i}").isNull()) for i, column in enumerate(table.columns) if not column.nullable]
        copies, problem = F.sum(F.abs(NET)).alias("copies"), F.max(PROBLEM).alias(PROBLEM)
        sides = net.groupBy(F.signum(NET).alias("sign")).agg(copies, problem, *nulls).collect()
        if any(side[PROBLEM] is not None or any(side[3:]) for side in sides):
            check_rows(net, table)
        if not sides:
            return Delta()
        changed = net.select(*(F.col(f"v{i}").alias(name) for i, name in enumerate(column_names(table))), NET)
        # What is broadcast passes through the driver.
        is_small = sum(side["copies"] for side in sides) <= SparkEngine.default_tuning.broadcast_request_rows
        sent: Callable[[DataFrame], DataFrame] = F.broadcast if is_small else lambda frame: frame
        if base.name != table.name:
            changed = self._with_present(changed, sent, table, upto)
        elif identity := _identity(table):
            entering = changed.where(F.col(NET) > 0)
            keys = entering.select(*(quote(entering.columns[i]) for i in identity)).distinct()
            # In the new state, each key that enters is there once: neither twice in the change nor next to an old row.
            present = self.frame(table, upto).join(sent(keys), keys.columns, "left_semi")
            self._check_key(present.select(*map(quote, changed.columns[:-1])), table, identity)
        return _sides(changed, base, {int(side["sign"]): side["copies"] for side in sides})

    def _with_present(self, changed: DataFrame, sent: Callable[[DataFrame], DataFrame], table: Relation, upto: int) -> DataFrame:
        """The changed rows of a bag, with how many copies there are after the change. `sent`: how they get to the rows."""
        names = changed.columns[:-1]
        other = [f"_{i}" for i in range(len(names))]
        rows = self.frame(table, upto).toDF(*other)
        # NULL matches NULL: rows are compared as values.
        same = reduce(and_, (F.col(o).eqNullSafe(F.col(quote(n))) for o, n in zip(other, names, strict=True)))
        found = rows.join(sent(changed.drop(NET)), same, "left_semi").groupBy(*other).agg(F.count("*").alias(_PRESENT))
        return changed.join(found, same, "left").select(
            *map(quote, names), NET, F.coalesce(F.col(_PRESENT), F.lit(0)).alias(_PRESENT)
        )

    def _net(self, table: Relation, after: int, upto: int) -> DataFrame:
        """The values of each changed row, its problem, and by how many copies it changes."""
        found = self._changes(after, upto)
        names = {column.name for column in table.columns}
        if any(not names <= {name.lower() for name in part.columns} for part in found):
            raise SourceChanged(f"a commit after {after} has other columns", hint=RESYNC).at(self.location)
        parts = [self._converted(part, table, [CHANGE_TYPE]) for part in found]
        rows = reduce(lambda one, other: one.unionByName(other), parts)
        sign = F.when(F.col(CHANGE_TYPE).isin(*_ENTERS), 1).otherwise(-1)
        # Without any problem Spark types the column as void, which has no greatest value.
        rows = rows.withColumn(PROBLEM, F.col(PROBLEM).cast("string"))
        by = [name for name in rows.columns if name != CHANGE_TYPE]
        # The union of deltas: signs add up, and a row that was rewritten as it was is no change.
        return rows.groupBy(*by).agg(F.sum(sign).alias(NET)).where(F.col(NET) != 0)

    def _changes(self, after: int, upto: int) -> list[DataFrame]:
        has_feed = self.state(upto).properties.get(_FEED) == "true"
        for from_files in (False, True) if has_feed else (True,):
            try:
                return [commit_changes(self.spark, self.location, after, upto, from_files=from_files)]
            except FAILURES as error:
                # A feed that was switched on in between, or whose files are gone, is replaced by the log.
                if _OTHER_SCHEMA in str(error):
                    return self._commit_by_commit(after, upto)
                failure = error
        raise self._gone(failure, after) from failure

    def _commit_by_commit(self, after: int, upto: int) -> list[DataFrame]:
        """Each commit with the columns that it has: some commit changed them, such as a RESTORE before a new column."""
        try:
            numbers = range(after + 1, upto + 1)
            return [commit_changes(self.spark, self.location, n - 1, n, from_files=True) for n in numbers]
        except FAILURES as error:
            raise self._gone(error, after) from error

    def _gone(self, error: Exception, version: int) -> Exception:
        reason = java_reason(error)
        return SourceGone(f"the commits after {version} can no longer be read: {reason}", hint=RESYNC).at(self.location)


def _read_all(source: LocalSource, table: Relation) -> pa.Table | None:
    try:
        return source.rows(table)
    except LeftToSpark as reason:
        LOG.info("%s: rows at commit %d: read by Spark: %s", table.name, source.log.version, reason)
        return None


def maps_columns(state: TableState) -> bool:
    """Whether columns of the table can be renamed and dropped without a commit that rewrites its rows."""
    return state.properties.get(_COLUMN_MAPPING, "none") != "none"


def _has_width(found: Column, declared: Column) -> bool:
    """Whether the numbers have the declared width. Stores from before there was FLOAT declare it as DOUBLE."""
    return found.bits == declared.bits or (found.type == FLOAT and found.bits < declared.bits)


def _identities(schema: StructType) -> dict[str, object]:
    """What each column is called in the files, which stays when it is renamed."""
    return {field.name.lower(): (field.metadata or {}).get(_PHYSICAL_NAME, field.name) for field in schema.fields}


def _column(field: StructField) -> Column | None:
    """The column of a relation for a field of a table; None if its type has none."""
    try:
        type = column_type(field)
    except SchemaMismatch:
        return None
    if type == UNSIGNED:
        return None
    bits = BITS.get(field.dataType.__class__, 64) if type in (NUMBER, FLOAT) else 64
    without_zone = field.dataType.typeName() == "timestamp_ntz"
    return Column(field.name.lower(), type, field.nullable, bits, without_zone=without_zone)


def key_columns(columns: Sequence[Column], key: Sequence[str]) -> tuple[str, ...]:
    """The names of a declared key, which must be columns of the table."""
    known = [column.name for column in columns]
    for name in key:
        if name.lower() not in known:
            raise UnknownName("column", name, known)
    return tuple(name.lower() for name in key)


def known_key(table: Relation, given: Sequence[str]) -> Sequence[str]:
    """The key of a table that is attached already; refused if another one is given."""
    known = [table.columns[i].name for i in _identity(table)]
    if given and sorted(name.lower() for name in given) != sorted(known):
        raise Redefined(f"'{table.name}' is attached with the key ({', '.join(known)})", hint=f"DROP TABLE {table.name} first")
    return known


def _identity(table: Relation) -> tuple[int, ...]:
    """The columns that may not be equal in two rows: those of the key, or all of a set without one."""
    return table.key or (tuple(range(table.arity)) if table.bag is None else ())


def _sides(changed: DataFrame, base: Relation, copies: Mapping[int, int]) -> Delta:
    """The rows that enter and leave, `copies` of each sign: in the driver where they are few."""
    is_bag = _PRESENT in changed.columns
    if sum(copies.values()) <= _FEW_ROWS:
        table = changed.toArrow()
        names = [name for name in table.column_names if name not in (NET, _PRESENT)]
        rows = rows_of(table.select(names), Relation("", base.columns[: len(names)]))
        net, present = ([int(n) for n in table[c].to_pylist() if n is not None] for c in (NET, _PRESENT if is_bag else NET))
        return _numbered(rows, net, present) if is_bag else _signed(rows, net)
    sides = []
    for sign in (1, -1):
        side = changed.where(F.col(NET) * sign > 0)
        sides.append(
            DataFrameRows.counted(_numbered_frame(side, sign) if is_bag else side.drop(NET), base.types, copies.get(sign, 0))
        )
    return Delta(*sides)


def _signed(rows: Sequence[Row], net: Sequence[int]) -> Delta:
    pairs = list(zip(rows, net, strict=True))
    return Delta([row for row, sign in pairs if sign > 0], [row for row, sign in pairs if sign < 0])


def _numbered(rows: Sequence[Row], net: Sequence[int], present: Sequence[int]) -> Delta:
    """Copies have numbers without gaps: those that enter follow the old ones, and the highest ones leave."""
    plus: list[Row] = []
    minus: list[Row] = []
    for row, change, after in zip(rows, net, present, strict=True):
        before = after - change
        plus += [(*row, i) for i in range(before + 1, after + 1)]
        minus += [(*row, i) for i in range(after + 1, before + 1)]
    return Delta(plus, minus)


def _numbered_frame(side: DataFrame, sign: int) -> DataFrame:
    """The same in Spark."""
    names = [quote(name) for name in side.columns if name not in (NET, _PRESENT)]
    before, after = F.col(_PRESENT) - F.col(NET), F.col(_PRESENT)
    numbers = F.sequence(before + 1, after) if sign > 0 else F.sequence(after + 1, before)
    return side.select(*names, F.explode(numbers).cast("long").alias("_copy"))
