"""From a maintenance program to what runs: tables for every variant, a compiled function for every rule and driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rederive.analysis.closure import closure_of
from rederive.analysis.cost import Estimate, estimate
from rederive.analysis.graph import Component, edges, inventing_rule
from rederive.analysis.types import variable_types
from rederive.engines.resident.compile.join_plan import preserves_leaf
from rederive.engines.resident.compile.rule_compiler import Counts, Keys, Pending, compile_rule
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.filtration import Filtered, FilterPhase, Step, Watch
from rederive.engines.resident.run.fixpoint import Fixpoint, Seed, Target
from rederive.engines.resident.run.phases import (
    ComparePhase,
    CountInitial,
    CountPhase,
    DiffPhase,
    FoldPhase,
    GroupInitial,
    GroupPhase,
    NetPhase,
    Runnable,
    SetPhase,
)
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.table import Key, Readable, Table
from rederive.ir.rules import Aggregate, Atom, Function, Rule, Variant
from rederive.ir.terms import Type
from rederive.maintain.passes.linearize import behind_step
from rederive.maintain.program import MaintenanceProgram, MaintenanceRule, Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.materialized import insertion_rules
from rederive.maintain.strategies.recompute import anew, evaluation
from rederive.scalar.failures import ScalarError

Flow = Callable[[Key], list[Key]]


class Estimating:
    """What a component's maintenance costs, by sizes as they are: views that were defined over empty relations do not stay small.

    The estimate is made anew when as many rows have changed as there were then, so that its cost is spread over them.
    """

    def __init__(self, component: Component, influents: Collection[str], tables: Tables) -> None:
        self._component = component
        self._names = tuple({*component.relations, *influents})
        self._tables = tables
        self._make()

    def present(self, changed: int = 0) -> Estimate:
        """The estimate for a transaction that changes so many rows."""
        self._changed += changed
        if self._changed > self._rows:
            self._make()
        return self._estimate

    def _make(self) -> None:
        self._estimate = estimate(self._component, self._tables)
        self._rows = sum(map(self._tables.rows, self._names))
        self._changed = 0


@dataclass(frozen=True, slots=True)
class LinkedSection:
    """A section that runs. `influents`: it has nothing to do where none of them changed.

    `anew` are the phases that evaluate the view from scratch, and `estimate` what that and the incremental way cost; None where
    there is no choice.
    """

    section: Section
    influents: Mapping[str, tuple[Table, Table]]
    phases: tuple[Runnable, ...]
    anew: tuple[Runnable, ...] = ()
    estimate: Estimating | None = None

    @property
    def always(self) -> bool:
        """Recomputation must run whatever changed: views above may need its states."""
        return self.section.strategy is Strategy.RECOMPUTE

    def affected(self) -> bool:
        return self.always or any(gone or came for gone, came in self.influents.values())

    def chosen(self) -> tuple[tuple[Runnable, ...], float]:
        """The phases to run for the changes at hand, and the tuples that they will touch, about."""
        if self.estimate is None:
            return self.phases, 0.0
        changed = {name: (len(gone), len(came)) for name, (gone, came) in self.influents.items() if gone or came}
        present = self.estimate.present(sum(gone + came for gone, came in changed.values()))
        incremental = present.incremental(changed)
        return (self.phases, incremental) if incremental <= present.whole else (self.anew, present.whole)


class Linker:
    """Compiles the rules of one maintenance program against its tables.

    First the initial evaluation of a section, then, when its views are filled, its phases: sizes guide the join orders.
    """

    def __init__(self, maintenance: MaintenanceProgram, tables: Tables, codes: Codes, watch: Watch | None = None) -> None:
        self.program = maintenance.program
        self.watch = watch
        self.tables = tables
        self.codes = codes
        self._counts: dict[str, dict[CodedRow, int]] = {}
        self._groups: dict[str, Groups] = {}

    def state(self) -> tuple[dict[str, dict[CodedRow, int]], dict[str, Groups]]:
        """What views keep beside their rows: derivation counts and the state of groups."""
        return self._counts, self._groups

    def inherit(self, before: Linker, names: Collection[str]) -> None:
        """Take over what another linker's views keep beside their rows: derivation counts and the state of groups."""
        self._counts.update({name: counts for name, counts in before._counts.items() if name in names})
        self._groups.update({name: groups for name, groups in before._groups.items() if name in names})

    def initial(self, section: Section) -> tuple[Runnable, ...]:
        """What fills the section's views for the first time; nothing where they are not kept."""
        if not section.strategy.stored:
            return ()
        aggregate = _aggregate_of(section)
        if aggregate is not None:
            view = self.tables.table(aggregate.relation)
            source = self.tables.source(aggregate.source, Variant.OLD)
            return (GroupInitial(self._kept_groups(aggregate), source, view),)
        if section.strategy is Strategy.COUNTING:
            return (self._count_initial(section.component),)
        return (self._set_phase(section.component, evaluation(section.component, Variant.OLD)),)

    def link(self, section: Section) -> LinkedSection:
        """The section's phases, to run at each transaction."""
        component = section.component
        aggregate = _aggregate_of(section)
        names = {edge.source for definition in component.definitions for edge in edges(definition)}
        influents = {n: (self.tables.table(n, Variant.DEL), self.tables.table(n, Variant.INS)) for n in sorted(names)}
        if aggregate is not None:
            return LinkedSection(section, influents, self._aggregate(section, aggregate))
        phases = tuple(runnable for phase in section.phases for runnable in self._phase(section, phase))
        if not section.adaptive:
            return LinkedSection(section, influents, phases)
        outside = {name: tables for name, tables in influents.items() if name not in component.relations}
        return LinkedSection(section, outside, phases, self._anew(component), Estimating(component, outside, self.tables))

    def _anew(self, component: Component) -> tuple[Runnable, ...]:
        t = self.tables.table
        compare = (
            DiffPhase(t(name), t(name, Variant.FRESH), t(name, Variant.DEL), t(name, Variant.INS), kept=True)
            for name in component.relations
        )
        return (self._set_phase(component, anew(component)), *compare)

    def _phase(self, section: Section, phase: Phase) -> tuple[Runnable, ...]:
        t = self.tables.table
        match phase.semantics:
            case Semantics.SET:
                return (self._set_phase(section.component, self._run_as(section, phase.rules)),)
            case Semantics.BAG:
                return (self._count_phase(section.component, phase.rules),)
            case Semantics.NET:
                return tuple(
                    NetPhase(t(name, Variant.DEL), t(name, Variant.RED), t(name, Variant.INS))
                    for name in section.component.relations
                )
            case Semantics.FILTERED:
                return (self._filter_phase(section.component, phase.rules),)
            case Semantics.DIFF:
                return tuple(
                    DiffPhase(t(name), t(name, Variant.NEW), t(name, Variant.DEL), t(name, Variant.INS))
                    for name in section.component.relations
                )
            case Semantics.GROUPS:
                raise AssertionError("aggregates are linked apart")

    # Sets

    @staticmethod
    def _run_as(section: Section, rules: tuple[MaintenanceRule, ...]) -> tuple[MaintenanceRule, ...]:
        """Where rows are derived, a new step of a closure is followed only if its own pair is new: asking for that costs less."""
        closure = closure_of(section.component)
        return rules if closure is None or section.strategy.stored else tuple(behind_step(closure, m) for m in rules)

    def _set_phase(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> SetPhase:
        targets = {(m.rule.head.relation, m.rule.head.variant): self._target(m.rule.head) for m in rules}
        seeds: list[Seed] = []
        flows: list[Flow | None] = []
        for m in rules:
            target = targets[m.rule.head.relation, m.rule.head.variant]
            types = variable_types(m.rule, self.program.relations)
            for driver in m.drivers:
                function = compile_rule(m.rule, driver, Pending(target.pending), self.tables.resolve, self.codes, types)
                atom = m.rule.body[driver] if driver is not None else None
                assert atom is None or isinstance(atom, Atom)
                growing = self._growing(atom, targets) if atom is not None else None
                if growing is not None:
                    growing.variants.append(function)
                    flows.append(self._flow(m.rule, driver, types) if driver is not None else None)
                else:
                    seeds.append(Seed(function, self.tables.resolve(atom) if atom is not None else None))
        if len(targets) == 1 and len(flows) == 1:
            (target,), (target.flow,) = targets.values(), flows
        return SetPhase(Fixpoint(tuple(seeds), tuple(targets.values()), self.codes, inventing_rule(component)))

    def _flow(self, rule: Rule, driver: int, types: Mapping[str, Type]) -> Flow | None:
        """Which keys a leaf of the driver flows to, where its key alone decides that."""
        if not preserves_leaf(rule, driver):
            return None
        found: list[Key] = []
        function = compile_rule(rule, driver, Keys(found), self.tables.resolve, self.codes, types)

        def flow(key: Key) -> list[Key]:
            found.clear()
            function(key, None)
            return found.copy()

        return flow

    def _target(self, head: Atom) -> Target:
        """Insertions must be new in the new state, where that is an overlay; everything else must be new in its own table."""
        table = self.tables.table(head.relation, head.variant)
        seen: Readable = table
        if head.variant is Variant.INS and head.relation in self.tables.states:
            seen = self.tables.source(head.relation, Variant.NEW)
        if seen.lazy:
            return Target(table, table.lookup(table.primary_columns), disqualify=seen.probe())
        return Target(table, seen.lookup(table.primary_columns))

    def _growing(self, atom: Atom, targets: Mapping[tuple[str, Variant], Target]) -> Target | None:
        """The target whose growth is the driver's: the atom's own table, or the part of the new state that this phase adds to."""
        if (atom.relation, atom.variant) in targets:
            return targets[atom.relation, atom.variant]
        state = self.tables.states.get(atom.relation)
        if atom.variant is Variant.NEW and state is not None:
            return next((targets[atom.relation, v] for v in state.came if (atom.relation, v) in targets), None)
        return None

    # Filtration

    def _filter_phase(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> FilterPhase:
        """The filter is the rule's last literal: it is asked once for each approximation, not in every join."""
        heads = {m.rule.head.relation: m.rule.head for m in rules}
        views = {name: self._filtered(head) for name, head in heads.items()}
        seeds: list[tuple[Step, Readable]] = []
        steps: dict[str, list[Step]] = {}
        for m in rules:
            (driver,) = m.drivers
            assert driver is not None
            propagated = Rule(m.rule.head, m.rule.body[:-1], m.rule.span)
            atom = propagated.body[driver]
            assert isinstance(atom, Atom)
            assert m.origin is not None
            types = variable_types(propagated, self.program.relations)
            into = Pending(views[m.rule.head.relation].target.pending)
            function = compile_rule(propagated, driver, into, self.tables.resolve, self.codes, types)
            sign = "minus" if m.rule.head.variant is Variant.DEL else "plus"
            step = Step(function, m.origin, atom.relation, m.rule.head.relation, sign)
            if atom.relation in views and atom.variant is m.rule.head.variant:
                steps.setdefault(atom.relation, []).append(step)
            else:
                seeds.append((step, self.tables.resolve(atom)))
        return FilterPhase(seeds, steps, views, self.codes, inventing_rule(component), self.watch)

    def _filtered(self, head: Atom) -> Filtered:
        table = self.tables.table(head.relation, head.variant)
        other = Variant.NEW if head.variant is Variant.DEL else Variant.OLD
        provable = self.tables.source(head.relation, other).probe()
        return Filtered(Target(table, table.lookup(table.primary_columns)), provable, Table("disqualified", table.arity))

    # Counts

    def _count_phase(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> CountPhase:
        (name,) = component.relations
        moved: dict[CodedRow, int] = {}
        failures: list[ScalarError] = []
        compiled = []
        for m in rules:
            (driver,) = m.drivers
            assert driver is not None
            atom = m.rule.body[driver]
            assert isinstance(atom, Atom)
            types = variable_types(m.rule, self.program.relations)
            function = compile_rule(m.rule, driver, Counts(moved, failures), self.tables.resolve, self.codes, types)
            times = 1 if m.rule.head.variant is Variant.ADD else -1
            compiled.append((function, self.tables.table(atom.relation, atom.variant), times))
        counts = self._counts.setdefault(name, {})
        gone, came = self.tables.table(name, Variant.DEL), self.tables.table(name, Variant.INS)
        return CountPhase(tuple(compiled), moved, counts, gone, came, failures, lambda: self._strict_phase(component))

    def _strict_phase(self, component: Component) -> SetPhase:
        """The insertions of a counted view by the new state alone."""
        rules = (definition for definition in component.definitions if isinstance(definition, Rule))
        return self._set_phase(component, tuple(m for rule in rules for m in insertion_rules(rule)))

    def _count_initial(self, component: Component) -> Runnable:
        (name,) = component.relations
        moved: dict[CodedRow, int] = {}
        failures: list[ScalarError] = []
        functions = []
        for rule in component.definitions:
            assert isinstance(rule, Rule)
            types = variable_types(rule, self.program.relations)
            functions.append(compile_rule(rule, None, Counts(moved, failures), self.tables.resolve, self.codes, types))
        view, counts = self.tables.table(name), self._counts.setdefault(name, {})
        return CountInitial(tuple(functions), moved, counts, view, failures, lambda: self._evaluated_once(component))

    def _evaluated_once(self, component: Component) -> SetPhase:
        """The rules of a counted view over the old state, into a table of their own."""
        return self._set_phase(component, anew(component, Variant.OLD))

    # Aggregates

    def _kept_groups(self, aggregate: Aggregate) -> Groups:
        return self._groups.setdefault(aggregate.relation, self.tables.groups(aggregate))

    def _aggregate(self, section: Section, aggregate: Aggregate) -> tuple[Runnable, ...]:
        source, view = aggregate.source, aggregate.relation
        t, s = self.tables.table, self.tables.source
        if section.strategy is Strategy.RECOMPUTE:
            return (
                FoldPhase(self.tables.groups(aggregate), t(source), t(view)),
                FoldPhase(self.tables.groups(aggregate), s(source, Variant.NEW), t(view, Variant.NEW)),
                DiffPhase(t(view), t(view, Variant.NEW), t(view, Variant.DEL), t(view, Variant.INS)),
            )
        changed = (t(source, Variant.DEL), t(source, Variant.INS), s(source, Variant.NEW))
        if not section.strategy.stored:
            states = (s(view, Variant.OLD), s(view, Variant.NEW))
            arity = self.program.relations[source].arity
            ranks = aggregate.function is Function.ROW_NUMBER
            return (
                ComparePhase(aggregate.group, arity, changed[:2], states, (t(view, Variant.DEL), t(view, Variant.INS)), ranks),
            )
        kept = self._kept_groups(aggregate)
        return (GroupPhase(kept, changed, (t(view), t(view, Variant.DEL), t(view, Variant.INS))),)


def _aggregate_of(section: Section) -> Aggregate | None:
    return next((d for d in section.component.definitions if isinstance(d, Aggregate)), None)
