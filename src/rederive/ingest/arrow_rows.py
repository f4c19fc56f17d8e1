"""Values as Arrow hands them out."""

from __future__ import annotations

from decimal import Decimal

from rederive.ir.terms import Type, Value
from rederive.scalar.datalog.signatures import INTEGERS
from rederive.values import from_python


def from_arrow(value: object, type: Type) -> Value:
    """The value that a Python object out of an Arrow column stands for; an unsigned number may come as a decimal.

    >>> from rederive.ir.terms import UNSIGNED
    >>> from_arrow(Decimal("18446744073709551615"), UNSIGNED)
    18446744073709551615
    """
    if isinstance(value, Decimal) and type.kind in INTEGERS and value.is_finite() and value == value.to_integral_value():
        value = int(value)
    return from_python(value, type)
