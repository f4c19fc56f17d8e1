"""Row values and lists of patterns, written as plain comparisons when a statement is parsed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp


def expand_row_values(tree: exp.Expr) -> exp.Expr:
    """The statement in which `(a, b) = (1, 2)`, `(a, b) IN ((1, 2), ...)` and `LIKE ANY (...)` are conditions of their parts.

    >>> from sqlglot import parse_one
    >>> expand_row_values(parse_one("(a, b) IN ((1, 2), (3, 4))", dialect="spark")).sql()
    '((a IS NOT DISTINCT FROM 1 AND b IS NOT DISTINCT FROM 2) OR (a IS NOT DISTINCT FROM 3 AND b IS NOT DISTINCT FROM 4))'
    """
    return tree.transform(_expand, copy=False)


def _expand(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.In(this=exp.Tuple() as row) if node.expressions and all(_fits(row, other) for other in node.expressions):
            return _joined([_equal(row, other) for other in node.expressions], exp.Or)
        case exp.EQ(this=exp.Tuple() as row, expression=exp.Tuple() as other) if _fits(row, other):
            return _equal(row, other)
        case exp.NEQ(this=exp.Tuple() as row, expression=exp.Tuple() as other) if _fits(row, other):
            return exp.Not(this=_equal(row, other))
        case exp.Like(expression=exp.Any() | exp.All() as patterns) | exp.ILike(expression=exp.Any() | exp.All() as patterns):
            return _patterns(node, patterns)
    return node


def _fits(row: exp.Expr, other: exp.Expr) -> bool:
    return isinstance(other, exp.Tuple) and len(other.expressions) == len(row.expressions)


def _equal(row: exp.Expr, other: exp.Expr) -> exp.Expr:
    # Spark compares row values as structs, in which NULL equals NULL.
    pairs = zip(row.expressions, other.expressions, strict=True)
    return _joined([exp.NullSafeEQ(this=one.copy(), expression=two.copy()) for one, two in pairs], exp.And)


def _patterns(node: exp.Expr, patterns: exp.Expr) -> exp.Expr:
    inner = patterns.this
    found = inner.expressions if isinstance(inner, exp.Tuple) else [inner.this if isinstance(inner, exp.Paren) else inner]
    tests = [type(node)(this=node.this.copy(), expression=pattern, negate=node.args.get("negate")) for pattern in found]
    return _joined(tests, exp.Or if isinstance(patterns, exp.Any) else exp.And)


def _joined(parts: Sequence[exp.Expr], kind: type[exp.Connector]) -> exp.Expr:
    found = parts[0]
    for part in parts[1:]:
        found = kind(this=found, expression=part)
    return exp.Paren(this=found)
