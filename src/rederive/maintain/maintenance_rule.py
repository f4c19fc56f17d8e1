"""One rule of a maintenance program, and the literals that strategies build such rules from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Comparison, Literal, Negation, Relation, Rule, Variant
from rederive.ir.terms import Variable


@dataclass(frozen=True, slots=True)
class MaintenanceRule:
    """A rule with its label in the papers and its drivers: the body positions that a join starts from.

    A driver of None leaves the join order free. `origin` is the rule of the view that this one is made from. `filter` is a state
    of the head that must not hold: an engine tests it once for each row that the body finds, not in every join.
    """

    label: str
    rule: Rule
    drivers: tuple[int | None, ...]
    origin: Rule | None = None
    filter: Variant | None = None

    @property
    def whole(self) -> Rule:
        """The rule with its filter as the last literal, as `explain` prints it."""
        if self.filter is None:
            return self.rule
        # p^del :- ..., !p^new.  The filter is part of the rule; only where it is tested differs.
        unless = Negation(self.rule.head.as_variant(self.filter))
        return replace(self.rule, body=(*self.rule.body, unless))


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate over one state of its source: `into` is the variant of the view that receives the results.

    `source`: the rule that derives all rows of the source in that state, where they are not stored and one rule does it.
    """

    aggregate: Aggregate
    state: Variant
    into: Variant
    source: MaintenanceRule | None = None

    @property
    def definition(self) -> Aggregate:
        """The aggregate over relations that are named with their variants, as `explain` prints it."""
        return replace(
            self.aggregate,
            relation=Atom(self.aggregate.relation, (), self.into).name,
            source=Atom(self.aggregate.source, (), self.state).name,
        )


@dataclass(frozen=True, slots=True)
class State:
    """The law of a new state: `relation^new = (relation - relation^gone) + relation^came...`. It is read, never stored."""

    relation: str
    gone: Variant = Variant.DEL
    came: tuple[Variant, ...] = (Variant.INS,)


def state_rules(state: State, relation: Relation) -> tuple[MaintenanceRule, ...]:
    """(N1) p^new :- p, !p^del.  (N2), (N3) p^new :- p^red.  p^new :- p^ins."""
    new = canonical(relation, Variant.NEW)
    # p^del may overlap with p^red and p^ins: (N2) and (N3) put such rows back.
    remaining = Rule(new, (canonical(relation), Negation(canonical(relation, state.gone))))
    entering = (Rule(new, (canonical(relation, variant),)) for variant in state.came)
    return tuple(MaintenanceRule(f"N{i}", rule, (0,)) for i, rule in enumerate((remaining, *entering), 1))


def canonical(relation: Relation, variant: Variant = Variant.OLD) -> Atom:
    """The relation's atom with a variable for each column, named after it."""
    # Column names are distinct within a relation, so the variables are.
    return Atom(relation.name, tuple(Variable(column.name) for column in relation.columns), variant)


def in_state(literals: Iterable[Literal], state: Variant) -> tuple[Literal, ...]:
    """The same literals over one state of their relations; negations and comparisons stay."""
    return tuple(_in_state(literal, state) for literal in literals)


def _in_state(literal: Literal, state: Variant) -> Literal:
    match literal:
        case Atom():
            return literal.as_variant(state)
        case Negation(atom):
            return Negation(atom.as_variant(state))
        # A comparison reads no relation, so it is the same in every state.
        case Comparison():
            return literal


def positions_in(component: Component, body: Sequence[Literal]) -> tuple[int, ...]:
    """The body positions that read relations of the component: a recursive rule starts from each tuple that these gain."""
    # Only positive atoms: within a component nothing is negated, as the program is stratified.
    return tuple(i for i, literal in enumerate(body) if isinstance(literal, Atom) and literal.relation in component.relations)
