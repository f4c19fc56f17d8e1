"""What a changed program, or changed base relations, can change."""

from __future__ import annotations

from collections.abc import Iterable

from rederive.analysis.graph import edges
from rederive.ir.rules import Program


def affected_relations(before: Program, after: Program, changed: Iterable[str]) -> set[str]:
    """The relations whose rows may differ: changed bases, other definitions, and whatever reads one of these."""
    affected = set(changed)
    for name, relation in after.relations.items():
        same = before.relations.get(name) == relation and before.definitions_of(name) == after.definitions_of(name)
        if not same:
            affected.add(name)
    growing = True
    # affected(target) :- edge(source, target), affected(source).  To a fixpoint; views that were dropped are not in `after`.
    while growing:
        growing = False
        for definition in after.definitions:
            for edge in edges(definition):
                if edge.source in affected and edge.target not in affected:
                    affected.add(edge.target)
                    growing = True
    return affected
