"""Runs the sections of a maintenance program, phase by phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from rederive.analysis.decompose import carried_column
from rederive.analysis.derivations import derives_once
from rederive.analysis.graph import Component, edges, inventing_rule
from rederive.engines.spark.plan.sources import Distributed, Frame, Source
from rederive.engines.spark.run import derivation_counts
from rederive.engines.spark.run.aggregates import by_group
from rederive.engines.spark.run.aggregates.from_scratch import aggregate_rows
from rederive.engines.spark.run.decomposed_recursion import run_decomposed
from rederive.engines.spark.run.evaluation import Derivation, RelationRound, as_view, derivation, evaluate_all
from rederive.engines.spark.run.fixpoint import AcceptRows, DeltaRule, Fixpoint, Target
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import FoundRows, Relations
from rederive.engines.spark.run.storage import Storage
from rederive.engines.spark.run.symbol_codes import code_recursion
from rederive.ir.rules import Aggregate, Atom, Rule, Variant
from rederive.limits import Limits
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule
from rederive.maintain.program import PartitionProgram, Phase, Section, Semantics, Strategy


@dataclass(frozen=True, slots=True)
class SectionFacts:
    """What analyses know of a section, for all transactions alike.

    `reads`: the relations that its definitions read. `by`: the column that its rows are partitioned by in rounds.
    `inventing`: the rule that may make new values without end, where there is one.
    """

    reads: tuple[str, ...]
    by: int
    inventing: Rule | None

    @classmethod
    def of(cls, component: Component) -> SectionFacts:
        """The facts of a component."""
        reads = {edge.source: None for definition in component.definitions for edge in edges(definition)}
        return cls(tuple(reads), carried_column(component) or 0, inventing_rule(component))


@dataclass(slots=True)
class Sections:
    """Runs sections over relations.

    `auxiliary` collects the deltas of auxiliary state; `shared` holds totals that several aggregates read; `recomputed` has the
    views that were evaluated from scratch. Sections of different chains run at the same time, and share no view.
    """

    relations: Relations
    storage: Storage
    jobs: Jobs
    limits: Limits
    auxiliary: dict[str, tuple[Source, Source]] = field(default_factory=dict)
    shared: by_group.SharedTotals = field(default_factory=dict)
    recomputed: list[str] = field(default_factory=list)
    _facts: dict[tuple[str, ...], SectionFacts] = field(default_factory=dict)

    def facts(self, component: Component) -> SectionFacts:
        """What analyses know of a component, found at its first use."""
        found = self._facts.get(component.relations)
        if found is None:
            found = self._facts[component.relations] = SectionFacts.of(component)
        return found

    def clear(self) -> None:
        """Drop all that a transaction found."""
        self.relations.clear()
        self.auxiliary.clear()
        self.shared.clear()
        self.recomputed.clear()

    # The first evaluation

    def fill(self, section: Section) -> None:
        """Evaluate a section's views for the first time, where they are stored."""
        for phase in section.initial:
            with self.jobs.queries.describe(f"{', '.join(section.component.relations)}: {phase.name}"):
                self._fill(section, phase)

    def _fill(self, section: Section, phase: Phase) -> None:
        match phase.semantics, phase.fold:
            case Semantics.FOLD, Fold() as fold:
                by_group.fill(fold, self.relations, self.storage, self.jobs, self.shared)
            case Semantics.BAG, _:
                derivation_counts.fill(section.component, phase.rules, self.relations, self.storage, self.jobs)
            case _:
                self._evaluate(section, phase)

    def _evaluate(self, section: Section, phase: Phase) -> None:
        # Three ways to the same fixpoint, the fastest first: one job over partitions, rounds over codes, rounds.
        component, partition = section.component, section.by_partition if self.jobs.decompose else None
        others = self._broadcast_relations(partition) if partition is not None else None
        if partition is not None and others is not None:
            (name,) = component.relations
            seeds = self._seeds(partition)
            found = seeds if seeds.empty else run_decomposed(name, partition, seeds, others, self.jobs, self.limits)
            self.storage.write(name, found)
            return
        coded = code_recursion(component, self.relations, self.jobs)
        if coded is not None:
            inside = Sections(coded.relations, self.storage, self.jobs, self.limits)
            for name, table in inside._derive(component, phase).items():
                self.storage.write(name, coded.decode(table.source, self.relations.types(name)))
            return
        for name, table in self._derive(component, phase).items():
            self.storage.write(name, self._one_frame(table))

    def _derive(self, component: Component, phase: Phase) -> dict[str, FoundRows]:
        """What the rules of a component derive, in rounds."""
        tables = {name: self.relations.found(name, Variant.OLD) for name in component.relations}
        self._to_fixpoint(component, phase.name, phase.rules)
        return tables

    def _broadcast_relations(self, partition: PartitionProgram) -> dict[str, Source] | None:
        """What executors need to run the program of a partition by themselves; None where it has too many rows."""
        found = {name: self.relations.state(name, Variant.OLD) for name in partition.others}
        sources = {name: source for name, source in found.items() if isinstance(source, Source)}
        most = self.jobs.tuning.broadcast_recursion_rows
        fits = len(sources) == len(found) and sum(map(self.jobs.queries.size, sources.values())) <= most
        return sources if fits else None

    def _seeds(self, partition: PartitionProgram) -> Frame:
        """What the rules derive that are not recursive."""
        rules = [m.rule for m in partition.seeds]
        relations = {**self.relations.program.relations, **partition.inside.program.relations}
        found = [derivation(rule, None, None, self.relations.of, self.jobs, relations) for rule in rules]
        large = any(self._starts_large(rule, None) for rule in rules)
        derived, types = [one for one in found if one is not None], relations[partition.seed].types
        # One rule with one derivation for each row: nothing to make distinct, so the seeds need no job of their own.
        if large and len(derived) == 1 and derives_once(derived[0].rule, self.relations.program):
            return as_view(derived, types, self.jobs)
        return evaluate_all({partition.seed: RelationRound(types, derived, large)}, self.jobs)[partition.seed]

    def _one_frame(self, table: FoundRows) -> Frame:
        """Everything found as one frame."""
        if table.parts:
            # Parts are disjoint, as a fixpoint takes in new rows alone: a union suffices.
            if len(table.parts) == 1 and not table.rows:
                return table.parts[0]
            return self.jobs.queries.materialize(self.jobs.queries.select(table.source), table.types)
        return self.jobs.frames.of_rows(table.rows, table.types)

    # A transaction

    def is_affected(self, section: Section) -> bool:
        """Whether a section has to run. Recomputation always does: views above it may read its states."""
        # Deltas below are exact by now, so an empty one means that nothing changed.
        return section.strategy is Strategy.RECOMPUTE or any(map(self._changed_rows, self.facts(section.component).reads))

    def _changed_rows(self, name: str) -> int:
        return sum(len(self.relations.found(name, variant)) for variant in (Variant.DEL, Variant.INS))

    def run(self, section: Section) -> None:
        """Run a section: afterwards p^del and p^ins are the exact delta of each view p of it."""
        # An aggregate is folded by Spark, which does the work of all its rules (G), (D), (F), (I), (E) at once.
        aggregate = section.aggregate
        if aggregate is not None:
            with self.jobs.queries.describe(f"{aggregate.relation}: groups"):
                self._aggregate(section, aggregate)
            return
        from_scratch = self._is_better_from_scratch(section)
        self.recomputed += section.component.relations if from_scratch else ()
        for phase in section.from_scratch if from_scratch else section.phases:
            with self.jobs.queries.describe(f"{', '.join(section.component.relations)}: {phase.name}"):
                self._phase(section, phase)

    def _is_better_from_scratch(self, section: Section) -> bool:
        """Whether so much of what a section reads has changed that evaluating all of it touches fewer rows.

        Where a stored relation has n rows and m of them change, propagation joins m rows in the old state and in the new one and
        compares them; from scratch, n rows are joined once, and the view is compared with the stored one.
        """
        if not section.from_scratch:
            return False
        names = [name for name in self.facts(section.component).reads if name not in section.component.relations]
        # Where a relation is derived on demand, its size is not known.
        if any(name not in self.storage for name in names):
            return False
        changed, rows = sum(map(self._changed_rows, names)), sum(map(self.storage.size, names))
        return changed > max(self.jobs.tuning.driver_rows, self.jobs.tuning.recomputed_fraction * rows)

    def _phase(self, section: Section, phase: Phase) -> None:
        match phase.semantics:
            # del and ins may share rows that stay; sums and counts, which alone read them, cancel these.
            case Semantics.SET if section.has_one_derivation and section.strategy is Strategy.DIFFERENCING:
                self._run_as_view(phase.rules)
            case Semantics.SET:
                self._to_fixpoint(section.component, phase.name, phase.rules, once=section.has_one_derivation)
            case Semantics.FILTERED:
                self._filtered(section.component, phase)
            case Semantics.BAG:
                self.auxiliary.update(
                    derivation_counts.change(
                        section.component, phase, self.relations, self.storage, self.jobs, self._check_insertions
                    )
                )
            case Semantics.NET:
                for name in section.component.relations:
                    self._net(name)
            case Semantics.DIFF if section.is_stored:
                for name in section.component.relations:
                    self._compare_with_stored(name)
            case Semantics.DIFF:
                # From scratch, both states have tables of their own: the view's are derived on demand.
                old, new = (Variant.BEFORE, Variant.FRESH) if phase in section.from_scratch else (Variant.OLD, Variant.NEW)
                for name in section.component.relations:
                    self._difference(name, old, new)
            case Semantics.GROUPS | Semantics.FOLD:
                raise AssertionError("aggregates are run apart")
            case _:
                assert_never(phase.semantics)

    def _run_as_view(self, rules: tuple[MaintenanceRule, ...]) -> None:
        """What rules derive, as a part of the query that reads it: each row has one derivation, so nothing has to be compared."""
        relations, head = self.relations.program.relations, rules[0].rule.head
        drivers = ((m.rule, driver) for m in rules for driver in m.drivers)
        derived = (derivation(rule, driver, None, self.relations.of, self.jobs, relations) for rule, driver in drivers)
        found = [one for one in derived if one is not None]
        if found:
            self.relations.found(head.relation, head.variant).add(as_view(found, self.relations.types(head.relation), self.jobs))

    def _to_fixpoint(self, component: Component, what: str, rules: tuple[MaintenanceRule, ...], *, once: bool = False) -> None:
        targets = {m.rule.head.name: self._target(m.rule.head, self.facts(component).by, once=once) for m in rules}
        seeds = self._connect(targets, rules)
        self._run(component, what, targets, seeds)

    def _filtered(self, component: Component, phase: Phase) -> None:
        """The filter is tested once for each new candidate, not in every join."""
        rules = phase.rules
        targets = {}
        for head, unless in {m.rule.head.name: (m.rule.head, m.filter) for m in rules}.values():
            assert unless is not None
            target = Target(head.name, self.relations.found(head.relation, head.variant))
            target.accept = self._unprovable(head.relation, unless)
            targets[head.name] = target
        self._run(component, phase.name, targets, self._connect(targets, rules))

    def _unprovable(self, name: str, state: Variant) -> AcceptRows:
        """Leaves out the rows that a state proves. Proved rows are remembered, so that each is looked up once."""
        disqualified = FoundRows(self.relations.types(name))

        def accept(frame: Frame) -> Frame:
            # HD94: an update that was disqualified once is disqualified for the whole transaction.
            frame = self.jobs.sets.minus(frame, disqualified.known)
            if frame.empty:
                return frame
            proved = self.jobs.sets.intersection(frame, self._completed(name, state, frame))
            disqualified.add(proved)
            return self.jobs.sets.minus(frame, [proved])

        return accept

    def _completed(self, name: str, state: Variant, frame: Frame) -> Source:
        """The rows of a state, complete for the rows of a frame."""
        found = self.relations.state(name, state)
        if isinstance(found, Source):
            return found
        # All columns bound: the state is derived for these rows and no others.
        found.request(tuple(range(len(frame.types))), frame)
        return found.source()

    def _target(self, head: Atom, by: int = 0, *, once: bool = False) -> Target:
        """The target of a head. Insertions must be new in the new state, where that is an overlay; others in their own table.

        `once`: each row has one derivation, so a derived row is new.
        """
        target = Target(head.name, self.relations.found(head.relation, head.variant), by)
        # ins - p^new: idle insertions are dropped when they are found, and do not propagate (decision 2).
        if head.variant is Variant.INS and head.relation in self.relations.states and not once:
            if isinstance(self.relations.state(head.relation, Variant.NEW), Source):
                target.known = lambda: (self._new(head.relation),)
            else:
                target.accept = lambda frame: self.jobs.sets.minus(frame, [self._completed(head.relation, Variant.NEW, frame)])
        return target

    def _new(self, name: str) -> Source:
        found = self.relations.state(name, Variant.NEW)
        assert isinstance(found, Source)
        return found

    def _connect(self, targets: Mapping[str, Target], rules: tuple[MaintenanceRule, ...]) -> dict[str, Frame]:
        """Give each rule to the target whose growth drives it. The others are evaluated now: what they derive are the seeds."""
        seeds: dict[str, list[Derivation]] = {}
        large: set[str] = set()
        for m in rules:
            head = m.rule.head.name
            for driver in m.drivers:
                grows = self._growing(m.rule, driver, targets)
                # p^del and its like grow within this phase: a semi-naive rule. Any other driver is complete: a seed.
                if grows is not None and driver is not None:
                    targets[head].rules.append(DeltaRule(m.rule, driver, grows))
                else:
                    found = derivation(m.rule, driver, None, self.relations.of, self.jobs, self.relations.program.relations)
                    seeds.setdefault(head, []).extend([found] if found is not None else [])
                    if self._starts_large(m.rule, driver):
                        large.add(head)
        first = {name: RelationRound(targets[name].table.types, found, name in large) for name, found in seeds.items() if found}
        return evaluate_all(first, self.jobs)

    def _starts_large(self, rule: Rule, driver: int | None) -> bool:
        atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
        start = rule.body[driver] if driver is not None else atoms[0] if atoms else None
        source = self.relations.of(start) if isinstance(start, Atom) else None
        return isinstance(source, Distributed)

    def _growing(self, rule: Rule, driver: int | None, targets: Mapping[str, Target]) -> str | None:
        """The target whose growth is the driver's: the atom itself, or the part of the new state that this phase adds to."""
        atom = rule.body[driver] if driver is not None else None
        if not isinstance(atom, Atom):
            return None
        if atom.name in targets:
            return atom.name
        state = self.relations.states.get(atom.relation)
        if atom.variant is Variant.NEW and state is not None:
            # p^new = (p - p^del) + p^red + p^ins grows by what this phase adds to p^red or p^ins.
            parts = (atom.as_variant(variant).name for variant in state.came)
            return next((name for name in parts if name in targets), None)
        return None

    def _run(self, component: Component, what: str, targets: dict[str, Target], seeds: Mapping[str, Frame]) -> None:
        names = f"{', '.join(component.relations)}: {what}"
        relations = self.relations.program.relations
        inventing = self.facts(component).inventing
        Fixpoint(names, targets, self.relations.of, self.jobs, relations, self.limits, inventing).run(seeds)

    def _check_insertions(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> None:
        """Evaluate the insertions of a counted view in the new state alone, for the errors that count."""
        self._to_fixpoint(component, "check", rules)
        for name in component.relations:
            self.relations.found(name, Variant.INS).clear()

    def _net(self, name: str) -> None:
        """minus = del - red - ins, plus = ins - del: an insertion that was in the old state must have been deleted."""
        gone, red, came = (self.relations.found(name, v) for v in (Variant.DEL, Variant.RED, Variant.INS))
        # Both sides as they were: the first replacement must not change what the second subtracts.
        deleted, inserted = gone.known, came.known
        gone.replace([self.jobs.sets.minus(frame, [*red.known, *inserted]) for frame in deleted])
        came.replace([self.jobs.sets.minus(frame, deleted) for frame in inserted])
        red.clear()

    def _difference(self, name: str, before: Variant, after: Variant) -> None:
        """plus = new - old, minus = old - new, where both states were evaluated."""
        old, new = self.relations.found(name, before), self.relations.found(name, after)
        gone, came = self.relations.found(name, Variant.DEL), self.relations.found(name, Variant.INS)
        # minus :- old, !new.  plus :- new, !old.
        gone.replace([self.jobs.sets.minus(frame, new.known) for frame in old.known])
        came.replace([self.jobs.sets.minus(frame, old.known) for frame in new.known])

    def _compare_with_stored(self, name: str) -> None:
        """plus = fresh - p, minus = p - fresh, where p is stored and was evaluated from scratch."""
        fresh, stored = self.relations.found(name, Variant.FRESH).source, self.storage.source(name)
        self.relations.found(name, Variant.DEL).replace([self.jobs.sets.difference(stored, fresh)])
        self.relations.found(name, Variant.INS).replace([self.jobs.sets.difference(fresh, stored)])

    def _aggregate(self, section: Section, aggregate: Aggregate) -> None:
        if section.strategy is Strategy.RECOMPUTE:
            # p^new has no law under recompute: both states are evaluated, as tables.
            for state in (Variant.OLD, Variant.NEW):
                source = self.relations.state(aggregate.source, state)
                assert isinstance(source, Source)
                table = self.relations.found(aggregate.relation, state)
                if not source.empty:
                    rows = self.jobs.queries.select(source)
                    table.add(aggregate_rows(aggregate, self.relations.program, rows, self.jobs))
            self._difference(aggregate.relation, Variant.OLD, Variant.NEW)
        elif section.is_stored:
            (phase,) = section.phases
            assert phase.fold is not None
            self.auxiliary.update(by_group.change(phase.fold, self.relations, self.storage, self.jobs, self.shared))
        else:
            by_group.compare(aggregate, self.relations, self.jobs)
