"""In which order a body is joined, and which columns are bound when each literal is reached.

A functor may fail for some values: a division, a conversion, a sum that overflows. A failure counts only for a binding that every
other literal lets through, so what can fail waits. Sums and the like bind columns by which others are looked up, and seldom fail:
they are computed as soon as they can be, and where one fails, the body is joined once more in an order that is `safe`.

Values that come from a request alone, such as those of a magic relation, are *known* but not *firm*: no row need have them. A
functor is applied to firm values only. The requests are then finite where the relations are: for s(i) :- s(i - 1), e(i) they are
about i - 1 for each i of e, not about all numbers below the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, literal_variables
from rederive.ir.terms import Call, Constant, Term, Variable, variables
from rederive.scalar.datalog.signatures import FUNCTORS, Functor
from rederive.scalar.sql.signatures import SCALARS

Fanout = Callable[[Atom, tuple[int, ...]], float]


@dataclass(frozen=True, slots=True)
class JoinStep:
    """A literal in join order. `bound`: an atom's columns whose values are known when it is reached."""

    literal: Literal
    bound: tuple[int, ...] = ()


def binding_pattern(atom: Atom, known: set[str] | frozenset[str]) -> tuple[int, ...]:
    """The columns that hold a constant or a known variable.

    >>> binding_pattern(Atom("p", (Variable("x"), Variable("y"), Variable("x"))), {"x"})
    (0, 2)
    """
    return tuple(i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term.name in known)


def join_order(
    literals: Sequence[Literal],
    known: frozenset[str],
    fanout: Fanout | None = None,
    *,
    firm: frozenset[str] | None = None,
    safe: bool = False,
) -> tuple[JoinStep, ...]:
    """Order a conjunction, starting from the known variables (those of the changed literal); all of them are firm unless said.

    Next is always: a test or assignment that cannot fail and is bound; then the atom that matches the fewest rows, or, where
    `fanout` is not given, has the fewest free columns; what can fail on some values waits until nothing else is left to rule a
    binding out. In a `safe` order that is true of every functor.
    """
    bound, held = set(known), set(known if firm is None else firm)
    waiting = list(literals)
    steps: list[JoinStep] = []
    while waiting:
        # Free tests first, in one pass: without it, a body of n tests would be ranked n times.
        position = next((i for i, literal in enumerate(waiting) if _is_free(literal, bound, held, safe)), None)
        if position is None:
            position = int(min((*_rank(literal, bound, held, fanout, safe), i) for i, literal in enumerate(waiting))[-1])
        literal = waiting.pop(position)
        steps.append(JoinStep(literal, binding_pattern(literal, bound) if isinstance(literal, Atom) else ()))
        # Negations and tests add nothing new: they are chosen only when their variables are bound. An equation may bind one.
        bound.update(v.name for v in literal_variables(literal))
        held.update(_made_firm(literal, held))
    return tuple(steps)


def _made_firm(literal: Literal, held: set[str]) -> set[str]:
    """The variables whose values a literal vouches for: those of an atom, and one that is equal to something firm."""
    match literal:
        case Atom():
            return {v.name for v in literal_variables(literal)}
        case Comparison(Operator.EQ, left, right):
            sides = ((left, right), (right, left))
            return {a.name for a, b in sides if isinstance(a, Variable) and all(v.name in held for v in variables(b))}
        case _:
            return set()


def _is_free(literal: Literal, bound: set[str], held: set[str], safe: bool) -> bool:
    """Whether a literal has the first rank: a body of thousands of tests is ordered in one pass."""
    return isinstance(literal, Comparison) and _comparison_rank(literal, bound, held, safe) == 0


def _rank(literal: Literal, bound: set[str], held: set[str], fanout: Fanout | None, safe: bool) -> tuple[float, ...]:
    match literal:
        case Comparison():
            return (_comparison_rank(literal, bound, held, safe),)
        case Negation():
            # A negated literal binds nothing, so it comes after the atoms that bind its variables; then it costs one lookup.
            return (1,) if all(v.name in bound for v in literal_variables(literal)) else (9,)
        case Atom():
            columns = binding_pattern(literal, bound)
            free = len(literal.terms) - len(columns)
            if not free:
                return (1,)
            # An atom that shares no variable with what was joined before is a product with it: it comes last among atoms. One
            # that constants select comes before the others of these. Without sizes, as in a request, a constant is as good as
            # a variable: the rows from "a" on are the fewest where a view was specialized for "a".
            connected = any(not isinstance(literal.terms[i], Constant) for i in columns) or (bool(columns) and fanout is None)
            detached = 0 if connected else 1 if columns else 2
            return (2, detached, fanout(literal, columns) if fanout else free, free, -len(columns))


def _comparison_rank(literal: Comparison, bound: set[str], held: set[str], safe: bool) -> int:
    sides = (literal.left, literal.right)
    computed = [v.name for side in sides if isinstance(side, Call) for v in variables(side)]
    if not evaluable(literal, bound) or not held.issuperset(computed):
        # Not yet: what is not bound, or not firm, is chosen only where nothing else is left.
        return 9
    # In a safe order every functor waits behind all atoms and negations; the likely failures come very last.
    if safe and calls_functor(literal):
        return 4 if any(fallible(side, safe=True) for side in sides) else 3
    return 3 if any(map(fallible, sides)) else 0


def evaluable(literal: Comparison, bound: set[str]) -> bool:
    """Whether the bound variables suffice to test the comparison, or to compute the one variable it assigns."""
    left = all(v.name in bound for v in variables(literal.left))
    right = all(v.name in bound for v in variables(literal.right))
    if left and right:
        return True
    assigns = literal.operator is Operator.EQ
    return assigns and ((left and isinstance(literal.right, Variable)) or (right and isinstance(literal.left, Variable)))


def calls_functor(literal: Literal) -> bool:
    """Whether evaluating the literal may fail for some values: a pattern may be malformed, too."""
    if not isinstance(literal, Comparison):
        return False
    return literal.operator in _MATCHING or isinstance(literal.left, Call) or isinstance(literal.right, Call)


_MATCHING = (Operator.MATCH, Operator.NOT_MATCH)


def fallible(term: Term, *, safe: bool = False) -> bool:
    """Whether evaluating the term can fail for some values: division, conversions; in a safe order, whatever may overflow."""
    if not isinstance(term, Call):
        return False
    functor = FUNCTORS[term.functor] if term.gives is None else SCALARS[term.functor]
    fails = functor.fallible or (safe and isinstance(functor, Functor) and functor.overflows)
    return fails or any(fallible(argument, safe=safe) for argument in term.arguments)
