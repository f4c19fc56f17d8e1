"""The tables of a lake, each a Delta table in a folder of its own under the root:

    base/<relation>     the rows of a base relation; of a bag, each as often as it occurs
    views/<view>        the rows of a stored view, likewise
    changes/<view>      what every version did to the view: see `change_table`
    state/settled       the versions at which all tables of the lake agreed

Each write is one Delta commit, which carries the version of ours that it belongs to. The table's log holds the last such version,
so a repeated write changes nothing: a process that is killed after a write and before it notes the write may repeat it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

import pyarrow
from delta.tables import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rederive.engines.spark.session.sessions import described, fresh_session, in_session, like_session
from rederive.errors import Expired, Mismatch, NotATable, SchemaMismatch, VersionGone
from rederive.ir.rules import Relation
from rederive.ir.terms import BOOLEAN, UTC, Value
from rederive.lake import bags
from rederive.lake.change_table import (
    CHANGE,
    COUNT,
    MINUS,
    PLUS,
    VERSION,
    change_schema,
    changes_after,
    check_changes,
    net_changes,
)
from rederive.lake.declaration import (
    SINCE,
    check_frame,
    check_table,
    declared_relation,
    retained_since,
    schema_difference,
    table_format,
    table_properties,
)
from rederive.lake.delta_log import (
    LOG,
    TableState,
    idempotent_options,
    idempotent_session,
    is_first_write_unfinished,
    retry_on_conflict,
    set_comments,
    set_not_null,
    table_location,
    table_state,
    version_in,
    write_checkpoint,
)
from rederive.lake.file_system import exists, names_in, remove
from rederive.lake.local_log import Action, LocalLog, Overtaken
from rederive.lake.local_writes import can_write, first_file, identity_names
from rederive.lake.local_writes import compact as local_compact
from rederive.lake.local_writes import remove_changes as local_remove_changes
from rederive.lake.names import PRESENT, column_names, folder_name, quote
from rederive.lake.nested_columns import as_type, comparable
from rederive.lake.types import dataframe, schema_of, table_field
from rederive.locations import parse_location

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_SMALL_FILES: Final = 64  # files of a table from which on compaction is worth a commit
_COMMITS: Final = 100  # commits without a checkpoint of the log: a reader opens each of their files
_SMALL: Final = 32 * 2**20  # bytes: files of this size on average are not small


class Area(Enum):
    """The folders under the root of a lake."""

    BASE = "base"
    VIEWS = "views"
    CHANGES = "changes"
    STATE = "state"


class Lake:
    """The Delta tables under a root, which may be any path that Spark can write.

    Reads run in a session of the lake's own. Writes run in a second one, by one thread at a time: Delta's settings for idempotent
    writes hold for a whole session. `schema`: where the catalog of Spark lists the tables of views, if it does.
    """

    def __init__(self, spark: SparkSession, root: str, zone: str = UTC, schema: str | None = None) -> None:
        self.spark = like_session(spark)  # a copy: Delta adds settings to the session that first reads a table
        self.root = root
        self.zone = zone
        self.schema = schema
        # Asking the catalog is a query of its own, so each process asks once for each table.
        self._registered: set[str] = set()
        location = parse_location(root)
        # The root where this process and all executors see the same files: tables are then read and written without Spark jobs.
        is_local = (spark.sparkContext.master or "").startswith("local")
        self.local_root = location if is_local and isinstance(location, Path) else None
        self._logs: dict[str, LocalLog] = {}
        self._checked: dict[str, tuple[Action, Relation]] = {}
        # This session writes and does nothing else; it has none of the user's settings. Whoever writes in it holds the lock.
        self._private = fresh_session(spark)
        # Spark's default has nanoseconds, which do not reach the years 1 to 9999 in other readers.
        self._private.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self._lock = RLock()

    def path(self, area: Area, name: str) -> str:
        """The folder of a relation's table."""
        return f"{self.root.rstrip('/')}/{area.value}/{folder_name(name)}"

    def has_path(self, path: str) -> bool:
        """Whether there is a file or folder at a path."""
        local = self.local_folder(path)
        return local.exists() if local is not None else exists(self.spark, path)

    def remove_rows(self, path: str) -> None:
        """Delete a folder of rows that is not a table, if there is one."""
        local = self.local_folder(path)
        if local is None:
            remove(self.spark, path)
        elif local.exists():
            shutil.rmtree(local)

    def has_table(self, area: Area, name: str) -> bool:
        """Whether the relation has a table. A first write that was killed before its commit has not made one."""
        place = self.path(area, name)
        return self.has_path(place) and self._table(place) is not None

    # Reading

    def read(self, area: Area, relation: Relation, version: int | None = None) -> DataFrame:
        """The table's rows as they are now, or as they were when `version` was the last one written.

        Columns have the relation's names; a change table's own three come before them.
        """
        if version is not None:
            return self.read_before(area, relation, version)[0]
        self._require(area, relation)
        return _named(self.spark.read.format("delta").load(self.path(area, relation.name)), relation)

    def read_pinned(self, area: Area, relation: Relation) -> DataFrame:
        """The table's rows at its last commit, whatever is committed later."""
        commit = self._require(area, relation).version
        place = self.path(area, relation.name)
        return _named(self.spark.read.format("delta").option("versionAsOf", commit).load(place), relation)

    def table(self, area: Area, relation: Relation, spark: SparkSession) -> DataFrame:
        """The table as it is now, as a data frame of the given session."""
        self._require(area, relation)
        return spark.read.format("delta").load(self.path(area, relation.name))

    def is_registered(self, area: Area, name: str) -> bool:
        """Whether this process has made the table known in the catalog of Spark; so it is where no schema was chosen."""
        return self.schema is None or self.path(area, name) in self._registered

    def register(self, area: Area, name: str) -> None:
        """Make the table known in the catalog of Spark, in the schema that the lake was opened with."""
        place = self.path(area, name)
        # The rows and the changes of a view are two tables of one schema.
        known = f"{self.schema}.{quote(f'{name}_changes' if area is Area.CHANGES else name)}"
        if not self._registered:
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        if not self.spark.catalog.tableExists(known):
            escaped = place.replace("\\", "\\\\").replace("'", "\\'")
            self.spark.sql(f"CREATE TABLE {known} USING DELTA LOCATION '{escaped}'")
        # Never replaced: a name in the catalog that points elsewhere belongs to somebody else.
        elif (other := table_location(self.spark, known)) not in (place, f"file:{place}"):
            raise Mismatch(f"the catalog has another table {known}: {other}", hint="open the lake with another schema").at(place)
        self._registered.add(place)

    def comment(self, relation: Relation, text: str, columns: Mapping[str, str]) -> None:
        """Give the table of a view its comment, and its columns theirs."""
        names = dict(zip((column.name for column in relation.columns), column_names(relation), strict=False))
        with self._lock:
            place = self.path(Area.VIEWS, relation.name)
            set_comments(self._private, place, text, {names[name]: said for name, said in columns.items() if name in names})

    def read_before(self, area: Area, relation: Relation, version: int) -> tuple[DataFrame, int]:
        """The table's rows as of `version`, and the last version up to it that was written to the table."""
        place = self.path(area, relation.name)
        self._require(area, relation)
        commit, written = self._commit(place, version)
        return _named(self.spark.read.format("delta").option("versionAsOf", commit).load(place), relation), written

    def last_version(self, area: Area, name: str) -> int | None:
        """The last version that was written to the table; None if there is no table, or nothing was written yet."""
        table = self._state(self.path(area, name))
        return None if table is None else table.written

    def declaration(self, area: Area, name: str) -> Relation | None:
        """The relation that the table was created for; None if there is no table."""
        place = self.path(area, name)
        table = self._state(place)
        return None if table is None else declared_relation(table, place)

    def has_other_columns(self, area: Area, relation: Relation) -> bool:
        """Whether the relation has a table of other columns than its own."""
        place = self.path(area, relation.name)
        if (table := self._state(place)) is None or self._is_checked(place, relation):
            return False
        declared = declared_relation(table, place)
        return declared.columns != relation.columns or (
            table_format(table) > 1 and schema_difference(table.schema, table_schema(area, relation)) is not None
        )

    def _is_checked(self, place: str, relation: Relation) -> bool:
        """Whether the table is known to hold the relation. What it declares changes with its metadata alone."""
        log = self._logs.get(place)
        checked, declared = self._checked.get(place, (None, None))
        return log is not None and checked is log.metadata and declared == relation

    def _require(self, area: Area, relation: Relation) -> TableState:
        table = self._find(area, relation)
        if table is None:
            place = self.path(area, relation.name)
            raise NotATable(f"no table of relation '{relation.name}'", hint="is this the lake's root?").at(place)
        return table

    def _find(self, area: Area, relation: Relation) -> TableState | None:
        """The relation's table, which must hold this relation; None if there is none."""
        place = self.path(area, relation.name)
        table = self._table(place)
        if table is not None and not self._is_checked(place, relation):
            check_table(table, relation, _expected(table, area, relation), place, self.zone)
            if (log := self._logs.get(place)) is not None:
                self._checked[place] = (log.metadata, relation)
        return table

    def _state(self, place: str) -> TableState | None:
        log = self._log(place)
        return log.state() if log is not None else table_state(self.spark, place)

    def _log(self, place: str) -> LocalLog | None:
        """The log of a table in a local folder, up to its last commit; None if only Spark can read or write it."""
        folder = self.local_folder(place)
        log = self._logs.setdefault(place, LocalLog(folder)) if folder is not None else None
        return log if log is not None and log.refresh() else None

    def local_folder(self, path: str) -> Path | None:
        """A folder as this process sees it; None if only Spark does."""
        if self.local_root is None:
            return None
        inside = path.removeprefix(self.root.rstrip("/"))
        # A staged folder that the journal names may be of an earlier place of the lake.
        location = self.local_root / inside.lstrip("/") if inside.startswith("/") and inside != path else parse_location(path)
        return location if isinstance(location, Path) else None

    def local_table(
        self, area: Area, relation: Relation, rows: pyarrow.Table | None = None, version: int | None = None
    ) -> LocalLog | None:
        """The relation's table, for writing without Spark jobs; None if only Spark can write it.

        If there is none, it is created, with rows of a version if they are given.
        """
        place = self.path(area, relation.name)
        folder = self.local_folder(place) if can_write(relation) else None
        if folder is None:
            return None
        if self._find(area, relation) is None:
            self._logs[place] = log = LocalLog(folder)
            fill = partial(first_file, log, relation, rows) if rows is not None else None
            with suppress(Overtaken):
                log.create(table_schema(area, relation), table_properties(relation, self.zone), fill, version)
                self._checked[place] = (log.metadata, relation)
        found = self._log(place)
        return found if found is not None and found.has_vectors else None

    def _table(self, place: str) -> TableState | None:
        table = self._state(place)
        if table is None and self.has_path(place):
            log, names = (names_in(self.spark, path) for path in (f"{place}/{LOG}", place))
            if names is None or not is_first_write_unfinished(log, names):
                hint = "choose another root, or move it away"
                raise NotATable("there is something other than a Delta table", hint=hint).at(place)
        return table

    def _commit(self, place: str, version: int) -> tuple[int, int]:
        """The last Delta commit of `version` or an earlier one, and that version.

        A commit that names no version, such as a compaction, belongs to the version before it. Before the first version it is -1.
        """
        with described(self.spark, f"read the history of {place}"):
            history = DeltaTable.forPath(self.spark, place).history().select("version", "userMetadata").collect()
        commits = sorted((int(row["version"]), version_in(row["userMetadata"])) for row in history)
        # Delta drops old commits from its log. If the first one is gone, the
        # version of the earliest ones left is unknown until one names it.
        current = -1 if commits[0][0] == 0 else None
        found = None
        for number, noted in commits:
            current = noted if noted is not None else current
            if current is not None and current <= version:
                found = number, current
        if found is None:
            raise VersionGone(f"the rows of version {version} are no longer stored", hint="ask for a later version").at(place)
        return found

    # Writing

    def create(self, area: Area, relation: Relation) -> None:
        """Create an empty table, unless the relation has one; that one must hold the same relation."""
        if self.local_table(area, relation) is None and self._find(area, relation) is None:
            # A frame without rows has no types of its own, so each column is cast.
            columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in table_schema(area, relation).fields)
            self._replace(area, relation, self._private.range(0).select(*columns), None)

    def replace(self, area: Area, relation: Relation, rows: DataFrame, version: int | None = None) -> None:
        """Make `rows` the whole content of the table, in one commit; create the table if there is none."""
        check_frame(rows.schema, relation)
        # Asked before Delta would skip the write itself: the query behind `rows` is not run in vain.
        if not _has_version(self._find(area, relation), version):
            self._replace(area, relation, _stored(rows, relation), version)

    def apply_changes(self, area: Area, relation: Relation, changes: DataFrame, version: int, *, bag: bool = False) -> None:
        """Bring the table to `version` by the changes of one or more versions, a frame with the columns of a change table.

        Changes that the table has already are left out. If there is no table, the changes make one. In a set the net effect
        applies (`net_changes`); in a bag the numbers of copies add up.
        """
        check_changes(changes, relation)
        table = self._find(area, relation)
        if table is None and not bag:
            self._replace(area, relation, net_changes(changes, relation).where(F.col(CHANGE) == PLUS), version)
            return
        if table is None:
            self.create(area, relation)
        if not _has_version(table, version):
            # After a kill, tables are at different versions, and each takes only the changes that it lacks.
            later = changes_after(changes, _written(table))
            signed = self._bag_changes(area, relation, later) if bag else net_changes(later, relation)
            self._apply_net(area, relation, signed, version, bag)

    def _bag_changes(self, area: Area, relation: Relation, changes: DataFrame) -> DataFrame:
        """The rows of a bag to delete, with all their copies, and each copy to insert."""
        names = column_names(relation)
        net = bags.net_counts(changes, names, F.col(CHANGE) == PLUS, COUNT)
        table = _typed(self._private.read.format("delta").load(self.path(area, relation.name)), schema_of(relation))
        gone = bags.rows_to_delete(net).withColumn(CHANGE, F.lit(MINUS))
        return gone.unionByName(bags.copies_to_insert(net, table, names).withColumn(CHANGE, F.lit(PLUS)))

    def append_changes(self, relation: Relation, changes: DataFrame, version: int) -> None:
        """Append to a view's change table what the versions up to `version` did. Versions that it has already are left out."""
        check_changes(changes, relation)
        table = self._find(Area.CHANGES, relation)
        self._append_to(table, Area.CHANGES, relation, changes_after(changes, _written(table)), version)

    def append(self, area: Area, relation: Relation, rows: DataFrame, version: int) -> None:
        """Append rows in one commit, unless the table has this version already."""
        check_frame(rows.schema, relation)
        self._append_to(self._find(area, relation), area, relation, _stored(rows, relation), version)

    def _append_to(self, table: TableState | None, area: Area, relation: Relation, rows: DataFrame, version: int) -> None:
        """Append to a table, which the first rows create."""
        if table is None:
            self._replace(area, relation, rows, version)
        elif not _has_version(table, version):
            with self._described(area, relation.name, version):
                self._append(self.path(area, relation.name), rows, version)

    def evolve(self, area: Area, relation: Relation, defaults: Mapping[str, Value]) -> None:
        """Give the table the relation's new columns, all at the end, and rows their defaults. Nothing else may change."""
        place = self.path(area, relation.name)
        table = self._table(place)
        if table is None:
            raise NotATable(f"no table of relation '{relation.name}'").at(place)
        old = declared_relation(table, place)
        # New columns come last, so the old ones must be exactly a prefix of the new ones.
        kept = Relation(relation.name, relation.columns[: old.arity], old.key)
        check_table(table, kept, _expected(table, area, kept), place, self.zone)
        added = Relation(relation.name, relation.columns[old.arity :])
        if relation.key != old.key or set(defaults) != {column.name for column in added.columns}:
            raise SchemaMismatch(
                f"the table of relation '{relation.name}' can only gain columns at its end, each with a default",
                hint="keep its key",
            ).at(place)
        if added.columns and old.columns:
            row = dataframe(self._private, added, [tuple(defaults[column.name] for column in added.columns)])
            self._replace(area, relation, self._with(place, row, table_schema(area, relation)), None)

    def _with(self, place: str, row: DataFrame, schema: StructType) -> DataFrame:
        # One row on the other side: every stored row gets the defaults.
        joined = self._private.read.format("delta").load(place).crossJoin(row)
        return joined.toDF(*schema.names)

    def drop(self, area: Area, name: str) -> None:
        """Remove the table and all its history, if there is one."""
        self._logs.pop(self.path(area, name), None)
        remove(self.spark, self.path(area, name))

    # Upkeep

    def keep_up(self, area: Area, name: str) -> None:
        """What many small commits make necessary: compact their files, and write a checkpoint of the log."""
        place = self.path(area, name)
        log = self._log(place)
        if self.is_due(area, name):
            self.compact(area, name, files=_SMALL_FILES)
        if log is not None and log.version - log.checkpoint >= _COMMITS:
            with described(self.spark, f"write a checkpoint of {area.value}/{name}"):
                write_checkpoint(self.spark, place)
            log.checkpoint = log.version

    def is_due(self, area: Area, name: str) -> bool:
        """Whether a table that this process writes has many files."""
        log = self._log(self.path(area, name))
        return log is not None and len(log.files) >= _SMALL_FILES

    def compact(self, area: Area, name: str, *, files: int = _SMALL_FILES) -> bool:
        """Merge small files into large ones if there are at least `files` of them; returns whether it did. No row changes."""
        place = self.path(area, name)
        log, table = self._log(place), self._state(place)
        if log is not None and table is not None and can_write(relation := declared_relation(table, place)):
            by = (VERSION,) if area is Area.CHANGES else identity_names(relation)
            if local_compact(log, by, files):
                return True
        # By the mean size: many files alone are no reason to rewrite a large table.
        if table is None or table.files < files or table.size > _SMALL * table.files:
            return False
        with self._lock, described(self._private, f"compact {area.value}/{name}"):
            # A compaction changes no row and names no version, so `_commit` counts it to the version before it.
            retry_on_conflict(lambda: DeltaTable.forPath(self._private, place).optimize().executeCompaction(), place)
        return True

    def remove_changes(self, name: str, upto: int) -> None:
        """Remove from a view's change table what the versions up to this one did. Whoever asks for them gets `Expired`."""
        place = self.path(Area.CHANGES, name)
        log, table = self._log(place), self._state(place)
        if table is None or retained_since(table) >= upto:
            return
        if log is not None and log.has_vectors:
            local_remove_changes(log, upto)
            return
        with self._lock, described(self._private, f"remove changes of {name} up to version {upto}"):
            # Noted first: a kill in between leaves rows that nobody is given.
            note = f"ALTER TABLE delta.{quote(place)} SET TBLPROPERTIES ('{SINCE}' = '{upto}')"
            retry_on_conflict(lambda: self._private.sql(note), place)
            retry_on_conflict(lambda: DeltaTable.forPath(self._private, place).delete(F.col(VERSION) <= upto), place)

    def check_retained(self, relation: Relation, since: int) -> None:
        """Raise `Expired` if the change table of a view no longer has all changes after a version."""
        table = self._state(self.path(Area.CHANGES, relation.name))
        if table is not None and since < (first := retained_since(table)):
            hint = f"read the view as a whole, or its changes since {first}"
            raise Expired(f"the changes of '{relation.name}' up to version {first} are no longer in the lake", hint=hint)

    def vacuum(self, area: Area, name: str) -> None:
        """Delete the files that no version of the last week needs. Older versions cannot be read any more."""
        # Delta's own default of seven days: a reader of an older version may still be at work.
        with described(self._private, f"vacuum {area.value}/{name}"):
            DeltaTable.forPath(self._private, self.path(area, name)).vacuum()

    def names(self, area: Area) -> list[str]:
        """The relations that have a table."""
        folders = names_in(self.spark, f"{self.root.rstrip('/')}/{area.value}") or []
        places = (f"{self.root.rstrip('/')}/{area.value}/{folder}" for folder in folders)
        tables = ((place, self._state(place)) for place in places)
        return [declared_relation(table, place).name for place, table in tables if table is not None]

    # Commits

    def _described(self, area: Area, name: str, version: int | None) -> AbstractContextManager[None]:
        return described(self._private, f"settle {area.value}/{name}" + (f" to version {version}" if version is not None else ""))

    def _replace(self, area: Area, relation: Relation, rows: DataFrame, version: int | None) -> None:
        place = self.path(area, relation.name)
        schema = table_schema(area, relation)
        typed = _as_types(in_session(self._private, rows), schema)
        needed = [field.name for field in schema.fields if not field.nullable]

        def write() -> None:
            writer = typed.writeTo(f"delta.{quote(place)}").using("delta").options(**idempotent_options(version))
            for name, value in table_properties(relation, self.zone).items():
                writer = writer.tableProperty(name, value)
            writer.createOrReplace()

        with self._lock, self._described(area, relation.name, version):
            retry_on_conflict(write, place)
            # A commit of its own, because Spark makes every column of a query nullable. The table is right without it.
            retry_on_conflict(lambda: set_not_null(self._private, place, needed), place)

    def _apply_net(self, area: Area, relation: Relation, signed: DataFrame, version: int, bag: bool = False) -> None:
        """One commit that deletes and inserts; an append if nothing is deleted; none if nothing changes."""
        place = self.path(area, relation.name)
        # It is read twice, for its signs and by the write, and must be the same both times.
        held = _typed(signed, self._columns(place)).persist()
        with self._described(area, relation.name, version), ExitStack() as ended:
            ended.callback(held.unpersist)
            signs = {row[CHANGE] for row in held.select(CHANGE).distinct().collect()}
            # An append does not read the table; a MERGE joins with it.
            if signs == {PLUS}:
                self._append(place, held.drop(CHANGE), version)
            elif signs:
                with self._lock, idempotent_session(self._private, version):
                    retry_on_conflict(lambda: self._merge(place, relation, held, bag), place)

    def _append(self, place: str, rows: DataFrame, version: int) -> None:
        typed = _typed(in_session(self._private, rows), self._columns(place))
        writer = typed.write.format("delta").mode("append").options(**idempotent_options(version))
        with self._lock:
            retry_on_conflict(lambda: writer.save(place), place)

    def _columns(self, place: str) -> StructType:
        table = table_state(self._private, place)
        assert table is not None  # whoever appends or merges has found it
        return table.schema

    def _merge(self, place: str, relation: Relation, signed: DataFrame, bag: bool) -> None:
        """One MERGE. In a bag an inserted copy must match nothing: equal rows may stay, or be deleted by the same commit."""
        names = column_names(relation)
        same = f"{_identical(relation)} AND change.{CHANGE} = '{MINUS}'" if bag else _identical(relation)
        merge = DeltaTable.forPath(self._private, place).alias("old").merge(signed.alias("change"), same)
        merge = merge.whenMatchedDelete(f"change.{CHANGE} = '{MINUS}'")
        inserted: dict[str, str | SparkColumn] = {quote(name): f"change.{quote(name)}" for name in names}
        merge.whenNotMatchedInsert(f"change.{CHANGE} = '{PLUS}'", inserted).execute()


# Frames


def table_schema(area: Area, relation: Relation, *, instants: bool = True) -> StructType:
    """The columns of a new table, with Spark's own types; `instants` as in `table_field`."""
    wide = _wide_schema(area, relation)
    own = len(wide.fields) - len(relation.columns)
    narrow = (table_field(field, c, instants=instants) for field, c in zip(wide.fields[own:], relation.columns, strict=False))
    return StructType([*wide.fields[:own], *narrow]) if relation.columns else wide


def _wide_schema(area: Area, relation: Relation) -> StructType:
    """The columns of frames on their way, and of tables of the first releases: every integer is a BIGINT."""
    return change_schema(relation) if area is Area.CHANGES else schema_of(relation)


def _expected(table: TableState, area: Area, relation: Relation) -> StructType:
    """The columns that a table must have: those of a new one, or those that an earlier release gave it."""
    wide = _wide_schema(area, relation)
    if table_format(table) == 1 and schema_difference(table.schema, wide) is None:
        return wide
    return table_schema(area, relation, instants=table_format(table) > 1)


def _typed(rows: DataFrame, types: StructType) -> DataFrame:
    """The same rows, with the types that a table has for its columns; other columns stay as they are."""
    known = {field.name: field for field in types.fields}
    if all(f.dataType == known[f.name].dataType for f in rows.schema.fields if f.name in known):
        return rows
    return _as_types(rows, StructType([known.get(field.name, field) for field in rows.schema.fields]))


def _as_types(rows: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a schema, with its types. A cast drops the metadata of a column, which hold our name of its type."""
    found = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(
        *(as_type(F.col(quote(f.name)), found[f.name], f.dataType).alias(f.name, metadata=f.metadata) for f in schema.fields)
    )


def _named(table: DataFrame, relation: Relation) -> DataFrame:
    """The columns of a table under the relation's names; a change table's own three come before them."""
    stored = column_names(relation)
    own = [name for name in table.columns if name not in stored]
    wide = _typed(table, schema_of(relation))
    columns = [F.col(quote(n)).alias(c.name) for n, c in zip(stored, relation.columns, strict=False)]
    return wide.select(*own, *columns)


def _stored(rows: DataFrame, relation: Relation) -> DataFrame:
    """The columns of a frame, in their order, under the names of the table."""
    return rows.toDF(*column_names(relation)) if relation.columns else rows.select(F.lit(True).alias(PRESENT))


def _identical(relation: Relation) -> str:
    # `<=>` finds rows with NULL, which `=` does not.
    pairs = zip(map(quote, column_names(relation)), relation.types or (BOOLEAN,), strict=True)
    return " AND ".join(f"{comparable(f'old.{name}', type)} <=> {comparable(f'change.{name}', type)}" for name, type in pairs)


def _written(table: TableState | None) -> int | None:
    return None if table is None else table.written


def _has_version(table: TableState | None, version: int | None) -> bool:
    written = _written(table)
    return version is not None and written is not None and written >= version
