"""Disjunctive normal form of bodies: negation is pushed down to atoms and comparisons, disjunction becomes alternatives."""

from __future__ import annotations

from itertools import product
from typing import Final, TypeAlias

from rederive.errors import Unsupported
from rederive.ir.rules import Operator
from rederive.lang.datalog.syntax import And, Compare, Formula, Or, ParsedAtom, ParsedNegation, Truth

Item: TypeAlias = ParsedAtom | ParsedNegation | Compare | Truth
"""A member of a conjunction. In normal form, a `ParsedNegation` contains an atom."""

# Of one body. Each alternative becomes a rule.
MOST_ALTERNATIVES: Final = 1024

_OPPOSITES: Final = (
    (Operator.EQ, Operator.NE),
    (Operator.LT, Operator.GE),
    (Operator.GT, Operator.LE),
    (Operator.MATCH, Operator.NOT_MATCH),
    (Operator.CONTAINS, Operator.NOT_CONTAINS),
)
INVERSE: Final = {a: b for pair in _OPPOSITES for a, b in (pair, pair[::-1])}


def alternatives(formula: Formula) -> list[tuple[Item, ...]]:
    """The alternatives of a formula: `a, (b ; c)` has `a, b` and `a, c`. What is true is left out."""
    match formula:
        case Truth(True):
            # The empty conjunction is true.
            return [()]
        case ParsedAtom() | Compare() | Truth() | ParsedNegation(ParsedAtom()):
            # `false` stays an item: the alternative exists, and can never hold.
            return [(formula,)]
        case ParsedNegation():
            return alternatives(_negated(formula.part))
        case Or():
            return _limited([items for part in formula.parts for items in alternatives(part)], formula)
        case And():
            return _conjoined(formula)


def _conjoined(formula: And) -> list[tuple[Item, ...]]:
    # Distributing n disjunctions of two parts gives 2^n alternatives: the product is counted before it is built.
    parts = [alternatives(part) for part in formula.parts]
    size = 1
    for part in parts:
        size *= len(part)
        if size > MOST_ALTERNATIVES:
            raise _too_many(formula)
    return [tuple(item for items in choice for item in items) for choice in product(*parts)]


def _limited(found: list[tuple[Item, ...]], formula: Or) -> list[tuple[Item, ...]]:
    if len(found) > MOST_ALTERNATIVES:
        raise _too_many(formula)
    return found


def _too_many(formula: And | Or) -> Unsupported:
    return Unsupported(
        f"not supported: a body with more than {MOST_ALTERNATIVES} alternatives",
        formula.span,
        hint="define a relation for each disjunction",
    )


def _negated(formula: Formula) -> Formula:
    """The complement, by De Morgan's laws. Conditions of Datalog have two truth values."""
    match formula:
        case ParsedAtom():
            return ParsedNegation(formula, formula.span)
        case Compare():
            # !(x < y) is x >= y: two truth values. NULL, which only comes from SQL tables, fulfils neither.
            return Compare(INVERSE[formula.operator], formula.left, formula.right, formula.span)
        case Truth():
            return Truth(not formula.value, formula.span)
        case ParsedNegation():
            return formula.part
        case And():
            return Or(tuple(map(_negated, formula.parts)), formula.span)
        case Or():
            return And(tuple(map(_negated, formula.parts)), formula.span)
