"""Semi-naive evaluation in rounds. All rules of a round are one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rederive.engines.spark.plan.expressions import ref
from rederive.engines.spark.plan.nodes import Repartition
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source
from rederive.engines.spark.run.evaluation import Derivation, RelationRound, derivation, evaluate_all
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import FindRows, FoundRows
from rederive.ir.rules import Atom, Relation, Rule
from rederive.ir.terms import Variable
from rederive.limits import Limits, endless_recursion

AcceptRows = Callable[[Frame], Frame]


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """A rule that starts from what one of its literals gained in the last round; `grows` names that relation.

    `requests`: it derives requests of bindings.
    """

    rule: Rule
    driver: int
    grows: str
    requests: bool = False


@dataclass(slots=True)
class Target:
    """A relation that a fixpoint fills. Where its rows are many, they are partitioned by one column from the first round on.

    `known`: what else must not be taken in; `accept` leaves out rows that do not hold.
    """

    name: str
    table: FoundRows
    by: int = 0
    known: Callable[[], Sequence[Source]] = tuple
    accept: AcceptRows | None = None
    rules: list[DeltaRule] = field(default_factory=list)

    def keeps_partitioning(self, rule: DeltaRule) -> bool:
        """Whether a rule carries the partitioning column unchanged from the row it starts from: then no exchange is needed."""
        atom, head = rule.rule.body[rule.driver], rule.rule.head
        if rule.grows != self.name or not isinstance(atom, Atom) or not head.terms:
            return False
        return isinstance(head.terms[self.by], Variable) and atom.terms[self.by] == head.terms[self.by]


@dataclass(slots=True)
class Fixpoint:
    """Targets that grow together. `inventing` is the rule that may make new values without end, where there is one."""

    what: str
    targets: dict[str, Target]
    find: FindRows
    jobs: Jobs
    relations: Mapping[str, Relation]
    limits: Limits
    inventing: Rule | None = None

    def run(self, seeds: Mapping[str, Frame]) -> None:
        """Run rounds, from the first rows of each target, until nothing is new."""
        fresh = self._take({name: self._new_seeds(self.targets[name], frame) for name, frame in seeds.items()})
        rounds, made = 0, 0
        most = self.limits.rounds if self.inventing is not None else inf
        # Invariant: every derivation from rows of earlier rounds has been taken in; `fresh` are the rows found last.
        while fresh:
            rounds += 1
            made += sum(map(len, fresh.values()))
            # Over the values that exist, a recursion ends by itself; only one that makes new values is limited (decision 4).
            if self.inventing is not None and (rounds > most or made > self.limits.tuples):
                after = f"{self.limits.rounds:,} rounds" if rounds > most else f"{self.limits.tuples:,} new values"
                raise endless_recursion(self.inventing, after)
            with self.jobs.queries.describe(f"{self.what}, round {rounds}"):
                derived = {name: self._derive(target, fresh) for name, target in self.targets.items()}
                fresh = self._take(evaluate_all({name: one for name, one in derived.items() if one.derivations}, self.jobs))

    def _new_seeds(self, target: Target, frame: Frame) -> Frame:
        """The seeds that are not known; many are partitioned as the rounds need them."""
        known = [source for source in (*target.table.known, *target.known()) if not source.empty]
        if isinstance(frame, Local) or not target.rules:
            return self.jobs.sets.minus(frame, known)
        # Once: the rounds then join and compare within partitions where rules carry the column along.
        rows = Repartition(self.jobs.queries.scan(frame), self.jobs.parts, (ref(target.by),))
        return self.jobs.queries.materialize(self.jobs.sets.minus_plan(rows, frame.types, known), frame.types)

    def _derive(self, target: Target, fresh: Mapping[str, Frame]) -> RelationRound:
        """What the rules of a target derive from the rows of the last round."""
        found: list[Derivation] = []
        is_large, is_partitioned, starts = False, True, 0
        for rule in target.rules:
            # p :- q^delta, r: other recursive literals read all rows so far, those of the last round included.
            delta = fresh.get(rule.grows)
            if delta is not None:
                one = derivation(rule.rule, rule.driver, delta, self.find, self.jobs, self.relations, requests=rule.requests)
                found += [one] if one is not None else []
                is_large = is_large or isinstance(delta, Distributed)
                starts += len(delta)
                is_partitioned = is_partitioned and isinstance(delta, Distributed) and target.keeps_partitioning(rule)
        known = (*target.table.known, *target.known())
        # Rows that kept their partitioning need no exchange before they are compared with the known ones.
        by = None if is_partitioned else target.by
        return RelationRound(target.table.types, found, is_large, known, by, self.jobs.sets.are_sparse(starts, known))

    def _take(self, derived: Mapping[str, Frame]) -> dict[str, Frame]:
        """Add what is new and accepted to the targets."""
        taken = {}
        for name, new in derived.items():
            target = self.targets[name]
            if target.accept is not None and not new.empty:
                new = target.accept(new)
            if not new.empty:
                # The rules of one round see the tables of the round before: all are added when the query is done.
                target.table.add(new)
                taken[name] = new
        return taken
