"""What maintaining a component will cost, in tuples touched, estimated from sizes and fan-outs.

A rule that starts from one changed row touches about the product of the fan-outs of its other literals, in join order. In a
recursive component every tuple found leads to others: their number is taken as that of one whole entry of the view's index, and
never more than the view has. Evaluating from scratch touches what all rules derive. The estimates need only decide which is
smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from rederive.analysis.bindings import join_order
from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Rule, literal_variables


class Statistics(Protocol):
    """Sizes of relations as they are now."""

    def rows(self, relation: str) -> float:
        """Return the number of rows of a relation."""

    def fanout(self, relation: str, bound: tuple[int, ...]) -> float:
        """Return about how many rows of a relation match a key of the bound columns."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tuples touched: `per_row` for one row that leaves each relation read and one that enters it, `whole` from scratch.

    The incremental cost of a transaction is the sum over its rows.
    """

    per_row: Mapping[str, tuple[float, float]]
    whole: float


INSERTED = 0.3  # of what a deletion costs, about: nothing has to be put back


def estimate(component: Component, statistics: Statistics) -> Estimate:
    """The cost of the component's maintenance, for what it reads from outside."""
    rules = [definition for definition in component.definitions if isinstance(definition, Rule)]
    # Never zero: an empty view still costs a lookup.
    size = max(sum(statistics.rows(name) for name in component.relations), 1.0)
    # In a recursion one new tuple leads to about as many others as the view has under one key.
    spread = max((_entry(name, rules, statistics) for name in component.relations), default=1.0) if component.recursive else 1.0
    per_row: dict[str, float] = {}
    for rule in rules:
        for i, literal in enumerate(rule.body):
            atom = literal.atom if isinstance(literal, Negation) else literal
            # Changes within the component are part of the recursion, which `spread` accounts for.
            if isinstance(atom, Comparison) or atom.relation in component.relations:
                continue
            # No more than the whole view can change, whatever the product of the fan-outs says.
            found = _product([rule.body[j] for j in range(len(rule.body)) if j != i], atom, statistics)
            per_row[atom.relation] = per_row.get(atom.relation, 0.0) + min(1.0 + found * spread, size + found)
    return Estimate(
        {name: (cost, INSERTED * cost) for name, cost in per_row.items()},
        sum(_full(rule, component, statistics) for rule in rules),
    )


def _entry(name: str, rules: Sequence[Rule], statistics: Statistics) -> float:
    arity = next(len(rule.head.terms) for rule in rules if rule.head.relation == name)
    return statistics.fanout(name, tuple(range(arity - 1))) if arity > 1 else 1.0


def _product(rest: Sequence[Literal], start: Atom, statistics: Statistics) -> float:
    known = frozenset(v.name for v in literal_variables(start))
    return _joined(rest, known, statistics)


def _joined(literals: Sequence[Literal], known: frozenset[str], statistics: Statistics) -> float:
    steps = join_order(literals, known, lambda atom, bound: statistics.fanout(atom.relation, bound))
    atoms = ((step.literal, step.bound) for step in steps if isinstance(step.literal, Atom))
    # A literal with all columns bound is a test: it multiplies nothing.
    return prod(statistics.fanout(atom.relation, bound) for atom, bound in atoms if len(bound) < len(atom.terms))


def _full(rule: Rule, component: Component, statistics: Statistics) -> float:
    """All derivations of a rule; a recursive one starts from each tuple of its component once."""
    inside = next((atom for atom in rule.body if isinstance(atom, Atom) and atom.relation in component.relations), None)
    if inside is None:
        return 1.0 + _joined(rule.body, frozenset(), statistics)
    rest = [literal for literal in rule.body if literal is not inside]
    return statistics.rows(inside.relation) * _product(rest, inside, statistics)
