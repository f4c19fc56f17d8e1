"""Aggregates by affected group: only the groups that a changed source row belongs to are looked at.

For  p(g, result) :- result = f v : { s(g, v, ...) }:

    (G)   p^touched(g) :- s^del(g, ...).      p^touched(g) :- s^ins(g, ...).
    (D)   p^del(g, result) :- p^touched(g), p(g, result).
    (I)   p^ins(g, result) :- p^touched(g), result = f v : { s^new(g, v, ...) }.

A group whose result stays the same appears in neither. Counts and sums are kept for each group and moved by the changed rows
alone; a minimum or maximum looks at its group again only when the row that held it leaves.
"""

from __future__ import annotations

from rederive.analysis.graph import Component
from rederive.maintain.program import Phase, Section, Semantics, State, Strategy


def by_group(component: Component, strategy: Strategy) -> Section:
    """One aggregate, maintained by affected group. Where nothing is kept, a group is folded in both states."""
    states = tuple(State(name) for name in component.relations) if strategy.stored else ()
    return Section(component, strategy, "aggregate: affected groups only", (Phase("groups", Semantics.GROUPS),), states)
