"""What a rule needs for every transaction alike: its join order, the types of its variables, and forms made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rederive.analysis.bindings import JoinStep, join_order
from rederive.analysis.types import variable_types
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Relation, Rule, literal_variables
from rederive.ir.terms import Constant, Type, Variable


@dataclass(eq=False)
class RulePlan:
    """A rule that starts from one place of its body, or from any where `driver` is None.

    `forms`: what evaluates the rule in one of the ways that there are, made at its first use.
    """

    rule: Rule
    driver: int | None
    relations: Mapping[str, Relation]
    forms: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[tuple[int, JoinStep], ...]:
        """The literals in join order, each with its place in the body; the driver is first."""
        places = dict(enumerate(self.rule.body))
        first = [(self.driver, JoinStep(places.pop(self.driver)))] if self.driver is not None else []
        known = frozenset(variable.name for _, step in first for variable in literal_variables(step.literal))
        # Without sizes: broadcast hints and Spark's optimizer choose how each join runs.
        rest = join_order(list(places.values()), known)
        return (*first, *((_take(places, step.literal), step) for step in rest))

    @cached_property
    def order(self) -> tuple[tuple[int, Literal], ...]:
        """The same without what is bound."""
        return tuple((place, step.literal) for place, step in self.steps)

    @cached_property
    def atoms(self) -> tuple[tuple[int, Atom], ...]:
        """The atoms of the body, with their places in it; also those that are negated."""
        found = ((i, one.atom if isinstance(one, Negation) else one) for i, one in enumerate(self.rule.body))
        return tuple((i, atom) for i, atom in found if isinstance(atom, Atom))

    @cached_property
    def types(self) -> Mapping[str, Type]:
        """The types of the variables."""
        return variable_types(self.rule, self.relations)

    @cached_property
    def needed(self) -> frozenset[str]:
        """The variables that the head has, or more than one literal."""
        needed = {term.name for term in self.rule.head.terms if isinstance(term, Variable)}
        seen: set[str] = set()
        for literal in self.rule.body:
            names = {variable.name for variable in literal_variables(literal)}
            needed |= seen & names
            seen |= names
        return frozenset(needed)

    @cached_property
    def computes(self) -> bool:
        """Whether a comparison has a term that is neither a variable nor a constant."""
        terms = (t for one in self.rule.body if isinstance(one, Comparison) for t in (one.left, one.right))
        return not all(isinstance(term, Variable | Constant) for term in terms)


def _take(places: dict[int, Literal], literal: Literal) -> int:
    """The place of a literal, which is used once: the same literal may be in a body twice."""
    place = next(i for i, one in places.items() if one is literal)
    del places[place]
    return place
