"""The tables of a lake, each a Delta table in a folder of its own under the root:

    base/<relation>     the rows of a base relation; of a bag, each as often as it occurs
    views/<view>        the rows of a materialised view, likewise
    changes/<view>      _version, _change ('plus' or 'minus'), _count, and the view's columns: what every version did to the view
    state/settled       the versions to which all tables were brought together

Each write is one Delta commit and carries the version of ours that it belongs to. A write that is repeated changes nothing, since
the table remembers the last version that was written to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from threading import RLock
from typing import TYPE_CHECKING, Final

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rederive.engines.spark.session.sessions import fresh_session, in_session, like_session
from rederive.errors import NotATable, SchemaMismatch, VersionGone
from rederive.ir.rules import Relation
from rederive.ir.terms import UTC, Value
from rederive.lake import bags
from rederive.lake.declaration import check, check_frame, declared, properties, schema_difference
from rederive.lake.delta_log import Snapshot, exists, is_unfinished, once, remove, retried, snapshot, version_noted, written_as
from rederive.lake.names import PRESENT, column_names, folder_name
from rederive.lake.types import dataframe, schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = "_version"
CHANGE: Final = "_change"
COUNT: Final = "_count"
PLUS: Final = "plus"
MINUS: Final = "minus"
_SMALL_FILES: Final = 64
_SMALL: Final = 32 * 2**20


class Area(Enum):
    """The folders of a lake."""

    BASE = "base"
    VIEWS = "views"
    CHANGES = "changes"
    STATE = "state"


class Lake:
    """The tables under a root path, which may be any path that Spark can write."""

    def __init__(self, spark: SparkSession, root: str, zone: str = UTC) -> None:
        self.spark = like_session(spark)  # Delta adds settings of its own to the session that first reads a table
        self.root = root
        self.zone = zone
        # Delta's settings for idempotent writes hold for a whole session: this one is for that alone, without any of the user's.
        # Whoever writes in it holds the lock.
        self._private = fresh_session(spark)
        self._lock = RLock()

    def path(self, area: Area, name: str) -> str:
        return f"{self.root.rstrip('/')}/{area.value}/{folder_name(name)}"

    def has(self, path: str) -> bool:
        """Whether there is anything at a path."""
        return exists(self.spark, path)

    def has_table(self, area: Area, name: str) -> bool:
        """Whether the relation has a table; a first write that was stopped before its commit has made none."""
        place = self.path(area, name)
        return self.has(place) and self._table(place) is not None

    # Reading

    def read(self, area: Area, relation: Relation, version: int | None = None) -> DataFrame:
        """The table's rows as they are now, or as they were when `version` was the last one written.

        Columns have the relation's names; a change table's own three come before them.
        """
        if version is not None:
            return self.read_before(area, relation, version)[0]
        self._checked(area, relation)
        return _named(self.spark.read.format("delta").load(self.path(area, relation.name)), relation)

    def read_before(self, area: Area, relation: Relation, version: int) -> tuple[DataFrame, int]:
        """The table's rows as they were when `version` was the last one written, and the version that was: it, or one before."""
        place = self.path(area, relation.name)
        self._checked(area, relation)
        commit, written = self._commit(place, version)
        return _named(self.spark.read.format("delta").option("versionAsOf", commit).load(place), relation), written

    def written(self, area: Area, name: str) -> int | None:
        """The last version that was written to the table; None where there is no table, or nothing was written yet."""
        table = snapshot(self.spark, self.path(area, name))
        return None if table is None else table.written

    def declaration(self, area: Area, name: str) -> Relation | None:
        """The relation that the table was created for; None where there is no table."""
        place = self.path(area, name)
        table = snapshot(self.spark, place)
        return None if table is None else declared(table, place)

    def _checked(self, area: Area, relation: Relation) -> Snapshot:
        table = self._there(area, relation)
        if table is None:
            place = self.path(area, relation.name)
            raise NotATable(f"no table of relation '{relation.name}'", hint="is this the lake's root?").at(place)
        return table

    def _there(self, area: Area, relation: Relation) -> Snapshot | None:
        """The relation's table, which must hold this relation; None where there is none."""
        place = self.path(area, relation.name)
        table = self._table(place)
        if table is not None:
            check(table, relation, _schema(area, relation), place, self.zone)
        return table

    def _table(self, place: str) -> Snapshot | None:
        table = snapshot(self.spark, place)
        if table is None and exists(self.spark, place) and not is_unfinished(self.spark, place):
            raise NotATable("there is something else than a Delta table", hint="choose another root, or move it away").at(place)
        return table

    def _commit(self, place: str, version: int) -> tuple[int, int]:
        """The last commit of `version` or an earlier one, and that version; a commit without one belongs to the one before."""
        history = DeltaTable.forPath(self.spark, place).history().select("version", "userMetadata").collect()
        commits = sorted((int(row["version"]), version_noted(row["userMetadata"])) for row in history)
        current = -1 if commits[0][0] == 0 else None
        found = None
        for number, noted in commits:
            current = noted if noted is not None else current
            if current is not None and current <= version:
                found = number, current
        if found is None:
            raise VersionGone(f"the rows of version {version} are kept no longer", hint="ask for a later version").at(place)
        return found

    # Writing

    def create(self, area: Area, relation: Relation) -> None:
        """An empty table, unless the relation has one already; then that one must hold the same relation."""
        if self._there(area, relation) is None:
            columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in _schema(area, relation).fields)
            self._replace(area, relation, self._private.range(0).select(*columns), None)

    def replace(self, area: Area, relation: Relation, rows: DataFrame, version: int | None = None) -> None:
        """Make `rows` the whole content, in one commit; the table is created if it is not there."""
        check_frame(rows.schema, relation)
        if not _done(self._there(area, relation), version):
            self._replace(area, relation, _stored(rows, relation), version)

    def apply_changes(self, area: Area, relation: Relation, changes: DataFrame, version: int, *, bag: bool = False) -> None:
        """Bring the table to `version` by the changes of one or more versions: a frame like a change table's.

        Those that the table has already are left out; where there is no table, they make one. What happens to a row first and
        last decides: a row that left and came again, or came and left again, is as it was. In a bag, copies are added up instead.
        """
        _check_changes(changes, relation)
        table = self._there(area, relation)
        if table is None and not bag:
            self._replace(area, relation, _net(changes, relation).where(F.col(CHANGE) == PLUS), version)
            return
        if table is None:
            self.create(area, relation)
        if not _done(table, version):
            later = _later(changes, table)
            signed = self._moved(area, relation, later) if bag else _net(later, relation)
            self._apply_net(area, relation, signed, version, bag)

    def _moved(self, area: Area, relation: Relation, changes: DataFrame) -> DataFrame:
        """The rows of a bag that are to be taken out, with all their copies, and each copy that is to be put in."""
        names = column_names(relation)
        net = bags.moved(changes, names, F.col(CHANGE) == PLUS, COUNT)
        table = self._private.read.format("delta").load(self.path(area, relation.name))
        gone = bags.taken_out(net).withColumn(CHANGE, F.lit(MINUS))
        return gone.unionByName(bags.put_in(net, table, names).withColumn(CHANGE, F.lit(PLUS)))

    def append_changes(self, relation: Relation, changes: DataFrame, version: int) -> None:
        """Append what the versions up to `version` did to a view: a frame like the change table. Repeated ones are left out."""
        _check_changes(changes, relation)
        table = self._there(Area.CHANGES, relation)
        self._append_to(table, Area.CHANGES, relation, _later(changes, table), version)

    def append(self, area: Area, relation: Relation, rows: DataFrame, version: int) -> None:
        """Append rows that are not there yet, in one commit; nothing where the table has this version already."""
        check_frame(rows.schema, relation)
        self._append_to(self._there(area, relation), area, relation, _stored(rows, relation), version)

    def _append_to(self, table: Snapshot | None, area: Area, relation: Relation, rows: DataFrame, version: int) -> None:
        """The first rows make the table."""
        if table is None:
            self._replace(area, relation, rows, version)
        elif not _done(table, version):
            self._append(self.path(area, relation.name), rows, version)

    def evolve(self, area: Area, relation: Relation, defaults: Mapping[str, Value]) -> None:
        """Give the table the relation's new columns, all at the end, and rows their defaults. Nothing else may change."""
        place = self.path(area, relation.name)
        table = self._table(place)
        if table is None:
            raise NotATable(f"no table of relation '{relation.name}'").at(place)
        old = declared(table, place)
        kept = Relation(relation.name, relation.columns[: old.arity], old.key)
        check(table, kept, _schema(area, kept), place, self.zone)
        added = Relation(relation.name, relation.columns[old.arity :])
        if relation.key != old.key or set(defaults) != {column.name for column in added.columns}:
            raise SchemaMismatch(
                f"the table of relation '{relation.name}' can only gain columns at its end, each with a default",
                hint="keep its key",
            ).at(place)
        if added.columns and old.columns:
            row = dataframe(self._private, added, [tuple(defaults[column.name] for column in added.columns)])
            self._replace(area, relation, self._with(place, row, _schema(area, relation)), None)

    def _with(self, place: str, row: DataFrame, schema: StructType) -> DataFrame:
        joined = self._private.read.format("delta").load(place).crossJoin(row)
        return joined.toDF(*schema.names)

    def drop(self, area: Area, name: str) -> None:
        """Remove the table and all its history, if there is one."""
        remove(self.spark, self.path(area, name))

    # Upkeep

    def compact(self, area: Area, name: str, *, files: int = _SMALL_FILES) -> bool:
        """Gather small files into large ones where there are `files` of them or more; whether it was done. No row changes."""
        place = self.path(area, name)
        table = snapshot(self.spark, place)
        if table is None or table.files < files or table.size > _SMALL * table.files:
            return False
        with self._lock:
            retried(lambda: DeltaTable.forPath(self._private, place).optimize().executeCompaction(), place)
        return True

    def vacuum(self, area: Area, name: str) -> None:
        """Delete the files that no version of the last week needs: older versions cannot be read any more."""
        DeltaTable.forPath(self._private, self.path(area, name)).vacuum()

    # Commits

    def _replace(self, area: Area, relation: Relation, rows: DataFrame, version: int | None) -> None:
        place = self.path(area, relation.name)
        schema = _schema(area, relation)
        columns = (F.col(_quoted(field.name)).alias(field.name, metadata=field.metadata) for field in schema.fields)
        typed = in_session(self._private, rows).select(*columns)

        def write() -> None:
            writer = typed.writeTo(f"delta.{_quoted(place)}").using("delta").options(**once(version))
            for name, value in properties(relation, self.zone).items():
                writer = writer.tableProperty(name, value)
            writer.createOrReplace()

        with self._lock:
            retried(write, place)

    def _apply_net(self, area: Area, relation: Relation, signed: DataFrame, version: int, bag: bool = False) -> None:
        """One commit that deletes and inserts; a mere append where nothing is deleted; none where nothing changes."""
        place = self.path(area, relation.name)
        held = signed.persist()
        try:
            signs = {row[CHANGE] for row in held.select(CHANGE).distinct().collect()}
            if signs == {PLUS}:
                self._append(place, held.drop(CHANGE), version)
            elif signs:
                with self._lock, written_as(self._private, version):
                    retried(lambda: self._merge(place, relation, held, bag), place)
        finally:
            held.unpersist()

    def _append(self, place: str, rows: DataFrame, version: int) -> None:
        writer = in_session(self._private, rows).write.format("delta").mode("append").options(**once(version))
        with self._lock:
            retried(lambda: writer.save(place), place)

    def _merge(self, place: str, relation: Relation, signed: DataFrame, bag: bool) -> None:
        """In a bag, a row that is put in matches nothing: it may be there already, or be taken out by the same commit."""
        names = column_names(relation)
        same = f"{_identical(names)} AND change.{CHANGE} = '{MINUS}'" if bag else _identical(names)
        merge = DeltaTable.forPath(self._private, place).alias("old").merge(signed.alias("change"), same)
        merge = merge.whenMatchedDelete(f"change.{CHANGE} = '{MINUS}'")
        inserted: dict[str, str | SparkColumn] = {_quoted(name): f"change.{_quoted(name)}" for name in names}
        merge.whenNotMatchedInsert(f"change.{CHANGE} = '{PLUS}'", inserted).execute()


# Frames


def change_schema(relation: Relation) -> StructType:
    """The columns of a view's change table."""
    own = [StructField(VERSION, LongType()), StructField(CHANGE, StringType()), StructField(COUNT, LongType())]
    return StructType(own + schema_of(relation).fields)


def _schema(area: Area, relation: Relation) -> StructType:
    return change_schema(relation) if area is Area.CHANGES else schema_of(relation)


def _named(table: DataFrame, relation: Relation) -> DataFrame:
    """The stored columns under the relation's names."""
    stored = column_names(relation)
    own = [name for name in table.columns if name not in stored]
    columns = [F.col(_quoted(n)).alias(c.name) for n, c in zip(stored, relation.columns, strict=False)]
    return table.select(*own, *columns)


def _stored(rows: DataFrame, relation: Relation) -> DataFrame:
    """The columns of a frame, in their order, under the stored names."""
    return rows.toDF(*column_names(relation)) if relation.columns else rows.select(F.lit(True).alias(PRESENT))


def _check_changes(changes: DataFrame, relation: Relation) -> None:
    if difference := schema_difference(changes.schema, change_schema(relation)):
        raise SchemaMismatch(f"not changes of relation '{relation.name}': {difference}")


def _later(changes: DataFrame, table: Snapshot | None) -> DataFrame:
    return changes if table is None or table.written is None else changes.where(F.col(VERSION) > table.written)


def _net(changes: DataFrame, relation: Relation) -> DataFrame:
    names = [_quoted(name) for name in column_names(relation)]
    first, last = F.min_by(CHANGE, VERSION), F.max_by(CHANGE, VERSION)
    ends = changes.groupBy(*names).agg(first.alias("_first"), last.alias(CHANGE))
    return ends.where(F.col("_first") == F.col(CHANGE)).drop("_first")


def _identical(names: tuple[str, ...]) -> str:
    return " AND ".join(f"old.{_quoted(name)} <=> change.{_quoted(name)}" for name in names)


def _done(table: Snapshot | None, version: int | None) -> bool:
    return version is not None and table is not None and table.written is not None and table.written >= version


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
