"""Rule instances: the facts by which one rule, or one aggregate, derives a row.

A body is solved from the row backwards: the head binds variables, each literal in join order is looked up with what is bound,
and every lookup is one read of the engine, which derives views that it does not store for these bindings alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from rederive.analysis.bindings import join_order
from rederive.analysis.types import variable_types
from rederive.delta import sort_rows
from rederive.engines.term_functions import row_function
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Literal, Negation, Operator, Program, Rule
from rederive.ir.terms import Constant, Row, Simple, Term, Value, Variable
from rederive.scalar.datalog.implementations import contains
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import is_match

Binding = Mapping[str, Value]
# The rows of a relation that have these values in these columns.
Read = Callable[[str, Mapping[int, Value]], Collection[Row]]


_VIEW_FANOUT = 1_000.0  # rows that a partly bound lookup of a view is taken to find


@dataclass(frozen=True, slots=True)
class GroundAtom:
    """A row of a relation."""

    relation: str
    row: Row


@dataclass(frozen=True, slots=True)
class RuleInstance:
    """A definition with the facts by which it derives a row. `binding`: the values of a rule's variables."""

    definition: Definition
    facts: tuple[GroundAtom, ...]
    binding: Binding = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class FailedMatch:
    """How far the body of a rule could be satisfied: the literal that failed there, and what was bound before it."""

    depth: int = -1
    literal: Literal | None = None
    binding: Binding = field(default_factory=dict)

    def record(self, depth: int, literal: Literal, binding: Binding) -> None:
        """Keep the failure that came furthest, and of several the first."""
        if depth > self.depth:
            self.depth, self.literal, self.binding = depth, literal, binding


class RuleInstances:
    """Finds the instances of the definitions of a program over one state of its relations."""

    def __init__(self, program: Program, read: Read) -> None:
        self.program = program
        # In order, so that equal questions have equal answers.
        self.read = cache(lambda relation, bound: sort_rows(read(relation, dict(bound))))

    def holds(self, fact: GroundAtom) -> bool:
        """Whether the row is in its relation."""
        return bool(self.rows(fact.relation, dict(enumerate(fact.row))))

    def rows(self, relation: str, bound: Mapping[int, Value]) -> Collection[Row]:
        """The rows of a relation with these values; each lookup is done once."""
        # 1, 1.0 and True are one key for Python, but the columns have types: a value of one column has one type.
        return self.read(relation, tuple(sorted(bound.items())))

    def of(self, fact: GroundAtom) -> Iterator[RuleInstance]:
        """The instances that derive a row; those of rules that read nothing of the row's own relation come first."""
        definitions = self.program.definitions_of(fact.relation)
        for definition in sorted(definitions, key=lambda d: isinstance(d, Rule) and _reads(d, fact.relation)):
            match definition:
                case Rule():
                    yield from self.of_rule(definition, fact.row)
                case Aggregate():
                    yield from self.of_aggregate(definition, fact.row)

    def of_aggregate(self, aggregate: Aggregate, row: Row) -> Iterator[RuleInstance]:
        """The one instance of an aggregate: all rows of the group."""
        group = {column: row[i] for i, column in enumerate(aggregate.group)}
        if rows := self.rows(aggregate.source, group):
            yield RuleInstance(aggregate, tuple(GroundAtom(aggregate.source, member) for member in rows))

    def of_rule(self, rule: Rule, row: Row, failed: FailedMatch | None = None) -> Iterator[RuleInstance]:
        """The instances of one rule that derive a row; `failed` learns how far the body could be satisfied."""
        binding = unify(rule.head.terms, dict(enumerate(row)), {})
        if binding is not None:
            yield from self.solve(rule, binding, failed)

    def solve(self, rule: Rule, binding: Binding, failed: FailedMatch | None = None) -> Iterator[RuleInstance]:
        """The instances of a rule whose variables have these values."""
        # A functor waits until every atom holds: it is never applied to values that no row has.
        fanout = partial(self._fanout, binding)
        steps = [step.literal for step in join_order(rule.body, frozenset(binding), fanout, safe=True)]
        tests = _Tests(variable_types(rule, self.program.relations))
        for found in self._solutions(steps, 0, binding, tests, failed or FailedMatch()):
            yield RuleInstance(rule, facts_of(rule, found), found)

    def _fanout(self, binding: Binding, atom: Atom, columns: tuple[int, ...]) -> float:
        """How many rows an atom matches: counted in a base relation where the row binds the columns, and few where atoms do."""
        bound = bound_columns(atom.terms, binding)
        if len(bound) < len(columns):
            return 1
        # Counting the rows of a view might derive most of it.
        return _VIEW_FANOUT if self.program.is_view(atom.relation) else len(self.rows(atom.relation, bound))

    def _solutions(
        self,
        steps: Sequence[Literal],
        depth: int,
        binding: Binding,
        tests: _Tests,
        failed: FailedMatch,
    ) -> Iterator[Binding]:
        if depth == len(steps):
            yield binding
            return
        literal, is_satisfied = steps[depth], False
        for extended in self._matches(literal, binding, tests):
            is_satisfied = True
            yield from self._solutions(steps, depth + 1, extended, tests, failed)
        if not is_satisfied:
            failed.record(depth, literal, binding)

    def _matches(self, literal: Literal, binding: Binding, tests: _Tests) -> Iterator[Binding]:
        match literal:
            case Atom(relation, terms):
                for row in self.rows(relation, bound_columns(terms, binding)):
                    extended = unify(terms, dict(enumerate(row)), binding)
                    if extended is not None:
                        yield extended
            case Negation(atom):
                if not self.rows(atom.relation, bound_columns(atom.terms, binding)):
                    yield binding
            case Comparison():
                extended = tests.extend(literal, binding)
                if extended is not None:
                    yield extended


def bound_columns(terms: Sequence[Simple], binding: Binding) -> dict[int, Value]:
    """The columns of an atom that hold a constant or a bound variable, with their values."""
    return {
        i: term.value if isinstance(term, Constant) else binding[term.name]
        for i, term in enumerate(terms)
        if isinstance(term, Constant) or term.name in binding
    }


def unify(terms: Sequence[Simple], values: Mapping[int, Value], binding: Binding) -> Binding | None:
    """The binding extended so that the terms have these values in these columns; None where they cannot."""
    extended = dict(binding)
    for i, value in values.items():
        term = terms[i]
        expected = term.value if isinstance(term, Constant) else extended.setdefault(term.name, value)
        if expected != value:
            return None
    return extended


def facts_of(rule: Rule, binding: Binding) -> tuple[GroundAtom, ...]:
    """The atoms of a body whose variables are all bound, as rows, in the order of the body."""
    atoms = (literal for literal in rule.body if isinstance(literal, Atom))
    grounded = ((atom, bound_columns(atom.terms, binding)) for atom in atoms)
    return tuple(GroundAtom(a.relation, tuple(row.values())) for a, row in grounded if len(row) == len(a.terms))


def _reads(rule: Rule, relation: str) -> bool:
    return any(isinstance(literal, Atom) and literal.relation == relation for literal in rule.body)


_ORDERS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.MATCH: is_match,
    Operator.CONTAINS: contains,
    Operator.NOT_MATCH: lambda pattern, text: not is_match(pattern, text),
    Operator.NOT_CONTAINS: lambda needle, text: not contains(needle, text),
}


class _Tests:
    """The comparisons of one rule, evaluated by the functions that the resident engine compiles into its rules."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self.types = types

    def extend(self, test: Comparison, binding: Binding) -> Binding | None:
        """The binding, with the variable that the comparison assigns; None where it does not hold, or cannot be computed."""
        try:
            for side, other in ((test.left, test.right), (test.right, test.left)):
                if isinstance(side, Variable) and side.name not in binding:
                    return {**binding, side.name: self.value(other, binding)}
            left, right = self.value(test.left, binding), self.value(test.right, binding)
        except ScalarError:
            return None
        match test.operator:
            case Operator.EQ:
                holds = left == right
            case Operator.NE:
                holds = left != right
            case other_operator:
                # NULL is not more or less than anything.
                holds = left is not None and right is not None and _ORDERS[other_operator](left, right)
        return binding if holds else None

    def value(self, term: Term, binding: Binding) -> Value:
        """The value of a term."""
        match term:
            case Variable():
                return binding[term.name]
            case Constant():
                return term.value
            case _:
                return row_function(term, list(binding), self.types)(tuple(binding.values()))
