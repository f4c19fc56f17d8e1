"""session_window(ts, '10 minutes') in GROUP BY: rows of a group whose times are at most a gap apart are one session.

A time is the first of its session if the time before it is more than the gap ago. The start of the session of a row is the
latest such time up to it, and its end is the gap after its last time:

    first = CASE WHEN lag(ts) OVER w IS NULL OR ts > lag(ts) OVER w + gap THEN ts END
    start = max(first) OVER w          w: PARTITION BY the other groups ORDER BY ts
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.time_windows import interval_of_micros, is_call, micros_of, replace_windows, window_end
from rederive.lang.sql.types import MOMENT
from rederive.lang.sql.windows import lower_windows

_SOURCE: Final = "session window"  # a name that no text can have


def lower_session_windows(node: exp.Select, lower: ExpressionLowering) -> exp.Select:
    """The query with the start of each session in the place of its window; the scope gets the start as a column."""
    found = [
        call
        for call in node.find_all(exp.Anonymous)
        if is_call(call, "session_window") and call.find_ancestor(exp.Select) is node
    ]
    group = node.args.get("group")
    if not found:
        return node
    context = lower.context
    if group is None or len({call.sql("spark") for call in found}) > 1 or any(group.args.get(p) for p in ("rollup", "cube")):
        raise context.unsupported("this use of session_window", found[0], "write one GROUP BY session_window(ts, '10 minutes')")
    if len(found[0].expressions) != 2:
        raise context.unsupported(
            "session_window with this number of arguments", found[0], "write session_window(ts, '5 minutes')"
        )
    if (micros := micros_of(found[0].expressions[1], context)) <= 0:
        raise context.unsupported("a session_window whose gap is not positive", found[0], "write session_window(ts, '5 minutes')")
    gap = interval_of_micros(micros)
    moment = _bind("moment", lower.cast(lower.lower(found[0].expressions[0]), MOMENT, found[0]), lower)
    others = [part.copy() for part in group.expressions if not is_call(part, "session_window")]

    def over(call: exp.Expr) -> exp.Window:
        order = exp.Order(expressions=[exp.Ordered(this=moment.copy(), nulls_first=True)])
        return exp.Window(this=call, partition_by=[part.copy() for part in others], order=order, over="OVER")

    before = over(exp.Anonymous(this="lag", expressions=[moment.copy()]))
    is_late = exp.GT(this=moment.copy(), expression=exp.Add(this=before.copy(), expression=gap.copy()))
    is_first = exp.Or(this=exp.Is(this=before.copy(), expression=exp.Null()), expression=is_late)
    first = exp.Case(ifs=[exp.If(this=is_first, true=moment.copy())])
    seen = _bind("first", lower_windows(exp.Select(expressions=[before]), lower, context).lower(first), lower)
    latest = over(exp.Anonymous(this="max", expressions=[seen]))
    start = _bind("start", lower_windows(exp.Select(expressions=[latest]), lower, context).lower(latest), lower)
    end = exp.Paren(this=exp.Add(this=exp.Anonymous(this="max", expressions=[moment.copy()]), expression=gap))

    copied = node.copy()
    copied.set("expressions", [_named(item) for item in copied.expressions])
    replace_windows(copied, "session_window", start, end)
    return copied


def _named(item: exp.Expr) -> exp.Expr:
    ends = window_end(item, "session_window") or ("session_window" if is_call(item, "session_window") else None)
    return exp.alias_(item.copy(), ends) if ends is not None else item


def _bind(name: str, typed: TypedTerm, lower: ExpressionLowering) -> exp.Column:
    """A value as a column of the scope. As in Spark, a row whose time is NULL is in no window."""
    body = lower.scope.body
    typed = body.assign(typed, name)
    if name == "moment":
        body.require_not_null(typed)
    lower.scope.bind(f"{_SOURCE} {name}", [(name, typed)])
    return exp.column(name, f"{_SOURCE} {name}", quoted=True)
