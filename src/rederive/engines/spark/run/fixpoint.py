"""Semi-naive evaluation in rounds: all rules of a round are one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rederive.engines.resident.run.fixpoint import endless
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source
from rederive.engines.spark.run.derivation import derivation
from rederive.engines.spark.run.jobs import Jobs, sparse
from rederive.engines.spark.run.relations import Find, Growing
from rederive.engines.spark.run.round import Derivation, Wanted, gather_all
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Atom, Relation, Rule
from rederive.ir.terms import Variable
from rederive.limits import Limits

Filter = Callable[[Frame], Frame]


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule that starts from what one of its literals gains; `grows` names that relation. `asks`: it raises questions."""

    rule: Rule
    driver: int
    grows: str
    asks: bool = False


@dataclass(slots=True)
class Target:
    """A relation that a fixpoint fills. Where its rows are many, they are partitioned by one column from the first round on.

    `known`: what else must not be taken in; `accept` leaves out what does not hold.
    """

    name: str
    table: Growing
    by: int = 0
    known: Callable[[], Sequence[Source]] = tuple
    accept: Filter | None = None
    variants: list[Variant] = field(default_factory=list)

    def carries(self, variant: Variant) -> bool:
        """Whether a rule leaves the column that rows are partitioned by as it was in the row it starts from."""
        atom, head = variant.rule.body[variant.driver], variant.rule.head
        if variant.grows != self.name or not isinstance(atom, Atom) or not head.terms:
            return False
        return isinstance(head.terms[self.by], Variable) and atom.terms[self.by] == head.terms[self.by]


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
        fresh = self._taken({name: self._new(self.targets[name], frame) for name, frame in seeds.items()})
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

    def _new(self, target: Target, frame: Frame) -> Frame:
        """The first candidates that are not known; many are partitioned as the rounds want them."""
        known = [source for source in (*target.table.known, *target.known()) if not source.empty]
        if isinstance(frame, Local) or not target.variants:
            return self.jobs.minus(frame, known)
        rows = f"(SELECT /*+ REPARTITION({self.jobs.parts}, {column(target.by)}) */ * FROM {frame.text()})"
        return self.jobs.materialise(self.jobs.without(rows, frame.types, known), frame.types)

    def _wanted(self, target: Target, fresh: Mapping[str, Frame]) -> Wanted:
        """What the rules derive from what is fresh."""
        found: list[Derivation] = []
        large, stays, starts = False, True, 0
        for variant in target.variants:
            delta = fresh.get(variant.grows)
            if delta is not None:
                one = derivation(variant.rule, variant.driver, delta, self.find, self.jobs, self.relations, asks=variant.asks)
                found += [one] if one is not None else []
                large = large or isinstance(delta, Distributed)
                starts += len(delta)
                stays = stays and isinstance(delta, Distributed) and target.carries(variant)
        known = (*target.table.known, *target.known())
        return Wanted(target.table.types, found, large, known, None if stays else target.by, sparse(starts, known))

    def _taken(self, candidates: Mapping[str, Frame]) -> dict[str, Frame]:
        """Take in what is new: the candidates that are accepted."""
        taken = {}
        for name, new in candidates.items():
            target = self.targets[name]
            if target.accept is not None and not new.empty:
                new = target.accept(new)
            if not new.empty:
                target.table.add(new)
                taken[name] = new
        return taken
