"""The sections of a maintenance program, run phase by phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from rederive.analysis.decompose import carried_column
from rederive.analysis.derivations import derives_once
from rederive.analysis.graph import Component, edges, inventing_rule
from rederive.engines.spark.plan.sources import Distributed, Frame, Source, listed
from rederive.engines.spark.run import derivation_counts as counts
from rederive.engines.spark.run.aggregates import by_group as groups
from rederive.engines.spark.run.aggregates.from_scratch import folded
from rederive.engines.spark.run.decomposed_recursion import SENT_ROWS, closed, read_beside
from rederive.engines.spark.run.derivation import derivation
from rederive.engines.spark.run.fixpoint import Filter, Fixpoint, Target
from rederive.engines.spark.run.fixpoint import Variant as Growth
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Growing, Relations
from rederive.engines.spark.run.round import Derivation, Wanted, gather_all, viewed
from rederive.engines.spark.run.storage import Kept
from rederive.engines.spark.run.symbol_codes import over_codes
from rederive.ir.rules import Aggregate, Atom, Rule, Variant
from rederive.limits import Limits
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule
from rederive.maintain.program import Phase, Section, Semantics, Strategy


@dataclass(slots=True)
class Sections:
    """Runs sections over relations. `beside` gathers the changes of what strategies keep beside their views; `shared` holds what
    several aggregates are moved by."""

    relations: Relations
    kept: Kept
    jobs: Jobs
    limits: Limits
    beside: dict[str, tuple[Source, Source]] = field(default_factory=dict)
    shared: groups.Shared = field(default_factory=dict)

    def forget(self) -> None:
        """Drop all that a transaction found."""
        self.relations.forget()
        self.beside.clear()
        self.shared.clear()

    # The first evaluation

    def fill(self, section: Section) -> None:
        """Evaluate a section's views for the first time, where they are kept."""
        for phase in section.initial:
            with self.jobs.described(f"{', '.join(section.component.relations)}: {phase.name}"):
                self._fill(section.component, phase)

    def _fill(self, component: Component, phase: Phase) -> None:
        match phase.semantics, phase.fold:
            case Semantics.FOLD, Fold(aggregate):
                groups.fill(aggregate, self.relations, self.kept, self.jobs, self.shared)
            case Semantics.BAG, _:
                counts.fill(component, phase.rules, self.relations, self.kept, self.jobs)
            case _:
                self._evaluate(component, phase)

    def _evaluate(self, component: Component, phase: Phase) -> None:
        beside = self._beside(component)
        if beside is not None:
            (name,) = component.relations
            seeds = self._seeds(phase, name)
            found = seeds if seeds.empty else closed(component, seeds, beside, self.relations.program, self.jobs, self.limits)
            self.kept.write(name, found)
            return
        coded = over_codes(component, self.relations, self.jobs)
        if coded is not None:
            inside = Sections(coded.relations, self.kept, self.jobs, self.limits)
            for name, table in inside._found(component, phase).items():
                self.kept.write(name, coded.decoded(table.source, self.relations.types(name)))
            return
        for name, table in self._found(component, phase).items():
            self.kept.write(name, self._whole(table))

    def _found(self, component: Component, phase: Phase) -> dict[str, Growing]:
        """What the rules of a component derive, in rounds."""
        tables = {name: self.relations.found(name, Variant.OLD) for name in component.relations}
        self._to_fixpoint(component, phase.name, phase.rules)
        return tables

    def _beside(self, component: Component) -> dict[str, Source] | None:
        """What workers need to run a recursion that decomposes by themselves; None where it does not, or that is too much."""
        if not self.jobs.decompose or carried_column(component) is None:
            return None
        found = {name: self.relations.state(name, Variant.OLD) for name in read_beside(component)}
        sources = {name: source for name, source in found.items() if isinstance(source, Source)}
        fits = len(sources) == len(found) and sum(map(self.jobs.size, sources.values())) <= SENT_ROWS
        return sources if fits else None

    def _seeds(self, phase: Phase, name: str) -> Frame:
        """What the rules that are not recursive derive: those without a driver."""
        rules = [m.rule for m in phase.rules if m.drivers == (None,)]
        relations = self.relations.program.relations
        found = [derivation(rule, None, None, self.relations.of, self.jobs, relations) for rule in rules]
        large = any(self._starts_large(rule, None) for rule in rules)
        there, types = [one for one in found if one is not None], self.relations.types(name)
        if large and len(there) == 1 and derives_once(there[0].rule, self.relations.program):
            return viewed(there, types, self.jobs)
        return gather_all({name: Wanted(types, there, large)}, self.jobs)[name]

    def _whole(self, table: Growing) -> Frame:
        """Everything found as one frame."""
        if table.parts:
            if len(table.parts) == 1 and not table.rows:
                return table.parts[0]
            return self.jobs.materialise(f"SELECT {listed(table.types)} FROM {table.source.text()}", table.types)
        return self.jobs.frame(table.rows, table.types)

    # A transaction

    def affected(self, section: Section) -> bool:
        """Recomputation always runs: views above may need its states. The others only where an influent changed."""
        names = {edge.source for definition in section.component.definitions for edge in edges(definition)}
        changed = (self.relations.found(name, variant) for name in names for variant in (Variant.DEL, Variant.INS))
        return section.strategy is Strategy.RECOMPUTE or any(changed)

    def run(self, section: Section) -> None:
        """Afterwards p^del and p^ins are the exact change of each view p of the section."""
        aggregate = aggregate_of(section.component)
        if aggregate is not None:
            with self.jobs.described(f"{aggregate.relation}: groups"):
                self._aggregate(section, aggregate)
            return
        for phase in section.phases:
            with self.jobs.described(f"{', '.join(section.component.relations)}: {phase.name}"):
                self._phase(section, phase)

    def _phase(self, section: Section, phase: Phase) -> None:
        match phase.semantics:
            case Semantics.SET if section.has_one_derivation and section.strategy is Strategy.DIFFERENCING:
                self._view(phase.rules)
            case Semantics.SET:
                self._to_fixpoint(section.component, phase.name, phase.rules, once=section.has_one_derivation)
            case Semantics.FILTERED:
                self._filtered(section.component, phase)
            case Semantics.BAG:
                self.beside.update(counts.change(section.component, phase, self.relations, self.kept, self.jobs, self._strict))
            case Semantics.NET:
                for name in section.component.relations:
                    self._net(name)
            case Semantics.DIFF:
                for name in section.component.relations:
                    self._difference(name)
            case Semantics.GROUPS | Semantics.FOLD:
                raise AssertionError("aggregates are run apart")
            case _:
                assert_never(phase.semantics)

    def _view(self, rules: tuple[MaintenanceRule, ...]) -> None:
        """What rules derive, left to whoever reads it: each row has one derivation, so there is nothing to compare it with."""
        relations, head = self.relations.program.relations, rules[0].rule.head
        drivers = ((m.rule, driver) for m in rules for driver in m.drivers)
        derived = (derivation(rule, driver, None, self.relations.of, self.jobs, relations) for rule, driver in drivers)
        found = [one for one in derived if one is not None]
        if found:
            self.relations.found(head.relation, head.variant).add(viewed(found, self.relations.types(head.relation), self.jobs))

    def _to_fixpoint(self, component: Component, what: str, rules: tuple[MaintenanceRule, ...], *, once: bool = False) -> None:
        targets = {m.rule.head.name: self._target(m.rule.head, carried_column(component) or 0, once=once) for m in rules}
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

    def _unprovable(self, name: str, state: Variant) -> Filter:
        """Leave out what a state proves. What it disproved is remembered, so it is asked once."""
        disqualified = Growing(self.relations.types(name))

        def accept(frame: Frame) -> Frame:
            frame = self.jobs.minus(frame, disqualified.known)
            if frame.empty:
                return frame
            proved = self.jobs.both(frame, self._asked(name, state, frame))
            disqualified.add(proved)
            return self.jobs.minus(frame, [proved])

        return accept

    def _asked(self, name: str, state: Variant, frame: Frame) -> Source:
        """The rows of a state, made complete for those of a frame."""
        found = self.relations.state(name, state)
        if isinstance(found, Source):
            return found
        found.ask(tuple(range(len(frame.types))), frame)
        return found.source()

    def _target(self, head: Atom, by: int = 0, *, once: bool = False) -> Target:
        """Insertions must be new in the new state, where that is an overlay; everything else must be new in its own table.

        A row that has one derivation is new when that is.
        """
        target = Target(head.name, self.relations.found(head.relation, head.variant), by)
        if head.variant is Variant.INS and head.relation in self.relations.states and not once:
            if isinstance(self.relations.state(head.relation, Variant.NEW), Source):
                target.known = lambda: (self._new(head.relation),)
            else:
                target.accept = lambda frame: self.jobs.minus(frame, [self._asked(head.relation, Variant.NEW, frame)])
        return target

    def _new(self, name: str) -> Source:
        found = self.relations.state(name, Variant.NEW)
        assert isinstance(found, Source)
        return found

    def _connect(self, targets: Mapping[str, Target], rules: tuple[MaintenanceRule, ...]) -> dict[str, Frame]:
        """Hang each rule on the target whose growth drives it. The others are run now: their findings are the seeds."""
        seeds: dict[str, list[Derivation]] = {}
        large: set[str] = set()
        for m in rules:
            head = m.rule.head.name
            for driver in m.drivers:
                grows = self._growing(m.rule, driver, targets)
                if grows is not None and driver is not None:
                    targets[head].variants.append(Growth(m.rule, driver, grows))
                else:
                    found = derivation(m.rule, driver, None, self.relations.of, self.jobs, self.relations.program.relations)
                    seeds.setdefault(head, []).extend([found] if found is not None else [])
                    if self._starts_large(m.rule, driver):
                        large.add(head)
        wanted = {name: Wanted(targets[name].table.types, found, name in large) for name, found in seeds.items() if found}
        return gather_all(wanted, self.jobs)

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
            parts = (atom.as_variant(variant).name for variant in state.came)
            return next((name for name in parts if name in targets), None)
        return None

    def _run(self, component: Component, what: str, targets: dict[str, Target], seeds: Mapping[str, Frame]) -> None:
        names = f"{', '.join(component.relations)}: {what}"
        relations = self.relations.program.relations
        inventing = inventing_rule(component)
        Fixpoint(names, targets, self.relations.of, self.jobs, relations, self.limits, inventing).run(seeds)

    def _strict(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> None:
        """The insertions of a counted view by the new state alone, for their errors."""
        self._to_fixpoint(component, "check", rules)
        for name in component.relations:
            self.relations.found(name, Variant.INS).clear()

    def _net(self, name: str) -> None:
        """minus = del - red - ins, plus = ins - del: an insertion that was in the old state must have been deleted."""
        gone, red, came = (self.relations.found(name, v) for v in (Variant.DEL, Variant.RED, Variant.INS))
        lost, won = gone.known, came.known
        gone.put([self.jobs.minus(frame, [*red.known, *won]) for frame in lost])
        came.put([self.jobs.minus(frame, lost) for frame in won])
        red.clear()

    def _difference(self, name: str) -> None:
        """plus = new - old, minus = old - new, where both states were evaluated."""
        old, new = self.relations.found(name, Variant.OLD), self.relations.found(name, Variant.NEW)
        gone, came = self.relations.found(name, Variant.DEL), self.relations.found(name, Variant.INS)
        gone.put([self.jobs.minus(frame, new.known) for frame in old.known])
        came.put([self.jobs.minus(frame, old.known) for frame in new.known])

    def _aggregate(self, section: Section, aggregate: Aggregate) -> None:
        if section.strategy is Strategy.RECOMPUTE:
            for state in (Variant.OLD, Variant.NEW):
                source = self.relations.state(aggregate.source, state)
                assert isinstance(source, Source)
                table = self.relations.found(aggregate.relation, state)
                if not source.empty:
                    rows = f"SELECT {listed(source.types)} FROM {source.text()}"
                    table.add(folded(aggregate, self.relations.program, rows, self.jobs))
            self._difference(aggregate.relation)
        elif section.strategy.is_stored:
            self.beside.update(groups.change(aggregate, self.relations, self.kept, self.jobs, self.shared))
        else:
            groups.compare(aggregate, self.relations, self.jobs)


def aggregate_of(component: Component) -> Aggregate | None:
    return next((d for d in component.definitions if isinstance(d, Aggregate)), None)
