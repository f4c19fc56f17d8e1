"""Rows as JSON, written all at once: the same text as value by value."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from rederive.ir.terms import Row, Value
from rederive.store.codec import encode_row, encode_rows

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, -0.05, "-0.0,", "-0.0]", Decimal("-0.00"), Decimal("0.10")]),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.dates(),
    st.datetimes(),
)


def written(value: Value) -> str:
    """A value by itself: a zero has no sign."""
    match value:
        case Decimal():
            return f'"{value if value else abs(value):f}"'
        case datetime.date():
            return f'"{value.isoformat()}"'
        case float() if value == 0:
            return "0.0"
        case _:
            return json.dumps(value, ensure_ascii=False)


@given(rows=st.lists(st.lists(VALUES, max_size=4).map(tuple), max_size=4))
@example(rows=[("-0.0,", 1), (-0.0,), (Decimal("-0.00"),)])
def test_as_value_by_value(rows: list[Row]) -> None:
    expected = [f"[{','.join(map(written, row))}]" for row in rows]
    assert encode_rows(rows) == f"[{','.join(expected)}]"
    assert [encode_row(row) for row in rows] == expected
