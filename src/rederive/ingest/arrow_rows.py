"""Values and rows of Arrow tables, as micro-batches use them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

from rederive.ir.terms import Type, Value
from rederive.scalar.datalog.signatures import INTEGERS
from rederive.values import from_python

if TYPE_CHECKING:
    import pyarrow


def arrow_value(value: object, type: Type) -> Value:
    """The value of a Python object from an Arrow column. An unsigned number may come as a decimal.

    >>> from rederive.ir.terms import UNSIGNED
    >>> arrow_value(Decimal("18446744073709551615"), UNSIGNED)
    18446744073709551615
    """
    if isinstance(value, Decimal) and type.kind in INTEGERS and value.is_finite() and value == value.to_integral_value():
        value = int(value)
    return from_python(value, type)


def row_as_json(table: pyarrow.Table, row: int) -> str:
    """One row of an Arrow table as JSON, for people to read."""
    return json.dumps(table.slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False)
