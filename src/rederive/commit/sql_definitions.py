"""Statements that define: CREATE, DROP, ALTER TABLE and COMMENT ON as changes of the catalog, with the rows that they move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rederive.bags import read_rows
from rederive.catalog import Catalog, CatalogChange
from rederive.commit.pipeline import Pipeline
from rederive.commit.spark_tables import SparkTables
from rederive.commit.sql_changes import answers, check_row
from rederive.engines.term_functions import row_function
from rederive.errors import UnknownName, UnknownRelation
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Row, Type, Value
from rederive.lang.sql.alter_table import alter_table, altered_name, commented
from rederive.lang.sql.column_defaults import is_generated
from rederive.lang.sql.ddl import (
    TableOfQuery,
    create_table,
    definition_of,
    dropped_relation,
    overwrite_of,
    parse_definitions,
    table_in_place,
    table_of_query,
)
from rederive.lang.sql.definition import SqlDefinition
from rederive.lang.sql.dml import compile_select
from rederive.lang.sql.parser import ParsedStatement
from rederive.result import Result


class SqlDefinitions:
    """Runs the statements of a database that define tables and views."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._state = pipeline.state

    def create(self, parsed: ParsedStatement) -> Result | None:
        """CREATE TABLE and CREATE VIEW."""
        if (attached := table_in_place(parsed)) is not None:
            return SparkTables(self._pipeline).attach(attached.name, attached.location, attached.key)
        copied = table_of_query(parsed)
        change = self._copied(copied, parsed) if copied is not None else self._state.catalog.create(definition_of(parsed))
        return self._pipeline.define(change) if change is not None else None

    def _copied(self, table: TableOfQuery, parsed: ParsedStatement) -> CatalogChange | None:
        """CREATE TABLE ... AS: the definition has the columns of the query, and the table its answers."""
        state = self._state
        self._pipeline.check_no_setup("CREATE TABLE ... AS")
        state.check_evaluated()
        asked = compile_select(replace(parsed, tree=table.query), state.program)
        columns = asked.program.relations[asked.view].columns
        (definition,) = parse_definitions(create_table(table.name, columns, table.items), parsed.span.source.name)
        created = replace(definition, if_not_exists=table.if_not_exists)
        is_there = table.replaces and state.catalog.definition(table.name) is not None
        change = state.catalog.alter_table(created) if is_there else state.catalog.create(created)
        if change is None:
            return None
        relation = change.after.program.relations[table.name]
        with state.budget():
            rows = [check_row(relation, row, parsed) for row in answers(state, asked)]
        return replace(change, facts={table.name: rows}, always=True)

    def overwriting(self, parsed: ParsedStatement) -> ParsedStatement | None:
        """The INSERT OVERWRITE that a CREATE OR REPLACE TABLE ... AS means if the table has these columns; None otherwise."""
        table = table_of_query(parsed) if parsed.tree.args.get("replace") else None
        current = self._state.catalog.definition(table.name) if table is not None else None
        if table is None or current is None:
            return None
        old = self._state.program.relations[table.name]
        constrained = any(constraint.table == table.name for constraint in self._state.program.constraints)
        constrained |= any(column.default is not None for column in old.columns)
        if current.is_view or old.location is not None or constrained:
            what = f"CREATE OR REPLACE TABLE of '{table.name}', which is a view, in place, or has conditions or defaults"
            raise parsed.unsupported(what, None, "DROP it first, or use INSERT OVERWRITE")
        asked = compile_select(replace(parsed, tree=table.query.copy()), self._state.program)
        columns = asked.program.relations[asked.view].columns
        (definition,) = parse_definitions(create_table(table.name, columns, table.items), parsed.span.source.name)
        new = self._state.catalog.alter_table(definition).after.program.relations[table.name]
        if [_stored(column) for column in new.columns] != [_stored(column) for column in old.columns]:
            return None
        if new.key != old.key:
            raise parsed.unsupported(f"another key of '{table.name}' with the same columns", None, "DROP it first")
        return overwrite_of(table, parsed)

    def drop(self, parsed: ParsedStatement) -> Result | None:
        """DROP TABLE and DROP VIEW."""
        name, is_view, may_miss = dropped_relation(parsed)
        catalog = self._state.catalog
        try:
            return self._pipeline.define(catalog.drop_view(name) if is_view else catalog.drop_table(name))
        except UnknownRelation as error:
            if may_miss:
                return None
            raise error.at(str(parsed.span)) from None

    def alter(self, parsed: ParsedStatement) -> Result | None:
        """ALTER TABLE and COMMENT ON."""
        state, catalog = self._state, self._state.catalog
        self._pipeline.check_no_setup("ALTER TABLE")
        name, is_comment = altered_name(parsed), parsed.tree.key == "comment"
        current = catalog.definition(name)
        if current is None or (current.is_view and not is_comment):
            raise UnknownName("table", name, catalog.program.tables, parsed.span)
        if is_comment:
            return self._pipeline.define(replace(catalog.alter_table(commented(current, parsed)), always=False))
        old = catalog.program.relations[name]
        if old.location is not None:
            raise parsed.unsupported("ALTER TABLE of a table in place", None, "alter the Delta table")
        state.check_evaluated()
        altered = alter_table(current, parsed)
        change = catalog.alter_table(altered.definition)
        new = change.after.program.relations[name]
        _check_widening(old, new, altered.origins, parsed)
        if new.columns != old.columns:
            with state.budget():
                rows = self._converted(old, new, altered.origins, parsed)
            change = replace(change, facts={name: rows})
        return self._pipeline.define(change)

    def _converted(self, old: Relation, new: Relation, origins: Sequence[str | None], parsed: ParsedStatement) -> list[Row]:
        """The rows of a table with its new columns; those that are added have their defaults."""
        names = [column.name for column in old.columns]
        places = [names.index(origin) if origin is not None else None for origin in origins]
        variables = [f"c{i}" for i in range(new.arity)]
        types = dict(zip(variables, new.types, strict=True))
        # A generated column may read an added one.
        added = sorted((i for i, place in enumerate(places) if place is None), key=lambda i: is_generated(new.columns[i]))
        functions = [(i, row_function(term, variables, types)) for i in added if (term := new.columns[i].default) is not None]
        found = []
        for row in read_rows(self._state.program, old.name, {}, self._state.engine):
            values: list[Value] = [row[place] if place is not None else None for place in places]
            for i, function in functions:
                values[i] = function(tuple(values))
            found.append(check_row(new, tuple(values), parsed))
        return found


def _stored(column: Column) -> tuple[str, Type, int, bool]:
    """What decides how the values of a column are stored."""
    return column.name, column.type, column.bits, column.nullable


def _check_widening(old: Relation, new: Relation, origins: Sequence[str | None], parsed: ParsedStatement) -> None:
    """Refuse another type of a column unless it holds every value of the old one, as Spark does."""
    before = {column.name: column for column in old.columns}
    for column, origin in zip(new.columns, origins, strict=True):
        if origin is None:
            continue
        one, two = before[origin].type, column.type
        whole = two.precision - two.scale >= one.precision - one.scale and two.scale >= one.scale
        if one.kind is not two.kind or not whole or column.bits < before[origin].bits:
            hint = "choose a wider integer or DECIMAL, or add a column and UPDATE it"
            raise parsed.unsupported(f"changing the type of '{column.name}' to one that does not hold all its values", None, hint)


def existing_tables(statements: Sequence[ParsedStatement], catalog: Catalog) -> frozenset[str]:
    """The tables that are already what a text makes of them with ALTER TABLE, COMMENT ON or CREATE TABLE ... AS."""
    found: dict[str, SqlDefinition] = {}
    done: set[str] = set()
    for parsed in statements:
        if parsed.kind == "create" and (copied := table_of_query(parsed)) is not None:
            done |= {copied.name} if catalog.definition(copied.name) is not None else set()
        elif parsed.kind == "create" and table_in_place(parsed) is None:
            definition = definition_of(parsed)
            found[definition.name] = definition
        elif parsed.kind == "drop":
            found.pop(dropped_relation(parsed)[0], None)
        elif parsed.kind == "alter" and (current := found.get(name := altered_name(parsed))) is not None:
            is_comment = parsed.tree.key == "comment"
            found[name] = commented(current, parsed) if is_comment else alter_table(current, parsed).definition
            done.add(name)
    return frozenset(name for name in done if name not in found or catalog.has(found[name]))
