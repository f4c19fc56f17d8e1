"""Programs in both languages: Datalog statements and SQL definitions, each over the statements before it.

The SQL compiler is imported only if a program has SQL: its parser is large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, TypeAlias

from rederive.analysis.graph import edges
from rederive.errors import ProgramError, StillNeeded, UnknownName
from rederive.ir.rules import CLOCK, Program
from rederive.lang.datalog.compiler import extend_program
from rederive.lang.datalog.program_edits import Statements
from rederive.lang.datalog.syntax import Statement
from rederive.lang.sql.definition import SqlDefinition

Revised: TypeAlias = tuple[tuple[SqlDefinition, ...], Program]
SQL: Final = ".sql"
_BLANK: Final = r"(\s|--[^\n]*(\n|$)|/\*.*?\*/)*"
_CREATE: Final = re.compile(rf"{_BLANK}create\s+[a-z]", re.IGNORECASE | re.DOTALL)


def defines_in_sql(text: str, name: str = "<text>") -> bool:
    """Whether a text of definitions is SQL: the name of its file ends with `.sql`, or it starts with CREATE.

    >>> defines_in_sql("-- stock\\nCREATE TABLE t (k INT)"), defines_in_sql("create(1).")
    (True, False)
    """
    return name.endswith(SQL) or _CREATE.match(text) is not None


def is_query(text: str) -> bool:
    """Whether the text of a query is SQL, not an atom of Datalog.

    >>> is_query("SELECT 1"), is_query('edge("a", y)')
    (True, False)
    """
    return _QUERY.match(text) is not None


# Comments and parentheses, then a word that starts a query. In an atom, a parenthesis follows the name.
_SPACE: Final = r"(?>\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)"
_QUERY: Final = re.compile(
    rf"(?:{_SPACE}|\()*+(?:(?:select|with)(?![\w(])|values(?!\w)|(?:table|from){_SPACE}++[\w`])", re.IGNORECASE | re.DOTALL
)


def compile_statements(statements: Sequence[Statement | SqlDefinition], known: Program) -> Program:
    """A program extended by statements. Adjacent Datalog statements are compiled together, as their order does not matter."""
    program = known
    for is_sql, run in groupby(statements, lambda statement: isinstance(statement, SqlDefinition)):
        # SQL reads what is defined before it, one definition at a time.
        if is_sql:
            for definition in run:
                assert isinstance(definition, SqlDefinition)
                program = add_sql_definition(program, definition)
        else:
            program = extend_program(program, [s for s in run if not isinstance(s, SqlDefinition)])
    return program


def add_sql_definition(known: Program, added: SqlDefinition) -> Program:
    """The program with one more SQL table or view."""
    from rederive.lang.sql.ddl import add_definition

    return add_definition(known, added)


def revise_sql(statements: Sequence[SqlDefinition], known: Program, gone: str, added: SqlDefinition | None) -> Revised | None:
    """The statements and their program without a relation, or with another definition of it; nothing else is compiled.

    What reads a relation that is defined otherwise is compiled again, behind all others. None where the whole has to be compiled:
    where something reads what would be gone, and where the new definition does not fit.
    """
    names, moved, left = {gone.lower()}, [added] if added is not None else [], []
    # A definition reads those before it.
    for statement in statements:
        if statement.name == gone:
            continue
        if names.isdisjoint(statement.reads):
            left.append(statement)
        else:
            names.add(statement.name.lower())
            moved.append(statement)
    if added is None and moved:
        return None
    owned = {name for name in known.relations if name.partition(".")[0].lower() in names}
    # The clock belongs to all that read it.
    if any(edge.source == CLOCK for name in owned for definition in known.definitions_of(name) for edge in edges(definition)):
        return None
    program = known.without(owned)
    try:
        for statement in moved:
            program = add_sql_definition(program, statement)
    except ProgramError:
        return None
    return (*left, *moved), program


def replace_sql_view(statements: Statements, added: SqlDefinition, empty: Program) -> Statements:
    """The statements with a new definition of a view: in its place, or at the end if it reads a later statement."""
    at = next((i for i, s in enumerate(statements) if isinstance(s, SqlDefinition) and s.name == added.name and s.is_view), None)
    if at is None:
        return (*statements, added)
    # In its place, the views after it can read it. If it reads one of these itself, it can only come at the end.
    in_place = (*statements[:at], added, *statements[at + 1 :])
    try:
        compile_statements(in_place, empty)
    except UnknownName:
        return (*statements[:at], *statements[at + 1 :], added)
    return in_place


def without_sql_relation(statements: Statements, view: str, empty: Program) -> Statements:
    """The statements without a table or view of SQL; refused if another statement reads it."""
    # Compiling what is left is the test: whoever still reads the relation does not find it.
    left = tuple(s for s in statements if not (isinstance(s, SqlDefinition) and s.name == view))
    try:
        compile_statements(left, empty)
    except UnknownName as error:
        raise still_needed(f"'{view}'", left, error) from None
    return left


def still_needed(what: str, statements: Statements, error: UnknownName) -> StillNeeded:
    """The error that a definition still reads what would be gone; it names the definition that was to be compiled."""
    place = error.span
    readers = (s.name for s in statements if isinstance(s, SqlDefinition) and place is not None and s.span.contains(place))
    reader = next(readers, None)
    where = f"in '{reader}'" if reader is not None else "here"
    return StillNeeded(f"{what} is still read {where}", place, hint="first drop or replace what reads it")
