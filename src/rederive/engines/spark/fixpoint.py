"""Semi-naive evaluation in rounds: all rules of a round are one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rederive.engines.resident.fixpoint import Limits, endless
from rederive.engines.spark.gather import Derivation, Wanted, gather_all
from rederive.engines.spark.jobs import Jobs
from rederive.engines.spark.relations import Growing
from rederive.engines.spark.rules import Find, derivation
from rederive.engines.spark.sources import Distributed, Frame, Source
from rederive.ir.rules import Relation, Rule

Filter = Callable[[Frame], Frame]


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule that starts from what one of its literals gains; `grows` names that relation."""

    rule: Rule
    driver: int
    grows: str


@dataclass(slots=True)
class Target:
    """A relation that a fixpoint fills. `known`: what else must not be taken in; `accept` leaves out what does not hold."""

    name: str
    table: Growing
    known: Callable[[], Sequence[Source]] = tuple
    accept: Filter | None = None
    variants: list[Variant] = field(default_factory=list)


@dataclass(slots=True)
class Fixpoint:
    """Targets that grow together. `inventing` is the rule that may make new values without end, where there is one."""

    what: str
    targets: dict[str, Target]
    find: Find
    jobs: Jobs
    relations: Mapping[str, Relation]
    limits: Limits
    inventing: Rule | None = None

    def run(self, seeds: Mapping[str, Frame]) -> None:
        """From the first candidates of each target to where nothing is new."""
        fresh = self._taken(seeds)
        rounds, made = 0, 0
        most = self.limits.rounds if self.inventing is not None else inf
        while fresh:
            rounds += 1
            made += sum(map(len, fresh.values()))
            if self.inventing is not None and (rounds > most or made > self.limits.tuples):
                after = f"{self.limits.rounds:,} rounds" if rounds > most else f"{self.limits.tuples:,} new values"
                raise endless(self.inventing, after)
            with self.jobs.described(f"{self.what}, round {rounds}"):
                wanted = {name: self._wanted(target, fresh) for name, target in self.targets.items()}
                fresh = self._taken(gather_all({name: one for name, one in wanted.items() if one.derivations}, self.jobs))

    def _wanted(self, target: Target, fresh: Mapping[str, Frame]) -> Wanted:
        """What the rules derive from what is fresh."""
        found: list[Derivation] = []
        large = False
        for variant in target.variants:
            delta = fresh.get(variant.grows)
            if delta is not None:
                one = derivation(variant.rule, variant.driver, delta, self.find, self.jobs, self.relations)
                found += [one] if one is not None else []
                large = large or isinstance(delta, Distributed)
        return Wanted(target.table.types, found, large)

    def _taken(self, candidates: Mapping[str, Frame]) -> dict[str, Frame]:
        """What is new of the candidates, taken in."""
        taken = {}
        for name, frame in candidates.items():
            target = self.targets[name]
            new = self.jobs.minus(frame, [*target.table.known, *target.known()])
            if target.accept is not None and not new.empty:
                new = target.accept(new)
            if not new.empty:
                target.table.add(new)
                taken[name] = new
        return taken
