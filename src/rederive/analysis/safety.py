"""Safety: every variable of a rule gets its values from the rule's own body."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rederive.errors import UnsafeVariable
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Rule, literal_variables
from rederive.ir.terms import Variable, variables


def binders(body: Sequence[Literal]) -> dict[str, Literal]:
    """The literal that binds each bound variable: a positive atom, or else an equation whose other side is bound.

    An equation comes after those that bind its other side, so binders never form a cycle.

    >>> x, y = Variable("x"), Variable("y")
    >>> list(binders((Comparison(Operator.EQ, y, x), Atom("p", (x,)))))
    ['x', 'y']
    """
    bound: dict[str, Literal] = {}
    # Positive atoms have finitely many rows. A negated atom and an inequality hold for infinitely many values: they bind
    # nothing.
    for literal in body:
        if isinstance(literal, Atom):
            for variable in literal_variables(literal):
                bound.setdefault(variable.name, literal)
    waiting = [literal for literal in body if isinstance(literal, Comparison) and literal.operator is Operator.EQ]
    # Equations bind in turn, until none gains a variable.
    while ready := [(literal, name) for literal in waiting for name in _solved(literal, bound)]:
        for literal, name in ready:
            bound.setdefault(name, literal)
    return bound


def _solved(equation: Comparison, bound: dict[str, Literal]) -> Iterable[str]:
    """The unbound variable that is one side alone, where all of the other side is bound."""
    for side, other in ((equation.left, equation.right), (equation.right, equation.left)):
        if isinstance(side, Variable) and side.name not in bound and all(v.name in bound for v in variables(other)):
            yield side.name


def check_safety(rule: Rule) -> None:
    """Raise UnsafeVariable for the first variable, head first, that nothing in the body binds.

    >>> check_safety(Rule(Atom("p", (Variable("x"),)), ()))
    Traceback (most recent call last):
    ...
    rederive.errors.UnsafeVariable: error[unsafe]: nothing binds the variable 'x'
      help: use 'x' in an atom of the body that is not negated, or equate it with something bound
    """
    bound = binders(rule.body)
    # `binders` decides for the whole body at once: the order of literals in the text has no meaning.
    for literal in (rule.head, *rule.body):
        for variable in literal_variables(literal):
            if variable.name not in bound:
                raise _unsafe(variable, negated=isinstance(literal, Negation))


def _unsafe(variable: Variable, *, negated: bool) -> UnsafeVariable:
    if variable.is_anonymous:
        return UnsafeVariable("'_' has no value here", variable.span, hint="'_' may stand only as an argument in a body's atom")
    name = variable.name
    hint = f"use '{name}' in an atom of the body that is not negated, or equate it with something bound"
    if negated:
        hint += "; for 'no value at all' write '_'"
    return UnsafeVariable(f"nothing binds the variable '{name}'", variable.span, hint=hint)
