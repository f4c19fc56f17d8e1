"""Proofs: for each row of a view, an instance that derives it from rows that are derived without it.

In a recursion a rule instance alone proves nothing: on a cycle, two rows may derive one another. The search goes from the row
backwards, one level of facts at a time, and chooses an instance for a fact when the facts of its component that it reads have
one already. The order of choosing is a rank: every chosen instance reads facts of lower rank, or of lower components, so the
choices end at base rows. Breadth first makes proofs low, and stops as soon as the row itself is proved.
"""

from __future__ import annotations

from dataclasses import dataclass

from rederive.analysis.graph import components
from rederive.why.instances import GroundAtom, RuleInstance, RuleInstances


@dataclass(slots=True)
class _Candidate:
    """An instance that waits for facts of its own component to be proved."""

    head: GroundAtom
    instance: RuleInstance
    missing: set[GroundAtom]


class Proofs:
    """Proofs of facts over one state; what was proved for one fact serves the next."""

    def __init__(self, instances: RuleInstances) -> None:
        self.instances = instances
        self.chosen: dict[GroundAtom, RuleInstance] = {}
        self._peers = {name: frozenset(c.relations) for c in components(instances.program) for name in c.relations}

    def prove(self, goal: GroundAtom) -> bool:
        """Find a proof of a fact; False if it does not hold."""
        if not self.instances.program.is_view(goal.relation):
            return self.instances.holds(goal)
        waiting: dict[GroundAtom, list[_Candidate]] = {}
        seen, frontier = {goal}, [goal]
        while frontier and goal not in self.chosen:
            level, frontier = frontier, []
            for fact in level:
                if goal in self.chosen:
                    break
                new = [missing for missing in self._expand(fact, waiting) if missing not in seen]
                seen.update(new)
                frontier += new
        return goal in self.chosen

    def _expand(self, fact: GroundAtom, waiting: dict[GroundAtom, list[_Candidate]]) -> dict[GroundAtom, None]:
        """Choose an instance for a fact, or return the facts that its instances wait for, in order."""
        found: dict[GroundAtom, None] = {}
        if fact in self.chosen:
            return found
        peers = self._peers[fact.relation]
        for instance in self.instances.of(fact):
            # Facts of lower components hold, and their proofs never lead back here.
            missing = dict.fromkeys(f for f in instance.facts if f.relation in peers and f not in self.chosen)
            if not missing:
                self._choose(fact, instance, waiting)
                return {}
            candidate = _Candidate(fact, instance, set(missing))
            for premise in missing:
                waiting.setdefault(premise, []).append(candidate)
            found |= missing
        return found

    def _choose(self, fact: GroundAtom, instance: RuleInstance, waiting: dict[GroundAtom, list[_Candidate]]) -> None:
        ready = [(fact, instance)]
        while ready:
            proved, by = ready.pop()
            if proved in self.chosen:
                continue
            self.chosen[proved] = by
            for candidate in waiting.pop(proved, ()):
                candidate.missing.discard(proved)
                if not candidate.missing:
                    ready.append((candidate.head, candidate.instance))
