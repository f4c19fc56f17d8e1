"""Statements that show definitions: SHOW TABLES, SHOW VIEWS, SHOW COLUMNS, SHOW CREATE TABLE, DESCRIBE and EXPLAIN."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from rederive.commit.state import DatabaseState
from rederive.errors import UnknownName
from rederive.ir.rules import Program, Relation
from rederive.lang.sql.dml import compile_select
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.types import column_type
from rederive.maintain.explain import explain
from rederive.maintain.plan import plan
from rederive.result import Answer


def shown_answer(state: DatabaseState, parsed: ParsedStatement) -> Answer:
    """The answer to a statement that shows definitions."""
    program, command = state.catalog.program, parsed.tree
    match command.this:
        case "SHOW TABLES":
            return Answer(("table",), [(name,) for name in _matching(program.tables, str(command.expression))])
        case "SHOW VIEWS":
            views = _matching(_views(program), str(command.expression))
            return Answer(("view", "monitored"), [(name, name in program.monitored) for name in views])
        case "SHOW CREATE":
            relation = _relation(program, str(command.expression), parsed)
            definition = state.catalog.definition(relation.name.lower())
            if definition is None:
                raise parsed.unsupported(f"SHOW CREATE of '{relation.name}', which Datalog defines", None, "use EXPLAIN")
            return Answer(("createtab_stmt",), [(definition.span.whole,)])
        case "SHOW COLUMNS":
            return Answer(("column",), [(column.name,) for column in _relation(program, str(command.expression), parsed).columns])
        case "EXPLAIN QUERY":
            asked = compile_select(replace(parsed, tree=command.expression), state.program)
            settings = state.settings
            text = explain(
                plan(asked.program, [asked.program.counting_relation(asked.view)], settings.strategy, settings.precision)
            )
            return Answer(("plan",), [(line,) for line in text.splitlines()])
        case "EXPLAIN":
            name = _relation(program, str(command.expression), parsed).name
            return Answer(("plan",), [(line,) for line in state.explain(name, "text", passes=False).splitlines()])
    relation = _relation(program, command.this.name.lower(), parsed)
    rows = [(c.name, str(column_type(c)).lower(), c.nullable, i in relation.key) for i, c in enumerate(relation.columns)]
    return Answer(("column", "type", "nullable", "key"), list(rows))


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that fit the pattern of a SHOW, in order: `*` means any characters, and `|` separates patterns."""
    parts = [".*".join(map(re.escape, part.strip().split("*"))) for part in pattern.split("|")]
    return sorted(name for name in names if not pattern or any(re.fullmatch(part, name.lower()) for part in parts))


def _views(program: Program) -> list[str]:
    return [name for name in program.views if not program.relations[name].is_auxiliary and name not in program.tables]


def _relation(program: Program, name: str, parsed: ParsedStatement) -> Relation:
    known = [*program.tables, *_views(program)]
    found = next((one for one in known if one.lower() == name), None)
    if found is None:
        raise UnknownName("table or view", name, known, parsed.span)
    return program.relations[found]
