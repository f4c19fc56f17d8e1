"""Every function of the table gives the value of Spark or fails where Spark fails; docs/sql.md lists the table."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rederive.engines.term_functions import row_function
from rederive.errors import RederiveError
from rederive.ir.nested import plain
from rederive.ir.rules import Program
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.aggregate_calls import REFUSED_AGGREGATES
from rederive.lang.sql.expressions import TIME_FUNCTIONS
from rederive.lang.sql.function_table import function_table
from rederive.lang.sql.functions import ALIASES, FUNCTIONS
from rederive.lang.sql.invocation import AGGREGATES, WINDOW_FUNCTIONS
from rederive.lang.sql.parser import parse
from rederive.lang.sql.query import QueryLowering
from rederive.lang.sql.refused_functions import REFUSED_FUNCTIONS, refusal
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import SqlType
from rederive.scalar.failures import ScalarError
from tests.sql.conformance import STORED, calls, functions_called

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERROR = "error"
TOGETHER = 40  # calls in one query of Spark
# Java computes these with its own approximations, which may differ from those of C in the last bit.
APPROXIMATED = (
    "cbrt", "cosh", "sinh", "tanh", "expm1", "asinh", "acosh", "atanh", "log", "sin", "cos", "tan", "cot", "sec", "csc", "asin",
    "acos", "atan", "power", "pow", "exp", "hypot",
)  # fmt: skip


def ours(call: str) -> tuple[str, str]:
    """The type and the value of a call, as texts; an error has no type."""
    (parsed,) = parse(f"SELECT {call} AS x")
    context = StatementContext(ProgramBuilder.of(Program({}, ())), "q", parsed)
    ((_, typed),) = QueryLowering(context).prepare(parsed.tree).outputs
    return _simple(typed.type), repr(plain(row_function(typed.term, [], {})(())))


def _simple(type: SqlType) -> str:
    return str(type).lower().replace(", ", ",").replace(": ", ":").replace("`", "")


def answered(call: str) -> tuple[str, str]:
    try:
        return ours(call)
    except (RederiveError, ScalarError):
        return "", ERROR


def stored() -> dict[str, tuple[str, str]]:
    lines = STORED.read_text(encoding="utf-8").splitlines()
    return {call: (_day_to_second(type), value) for call, type, value in (line.split("\t") for line in lines)}


def _day_to_second(type: str) -> str:
    """Spark has a type for each part of an interval, and we have one for all of them."""
    return re.sub(r"^interval (day|hour|minute|second).*", "interval day to second", type)


def test_every_call_gives_what_spark_gave() -> None:
    expected = stored()
    assert list(expected) == list(calls()), "run `pytest -m slow tests/sql/test_functions.py --update-golden`"
    wrong = []
    for call, (type, value) in expected.items():
        found = answered(call)
        if value == "-0.0":
            same = found[1] == "0.0"  # there is one zero
        elif call.startswith(APPROXIMATED) and type == "double" and found[1] != ERROR and "None" not in (found[1], value):
            same = math.isclose(float(found[1]), float(value), rel_tol=5e-16) or found[1] == value  # NaN
        else:
            same = found == (type, value) or (found[1] == value == "None" and type == "void")
        if not same:
            wrong.append(f"{call}: Spark {type} {value}, ours {found}")
    assert wrong == []


def test_every_function_is_called() -> None:
    missing = {name for name in FUNCTIONS if name not in ALIASES} - functions_called() - {"trim_syntax"}
    assert missing == set()


NAMES = STORED.with_name("names.txt")
# Words of SQL's grammar that Spark lists as functions, and table functions that describe Spark itself.
SYNTAX = {"and", "between", "case", "cast", "in", "not", "or", "when", "range", "sql_keywords"}
ROW_SOURCES = {"explode", "posexplode", "inline", "stack", "json_tuple"}
OF_GROUPS = {"grouping", "grouping_id", "window", "session_window", "any", "binary"}


def test_every_function_of_spark_is_supported_or_refused_with_a_hint() -> None:
    names = {name for name in NAMES.read_text(encoding="utf-8").split() if name.isidentifier()}
    assert len(names) > 500
    known = {*FUNCTIONS, *AGGREGATES, *WINDOW_FUNCTIONS, *TIME_FUNCTIONS, *SYNTAX, *ROW_SOURCES, *OF_GROUPS}
    known |= {name for name in names if name.startswith("regr_") or name.removesuffix("_outer") in ROW_SOURCES}
    assert {name for name in names - known if "docs/sql.md for" in refusal(name) and name not in REFUSED_AGGREGATES} == set()
    assert known & set(REFUSED_FUNCTIONS) == set()


def test_the_documentation_lists_the_table() -> None:
    text = Path("docs/sql.md").read_text(encoding="utf-8")
    begin, end = text.index("<!-- functions -->"), text.index("<!-- /functions -->")
    assert text[begin : end + 19] == function_table(), "run `python -m rederive.lang.sql.function_table docs/sql.md`"


@pytest.mark.slow
def test_spark_gives_the_stored_answers(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    """With --update-golden, Spark's answers are stored."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    assert [row[0] for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()] == NAMES.read_text(encoding="utf-8").splitlines()
    found = answers_of_spark(session, list(calls()))
    if request.config.getoption("--update-golden"):
        lines = [f"{call}\t{type}\t{value}\n" for call, (type, value) in found.items()]
        STORED.write_text("".join(lines), encoding="utf-8")
    assert {call: (_day_to_second(type), value) for call, (type, value) in found.items()} == stored()


def answers_of_spark(session: SparkSession, texts: list[str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for begin in range(0, len(texts), TOGETHER):
        part = texts[begin : begin + TOGETHER]
        together = _asked(session, part)
        found |= together or {text: (_asked(session, [text]) or {text: ("", ERROR)})[text] for text in part}
    return found


def _asked(session: SparkSession, texts: list[str]) -> dict[str, tuple[str, str]] | None:
    """The answers to several calls; None if one of them fails."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        frame = session.sql("SELECT " + ", ".join(f"{text} AS x{i}" for i, text in enumerate(texts)))
        (row,) = frame.collect()
    # A date outside of Python's years 1 to 9999 is a ValueError of collect(); such a date is refused by us, too.
    except (PySparkException, Py4JJavaError, ValueError):
        return None
    types = [field.dataType.simpleString() for field in frame.schema.fields]
    return {text: (type, repr(_plain(value))) for text, type, value in zip(texts, types, row, strict=True)}


def _plain(value: Any) -> Any:
    """What PySpark collects, as tuples and bytes; timestamps in UTC."""
    from tests.sql.test_spark_values import in_utc

    match value:
        case dict():
            return tuple((_plain(key), _plain(one)) for key, one in value.items())
        case list() | tuple():
            return tuple(map(_plain, value))
        case bytearray():
            return bytes(value)
    return in_utc(value)
