"""Each rule of SQL's lowering, as pairs of SQL and the rules that it becomes: `fixtures/lowering/<module>.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rederive.ir.printing import show_definition, show_term
from rederive.ir.rules import Program
from rederive.lang.rules.lower import add_condition, compile_write
from rederive.lang.rules.parser import parse_rule_statement
from rederive.lang.rules.syntax import CreateRule, WriteAction, condition_name
from rederive.lang.sql.ddl import add_definition, definition_of
from rederive.lang.sql.dml import (
    ChangeMatching,
    ChangeQuery,
    DataChange,
    InsertQuery,
    InsertValues,
    MergeRows,
    ReplaceRows,
    compile_change,
)
from rederive.lang.sql.parser import ParsedStatement, parse
from tests.fixture_pairs import check_pairs, read_pairs

FOLDER = Path(__file__).parent / "fixtures" / "lowering"
SCHEMA = """
CREATE TABLE t (k INT PRIMARY KEY, a INT NOT NULL, b STRING);
CREATE TABLE u (k INT PRIMARY KEY, a INT NOT NULL, c STRING);
CREATE TABLE e (x STRING NOT NULL, y STRING NOT NULL, PRIMARY KEY (x, y));
CREATE TABLE log (a INT, b STRING);
"""


def program_of(text: str) -> Program:
    """The program that these definitions make."""
    program = Program({}, ())
    for parsed in parse(text):
        program = add_definition(program, definition_of(parsed))
    return program


KNOWN = program_of(SCHEMA)


def lowered(text: str) -> str:
    """What a statement adds to the schema: a query is the view `v`."""
    lines: list[str] = []
    known = KNOWN
    for parsed in parse(text):
        lines += _added(parsed, known)
        if parsed.kind == "create":
            known = add_definition(known, definition_of(parsed))
    return "\n".join(lines) or "(no rules)"


def _added(parsed: ParsedStatement, known: Program) -> list[str]:
    match parsed.kind:
        case "query":
            (view,) = parse(f"CREATE VIEW v AS {parsed.span.whole}")
            return _rules(add_definition(known, definition_of(view)), known)
        case "create":
            return _rules(add_definition(known, definition_of(parsed)), known)
        case "rule":
            return _active_rule(parsed, known)
        case _:
            return _change(compile_change(parsed, known), known)


def _rules(program: Program, known: Program) -> list[str]:
    return [show_definition(definition, program) for definition in program.definitions[len(known.definitions) :]]


def _active_rule(parsed: ParsedStatement, known: Program) -> list[str]:
    created = parse_rule_statement(parsed)
    assert isinstance(created, CreateRule)
    program = add_condition(known, created.rule)
    rows = program.relations[condition_name(created.rule.name)]
    lines = [*_rules(program, known), f"condition: {rows.name}({', '.join(column.name for column in rows.columns)})"]
    if isinstance(created.rule.action, WriteAction):
        lines += _change(compile_write(program, created.rule), program)
    return lines


def _change(change: DataChange, known: Program) -> list[str]:
    """A change of data: constant rows, or a condition over the columns c0, c1, ..., or the rows of the query `?`."""
    match change:
        case InsertValues(table, rows):
            return [f"insert into {table}: ({', '.join(map(show_term, row))})" for row in rows]
        case InsertQuery(table, query):
            return [*_rules(query.program, known), f"insert into {table}: the rows of {query.view}"]
        case ChangeMatching(table, bindings, condition, values):
            fixed = ", ".join(f"c{place} = {value!r}" for place, value in bindings)
            return [
                f"{'update' if values is not None else 'delete from'} {table}",
                *([f"  look up: {fixed}"] if fixed else []),
                *([f"  where: {show_term(condition)}"] if condition is not None else []),
                *([f"  set: ({', '.join(map(show_term, values))})"] if values is not None else []),
            ]
        case ChangeQuery(table, query, updates):
            what = f"update {table}: old and new rows of" if updates else f"delete from {table}: the rows of"
            return [*_rules(query.program, known), f"{what} {query.view}"]
        case ReplaceRows(_, removed, added, _):
            return [*_change(removed, known), *_change(added, known)]
        case MergeRows(table, matched, by_target, by_source, deletes):
            lines = [f"merge into {table}: the actions {sorted(deletes)} delete"]
            for what, found in (("matched", matched), ("not matched", by_target), ("not matched by source", by_source)):
                lines += [f"{what}:", *_rules(found.program, known)] if found is not None else []
            return lines


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_lowering(path: Path, request: pytest.FixtureRequest) -> None:
    check_pairs(path, lowered, update=request.config.getoption("--update-golden"))


def test_each_module_that_lowers_has_its_pairs() -> None:
    pairs = {path.stem: len(read_pairs(path)[1]) for path in FOLDER.glob("*.txt")}
    assert pairs.keys() >= {"query", "joins", "subqueries", "predicates", "expressions", "grouping", "windows", "recursion"}
    assert pairs.keys() >= {"star_expansion", "dml", "ddl", "rules"}
    assert sum(pairs.values()) >= 60
