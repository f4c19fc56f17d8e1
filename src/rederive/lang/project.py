"""Programs in both languages: Datalog statements and SQL definitions, each over what stands before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rederive.errors import StillNeeded, UnknownName
from rederive.ir.rules import Program
from rederive.lang.datalog import extended
from rederive.lang.edit import Statements
from rederive.lang.sql.statements import Definition, extended_by
from rederive.lang.syntax import Statement


def compile_statements(statements: Sequence[Statement | Definition]) -> Program:
    """The program that these statements make together; Datalog that stands together is one text."""
    program = Program({}, ())
    for is_sql, run in groupby(statements, lambda statement: isinstance(statement, Definition)):
        if is_sql:
            for definition in run:
                assert isinstance(definition, Definition)
                program = extended_by(program, definition)
        else:
            program = extended(program, [s for s in run if not isinstance(s, Definition)])
    return program


def replaced(statements: Statements, added: Definition) -> Statements:
    """The statements with another definition of a view: in its place, or at the end where it reads what follows."""
    at = next((i for i, s in enumerate(statements) if isinstance(s, Definition) and s.name == added.name and s.view), None)
    if at is None:
        return (*statements, added)
    in_place = (*statements[:at], added, *statements[at + 1 :])
    try:
        compile_statements(in_place)
    except UnknownName:
        return (*statements[:at], *statements[at + 1 :], added)
    return in_place


def without_sql_view(statements: Statements, view: str) -> Statements:
    """The statements without a view of SQL; refused while another statement reads it."""
    left = tuple(s for s in statements if not (isinstance(s, Definition) and s.view and s.name == view))
    try:
        compile_statements(left)
    except UnknownName as error:
        raise StillNeeded(f"'{view}' is still needed here", error.span, hint="drop or replace what reads it first") from None
    return left
