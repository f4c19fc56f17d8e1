"""The rows of tables in place, where definitions and recovery need them. Spark is imported only if there is such a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rederive.catalog import CatalogChange
from rederive.commit.state import DatabaseState
from rederive.errors import Mismatch, WrittenInPlace
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.records import SourceVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rederive.lake.source_table import SourceTable


def check_not_in_place(program: Program, names: Iterable[str]) -> None:
    """Refuse changes of tables in place."""
    for name in names:
        relation = program.relations.get(name)
        if relation is not None and relation.location is not None:
            raise WrittenInPlace(name, relation.location)


def session(state: DatabaseState) -> SparkSession:
    """The session in which tables are read: the given one, or the lake's, or a new one."""
    from rederive.lake.session import spark_session, zone_options

    if state.spark is not None:
        return state.spark
    if state.store is not None and state.store.lake is not None:
        return state.store.lake.lake.spark
    return spark_session(options=zone_options(state.program.zone))


def source_of(state: DatabaseState, table: Relation) -> SourceTable:
    """The table in place of a relation."""
    from rederive.lake.source_table import SourceTable

    assert table.location is not None
    return SourceTable(session(state), table.location, state.program.zone)


def with_source_rows(state: DatabaseState, change: CatalogChange) -> CatalogChange:
    """The same change, with the rows of the tables in place that it defines or gives other columns, at their last commits."""
    before, program = state.program, change.after.program
    new = {
        base: table
        for base, table in program.in_place.items()
        if base not in before.bases or not before.shares_base(base, program)
    }
    if not new:
        return change
    facts, sources = dict(change.facts), list(change.sources)
    for base, table in new.items():
        source = source_of(state, table)
        now = source.state()
        source.check_columns(table, now)
        source.check_all(table, now.version)
        facts[base] = source.pinned_rows(table, program.relations[base], now.version)
        sources.append(SourceVersion(base, now.version, now.id))
    return replace(change, facts=facts, sources=tuple(sources))


def recorded_rows(state: DatabaseState, program: Program) -> dict[str, Collection[Row]]:
    """The rows of all tables in place, at the commits that the last version follows."""
    if missing := next((base for base in program.in_place if base not in state.sources), None):
        raise Mismatch(f"the journal does not say which commit of the table behind '{missing}' it follows")
    return rows_at(state, program, {base: state.sources[base] for base in program.in_place})


def rows_at(state: DatabaseState, program: Program, sources: Mapping[str, SourceVersion]) -> dict[str, Collection[Row]]:
    """The rows of tables in place at these commits, by base relation."""
    tables = {base: program.in_place[base] for base in sources}
    return {
        base: source_of(state, table).pinned_rows(table, program.relations[base], sources[base].version)
        for base, table in tables.items()
    }
