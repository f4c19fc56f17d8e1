"""What a changed program, or changed base relations, can change."""

from __future__ import annotations

from collections.abc import Iterable

from rederive.analysis.graph import edges
from rederive.ir.rules import Program


def changed_relations(before: Program, after: Program) -> set[str]:
    """The relations that one program alone has, and those that both have with another declaration or other definitions."""
    one, rules = before.relations, before.defined
    changed = {name for name in one if name not in after.relations}
    for name, relation in after.relations.items():
        known, was, now = one.get(name), rules.get(name), after.defined.get(name)
        # Programs that follow each other share most objects: few are compared by their values.
        if not ((known is relation or known == relation) and (was is now or was == now)):
            changed.add(name)
    return changed


def affected_relations(before: Program, after: Program, changed: Iterable[str]) -> set[str]:
    """The relations whose rows may differ: changed bases, other definitions, and whatever reads one of these."""
    affected = {name for name in changed_relations(before, after) if name in after.relations}.union(changed)
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
