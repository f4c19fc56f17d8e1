"""Values at the border: what each type accepts from text, JSON and Python, and what it refuses."""

from __future__ import annotations

import datetime
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rederive.ir.floats import NAN, canonical, nearest_single
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Type, Value
from rederive.values import from_json, from_python, from_text, to_json

MONEY = Type(Kind.DECIMAL, 6, 2)
NOON = datetime.datetime(2024, 2, 29, 12, 0)


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("", SYMBOL, ""),
        ("a b", SYMBOL, "a b"),
        ("-9223372036854775808", NUMBER, -(2**63)),
        ("+7", NUMBER, 7),
        ("18446744073709551615", UNSIGNED, 2**64 - 1),
        ("1e3", FLOAT, 1000.0),
        (".5", FLOAT, 0.5),
        ("true", BOOLEAN, True),
        ("2024-02-29", DATE, datetime.date(2024, 2, 29)),
        ("2024-02-29T12:00:00", TIMESTAMP, NOON),
        ("2024-02-29 12:00", TIMESTAMP, NOON),
        ("2024-02-29T14:00:00+02:00", TIMESTAMP, NOON),
        ("2024-02-29T12:00:00Z", TIMESTAMP, NOON),
        ("2024-02-29", TIMESTAMP, datetime.datetime(2024, 2, 29)),
        ("1234.5", MONEY, Decimal("1234.50")),
        ("-1234.500", MONEY, Decimal("-1234.50")),
    ],
)
def test_from_text(text: str, type: Type, value: Value) -> None:
    assert from_text(text, type) == value


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("9223372036854775808", NUMBER),
        ("1.0", NUMBER),
        ("1_000", NUMBER),
        ("١", NUMBER),
        (" 1", NUMBER),
        ("", NUMBER),
        ("-1", UNSIGNED),
        ("9" * 5000, NUMBER),
        ("+nan", FLOAT),
        ("1e", FLOAT),
        ("True", BOOLEAN),
        ("2024-02-30", DATE),
        ("20240229", DATE),
        ("2024-02-29T25:00:00", TIMESTAMP),
        ("0001-01-01T00:00:00+14:00", TIMESTAMP),
        ("12345", MONEY),
        ("1.005", MONEY),
        ("NaN", MONEY),
        ("1e9999", MONEY),
        ("\ud800", SYMBOL),
    ],
)
def test_from_text_refuses(text: str, type: Type) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_text(text, type)


@pytest.mark.parametrize(
    ("given_value", "type", "value"),
    [
        ("a", SYMBOL, "a"),
        (3, NUMBER, 3),
        (3, FLOAT, 3.0),
        (0.5, FLOAT, 0.5),
        (False, BOOLEAN, False),
        ("1.5", MONEY, Decimal("1.50")),
        (2, MONEY, Decimal("2.00")),
        ("2024-02-29", DATE, datetime.date(2024, 2, 29)),
    ],
)
def test_from_json(given_value: object, type: Type, value: Value) -> None:
    found = from_json(given_value, type)
    assert found == value
    assert found.__class__ is value.__class__


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (None, SYMBOL),
        (1, SYMBOL),
        ("1", NUMBER),
        (1.0, NUMBER),
        (True, NUMBER),
        (True, FLOAT),
        (True, MONEY),
        (1, BOOLEAN),
        ("true", BOOLEAN),
        (2**63, NUMBER),
        (10**400, NUMBER),
        (10**400, FLOAT),
        ("1.5", FLOAT),
        (1.5, MONEY),
        ([], SYMBOL),
        ({}, NUMBER),
        (0, DATE),
        ("\ud800", SYMBOL),
    ],
)
def test_from_json_refuses(value: object, type: Type) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(value, type)


def test_from_python() -> None:
    assert from_python(Decimal("1.5"), MONEY) == Decimal("1.50")
    assert str(from_python(Decimal("1.5"), MONEY)) == "1.50"
    assert from_python(NOON, TIMESTAMP) == NOON
    assert from_python(NOON.replace(tzinfo=datetime.UTC), TIMESTAMP) == NOON
    assert from_python(NOON.date(), DATE) == NOON.date()
    for value, type in [(NOON, DATE), (NOON.date(), TIMESTAMP), (Decimal(1), FLOAT), (Decimal("NaN"), MONEY), (object(), SYMBOL)]:
        with pytest.raises(ValueError, match=r".+"):
            from_python(value, type)


VALUES: dict[Type, st.SearchStrategy[Value]] = {
    SYMBOL: st.text(st.characters(exclude_categories=["Cs"])),
    NUMBER: st.integers(-(2**63), 2**63 - 1),
    UNSIGNED: st.integers(0, 2**64 - 1),
    FLOAT: st.floats().map(canonical),
    BOOLEAN: st.booleans(),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    MONEY: st.integers(-999999, 999999).map(lambda n: Decimal(n).scaleb(-2)),
}


@pytest.mark.parametrize("type", VALUES, ids=str)
@given(st.data())
def test_json_round_trip(type: Type, data: st.DataObject) -> None:
    value = data.draw(VALUES[type])
    assert from_json(json.loads(json.dumps(to_json(value))), type) == value
    assert from_python(value, type) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("NaN", NAN), ("nan", NAN), ("Infinity", math.inf), ("-inf", -math.inf), ("+Infinity", math.inf), ("1e999", math.inf)],
)
def test_floats_that_are_not_finite(text: str, value: float) -> None:
    assert from_text(text, FLOAT) == value
    assert json.dumps(to_json(from_text(text, FLOAT))) in ('"NaN"', '"Infinity"', '"-Infinity"')


def test_there_is_one_nan_which_is_greater_than_all() -> None:
    other = float("nan")
    assert from_python(other, FLOAT) is NAN
    assert {NAN} == {from_json("NaN", FLOAT)}
    assert sorted([NAN, 1.0, -math.inf, math.inf]) == [-math.inf, 1.0, math.inf, NAN]
    assert 1.0 < NAN == other == NAN
    assert not NAN < 1.0
    assert max(1.0, NAN) is NAN
    assert pickle.loads(pickle.dumps(NAN)) is NAN


@given(st.decimals(-(10**38), 10**38, allow_nan=False, allow_infinity=False))
def test_a_number_of_32_bits_is_the_nearest_one(exact: Decimal) -> None:
    """Rounding to 64 bits first would round twice."""
    found = Fraction(nearest_single(exact))
    near = [Fraction(float(np.nextafter(np.float32(float(exact)), np.float32(way)))) for way in (-math.inf, math.inf)]
    assert all(abs(found - Fraction(exact)) <= abs(one - Fraction(exact)) for one in near)
