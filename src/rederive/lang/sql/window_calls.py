"""Calls of window functions: which function of the IR each one is, its arguments, its frame and its type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sqlglot import exp

from rederive.errors import TypeClash, WrongArity
from rederive.ir.rules import Frame, Function
from rederive.ir.terms import UTC, Constant, Value
from rederive.lang.sql.aggregate_calls import AggregateCalls, call_arguments, is_aggregate, skips_null, unwrap_call
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import DAY, DOUBLE, INT, MOMENT, SINGLE, SqlType

NUMBERS: Final = ("row_number", "rank", "dense_rank")
ROW_FUNCTIONS: Final = frozenset({Function.LAG, Function.NTILE, Function.PERCENT_RANK, Function.CUME_DIST})
_SHIFTS: Final = {"lag": 1, "lead": -1}  # lead is a lag of a negative number of rows
_PICKS: Final = {
    "first_value": Function.FIRST_VALUE,
    "first": Function.FIRST_VALUE,
    "any_value": Function.FIRST_VALUE,
    "last_value": Function.LAST_VALUE,
    "last": Function.LAST_VALUE,
    "nth_value": Function.NTH_VALUE,
}
_SHARES: Final = {"percent_rank": Function.PERCENT_RANK, "cume_dist": Function.CUME_DIST}
_MICROSECONDS: Final = {
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_MONTHS: Final = {"MONTH": 1, "YEAR": 12}


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A function of a window. Without a `frame`, an aggregate is that of the whole partition."""

    function: Function
    arguments: tuple[TypedTerm, ...]
    gives: SqlType
    nullable: bool
    parameters: tuple[Value, ...] = ()
    frame: Frame | None = None
    keys: tuple[tuple[TypedTerm, exp.Expr], ...] = ()


def lower_window_call(node: exp.Window, lower: ExpressionLowering, order: Sequence[TypedTerm]) -> WindowCall:
    """The call of a window function other than those that number rows; `order` are the terms of ORDER BY."""
    return _WindowCalls(node, lower, order).call()


class _WindowCalls:
    def __init__(self, node: exp.Window, lower: ExpressionLowering, order: Sequence[TypedTerm]) -> None:
        self.node = node
        self.lower = lower
        self.context = lower.context
        self.order = order
        self.name = function_name(unwrap_call(node.this))
        self.arguments = call_arguments(unwrap_call(node.this))

    def call(self) -> WindowCall:
        if self.name in _SHIFTS:
            return self.shift()
        if self.name == "ntile":
            self.check(1, 1)
            tiles = self.constant(self.arguments[0])
            if tiles < 1:
                raise TypeClash(f"'ntile' needs a positive number, not {tiles}", self.context.span(self.node))
            return WindowCall(Function.NTILE, (), INT, False, (tiles,))
        if self.name in _SHARES:
            self.check(0, 0)
            return WindowCall(_SHARES[self.name], (), DOUBLE, False)
        if self.name in _PICKS:
            return self.pick()
        if not is_aggregate(node := self.node.this):
            hint = "see docs/sql.md for the supported functions"
            raise self.context.unsupported(f"the window function '{self.name}'", node, hint)
        found = AggregateCalls(self.lower).call(node)
        if found.distinct:
            raise self.context.unsupported("DISTINCT in a window function", node)
        frame = self.frame()
        if frame is not None and found.keys:
            raise self.context.unsupported("WITHIN GROUP in a window with an order", node)
        nullable = found.function is not Function.COUNT and (frame is not None or found.may_be_null)
        return WindowCall(found.function, found.arguments, found.gives, nullable, found.parameters, frame, found.keys)

    def check(self, least: int, most: int) -> None:
        """Refuse a wrong number of arguments, and a frame or a missing order of a function that ranks."""
        if not least <= len(self.arguments) <= most:
            takes = f"{least} to {most}" if least < most else str(most)
            raise WrongArity(f"'{self.name}' takes {takes} arguments, not {len(self.arguments)}", self.context.span(self.node))
        if self.name not in _PICKS:
            if not self.order:
                raise self.context.unsupported(f"{self.name} without ORDER BY", self.node, "add ORDER BY to OVER (...)")
            if self.node.args.get("spec") is not None:
                raise self.context.unsupported(f"a frame of '{self.name}'", self.node, "omit it")

    def shift(self) -> WindowCall:
        """lag and lead: an offset, which may be negative, and a default, which is any expression."""
        self.check(1, 3)
        value = self.lower.lower(self.arguments[0])
        offset = self.constant(self.arguments[1]) if len(self.arguments) > 1 else 1
        default = self.lower.lower(self.arguments[2]) if len(self.arguments) > 2 else None
        if default is not None and value.type == SINGLE and default.type.is_numeric:
            default = self.lower.cast(default, SINGLE, self.node)
        given = (value,) if default is None else tuple(self.lower.to_common_type([value, default], self.node))
        nullable = default is None or any(one.nullable for one in given)
        parameters = (offset * _SHIFTS[self.name], skips_null(self.node.this))
        return WindowCall(Function.LAG, given, given[0].type, nullable, parameters)

    def pick(self) -> WindowCall:
        """first_value, last_value and nth_value. The second argument of the first two says whether NULL is skipped."""
        is_nth = self.name == "nth_value"
        self.check(2 if is_nth else 1, 2)
        value, skips = self.lower.lower(self.arguments[0]), skips_null(self.node.this)
        place = 1 if _PICKS[self.name] is Function.FIRST_VALUE else 0
        if is_nth:
            place = self.constant(self.arguments[1])
            if place < 1:
                raise TypeClash(f"'nth_value' needs a positive number, not {place}", self.context.span(self.node))
        elif len(self.arguments) == 2:
            skips = skips or bool(self.literal(self.arguments[1]))
        frame = self.frame() or Frame(None, None)
        return WindowCall(_PICKS[self.name], (value,), value.type, True, (place, skips), frame)

    # Frames

    def frame(self) -> Frame | None:
        """The frame of the window; None for the whole partition. With an order, it ends by default with the row's equals."""
        spec = self.node.args.get("spec")
        if spec is None:
            return Frame(None, 0, by_value=True) if self.order else None
        by_value = str(spec.args["kind"]).upper() == "RANGE"
        if str(spec.args["kind"]).upper() == "GROUPS" or spec.args.get("exclude"):
            raise self.context.unsupported("a frame other than ROWS and RANGE", spec)
        sides = [self.bound(spec, side, by_value=by_value) for side in ("start", "end")]
        (start, one), (end, two) = sides
        if start is None and end is None:
            return None
        if not self.order:
            raise self.context.unsupported("a frame without ORDER BY", self.node, "add ORDER BY to OVER (...)")
        if by_value and len(self.order) != 1 and (start or end):
            raise self.context.unsupported("RANGE with distances and several columns to order by", spec, "order by one column")
        if one != two and start and end:
            raise self.context.unsupported("a frame from months to days", spec, "use one unit")
        if start is not None and end is not None and start > end:
            raise TypeClash("the frame ends before it starts", self.context.span(self.node))
        return Frame(start, end, by_value=by_value, months=one or two)

    def bound(self, spec: exp.Expr, side: str, *, by_value: bool) -> tuple[int | float | Decimal | None, bool]:
        """A bound as a distance from the row, and whether it is in months; None is unbounded."""
        value = spec.args.get(side)
        if value is None or value == "CURRENT ROW":
            return 0, False
        if value == "UNBOUNDED":
            return None, False
        sign = -1 if str(spec.args[f"{side}_side"]).upper() == "PRECEDING" else 1
        if not by_value:
            return sign * self.constant(value), False
        amount, months = self.distance(value)
        return sign * amount, months

    def distance(self, node: exp.Expr) -> tuple[int | float | Decimal, bool]:
        """A distance of RANGE in the unit of the column to order by."""
        type = self.order[0].type if self.order else INT
        if isinstance(node, exp.Interval):
            return self.interval(node, type)
        amount = self.literal(node)
        if type == DAY and isinstance(amount, int):
            return amount, False
        if not type.is_numeric or isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
            raise TypeClash(f"RANGE by {type} does not accept {node.sql('spark')}", self.context.span(node))
        if type == SINGLE:
            raise self.context.unsupported("RANGE by FLOAT with a distance", node, "order by a DOUBLE")
        if type.is_integer and not isinstance(amount, int):
            raise TypeClash(f"RANGE by {type} needs a whole number", self.context.span(node))
        return float(amount) if type == DOUBLE else amount, False

    def interval(self, node: exp.Interval, type: SqlType) -> tuple[int, bool]:
        unit = node.args["unit"].name.upper().removesuffix("S") if node.args.get("unit") is not None else ""
        text = str(node.this.name) if node.this is not None else ""
        if type not in (DAY, MOMENT) or unit not in (*_MICROSECONDS, *_MONTHS) or not text.strip().isdigit():
            raise self.context.unsupported(f"RANGE by {type} with this interval", node, "use one unit, such as INTERVAL 7 DAYS")
        amount = int(text)
        if unit in _MONTHS:
            return amount * _MONTHS[unit], True
        if type == DAY:
            if unit not in ("DAY", "WEEK"):
                raise self.context.unsupported("RANGE by DATE with less than a day", node, "cast the date to TIMESTAMP")
            return amount * (7 if unit == "WEEK" else 1), False
        if unit in ("DAY", "WEEK") and self.context.builder.zone != UTC:
            # A day is a step of the calendar, and lasts 23 or 25 hours where clocks change.
            raise self.context.unsupported("RANGE by TIMESTAMP with days in a zone other than UTC", node, "use hours")
        return amount * _MICROSECONDS[unit], False

    def literal(self, node: exp.Expr) -> Value:
        typed = self.lower.lower(node)
        if not isinstance(typed.term, Constant):
            raise self.context.unsupported(f"'{node.sql('spark')}', which is not a literal, in a window", self.node)
        return typed.term.value

    def constant(self, node: exp.Expr) -> int:
        value = self.literal(node)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.context.unsupported("an offset that is not an integer literal", self.node)
        return value
