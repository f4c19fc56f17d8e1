"""Dependencies as a user knows them: between declared relations, through the auxiliary ones that lowering adds."""

from __future__ import annotations

from collections.abc import Mapping

from rederive.analysis.graph import edges
from rederive.ir.rules import Program


def bag_owners(program: Program) -> dict[str, str]:
    """For each relation that holds the rows or the counts of a bag, the bag."""
    bags = ((name, relation.bag) for name, relation in program.relations.items() if relation.bag is not None)
    return {held: name for name, bag in bags for held in (bag.rows, bag.counts) if held is not None}


def declared_sources(program: Program, relation: str) -> Mapping[str, bool]:
    """The tables and views that a relation is computed from, and whether it reads each of them negatively on some way.

    >>> from rederive.lang import compile_program
    >>> text = ".decl e(x: number)  .decl f(x: number)  .decl v(n: number)  v(n) :- n = count : { e(x), !f(x) }."
    >>> dict(declared_sources(compile_program(text), "v"))
    {'e': True, 'f': True}
    """
    found: dict[str, bool] = {}
    owners = bag_owners(program)
    waiting, seen = [(relation, False)], {(relation, False)}
    while waiting:
        name, is_negative = waiting.pop()
        for definition in program.definitions_of(name):
            for edge in edges(definition):
                source = (edge.source, is_negative or edge.negative)
                # The relations that hold a bag are read as the bag, except by the bag itself.
                owner = owners.get(edge.source, relation)
                if owner != relation:
                    source = (owner, source[1])
                if not program.relations[source[0]].is_auxiliary:
                    found[source[0]] = found.get(source[0], False) or source[1]
                elif source not in seen:
                    seen.add(source)
                    waiting.append(source)
    return dict(sorted(found.items()))
