"""Strict JSON lines: what is refused, and the column that the error names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rederive.errors import MalformedInput
from rederive.ingest.strict_json import parse_line

DEEP = "[" * 100_000
LONG = "9" * 5000


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("", 1, "not JSON"),
        ("{", 2, "not JSON"),
        ('{"a": 1} x', 10, "not JSON: Extra data"),
        ("{'a': 1}", 2, "not JSON"),
        ('{"a": 01}', 8, "not JSON"),
        ('{"a": "\t"}', 8, "not JSON"),
        ('["NaN", NaN]', 9, "NaN is not JSON"),
        ("[Infinity]", 2, "Infinity is not JSON"),
        ('["-Infinity", {"x": -Infinity}]', 21, "-Infinity is not JSON"),
        ("[1.5, 1e999]", 7, "beyond a 64 bit float"),
        (f"[1, {LONG}]", 5, "a number of 5000 digits"),
        ('{"a": 1, "a": 2}', 10, "the key 'a' occurs twice"),
        ('{"a": {"b": "b"}, "c": {"b": 1, "d{": {"b": 2}, "\\u0062": 3}}', 49, "the key 'b' occurs twice"),
        ('["\\ud83d\\ude00", "\\ud83d"]', 3, "half of a surrogate pair"),
        (DEEP, 1, "nested too deeply"),
    ],
)
def test_refused(line: str, column: int, message: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        parse_line(line, "f.jsonl", 3)
    assert caught.value.place == f"f.jsonl:3:{column}"
    assert message in caught.value.message


def test_whole_surrogate_pairs_are_characters() -> None:
    assert parse_line('"\\ud83d\\ude00"', "f", 1) == "\U0001f600"


TEXTS = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=10,
)


@given(VALUES)
def test_all_other_json_is_read_as_it_stands(value: object) -> None:
    assert parse_line(json.dumps(value), "f", 1) == value


@given(st.text() | st.text('{}[]:,"\\ud8aN0-.e1 '))
def test_any_text_is_a_value_or_an_error_with_a_place(line: str) -> None:
    place = "f:1:"
    try:
        parse_line(line, "f", 1)
    except MalformedInput as error:
        place = error.place or ""
    assert place.startswith("f:1:")
