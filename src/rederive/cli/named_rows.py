"""The row that a question is about: `closure("a", "c")`, as Datalog writes it, or a relation and a JSON array."""

from __future__ import annotations

import re
from typing import Final

from rederive.errors import MalformedInput
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.rules import Program
from rederive.ir.terms import Constant, Row
from rederive.lang.datalog.compiler import compile_query

JSON_ROW: Final = re.compile(r"([^(\"]*?)\s*([\[{].*)", re.DOTALL)
"""A relation and a JSON row; not an atom, which has a parenthesis first."""
_FORMS: Final = """write the row as an atom, 'edge("ann", 7)', or as a JSON array, '["ann", 7]', after the relation"""


def ground_row(atom: str, program: Program) -> tuple[str, Row]:
    """The relation and the row of an atom whose terms are constants.

    >>> from rederive.lang.datalog.compiler import compile_program
    >>> ground_row('edge("a", 1)', compile_program(".decl edge(x: symbol, n: number)"))
    ('edge', ('a', 1))
    """
    if "(" not in atom:
        raise MalformedInput(f"'{atom}' names no row", hint=_FORMS)
    found = compile_query(atom, program)
    values = [term.value for term in found.terms if isinstance(term, Constant)]
    if len(values) < len(found.terms):
        raise MalformedInput(f"a row has constants alone, not {atom}", hint='write each value, as in edge("a", "b")')
    return found.relation, tuple(values)


def json_row(text: str, name: str) -> Json:
    """The JSON of a row. `name`: what an error calls the input."""
    try:
        return parse_line(text, name, 1)
    except MalformedInput as error:
        error.hint = error.hint or _FORMS
        raise
