"""Random predicates over one small table, in SQL that Spark and DuckDB understand alike: booleans are values as others are.

Literals stand on either side of comparisons, and conditions inside of conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

TABLE = "CREATE TABLE o (id INT PRIMARY KEY, a INT, b INT NOT NULL, d BOOLEAN, e BOOLEAN NOT NULL, s {text})"
OTHERS = "CREATE TABLE one (z INT PRIMARY KEY); CREATE TABLE f (x INT, g BOOLEAN)"
_VALUES = itertools.product((None, 0, 1), (None, True, False), (True, False))
ROWS = [(i, a, i % 3, d, e, (None, "a", "b")[i % 3]) for i, (a, d, e) in enumerate(_VALUES)]
FLAGS = [(0, True), (0, None), (1, False), (1, False), (None, True)]  # of f

Pick = Callable[[Sequence[str]], str]  # chooses one of several
_PLAIN = ("literal", "column", "numbers", "in", "null")
_COMPARED = ("=", "=", "<>", "<", "<=", ">", ">=", "<=>")


def predicate(pick: Pick, depth: int = 3, *, subqueries: bool = True) -> str:
    """A boolean expression over `o`."""

    def inner() -> str:
        return predicate(pick, depth - 1, subqueries=subqueries)

    kinds = [*_PLAIN]
    if depth:
        kinds += ["compared"] * 4 + ["and", "or", "not", "not", "is", "listed", "between", "case", "coalesce", "nullif", "if"]
        kinds += ["exists", "any of"] if subqueries else []
    negation = pick(["", "NOT "])
    match pick(kinds):
        case kind if kind in _PLAIN:
            return _plain(pick, kind, negation)
        case "compared":
            return f"({inner()}) {pick(_COMPARED)} ({inner()})"
        case "and" | "or" as word:
            return f"({inner()}) {word.upper()} ({inner()})"
        case "not":
            return f"NOT ({inner()})"
        case "is":
            return f"({inner()}) IS {negation}{pick(['NULL', 'TRUE', 'FALSE'])}"
        case "listed":
            return f"({inner()}) {negation}IN (({inner()}), ({inner()}))"
        case "between":
            return f"({inner()}) {negation}BETWEEN ({inner()}) AND ({inner()})"
        case "case":
            default = pick(["", f" ELSE {inner()}"])
            return f"CASE WHEN {inner()} THEN {inner()}{default} END"
        case "exists":
            return f"{negation}EXISTS (SELECT 1 FROM f WHERE {pick(['f.g = ', 'f.x = o.a AND '])}({inner()}))"
        case "any of":
            value, column = pick(["o.d f.g", "o.a f.x", "false f.g"]).split()
            # As a value, IN of a query is never NULL in Spark, and NULL where it is unknown in DuckDB.
            return f"({value} {negation}IN (SELECT {column} FROM f WHERE {pick(['true', 'f.x = 1', '1 = 0'])})) IS TRUE"
        case name:
            arguments = ", ".join(inner() for _ in range(3 if name == "if" else 2))
            return f"{name}({arguments})"


def _plain(pick: Pick, kind: str, negation: str) -> str:
    """A predicate without another one inside."""
    match kind:
        case "literal":
            return pick(["true", "false", "CAST(NULL AS BOOLEAN)", "1 = 0", "1 < 2", "NULL > 1"])
        case "column":
            return pick(["o.d", "o.e"])
        case "numbers":
            return f"{_number(pick)} {pick(_COMPARED)} {_number(pick)}"
        case "in":
            listed = ", ".join(pick(["0", "1", "NULL"]) for _ in range(int(pick(["1", "2", "3"]))))
            return f"{_number(pick)} {negation}IN ({listed})"
        case _:
            return f"{_number(pick)} IS {negation}NULL"


def _number(pick: Pick) -> str:
    return pick(["o.a", "o.b", "o.id", "0", "1", "CAST(NULL AS INT)", "length(o.s)", "coalesce(o.a, 1)"])


@st.composite
def predicates(draw: Any, *, subqueries: bool = True) -> str:
    return predicate(lambda options: str(draw(st.sampled_from(options))), subqueries=subqueries)
