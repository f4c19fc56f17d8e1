"""Conditions of WHERE, ON and HAVING, conjunct by conjunct. An equality of columns becomes a shared variable.

A row is kept if the condition is true. It is dropped if the condition is false, and also if it is NULL: so a comparison needs a
null test of each nullable side, and NOT cannot be pushed into a comparison without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from rederive.ir.rules import Comparison, Operator
from rederive.ir.terms import Call, Constant
from rederive.lang.sql.expressions import COMPARISONS, ExpressionLowering
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.temporal_filters import require_by_time
from rederive.lang.sql.types import BOOL

_OPERATORS: Final = {
    "<>": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
}


def require(node: exp.Expr, lower: ExpressionLowering) -> None:
    """Keep the bindings for which a condition is true. Subqueries come last: by then, the body binds their outer variables."""
    parts = list(conjuncts(node))
    for part in sorted(parts, key=lambda part: part.find(exp.Query) is not None):
        _require(part, lower)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that must all be true."""
    match node:
        case exp.Paren():
            yield from conjuncts(node.this)
        case exp.And():
            for part in node.flatten():
                yield from conjuncts(part)
        case exp.Not(this=exp.Paren() as inner):
            yield from conjuncts(exp.Not(this=inner.this))
        case exp.Not(this=exp.Not() as inner):
            yield from conjuncts(inner.this)
        # De Morgan's laws hold in three-valued logic: NOT (a OR b) is true exactly if NOT a and NOT b are.
        case exp.Not(this=exp.Or() as inner):
            yield from conjuncts(exp.Not(this=inner.left))
            yield from conjuncts(exp.Not(this=inner.right))
        case exp.Or():
            yield from _factored(node)
        case exp.Between():
            yield exp.GTE(this=node.this, expression=node.args["low"])
            yield exp.LTE(this=node.this, expression=node.args["high"])
        case _:
            yield node


def _factored(node: exp.Or) -> Iterator[exp.Expr]:
    """(a AND b) OR (a AND c) is a AND (b OR c), also in three-valued logic: the common part can become a join."""
    branches = [list(conjuncts(branch)) for branch in node.flatten()]
    texts = [[part.sql() for part in branch] for branch in branches]
    shared = [text for text in dict.fromkeys(texts[0]) if all(text in others for others in texts[1:])]
    if not shared:
        yield node
        return
    yield from (next(part for part in branches[0] if part.sql() == text) for text in shared)
    # Absorption: a OR (a AND b) is a, so a branch without a rest leaves the shared part alone.
    rest = [[part for part in branch if part.sql() not in shared] for branch in branches]
    if all(rest):
        yield exp.or_(*(exp.and_(*branch, copy=False) for branch in rest), copy=False)


def _require(node: exp.Expr, lower: ExpressionLowering) -> None:
    body = lower.scope.body
    match node:
        case exp.Exists() | exp.In(args={"query": exp.Expr()}):
            lower.subqueries.require(node, lower, positive=True)
        case exp.Not(this=exp.Exists() | exp.In(args={"query": exp.Expr()}) as inner):
            lower.subqueries.require(inner, lower, positive=False)
        case exp.Boolean(this=True):
            pass
        case exp.Not(this=exp.Is(expression=exp.Null()) as inner):
            _not_null(lower.lower(inner.this), lower)
        case exp.Is(expression=exp.Null()):
            _null(lower.lower(node.this), lower)
        case exp.EQ():
            one, two = lower.to_common_type([lower.lower(node.this), lower.lower(node.expression)], node)
            if not require_by_time(Operator.EQ, one, two, lower):
                require_equal(one, two, lower, node)
        case _ if type(node) in COMPARISONS and COMPARISONS[type(node)] in _OPERATORS:
            _compared(COMPARISONS[type(node)], node, lower)
        case _:
            body.require(lower.boolean(node))


def require_equal(one: TypedTerm, two: TypedTerm, lower: ExpressionLowering, node: exp.Expr) -> None:
    """Keep the bindings for which `one = two` is true: both become one variable, which is not NULL."""
    body = lower.scope.body
    sides = lower.to_common_type([one, two], node)
    lower.check_comparable(sides[0].type, node)
    left, right = (body.assign(side, "value") for side in sides)
    body.equate(left, right)


def _compared(name: str, node: exp.Expr, lower: ExpressionLowering) -> None:
    body = lower.scope.body
    sides = lower.to_common_type([lower.lower(node.this), lower.lower(node.expression)], node)
    lower.check_comparable(sides[0].type, node)
    if require_by_time(_OPERATORS[name], sides[0], sides[1], lower):
        return
    # A comparison of rules takes NULL for a value. A computed side that may be NULL is compared by the scalar function instead,
    # which gives NULL.
    if any(side.nullable and isinstance(side.term, Call) for side in sides):
        body.require(lower.call(name, sides, BOOL))
        return
    for side in sides:
        body.require_not_null(side)
    body.add(Comparison(_OPERATORS[name], sides[0].term, sides[1].term))


def _not_null(typed: TypedTerm, lower: ExpressionLowering) -> None:
    if isinstance(typed.term, Call):
        lower.scope.body.require(lower.call("is not null", [typed], BOOL, nullable=False))
    else:
        lower.scope.body.require_not_null(typed)


def _null(typed: TypedTerm, lower: ExpressionLowering) -> None:
    body = lower.scope.body
    if isinstance(typed.term, Call):
        body.require(lower.call("is null", [typed], BOOL, nullable=False))
    elif not typed.nullable:
        body.fail()
    else:
        # NULL is a value of the IR, and `=` of rules is identity: this is true exactly if the term is NULL.
        body.add(Comparison(Operator.EQ, typed.term, Constant(None, typed.type.type)))
