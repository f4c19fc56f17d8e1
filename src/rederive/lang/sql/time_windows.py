"""window(ts, '10 minutes') in GROUP BY: a tumbling window is its start, and its end follows from it.

SELECT window.start, count(*) FROM t GROUP BY window(ts, '1 hour')
SELECT window_start(ts, 3600000000, 0), count(*) FROM t GROUP BY window_start(ts, 3600000000, 0)
"""

from __future__ import annotations

from sqlglot import exp

from rederive.lang.sql.intervals import interval_parts
from rederive.lang.sql.statement_context import StatementContext
from rederive.scalar.sql.calendar_steps import MICROSECONDS

_ENDS = ("start", "end")


def replace_time_windows(node: exp.Select, context: StatementContext) -> exp.Select:
    """The query with the start of each window in its place; sliding windows and windows as values are refused."""
    found = [call for call in node.find_all(exp.Anonymous) if call.name.lower() == "window" and _is_own(call, node)]
    if not found:
        return node
    if len({call.sql("spark") for call in found}) > 1:
        raise context.unsupported(
            "two different windows in one query", found[1], "group by the start of one of them in a subquery"
        )
    start, length = _start(found[0], context)

    def replaced(part: exp.Expr) -> exp.Expr:
        end = window_end(part)
        if end is not None:
            shifted = exp.Add(this=start.copy(), expression=interval_of_micros(length))
            return start.copy() if end == "start" else exp.Paren(this=shifted)
        if isinstance(part, exp.Anonymous) and part.name.lower() == "window":
            if not isinstance(part.parent, exp.Group):
                raise context.unsupported("a window as a value", part, "select window.start and window.end")
            return start.copy()
        return part

    named = [_named(item) for item in node.expressions]
    copied = node.copy()
    copied.set("expressions", named)
    # As in Spark, a row whose time is NULL is in no window.
    copied = copied.where(exp.Not(this=exp.Is(this=found[0].expressions[0].copy(), expression=exp.Null())), copy=False)
    result = copied.transform(replaced)
    assert isinstance(result, exp.Select)
    return result


def _is_own(call: exp.Expr, node: exp.Select) -> bool:
    return call.find_ancestor(exp.Select) is node


def _named(item: exp.Expr) -> exp.Expr:
    """An output that is an end of a window keeps its name."""
    end = window_end(item)
    return exp.alias_(item.copy(), end) if end is not None else item.copy()


def window_end(part: exp.Expr, name: str = "window") -> str | None:
    """Which end of the window `window.start` or `window(...).start` means; None for other expressions."""
    match part:
        case exp.Column() if part.args.get("table") is not None and part.args["table"].name.lower() == name:
            return part.name.lower() if part.name.lower() in _ENDS else None
        case exp.Dot(this=exp.Anonymous() as call) if call.name.lower() == name:
            return part.expression.name.lower() if part.expression.name.lower() in _ENDS else None
    return None


def _start(call: exp.Anonymous, context: StatementContext) -> tuple[exp.Expr, int]:
    """The start of a window as an expression, and its length in microseconds."""
    if not 2 <= len(call.expressions) <= 4:
        raise context.unsupported("a window with this number of arguments", call, "write window(ts, '10 minutes')")
    moment, *texts = call.expressions
    lengths = [micros_of(text, context) for text in texts]
    length, slide, offset = (*lengths, *(lengths[0], 0)[len(lengths) - 1 :])[:3]
    if slide != length or length <= 0:
        raise context.unsupported("a sliding window", call, "use window(ts, '10 minutes'), whose windows do not overlap")
    numbers = [exp.Cast(this=exp.Literal.number(n), to=exp.DataType.build("BIGINT")) for n in (length, offset)]
    return exp.Anonymous(this="window start", expressions=[moment.copy(), *numbers]), length


def micros_of(text: exp.Expr, context: StatementContext) -> int:
    """The length of a window in microseconds."""
    if not isinstance(text, exp.Literal) or not text.is_string:
        raise context.unsupported("a window whose length is not a literal", text, "write window(ts, '10 minutes')")
    parts = list(interval_parts(exp.Interval(this=text.copy()), context))
    if any(part.unit == "MONTH" for part in parts):
        raise context.unsupported("a window of months", text, "group by date_trunc('MONTH', ts)")
    return sum(part.amount * MICROSECONDS[part.unit] for part in parts)


def interval_of_micros(micros: int) -> exp.Expr:
    """An interval of this length."""
    return exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.Var(this="MICROSECOND"))
