"""window(ts, '10 minutes' [, slide [, offset]]): a window is its start, and its end follows from it.

SELECT window.start, count(*) FROM t GROUP BY window(ts, '1 hour')
SELECT window_start(ts, 3600000000, 0), count(*) FROM t GROUP BY window_start(ts, 3600000000, 0)

Windows that overlap are rows of a generator: their starts are a sequence in steps of the slide, which ends with the last window
that has the time:

SELECT w.start, count(*) FROM t LATERAL VIEW explode(sequence(last - 30 minutes, last, 30 minutes)) w AS start GROUP BY w.start
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from rederive.lang.sql.intervals import interval_parts
from rederive.lang.sql.statement_context import StatementContext
from rederive.scalar.sql.calendar_steps import MICROSECONDS

_ENDS = ("start", "end")
_SOURCE: Final = "time window"  # a name that no text can have


def replace_time_windows(node: exp.Select, context: StatementContext) -> exp.Select:
    """The query with the start of each window in its place; where a window is a value, it is a struct of its ends."""
    found = [call for call in node.find_all(exp.Anonymous) if is_call(call, "window") and _is_own(call, node)]
    if not found:
        return node
    if len({call.sql("spark") for call in found}) > 1:
        raise context.unsupported(
            "two different windows in one query", found[1], "group by the start of one of them in a subquery"
        )
    length, slide, offset = _lengths(found[0], context)
    moment = found[0].expressions[0]
    last = exp.Anonymous(this="window start", expressions=[moment.copy(), _bigint(slide), _bigint(offset)])
    start = last if slide == length else exp.column("start", _SOURCE, quoted=True)
    end = exp.Paren(this=exp.Add(this=start.copy(), expression=interval_of_micros(length)))
    copied = node.copy()
    copied.set("expressions", [_named(item) for item in copied.expressions])
    replace_windows(copied, "window", start, end)
    # As in Spark, a row whose time is NULL is in no window.
    copied = copied.where(exp.Not(this=exp.Is(this=moment.copy(), expression=exp.Null())), copy=False)
    if slide == length:
        return copied
    _add_starts(copied, last, slide, -(-length // slide) - 1)
    if length % slide:
        copied = copied.where(exp.GT(this=end.copy(), expression=last_moment(moment)), copy=False)
    return copied


def _add_starts(node: exp.Select, last: exp.Expr, slide: int, others: int) -> None:
    """Join the starts of the windows of each row: the last one and so many before it."""
    first = exp.Paren(this=exp.Sub(this=last.copy(), expression=interval_of_micros(slide * others)))
    starts = exp.Anonymous(this="sequence", expressions=[first, last.copy(), interval_of_micros(slide)])
    alias = exp.TableAlias(this=exp.to_identifier(_SOURCE, quoted=True), columns=[exp.to_identifier("start")])
    generated = exp.Lateral(this=exp.Anonymous(this="explode", expressions=[starts]), view=True, alias=alias)
    node.set("laterals", [*(node.args.get("laterals") or ()), generated])


def last_moment(moment: exp.Expr) -> exp.Expr:
    """The time that a window is about: a timestamp, or the last moment of a window."""
    return exp.Anonymous(this="window moment", expressions=[moment.copy()])


def replace_windows(node: exp.Select, name: str, start: exp.Expr, end: exp.Expr) -> None:
    """Replace the windows of a query: by the start in GROUP BY, by one of their ends, or by a struct of both."""
    grouped = any(is_call(part, name) for part in (node.args.get("group") or exp.Group()).find_all(exp.Anonymous))
    for part in list(node.find_all(exp.Column, exp.Dot, exp.Anonymous)):
        if not _is_own(part, node) or (isinstance(part.parent, exp.Dot) and window_end(part.parent, name) is not None):
            continue
        ends = window_end(part, name)
        if ends is not None:
            part.replace(start.copy() if ends == "start" else end.copy())
        elif is_call(part, name) and isinstance(part.parent, exp.Group):
            part.replace(start.copy())
        elif is_call(part, name) or (grouped and _is_column(part, name)):
            names = [exp.Literal.string(one) for one in _ENDS]
            part.replace(exp.Anonymous(this="named_struct", expressions=[names[0], start.copy(), names[1], end.copy()]))


def is_call(node: exp.Expr, name: str) -> bool:
    """Whether a node calls this function."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == name


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is None and node.name.lower() == name


def _is_own(call: exp.Expr, node: exp.Select) -> bool:
    return call.find_ancestor(exp.Select) is node


def _named(item: exp.Expr) -> exp.Expr:
    """An output that is a window or an end of one keeps its name."""
    end = window_end(item) or ("window" if is_call(item, "window") or _is_column(item, "window") else None)
    return exp.alias_(item.copy(), end) if end is not None else item.copy()


def window_end(part: exp.Expr, name: str = "window") -> str | None:
    """Which end of the window `window.start` or `window(...).start` means; None for other expressions."""
    match part:
        case exp.Column() if part.args.get("table") is not None and part.args["table"].name.lower() == name:
            return part.name.lower() if part.name.lower() in _ENDS else None
        case exp.Dot(this=exp.Anonymous() as call) if call.name.lower() == name:
            return part.expression.name.lower() if part.expression.name.lower() in _ENDS else None
    return None


def _lengths(call: exp.Anonymous, context: StatementContext) -> tuple[int, int, int]:
    """The length of a window, its slide and its offset, in microseconds."""
    if not 2 <= len(call.expressions) <= 4:
        raise context.unsupported("a window with this number of arguments", call, "write window(ts, '10 minutes')")
    lengths = [micros_of(text, context) for text in call.expressions[1:]]
    length, slide, offset = (*lengths, *(lengths[0], 0)[len(lengths) - 1 :])[:3]
    if not 0 < slide <= length or abs(offset) >= slide:
        hint = "write window(ts, '10 minutes', '5 minutes', '1 minute'): the slide is at most the length, the offset less"
        raise context.unsupported("a window with these lengths", call, hint)
    return length, slide, offset


def _bigint(number: int) -> exp.Expr:
    return exp.Cast(this=exp.Literal.number(number), to=exp.DataType.build("BIGINT"))


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
