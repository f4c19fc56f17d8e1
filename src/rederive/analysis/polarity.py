"""Path analysis (HD94, section 4): which signs of which relations can contribute to what is monitored.

An insertion into a view comes from insertions into what it reads positively and from deletions from what it negates; a deletion
the other way round. Through an aggregate either comes from both. A path whose sign is not monitored need not be evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping

from rederive.analysis.graph import edges
from rederive.delta import BOTH, Sign
from rederive.ir.rules import Aggregate, Program


def needed_signs(program: Program, monitored: Mapping[str, frozenset[Sign]]) -> dict[str, frozenset[Sign]]:
    """The signs that each relation must pass on, given those that are monitored of views.

    Rules 1 to 3: the sign stays along a path with an even number of negations, and turns with an odd one.
    """
    needed: dict[str, set[Sign]] = {}
    frontier = [(name, sign) for name, signs in monitored.items() for sign in signs]
    while frontier:
        name, sign = frontier.pop()
        if sign in needed.setdefault(name, set()):
            continue
        needed[name].add(sign)
        for definition in program.definitions_of(name):
            for edge in edges(definition):
                # A row that enters the source of an aggregate may take one result of its group away and bring another.
                signs = BOTH if isinstance(definition, Aggregate) else {sign.opposite if edge.negative else sign}
                frontier += [(edge.source, s) for s in signs]
    return {name: frozenset(signs) for name, signs in needed.items()}
