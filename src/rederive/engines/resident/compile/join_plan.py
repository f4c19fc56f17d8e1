"""How a rule will be run: in which order its body is joined, and what is done with whole bitmaps.

The *bulk* variable is the head's last one where it can stay a bitmap to the end: every literal that holds it is an atom (or a
`!=`) whose other variables the rest of the body binds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf, prod

from rederive.analysis.bindings import Fanout, JoinStep, binding_pattern, calls_functor, evaluable, join_order
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Rule, literal_variables
from rederive.ir.terms import Call, Variable


@dataclass(frozen=True, slots=True)
class Plan:
    """A body in join order. `tail`: the literals that hold the bulk variable, applied when all else is bound.

    `meets`: the last variable to bind joins two atoms and is used nowhere else.
    """

    start: Atom | None
    steps: tuple[JoinStep, ...]
    bulk: str | None = None
    tail: tuple[Literal, ...] = ()
    meets: tuple[Atom, Atom] | None = None


def preserves_leaf(rule: Rule, driver: int) -> bool:
    """Whether the driver's bitmap passes through to the head: where its rows flow then depends on its key alone.

    Not where a functor may fail, or make keys without end, for rows that the rest of the body rules out.
    """
    if any(map(calls_functor, rule.body)):
        return False
    # Without sizes: whether a leaf passes through is a matter of the rule's shape alone.
    plan = plan_rule(rule, driver, None, sets=True)
    return plan.bulk is not None and plan.start is not None and Variable(plan.bulk) in plan.start.terms


def plan_rule(rule: Rule, driver: int | None, fanout: Fanout | None, sets: bool, *, safe: bool = False) -> Plan:
    """Join order, with a bulk variable where the rule allows one and the order need not be safe."""
    start = rule.body[driver] if driver is not None else None
    assert start is None or isinstance(start, Atom)
    rest = tuple(literal for i, literal in enumerate(rule.body) if i != driver)
    known = frozenset(v.name for v in literal_variables(start)) if start else frozenset[str]()
    # The scalar plan binds every variable in a loop; it is also what counts derivations, one for each binding.
    scalar = Plan(start, join_order(rest, known, fanout, safe=safe))
    if not sets or safe:
        return scalar
    scalar = _meeting(rule, scalar, fanout)
    bulk = _bulk_plan(rule.head, start, rest, fanout)
    # For the same leaf, the scalar plan loops over the driver's values, the bulk plan over none of them.
    if bulk is None or (scalar.meets and fanout and _loops(scalar, fanout) < _loops(bulk, fanout)):
        return scalar
    return bulk


DRIVER_LEAF = 16.0  # rows in one leaf of a change, about


def _loops(plan: Plan, fanout: Fanout) -> float:
    """How often the innermost step of a plan runs for one leaf of the driver, about."""
    atoms = ((step.literal, step.bound) for step in plan.steps if isinstance(step.literal, Atom))
    turns = [fanout(atom, bound) for atom, bound in atoms if len(bound) < len(atom.terms)]
    return prod(turns) * (1.0 if plan.bulk else DRIVER_LEAF)


def _meeting(rule: Rule, plan: Plan, fanout: Fanout | None) -> Plan:
    """Let the last two atoms of a scalar plan meet, where one binds a variable that only the other needs.

    Not where the other cannot be looked up by its other columns: its fan-out is then infinite.
    """
    match plan.steps:
        case (*before, JoinStep(Atom() as one, bound), JoinStep(Atom() as two)) if len(bound) == len(one.terms) - 1:
            (variable,) = (term for i, term in enumerate(one.terms) if i not in bound)
            # The variable occurs in these two atoms and nowhere else, so one common value is as good as all.
            everywhere = [v for literal in (rule.head, *rule.body) for v in literal_variables(literal)]
            once_each = two.terms.count(variable) == 1 and everywhere.count(variable) == 2  # type: ignore[arg-type]
            known = tuple(i for i, term in enumerate(two.terms) if term != variable)
            if fanout is not None and isinf(fanout(two, known)):
                return plan
            if once_each and all(v == variable or _bound_before(v, plan.start, before) for v in literal_variables(two)):
                return Plan(plan.start, tuple(before), meets=(one, two))
    return plan


def _bound_before(variable: Variable, start: Atom | None, steps: Sequence[JoinStep]) -> bool:
    literals = [step.literal for step in steps] + ([start] if start else [])
    return any(variable in literal_variables(literal) for literal in literals)


def _bulk_plan(head: Atom, start: Atom | None, rest: Sequence[Literal], fanout: Fanout | None) -> Plan | None:
    last = head.terms[-1] if head.terms else None
    # A bitmap holds the values of one variable in the head's last column, independent of the key's columns.
    if not isinstance(last, Variable) or last in head.terms[:-1]:
        return None
    tail = tuple(literal for literal in rest if last in literal_variables(literal))
    if not all(_holds_once(literal, last) for literal in tail):
        return None
    in_tail = set(tail)
    others = [literal for literal in rest if literal not in in_tail]
    first = start
    if start is None:
        first = next((s.literal for s in join_order(rest, frozenset(), fanout) if isinstance(s.literal, Atom)), None)
        if first is None:
            return None
        others = [literal for literal in others if literal is not first]
        tail = tuple(literal for literal in tail if literal is not first)
    assert first is not None
    # The leaf of the first atom is a bitmap of its last column, so the bulk variable may be there and nowhere else.
    if last in first.terms[:-1] or first.terms.count(last) > 1:
        return None
    constants = binding_pattern(first, frozenset())
    if start is None and last in first.terms and constants and len(constants) < len(first.terms) - 1:
        return None  # an index on the constants holds the rest of the rows as tuples
    known = frozenset(v.name for v in literal_variables(first)) - {last.name}
    steps = join_order(others, known, fanout)
    bound = _bound_by(steps, known)
    needed = {v.name for literal in tail for v in literal_variables(literal)} - {last.name}
    # Negations and tests only take values away: some atom must give the bitmap first.
    positive = last in first.terms or any(isinstance(literal, Atom) for literal in tail)
    if bound is None or not positive or not needed <= bound:
        return None
    if start is None:
        steps = (JoinStep(first, constants), *steps)
    # Atoms before negations and tests: the first atom may be where the bitmap comes from.
    return Plan(start, steps, last.name, tuple(sorted(tail, key=lambda literal: not isinstance(literal, Atom))))


def _bound_by(steps: Sequence[JoinStep], known: frozenset[str]) -> set[str] | None:
    """The variables that the steps bind, or None where one of them is reached unbound, as a product or an open test."""
    bound = set(known)
    for step in steps:
        match step.literal:
            # A product of unrelated atoms would repeat the bitmap operation for each of its rows.
            case Atom(_, terms) if terms and not step.bound:
                return None
            case Negation() as negation if not all(v.name in bound for v in literal_variables(negation)):
                return None
            case Comparison() as comparison if not evaluable(comparison, bound):
                return None
        bound.update(v.name for v in literal_variables(step.literal))
    return bound


def _holds_once(literal: Literal, variable: Variable) -> bool:
    """Whether a bitmap can hold the variable's values: in an atom, or in `!=` against something simple."""
    match literal:
        case Atom() | Negation():
            return literal_variables(literal).count(variable) == 1
        # Codes are equal where values are, so != is a subtraction of one code; other tests need the values.
        case Comparison(Operator.NE, left, right):
            return not isinstance(left, Call) and not isinstance(right, Call) and left != right
        case Comparison():
            return False
