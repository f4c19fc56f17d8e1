"""Fields of JSON and CSV texts as values, where a text that has no value of a type is not an error."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

from rederive.ir.terms import Kind, Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.casts import to_date
from rederive.time_zones import parse_instant

NO_VALUE: Final = object()
"""What a text that does not fit its type gives."""
_EXACT: Final = Context(prec=100)
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
# Times that Spark holds and Python does not, and times of the current day.
_FAR: Final = re.compile(r"\+?(?:\d{5,7}|0000)(?!\d)|-\d{4,7}(?!\d)", re.ASCII)
_CLOCK: Final = re.compile(r"T?\d{1,2}:|T\d", re.ASCII)


def decimal_field(text: str, type: Type, *, commas: bool = True) -> Any:
    """The DECIMAL of a text, whose commas do not count where they may be; NO_VALUE if it is none or has too many digits."""
    if _DECIMAL.fullmatch(text := text.replace(",", "") if commas else text) is None:
        return NO_VALUE
    try:
        found = Decimal(text).quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        return NO_VALUE
    return (found or abs(found)) if len(found.as_tuple().digits) <= type.precision else NO_VALUE  # there is one zero


def time_field(text: str, type: Type, zone: str) -> Any:
    """The DATE or TIMESTAMP of a text; NO_VALUE if there is none."""
    # What has no value is tried once more without GMT, as Spark did in its first versions.
    for written in dict.fromkeys((text.strip(), text.replace("GMT", "").strip())):
        try:
            return parse_instant(written, zone) if type.kind is Kind.TIMESTAMP else to_date(type, written.removeprefix("+"))
        except (ValueError, OverflowError, ScalarError):
            if _FAR.match(written) is not None:
                raise ScalarError(f"the time {text!r} is outside of the years 1 to 9999") from None
            if type.kind is Kind.TIMESTAMP and _CLOCK.match(written) is not None:
                raise ScalarError(f"the time {text!r} has no date") from None
    return NO_VALUE
