"""ROLLUP, CUBE and GROUPING SETS: the grouping sets that a GROUP BY states."""

from __future__ import annotations

from itertools import product

from sqlglot import exp

_SETS = ("rollup", "cube", "grouping_sets")


def has_grouping_sets(group: exp.Expr) -> bool:
    """Whether a GROUP BY has ROLLUP, CUBE or GROUPING SETS."""
    kinds = exp.Rollup | exp.Cube | exp.GroupingSets
    return any(group.args.get(part) for part in _SETS) or any(isinstance(item, kinds) for item in group.expressions)


def grouping_elements(group: exp.Expr) -> list[list[list[exp.Expr]]]:
    """The elements of a GROUP BY, each as its grouping sets; a plain expression is one set of one."""
    if group.args.get("rollup"):  # GROUP BY a, b WITH ROLLUP
        return [_sets_of(exp.Rollup(expressions=group.expressions))]
    if group.args.get("cube"):
        return [_sets_of(exp.Cube(expressions=group.expressions))]
    if found := group.args.get("grouping_sets"):  # GROUP BY a, b GROUPING SETS (...)
        return [_sets_of(found[0])]
    return [_sets_of(item) for item in group.expressions]


def _sets_of(node: exp.Expr) -> list[list[exp.Expr]]:
    parts = [_members(item) for item in node.expressions]
    match node:
        case exp.Rollup():
            # ROLLUP(a, b) is (a, b), (a), ().
            return [[one for part in parts[:n] for one in part] for n in range(len(parts), -1, -1)]
        case exp.Cube():
            # CUBE(a, b) is every subset: (a, b), (a), (b), ().
            chosen = product((True, False), repeat=len(parts))
            return [[one for part, has in zip(parts, flags, strict=True) if has for one in part] for flags in chosen]
        case exp.GroupingSets():
            return [one for item in node.expressions for one in _sets_of(item)]
    return [_members(node)]


def _members(node: exp.Expr) -> list[exp.Expr]:
    """The expressions of `(a, b)`, `(a)` or `a`."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this if isinstance(node, exp.Paren) else node]
