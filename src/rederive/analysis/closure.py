"""Which views are transitive closures, and in which form they are written.

With X, Y and Z tuples of variables, all different and equally many, and steps that do not read p:

    p(X, Y) :- step(X, Y).                       the exit rules
    p(X, Y) :- p(X, Z), step(Z, Y).              left-linear
    p(X, Y) :- step(X, Z), p(Z, Y).              right-linear
    p(X, Y) :- p(X, Z), p(Z, Y).                 non-linear

All three are the least transitive relation that holds the steps. A step may be any conjunction, and there may be several exit
rules: a linear view then repeats each of them in a recursive rule of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Literal, Rule, literal_variables
from rederive.ir.substitute import substitute_variables
from rederive.ir.terms import Constant, Simple, Variable

Half = tuple[Variable, ...]


class Form(Enum):
    """How the recursive rule of a transitive closure is written."""

    LEFT = "left-linear"
    RIGHT = "right-linear"
    NONLINEAR = "non-linear"


@dataclass(frozen=True, slots=True)
class Closure:
    """A view that is the transitive closure of what its exit rules derive.

    `width`: the columns of one half. `middle`: the variables that the recursive rule joins on. `step`: the relation of the
    steps, where the only exit rule is p(X, Y) :- step(X, Y).
    """

    relation: str
    form: Form
    width: int
    middle: Half
    exits: tuple[Rule, ...]
    recursive: tuple[Rule, ...]
    step: str | None


def closure_of(component: Component) -> Closure | None:
    """The component's only view as a transitive closure, or None where its rules are not written as one.

    >>> from rederive.analysis.graph import components
    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl e(x: symbol, y: symbol)  .decl p(x: symbol, y: symbol)
    ...     p(x, y) :- e(x, y).  p(x, y) :- p(x, z), p(z, y).
    ... ''')
    >>> found = closure_of(components(program)[0])
    >>> found.form.value, found.step
    ('non-linear', 'e')
    """
    name, *others = component.relations
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    if others or len(rules) < len(component.definitions):
        return None
    # Exit rules do not read p, so what they derive is a fixed set of steps.
    exits = tuple(rule for rule in rules if not _reads(rule, name))
    recursive = tuple(rule for rule in rules if _reads(rule, name))
    found = [_recursion(rule) for rule in recursive]
    # All recursive rules must have one form and one width; each linear one then repeats the step of an exit rule.
    shapes = {(one.form, len(one.middle)) for one in found if one is not None}
    if not exits or None in found or len(shapes) != 1:
        return None
    ((form, width),) = shapes
    # A linear rule names its steps itself; they must be those of the exit rules, up to names of variables. A non-linear rule
    # composes p with itself, whatever its steps are.
    if form is not Form.NONLINEAR and _shapes(exits) != _shapes(tuple(one.step for one in found if one and one.step)):
        return None
    middle = next(one.middle for one in found if one is not None)
    return Closure(name, form, width, middle, exits, recursive, _plain_step(exits))


@dataclass(frozen=True, slots=True)
class ClosureFrom:
    """A view that is the part of a transitive closure with one start: what `push_constants` makes of `p("c", y)`."""

    relation: str
    start: Constant
    step: str


def closure_from(component: Component) -> ClosureFrom | None:
    """The component's only view as the ends from one start, or None where its rules are not written as that.

        p(c, y) :- step(c, y).        p(c, y) :- p(c, z), step(z, y).

    >>> from rederive.analysis.graph import components
    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl e(x: symbol, y: symbol)  .decl p(x: symbol, y: symbol)
    ...     p("a", y) :- e("a", y).  p("a", y) :- p("a", z), e(z, y).
    ... ''')
    >>> closure_from(components(program)[0]).start.value
    'a'
    """
    name, *others = component.relations
    rules = sorted((d for d in component.definitions if isinstance(d, Rule)), key=lambda rule: len(rule.body))
    if others or len(component.definitions) != 2 or [len(rule.body) for rule in rules] != [1, 2]:
        return None
    exit_, recursive = rules
    match exit_.head.terms, exit_.body:
        case (Constant() as start, Variable() as y), (Atom(step, terms),) if terms == (start, y) and step != name:
            pass
        case _:
            return None
    atoms = {literal.relation: literal.terms for literal in recursive.body if isinstance(literal, Atom)}
    match recursive.head.terms, atoms.get(name), atoms.get(step):
        case (first, Variable() as end), (second, Variable() as middle), (third, fourth) if first == second == start:
            is_step = third == middle and fourth == end and middle != end
            return ClosureFrom(name, start, step) if is_step else None
        case _:
            return None


def _reads(rule: Rule, name: str) -> bool:
    return any(isinstance(literal, Atom) and literal.relation == name for literal in rule.body)


@dataclass(frozen=True, slots=True)
class _Recursion:
    """A recursive rule of a closure; the step of a linear one is a rule of its own."""

    form: Form
    middle: Half
    step: Rule | None


def _recursion(rule: Rule) -> _Recursion | None:
    halves = _halves(rule.head)
    if halves is None:
        return None
    first, last = halves
    own = [literal for literal in rule.body if isinstance(literal, Atom) and literal.relation == rule.head.relation]
    rest = tuple(literal for literal in rule.body if literal not in own)
    match own:
        # Any other literal would restrict which pairs compose, and the result need not be transitive.
        case [one, two] if not rest:
            return _nonlinear(first, last, one, two) or _nonlinear(first, last, two, one)
        case [atom]:
            return _linear(rule, first, last, atom, rest)
        case _:
            return None


def _nonlinear(first: Half, last: Half, one: Atom, two: Atom) -> _Recursion | None:
    """p(X, Z), p(Z, Y)."""
    middle = _different(one.terms[len(first) :], (*first, *last))
    # Z occurs in both atoms and nowhere else: composition, without a further condition.
    if middle is None or one.terms != (*first, *middle) or two.terms != (*middle, *last):
        return None
    return _Recursion(Form.NONLINEAR, middle, None)


def _linear(rule: Rule, first: Half, last: Half, atom: Atom, rest: tuple[Literal, ...]) -> _Recursion | None:
    """p(X, Z), step(Z, Y) or step(X, Z), p(Z, Y). The step must not read the half that p hands to the head as it is."""
    begins, ends = atom.terms[: len(first)], atom.terms[len(first) :]
    read = {v for literal in rest for v in literal_variables(literal)}
    # With X untouched, p(X, _) holds all ends from X: the step depends on Z and Y alone.
    if begins == first and read.isdisjoint(first):
        form, middle, pair = Form.LEFT, _different(ends, (*first, *last)), (*ends, *last)
    elif ends == last and read.isdisjoint(last):
        form, middle, pair = Form.RIGHT, _different(begins, (*first, *last)), (*first, *begins)
    else:
        return None
    return _Recursion(form, middle, Rule(Atom(atom.relation, pair), rest, rule.span)) if middle is not None else None


def _halves(head: Atom) -> tuple[Half, Half] | None:
    """A head's columns as X and Y, where they are different variables and as many on either side."""
    width = len(head.terms) // 2
    whole = _different(head.terms, ())
    return (whole[:width], whole[width:]) if whole and len(whole) == 2 * width else None


def _different(terms: tuple[Simple, ...], others: Half) -> Half | None:
    """The terms as variables, where they are that, different from one another and from the others."""
    found = tuple(term for term in terms if isinstance(term, Variable) and term not in others)
    # A variable that repeats, or a constant, would be a selection on the pairs.
    return found if len(set(found)) == len(terms) else None


def _shapes(rules: tuple[Rule, ...]) -> frozenset[Rule]:
    """The rules without the names of their variables."""
    return frozenset(map(_shape, rules))


def _shape(rule: Rule) -> Rule:
    # Variables numbered by their first occurrence: equal rules up to renaming become equal.
    names = dict.fromkeys(v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal))
    return substitute_variables(rule, {name: Variable(f"v{i}") for i, name in enumerate(names)})


def _plain_step(exits: tuple[Rule, ...]) -> str | None:
    match exits:
        case (Rule(head, (Atom(relation, terms),)),) if terms == head.terms and _different(terms, ()):
            return relation
        case _:
            return None
