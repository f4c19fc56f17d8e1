"""`db.tables`: tables in place, which others write, and the tables of views, which Spark reads.

A refresh takes one commit of each source, reads what changed since the commits that the last version follows, and commits that as
one version. The journal records the commits with the version, so that after a kill none of them is lost or applied twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Final

from rederive import failpoints
from rederive.boundary import guard_class
from rederive.catalog import CatalogChange
from rederive.commit.pipeline import Pipeline
from rederive.commit.source_rows import rows_at, session, source_of
from rederive.delta import Delta
from rederive.errors import NotATable, Redefined, SourceChanged, UnknownRelation, WrongUse
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.records import SourceVersion
from rederive.result import Result

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from rederive.ingest.ingestion import Ingestion, OnBatch
    from rederive.lake.delta_log import TableState


LOG: Final = logging.getLogger("rederive.tables")


@guard_class
class SparkTables:
    """The Delta tables that a database reads in place, and those that it makes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._state = pipeline.state
        self._comments: dict[str, tuple[str, dict[str, str]]] = {}  # what the tables of views say in this process

    @property
    def versions(self) -> dict[str, int]:
        """The commit of each table in place that the current version follows, by the name of its relation."""
        tables = self._state.program.in_place
        return {tables[base].name: source.version for base, source in self._state.sources.items() if base in tables}

    def attach(self, name: str, table: str, key: Sequence[str] = ()) -> Result | None:
        """See `Database.attach`. A table that is attached already takes the columns that the Delta table has now."""
        from rederive.lake.delta_log import table_location
        from rederive.lake.source_table import key_columns, known_key
        from rederive.lang.sql.ddl import TableInPlace, create_in_place, parse_definitions

        state = self._state
        location = table_location(session(state), table)
        known = state.catalog.program.relations.get(name.lower())
        attached = known if known is not None and known.location == location else None
        columns = source_of(state, Relation(name, (), location=location)).columns()
        if attached is not None:
            key = known_key(attached, key)
        text = create_in_place(TableInPlace(name, location, key_columns(columns, key)), columns)
        (definition,) = parse_definitions(text, name)
        if attached is not None:
            # The columns that the table has now: its rows are read with all of them, at its last commit.
            change = state.catalog.alter_table(definition)
            is_same = change.after.program.relations[attached.name].columns == attached.columns
            return None if is_same else self._pipeline.define(change)
        created = state.catalog.create(definition)
        if created is None:
            raise Redefined(f"'{name}' is defined already")
        return self._pipeline.define(created)

    def refresh(self, versions: Mapping[str, int] | None = None) -> Result | None:
        """See `Database.refresh`."""
        result, started, before = None, time.monotonic(), self.versions
        self._pipeline.check_no_setup("a refresh")
        targets = self._targets(versions or {})
        moved = [SourceVersion(base, now.version, now.id) for base, now in targets.items() if now is not None]
        if not moved:
            return None
        with ExitStack() as stack:
            net = {}
            for source in moved:
                delta = stack.enter_context(self._change(source))
                if delta:
                    net[source.relation] = delta
            # A kill up to here leaves nothing behind: the next refresh reads the same commits.
            failpoints.hit("refresh:read")
            # A table that was only rearranged has the same rows at its new commit, whose files are there.
            self._rebase([source for source in moved if source.relation not in net])
            if net:
                result = self._commit(net, moved)
            else:
                self._note(moved)
        failpoints.hit("refresh:committed")
        # From here on the old state is read at these commits; until then it was read as the old commits and the change.
        self._rebase(moved)
        self._settle()
        followed = ", ".join(f"{name} {before[name]} to {now}" for name, now in self.versions.items() if now != before[name])
        made = f"version {result.version}" if result is not None else "no change"
        LOG.info("refresh: %s; commits: %s; %.1f s", made, followed, time.monotonic() - started)
        return result

    def _commit(self, net: Mapping[str, Delta], moved: Sequence[SourceVersion]) -> Result:
        from rederive.lake.source_table import is_missing_file

        try:
            return self._pipeline.commit_sources(net, moved)
        except Exception as error:
            if not self._state.engine.reads_in_place or not is_missing_file(error):
                raise
        # The files of the old commits were vacuumed: the old state is read as the new one minus the change.
        self._state.engine.rebase({source.relation: self._rows_before(source) for source in moved})
        return self._pipeline.commit_sources(net, moved)

    def _rows_before(self, source: SourceVersion) -> Collection[Row]:
        state, program = self._state, self._state.program
        table, base = program.in_place[source.relation], program.relations[source.relation]
        known, number = state.sources[source.relation], state.engine.size(source.relation)
        return source_of(state, table).rows_before(table, base, known.version, source.version, number)

    def _rebase(self, sources: Sequence[SourceVersion]) -> None:
        """Read tables in place at these commits from now on, which have the rows that the engine has."""
        state = self._state
        if state.engine.reads_in_place:
            state.engine.rebase(rows_at(state, state.program, {source.relation: source for source in sources}))

    def resync(self) -> Result | None:
        """Follow the tables in place to their last commits where those in between cannot be read any more.

        Everything is read and compared: one version with the difference of every view, also where a table was replaced.
        """
        state, program = self._state, self._state.program
        facts: dict[str, Collection[Row]] = {}
        sources = []
        for base, table in program.in_place.items():
            source = source_of(state, table)
            now = source.state()
            source.check_columns(table, now)
            source.check_all(table, now.version)
            facts[base] = source.pinned_rows(table, program.relations[base], now.version)
            sources.append(SourceVersion(base, now.version, now.id))
        if state.engine.reads_in_place:
            # The engine evaluates the views over the tables as they are, and compares them with the rows that it has stored.
            result = self._pipeline.define(CatalogChange(state.catalog, facts, always=False, sources=tuple(sources)))
        else:
            old = {base: frozenset(state.engine.rows(base, {})) for base in facts}
            new = {base: frozenset(rows) for base, rows in facts.items()}
            net = {base: Delta(new[base] - old[base], old[base] - new[base]) for base in facts if new[base] != old[base]}
            result = self._pipeline.commit_sources(net, sources)
        self._settle()
        return result

    def frame(self, view: str) -> DataFrame:
        """The rows of a view at the current version, as a data frame over its Delta table.

        Of a table in place: its rows at the commit that the current version follows, without a copy.
        """
        state = self._state
        for base, table in state.program.in_place.items():
            if table.name == view.lower():
                from rederive.engines.spark.session.sessions import in_session

                return in_session(session(state), source_of(state, table).frame(table, state.sources[base].version))
        return self._table(view, is_change_table=False)

    def changes_frame(self, view: str, since: int = 0) -> DataFrame:
        """What each version after `since` did to a view: `_version`, `_change`, `_count`, and the view's columns."""
        return self._table(view, is_change_table=True, since=int(since)).where(f"_version > {int(since)}")

    def _table(self, view: str, *, is_change_table: bool, since: int = 0) -> DataFrame:
        from rederive.lake.tables import Area

        state, relation = self._state, self._state.relation(view)
        if relation.name not in state.stored_views:
            hint = "define it by CREATE MATERIALIZED VIEW, or read it by db.rows"
            raise NotATable(f"the view '{view}' is not stored, and has no table", hint=hint)
        self.settle()
        store = state.durable("the table of a view")
        assert store.lake is not None  # settling has refused a store without one
        if is_change_table:
            store.lake.lake.check_retained(relation, since)
        return store.lake.lake.table(Area.CHANGES if is_change_table else Area.VIEWS, relation, session(state))

    def maintain(self) -> None:
        """Settle the lake, compact its tables, write checkpoints of their logs, and remove files that no version of the last
        week needs. Settling does the first three by itself, when there are many small files or commits."""
        self._pipeline.settle()
        lake = self._state.durable("the care of a lake").lake
        assert lake is not None  # settling has refused a store without one
        # The tables have the rows of the current version. An engine that reads them at an older commit would lose its files.
        if self._state.engine.reads_in_place:
            self._state.engine.rebase(lake.base_rows(self._state.program))
        lake.maintain()

    def follow(self, interval: float) -> Iterator[Result]:
        """Refresh every `interval` seconds, without end; yields each version that a refresh makes."""
        while True:
            started = time.monotonic()
            if (result := self.refresh()) is not None:
                yield result
            time.sleep(max(0.0, interval - (time.monotonic() - started)))

    def stream(
        self,
        *,
        once: bool = False,
        trigger: str | None = None,
        commits: int | None = None,
        checkpoint: str | Path | None = None,
        on_batch: OnBatch | None = None,
    ) -> Ingestion:
        """Refresh by Structured Streaming: each micro-batch takes the commits that its trigger finds, as one version.

        `once`: take the commits that there are now, then end (Spark's trigger availableNow); otherwise continue, at intervals of
        `trigger` ("5 seconds") if given. `commits`: of each table, at most so many in one version. `checkpoint`: where Spark
        stores its progress; by default a folder in the store. While it runs, no other thread may use the database.
        """
        from rederive.ingest.commit_stream import stream_commits

        state = self._state
        place = checkpoint or state.durable("a stream").journal.folder / "streams" / "tables_in_place"
        tables = {table.name: table.location for table in state.program.in_place.values() if table.location is not None}
        if not tables:
            raise WrongUse("there is no table in place to follow", hint="db.attach(name, table)")
        return stream_commits(
            self._refresh_at_least,
            tables,
            session(state),
            place,
            once=once,
            trigger=trigger,
            commits=commits,
            on_batch=on_batch,
        )

    def _refresh_at_least(self, commits: Mapping[str, int]) -> Result | None:
        """Follow tables to these commits where they are not followed further already; the others stay where they are."""
        known = self.versions
        return self.refresh({name: max(commits.get(name, 0), version) for name, version in known.items()})

    def _targets(self, versions: Mapping[str, int]) -> dict[str, TableState | None]:
        """The commit that each table in place is to be followed to; None where it is followed to it already."""
        from rederive.lake.source_table import RESYNC, maps_columns

        state = self._state
        tables = state.program.in_place
        names = {table.name for table in tables.values()}
        if unknown := next((name for name in versions if name not in names), None):
            raise UnknownRelation(unknown, names)
        found: dict[str, TableState | None] = {}
        for base, table in tables.items():
            known, source = state.sources[base], source_of(state, table)
            now = source.state(versions.get(table.name))
            if now.id != known.table_id:
                raise SourceChanged(f"the table behind '{table.name}' was replaced by another one", hint=RESYNC).at(
                    source.location
                )
            if now.version < known.version:
                raise WrongUse(f"'{table.name}' is followed to commit {known.version} already, which is after {now.version}")
            source.check_columns(table, now)
            if now.version > known.version and maps_columns(now):
                source.check_identities(table, source.state(known.version), now)
            found[base] = now if now.version > known.version else None
        return found

    def _change(self, source: SourceVersion) -> AbstractContextManager[Delta]:
        program = self._state.program
        table, base = program.in_place[source.relation], program.relations[source.relation]
        after = self._state.sources[source.relation].version
        return source_of(self._state, table).net_change(table, base, after, source.version)

    def settle(self, *, wait: bool = True) -> int:
        """See `Database.settle`. Tables of views get the comments that the views have."""
        version = self._pipeline.settle(wait=wait)
        if wait:
            self._comment()
        return version

    def _settle(self) -> None:
        """The tables of views follow at once: whoever reads them knows that a refresh was made."""
        if self._state.lake is not None:
            self.settle()

    def _comment(self) -> None:
        """Write comments where they are not what this process last wrote. The journal knows nothing of it: they change no row."""
        from rederive.lang.sql.ddl import comments_of

        state, store = self._state, self._state.durable("the table of a view")
        assert store.lake is not None  # settling has refused a store without one
        for view in state.stored_views:
            definition = state.catalog.definition(view)
            wanted = comments_of(definition) if definition is not None else ("", {})
            if wanted != self._comments.get(view, ("", {})):
                store.lake.lake.comment(state.program.relations[view], *wanted)
            self._comments[view] = wanted

    def _note(self, sources: Sequence[SourceVersion]) -> None:
        """Follow commits that changed no row: no version, but durable."""
        if self._state.store is not None:
            self._state.store.journal.amend(sources=sources)
        self._state.sources.update({source.relation: source for source in sources})
