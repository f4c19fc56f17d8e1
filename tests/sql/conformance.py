"""Calls of every function over edge values, as texts of SQL: Spark's answers to them are stored in fixtures/functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rederive.lang.sql.functions import ALIASES, FUNCTIONS, NESTED

STORED: Final = Path(__file__).parent / "fixtures" / "functions" / "answers.tsv"
HAND_WRITTEN: Final = STORED.with_name("calls.sql")
_MOMENTS: Final = ("2024-02-29 13:04:05.678901", "1969-12-31 23:59:59.5", "1970-01-01 00:00:00", "2000-12-31 00:00:00")
_DAYS: Final = ("2024-02-29", "1970-01-01", "1969-12-31", "2023-01-31", "2021-01-03")
EDGES: Final[dict[str, tuple[str, ...]]] = {
    # The first value of a type is an ordinary one: the others take its place one by one.
    "string": (
        "'Spark SQL'", "''", "'a'", "' x '", "'éßx'", "'12'", "'a,b,c'", "'2024-02-29'", "'𝄞'", "CAST(NULL AS STRING)",
    ),
    "int": ("3", "0", "1", "-1", "7", "CAST(NULL AS INT)"),
    "bigint": ("3L", "0L", "1L", "-1L", "255L", "9223372036854775807L", "CAST(NULL AS BIGINT)"),
    "double": (
        "2.5D", "0D", "1D", "-1D", "0.5D", "-1.5D", "1e10", "1e-5", "100D", "1e300", "double('NaN')", "double('Infinity')",
        "double('-Infinity')", "float(0.1)", "CAST(NULL AS DOUBLE)",
    ),
    "number": (
        "5", "-7L", "2.50", "-1.5D", "0", "float(-0.1)", "double('NaN')", "double('inf')", "float('-inf')",
        "CAST(NULL AS DOUBLE)",
    ),
    "integer": ("5", "-7L", "2S", "0", "CAST(NULL AS INT)"),
    "boolean": ("true", "false", "CAST(NULL AS BOOLEAN)"),
    "date": (*(f"DATE '{day}'" for day in _DAYS), "CAST(NULL AS DATE)"),
    "timestamp": (*(f"TIMESTAMP '{moment}'" for moment in _MOMENTS), "CAST(NULL AS TIMESTAMP)"),
    "decimal": ("45.5", "0.0", "60", "CAST(NULL AS DECIMAL(8, 6))"),
    "any": ("5", "0", "7", "float(0.1)", "double('NaN')", "CAST(NULL AS INT)"),
}  # fmt: skip
_WORD: Final = re.compile(r"\[?(\w+)\]?( \.\.\.)?")
# Functions whose arguments are more special than their types: their calls are written by hand.
_BY_HAND: Final = frozenset({
    "extract", "date_part", "datediff", "timestampdiff", "timestampadd", "date_add", "to_date", "try_to_date", "to_timestamp",
    "try_to_timestamp", "unix_timestamp", "to_unix_timestamp", "from_unixtime", "date_format", "format_string", "typeof",
    "trim_syntax", "mask", "round", "bround", "floor", "ceil", "regexp_replace", "hex", "like", "ilike", "next_day",
    "from_utc_timestamp", "to_utc_timestamp", "make_timestamp", "try_make_timestamp", "current_timezone", "trim", "ltrim",
    "rtrim", "url_decode", "date", "timestamp", "boolean", "elt", "split_part", "zeroifnull", "nullifzero",
    "decode", "encode", "unhex", "unbase64", "to_binary", "try_to_binary", "is_valid_utf8", "make_dt_interval",
    "json_array_length", "assert_true", "raise_error", "bitmap_count", "parse_url", "try_parse_url",
    "to_char", "window_time", "convert_timezone", "to_number", "try_to_number", "to_timestamp_ltz", "to_timestamp_ntz",
    "make_timestamp_ltz", "try_make_timestamp_ltz", "make_timestamp_ntz", "try_make_timestamp_ntz",
})  # fmt: skip


def calls() -> Iterator[str]:
    """The calls, each once: first those that are written by hand."""
    yield from dict.fromkeys((*_hand_written(), *_generated()))


def _hand_written() -> Iterator[str]:
    lines = HAND_WRITTEN.read_text(encoding="utf-8").splitlines()
    yield from (line for line in lines if line and not line.startswith("--"))


def _generated() -> Iterator[str]:
    for name, function in FUNCTIONS.items():
        if name in ALIASES or name in _BY_HAND or name in NESTED:
            continue
        words = [
            found[1]
            for part in function.signature.partition(";")[0].partition("->")[0].split(",")
            if (found := _WORD.search(part.strip()))
        ]
        if any(word not in EDGES for word in words):
            raise AssertionError(f"{name}: write calls by hand for {function.signature}")
        for count in range(function.least, len(words) + 1):
            yield from _over_edges(name, words[:count] if not function.signature.startswith("[") else words[-count:])


def _over_edges(name: str, words: list[str]) -> Iterator[str]:
    ordinary = [EDGES[word][0] for word in words]
    yield f"{name}({', '.join(ordinary)})"
    for i, word in enumerate(words):
        yield from (f"{name}({', '.join((*ordinary[:i], edge, *ordinary[i + 1 :]))})" for edge in EDGES[word][1:])


def functions_called() -> set[str]:
    """The names that occur as functions in the calls."""
    return {name.lower() for call in calls() for name in re.findall(r"(\w+)\s*\(", call)}
