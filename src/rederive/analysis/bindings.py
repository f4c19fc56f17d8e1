"""In which order a body is joined, and which columns are bound when each literal is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rederive.ir.functors import FUNCTORS
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, literal_variables
from rederive.ir.scalars import SCALARS
from rederive.ir.terms import Call, Constant, Term, Variable, variables

Fanout = Callable[[Atom, tuple[int, ...]], float]


@dataclass(frozen=True, slots=True)
class Step:
    """A literal in join order. `bound`: an atom's columns whose values are known when it is reached."""

    literal: Literal
    bound: tuple[int, ...] = ()


def binding_pattern(atom: Atom, known: set[str] | frozenset[str]) -> tuple[int, ...]:
    """The columns that hold a constant or a known variable.

    >>> binding_pattern(Atom("p", (Variable("x"), Variable("y"), Variable("x"))), {"x"})
    (0, 2)
    """
    return tuple(i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term.name in known)


def join_order(literals: Sequence[Literal], known: frozenset[str], fanout: Fanout | None = None) -> tuple[Step, ...]:
    """Order a conjunction, starting from the known variables (those of the changed literal).

    Next is always: a test or assignment that cannot fail and is bound; then the atom that matches the fewest rows, or, where
    `fanout` does not tell, has the fewest free columns; what can fail on some values waits until nothing else is left to rule a
    binding out.
    """
    bound = set(known)
    waiting = list(literals)
    steps: list[Step] = []
    while waiting:
        position = next((i for i, literal in enumerate(waiting) if _is_free(literal, bound)), None)
        if position is None:
            position = min(enumerate(waiting), key=lambda entry: (*_rank(entry[1], bound, fanout), entry[0]))[0]
        literal = waiting.pop(position)
        steps.append(Step(literal, binding_pattern(literal, bound) if isinstance(literal, Atom) else ()))
        bound.update(v.name for v in literal_variables(literal))
    return tuple(steps)


def _is_free(literal: Literal, bound: set[str]) -> bool:
    """Whether a literal has the first rank: a body of thousands of tests is ordered in one pass."""
    return isinstance(literal, Comparison) and _rank(literal, bound, None) == (0,)


def _rank(literal: Literal, bound: set[str], fanout: Fanout | None) -> tuple[float, ...]:
    match literal:
        case Comparison():
            if not evaluable(literal, bound):
                return (9,)
            return (3,) if fallible(literal.left) or fallible(literal.right) else (0,)
        case Negation():
            return (1,) if all(v.name in bound for v in literal_variables(literal)) else (9,)
        case Atom():
            columns = binding_pattern(literal, bound)
            free = len(literal.terms) - len(columns)
            if not free:
                return (1,)
            return (2, not columns, fanout(literal, columns) if fanout else free, free, -len(columns))


def evaluable(literal: Comparison, bound: set[str]) -> bool:
    """Whether the bound variables suffice to test the comparison, or to compute the one variable it assigns."""
    left = all(v.name in bound for v in variables(literal.left))
    right = all(v.name in bound for v in variables(literal.right))
    if left and right:
        return True
    assigns = literal.operator is Operator.EQ
    return assigns and ((left and isinstance(literal.right, Variable)) or (right and isinstance(literal.left, Variable)))


def fallible(term: Term) -> bool:
    """Whether evaluating the term can fail for some values: division, conversions."""
    if not isinstance(term, Call):
        return False
    fails = FUNCTORS[term.functor].fallible if term.gives is None else SCALARS[term.functor].fallible
    return fails or any(map(fallible, term.arguments))
