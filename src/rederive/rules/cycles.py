"""Rules that can trigger each other, by what their changes of data do and what their conditions read, sign by sign.

An edge a -> b means that the change of data of rule a may change the condition of rule b with a sign for which b fires. A cycle
of edges may end, but that cannot be decided; it is refused unless one of its rules says RECURSIVE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.analysis.polarity import needed_signs
from rederive.delta import Sign
from rederive.errors import Unsupported
from rederive.ir.rules import Program
from rederive.lang.rules.syntax import ActiveRule, condition_name
from rederive.lang.sql.dml import ChangeMatching, ChangeQuery, DataChange, InsertQuery, InsertValues, MergeRows, ReplaceRows

Pairs = Sequence[tuple[ActiveRule, DataChange | None]]


def check_cycles(program: Program, rules: Pairs) -> None:
    """Refuse a cycle in which no rule says RECURSIVE."""
    # A rule that says RECURSIVE is left out, and with it every cycle that it is in.
    edges = triggers(program, [(rule, write) for rule, write in rules if not rule.recursive])
    for rule, _ in rules:
        if (cycle := _cycle(rule.name, edges)) is not None:
            hint = "break the cycle, or write RECURSIVE at the end of one rule: a cascade without end is then stopped at a limit"
            raise Unsupported(f"rules that set each other off: {' -> '.join(cycle)}", rule.action.span, hint=hint)


def triggers(program: Program, rules: Pairs) -> dict[str, list[str]]:
    """The rules that the change of data of each rule can trigger."""
    # Path analysis: which sign of a base relation can lead to the sign of the
    # condition that the rule fires for. A negation on the path turns the sign.
    reads = {rule.name: needed_signs(program, {condition_name(rule.name): rule.signs}) for rule, _ in rules}
    return {rule.name: [name for name, signs in reads.items() if _reaches(program, write, signs)] for rule, write in rules}


def _reaches(program: Program, write: DataChange | None, reads: Mapping[str, frozenset[Sign]]) -> bool:
    if write is None:
        return False
    # Conditions read a bag through its numbered copies, so that is where its changes arrive.
    base = program.numbered_copies(write.table) or write.table
    return bool(_effects(write) & reads.get(base, frozenset()))


def _effects(write: DataChange) -> frozenset[Sign]:
    match write:
        case InsertValues() | InsertQuery():
            return frozenset({Sign.PLUS})
        case ChangeMatching(values=None) | ChangeQuery(updates=False):
            return frozenset({Sign.MINUS})
        case ChangeMatching() | ChangeQuery() | ReplaceRows() | MergeRows():
            return frozenset(Sign)


def _cycle(start: str, edges: Mapping[str, Sequence[str]]) -> list[str] | None:
    """The shortest path from a rule back to itself."""
    ways = [[start]]
    # Breadth first, over a list that grows while it is read: the first way back is a shortest one.
    seen: set[str] = set()
    for way in ways:
        for name in edges.get(way[-1], ()):
            if name == start:
                return [*way, start]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None
