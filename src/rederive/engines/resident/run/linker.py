"""From a maintenance program to what runs: tables for every variant, a compiled function for every rule and driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from rederive.analysis.bindings import Fanout, join_order
from rederive.analysis.closure import closure_of
from rederive.analysis.graph import Component, edges, inventing_rule
from rederive.analysis.types import variable_types
from rederive.engines.resident.compile.findings import Counts, Keys, Pending
from rederive.engines.resident.compile.join_plan import preserves_leaf
from rederive.engines.resident.compile.rule_compiler import Function as Compiled
from rederive.engines.resident.compile.rule_compiler import compile_rule
from rederive.engines.resident.run.aged_deletions import AgedDeletions, AgedView, RenewedAges
from rederive.engines.resident.run.ages import Ages, EarlierRows, Moments, Timeline
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.closure_deletions import ClosureDeletions
from rederive.engines.resident.run.closure_search import ClosureAnswers
from rederive.engines.resident.run.column_linker import ColumnLinker
from rederive.engines.resident.run.filtration import FilteredUpdates, FilterPhase, PropagationRule, Traced, step_of
from rederive.engines.resident.run.fixpoint import Fixpoint, Seed, Target
from rederive.engines.resident.run.group_totals import SavedTotals
from rederive.engines.resident.run.patience import GUESSED, Patience
from rederive.engines.resident.run.phases import (
    ClosurePhase,
    ComparePhase,
    CostEstimate,
    CountInitial,
    CountPhase,
    DiffPhase,
    FoldPhase,
    GroupInitial,
    GroupPhase,
    LinkedSection,
    NetPhase,
    Runnable,
    SetPhase,
)
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.run.saved_state import SavedState
from rederive.engines.resident.run.window_groups import WindowGroups
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.memory import Arrays
from rederive.engines.resident.storage.table import Key, Leaf, Readable, Table
from rederive.ir.rules import Aggregate, Atom, Literal, Negation, Rule, Variant, literal_variables
from rederive.ir.terms import Type
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule
from rederive.maintain.program import MaintenanceProgram, Phase, PlanExtension, Proof, ProofOrder, Section, Semantics
from rederive.scalar.failures import ScalarError

Flow = Callable[[Key], list[Key]]


def _searched(rule: Rule, fanout: Fanout) -> frozenset[Atom]:
    """The literals p^earlier of a proof whose primary key is not known when they are reached."""
    start, *rest = rule.body
    steps = join_order(rest, frozenset(v.name for v in literal_variables(start)), fanout)
    earlier = ((step.literal, step.bound) for step in steps if isinstance(step.literal, Atom))
    return frozenset(
        atom for atom, bound in earlier if atom.variant is Variant.EARLIER and not {*range(len(atom.terms) - 1)}.issubset(bound)
    )


def _in_view(literal: Literal) -> Literal:
    assert isinstance(literal, Atom)
    return literal.as_variant(Variant.OLD)


def _puts_back(phase: Phase) -> bool:
    return any(m.rule.head.variant is Variant.RED for m in phase.rules)


@dataclass(frozen=True, slots=True)
class AuxiliaryState:
    """What is stored besides the rows of views, by view; `seconds` is by component."""

    counts: dict[str, dict[CodedRow, int]]
    groups: dict[str, Groups]
    ages: dict[str, Ages]
    seconds: dict[tuple[str, ...], float]


class Linker:
    """Compiles the rules of one maintenance program against its tables.

    First the initial evaluation of a section, then, when its views are filled, its phases: sizes guide the join orders.
    """

    def __init__(self, maintenance: MaintenanceProgram, tables: Tables, codes: Codes, trace: Traced = lambda: None) -> None:
        self.program = maintenance.program
        self.trace = trace
        self.tables = tables
        self.codes = codes
        self._counts: dict[str, dict[CodedRow, int]] = {}
        self._groups: dict[str, Groups] = {}
        self._ages: dict[str, Ages] = {}
        self.by_column = ColumnLinker(maintenance, tables, codes)
        # Seconds of the first evaluation of a component.
        self.seconds: dict[tuple[str, ...], float] = {}

    def use(self, maintenance: MaintenanceProgram, extension: PlanExtension) -> None:
        """Follow a maintenance program that extends the one before, or the one before again; the tables follow it already."""
        self.program = maintenance.program
        self.by_column.use(maintenance, extension)

    def detach(self, names: Collection[str]) -> AuxiliaryState:
        """Take out the auxiliary state of views."""
        return AuxiliaryState(
            {name: self._counts.pop(name) for name in names if name in self._counts},
            {name: self._groups.pop(name) for name in names if name in self._groups},
            {name: self._ages.pop(name) for name in names if name in self._ages},
            {found: self.seconds.pop(found) for found in list(self.seconds) if found[0] in names},
        )

    def attach(self, state: AuxiliaryState) -> None:
        """Put back what was taken out."""
        self._counts.update(state.counts)
        self._groups.update(state.groups)
        self._ages.update(state.ages)
        self.seconds.update(state.seconds)

    def auxiliary_state(self) -> Iterator[tuple[str, Mapping[Any, object] | Arrays]]:
        """What is stored besides the rows of each view: counts of derivations, totals, orders of partitions, ages."""
        yield from self._counts.items()
        yield from ((name, groups.totals) for name, groups in self._groups.items() if groups.has_totals)
        yield from ((name, groups) for name, groups in self._groups.items() if isinstance(groups, WindowGroups))
        yield from ((name, ages.moments) for name, ages in self._ages.items())

    def inherit(self, before: Linker, names: Collection[str]) -> None:
        """Take over the auxiliary state of views from another linker."""
        self._counts.update({name: counts for name, counts in before._counts.items() if name in names})
        self._groups.update({name: groups for name, groups in before._groups.items() if name in names})
        self._ages.update({name: ages for name, ages in before._ages.items() if name in names})
        self.seconds.update({component: time for component, time in before.seconds.items() if component[0] in names})

    def save(
        self,
    ) -> tuple[dict[str, dict[CodedRow, int]], dict[str, SavedTotals], dict[str, dict[Key, Moments]], dict[str, int]]:
        """The auxiliary state of all views, in the order of `SavedState`."""
        totals = {name: groups.totals.save() for name, groups in self._groups.items() if groups.has_totals}
        moments = {name: ages.moments for name, ages in self._ages.items()}
        return self._counts, totals, moments, {name: ages.timeline.now for name, ages in self._ages.items()}

    def restore(self, section: Section, saved: SavedState) -> None:
        """Take over the saved auxiliary state of a section's views, instead of filling them."""
        self._timeline(section)
        for definition in section.component.definitions:
            if isinstance(definition, Aggregate) and definition.relation in saved.totals:
                self._stored_groups(definition).totals.restore(saved.totals[definition.relation])
        for name in section.component.relations:
            if name in saved.counts:
                self._counts[name] = saved.counts[name]
            if name in saved.moments:
                self._ages[name].restore(saved.moments[name])
                self._ages[name].timeline.now = saved.now[name]
        if section.component.relations in saved.seconds:
            self.seconds[section.component.relations] = saved.seconds[section.component.relations]

    def initial(self, section: Section) -> tuple[Runnable, ...]:
        """The phases that fill the section's views for the first time; none where the views are not stored."""
        self._timeline(section)
        return tuple(self._initial_phase(section, phase) for phase in section.initial)

    def link(self, section: Section) -> LinkedSection:
        """The section's phases, to run at each transaction."""
        component = section.component
        names = {edge.source for definition in component.definitions for edge in edges(definition)}
        influents = {n: (self.tables.table(n, Variant.DEL), self.tables.table(n, Variant.INS)) for n in sorted(names)}
        phases = self._phases(section, section.phases)
        differentials = self.by_column.phase(section, phases)
        unpack = self.by_column.unpack(names)
        if differentials is not None:
            phases = (differentials,)
        elif not self.by_column.is_grouped(section):
            phases = (*unpack, *phases)
        if not section.from_scratch:
            return LinkedSection(section, influents, phases)
        # Within the component nothing has changed yet when the section starts, so only relations outside decide.
        outside = {name: tables for name, tables in influents.items() if name not in component.relations}
        patience, forget = self._patience(section, outside), partial(self._forget, component)
        estimate = CostEstimate(component, outside, self.tables) if section.is_adaptive else None
        from_scratch = self.by_column.comparison(section, (*unpack, *self._from_scratch(section)))
        return LinkedSection(section, outside, phases, from_scratch, estimate, patience, forget)

    def _from_scratch(self, section: Section) -> tuple[Runnable, ...]:
        timeline = self._timeline(section)
        renewed: tuple[Runnable, ...] = (RenewedAges(timeline),) if timeline is not None else ()
        return renewed + self._phases(section, section.from_scratch)

    def _patience(self, section: Section, outside: Iterable[str]) -> Patience:
        names = section.component.relations
        if names not in self.seconds:
            # Never evaluated: a guess from the rows that are read.
            self.seconds[names] = GUESSED * sum(map(self.tables.rows, outside))
        return Patience(self.seconds[names], self.tables.meter)

    def _forget(self, component: Component) -> None:
        """Empty what the phases of a component have filled, and what they have derived."""
        for name in component.relations:
            for variant in (Variant.DEL, Variant.RED, Variant.INS, Variant.BEFORE, Variant.FRESH):
                self.tables.table(name, variant).clear()
        self.tables.forget()

    def _initial_phase(self, section: Section, phase: Phase) -> Runnable:
        match phase.semantics, phase.fold:
            case Semantics.FOLD, Fold(aggregate, state):
                view, source = self.tables.stored_table(aggregate.relation), self.tables.source(aggregate.source, state)
                whole = self.by_column.whole(aggregate, state)
                return GroupInitial(self._stored_groups(aggregate), source, view, whole)
            case Semantics.BAG, _:
                return self._count_initial(section.component, phase)
            case _ if section.component.recursive:
                return self._set_phase(section.component, phase.rules)
            case _:
                return self._initial_rules(section.component, phase.rules)

    def _initial_rules(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> Runnable:
        """The first evaluation of a view without recursion: by column, or by row into a table of the transaction."""
        (name,) = component.relations
        view = self.tables.stored_table(name)
        if isinstance(view, Table):
            return self.by_column.evaluation(rules, self._set_phase(component, rules), view, view)
        # Rules for rows add leaf by leaf, which arrays are not made for.
        fresh = tuple(replace(m, rule=replace(m.rule, head=m.rule.head.as_variant(Variant.FRESH))) for m in rules)
        by_row = self._set_phase(component, fresh)
        return self.by_column.evaluation(rules, by_row, self.tables.table(name, Variant.FRESH), view)

    def _phases(self, section: Section, phases: tuple[Phase, ...]) -> tuple[Runnable, ...]:
        # What was proved exactly needs no (R).
        exact = any(phase.proof is not None and phase.proof.order.is_exact for phase in phases)
        needed = (phase for phase in phases if not (exact and _puts_back(phase)))
        return tuple(runnable for phase in needed for runnable in self._phase(section, phase))

    def _phase(self, section: Section, phase: Phase) -> tuple[Runnable, ...]:
        t = self.tables.table
        match phase.semantics:
            case Semantics.SET if phase.proof is not None:
                if phase.proof.order is ProofOrder.COMPONENTS:
                    return (self._closure_phase(section.component),)
                return (self._aged_deletions(section, phase.rules, phase.proof),)
            case Semantics.SET:
                return (self._set_phase(section.component, phase.rules),)
            case Semantics.BAG:
                return (self._count_phase(section.component, phase),)
            # The rules (E1), (E2) in place: after it, p^del and p^ins are the exact minus and plus.
            case Semantics.NET:
                return tuple(
                    NetPhase(t(name, Variant.DEL), t(name, Variant.RED), t(name, Variant.INS))
                    for name in section.component.relations
                )
            case Semantics.FILTERED:
                return (self._filter_phase(section.component, phase.rules),)
            case Semantics.DIFF:
                # One rule for plus and one for minus say the same about a view; the phase does both.
                return tuple(self._diff_phase(m.rule, section) for m in phase.rules if m.rule.head.variant is Variant.PLUS)
            case Semantics.FOLD:
                assert phase.fold is not None
                return (self._fold_phase(phase.fold),)
            case Semantics.GROUPS:
                assert phase.fold is not None
                return (self._group_phase(section, phase.fold.aggregate),)
            case _:
                assert_never(phase.semantics)

    def _diff_phase(self, plus: Rule, section: Section) -> DiffPhase:
        """From p^plus :- p^after, !p. A stored old state stays as it is."""
        match plus.body:
            case (Atom(name, _, after), Negation(Atom(_, _, before))):
                t = self.tables.table
                gone, came = t(name, Variant.DEL), t(name, Variant.INS)
                old = self.tables.stored_table(name) if before is Variant.OLD else t(name, before)
                return DiffPhase(old, t(name, after), gone, came, is_stored=section.is_stored)
            case _:
                raise AssertionError("a difference has two states")

    # Sets

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
                # A driver that this phase itself fills makes the rule a variant of semi-naive evaluation: it runs for
                # each new leaf. Any other driver is complete already, and the rule runs once, as a seed.
                growing = self._growing(atom, targets) if atom is not None else None
                if growing is not None:
                    growing.variants.append(function)
                    flows.append(self._flow(m.rule, driver, types) if driver is not None else None)
                else:
                    seeds.append(Seed(function, self.tables.resolve(atom) if atom is not None else None))
        # A sweep can follow the flow of one recursive rule only: two would need the union of their flows.
        if len(targets) == 1 and len(flows) == 1:
            (target,), (target.flow,) = targets.values(), flows
        return SetPhase(Fixpoint(tuple(seeds), tuple(targets.values()), self.codes, inventing_rule(component)))

    # Deletions that are proved

    def _timeline(self, section: Section) -> Timeline | None:
        """The moments of the component's rows, where its deletions are proved by age."""
        orders = {phase.proof.order for phase in section.phases if phase.proof is not None}
        if ProofOrder.AGES not in orders:
            return None
        names = section.component.relations
        if names[0] not in self._ages:
            timeline = Timeline()
            self._ages.update({name: Ages(self.tables.table(name), timeline) for name in names})
        return self._ages[names[0]].timeline

    def _recorder(self, head: Atom) -> Callable[[Key, Leaf], None] | None:
        """How the leaves that a phase takes in are recorded, for views whose rows have ages."""
        ages = self._ages.get(head.relation)
        if ages is None:
            return None
        timeline = ages.timeline
        match head.variant:
            case Variant.OLD:
                return ages.record
            case Variant.RED | Variant.INS:
                return lambda key, leaf: timeline.arrived.append((ages, key, leaf.copy()))
            case Variant.FRESH:
                return lambda key, leaf: timeline.evaluated.append((ages, key, leaf.copy()))  # type: ignore[union-attr]
            case _:
                return None

    def _aged_deletions(self, section: Section, rules: tuple[MaintenanceRule, ...], proof: Proof) -> AgedDeletions:
        timeline = self._timeline(section)
        assert timeline is not None
        gone = {name: self.tables.table(name, Variant.DEL) for name in section.component.relations}
        views = {name: AgedView(self._ages[name], table) for name, table in gone.items()}
        seeds: list[Seed] = []
        for m in rules:
            (driver,) = m.drivers
            assert driver is not None
            atom = m.rule.body[driver]
            assert isinstance(atom, Atom)
            into = Pending(views[m.rule.head.relation].pending)
            if atom.relation in views:
                views[atom.relation].variants.append(self._dependents(m.rule, driver, into, views[m.rule.head.relation]))
            else:
                types = variable_types(m.rule, self.program.relations)
                function = compile_rule(m.rule, driver, into, self.tables.resolve, self.codes, types)
                seeds.append(Seed(function, self.tables.resolve(atom)))
        # Rules that do not read the component first: they need no other row.
        for m in sorted(proof.rules, key=lambda m: any(isinstance(a, Atom) and a.relation in views for a in m.rule.body[1:])):
            views[m.rule.head.relation].proofs.append(self._proof(m.rule, views))
        return AgedDeletions(tuple(seeds), tuple(views.values()), timeline)

    def _dependents(self, rule: Rule, driver: int, into: Pending, view: AgedView) -> Compiled:
        """(Di) from a hidden leaf, for the keys that are due."""
        types = variable_types(rule, self.program.relations)
        if len(rule.head.terms) != 2:
            return compile_rule(rule, driver, into, self.tables.resolve, self.codes, types)
        due = Atom(rule.head.relation, rule.head.terms[:1], Variant.EARLIER)  # no rule (Di) has such a literal

        def resolve(atom: Atom) -> Readable:
            return view.due if atom == due else self.tables.resolve(atom)

        return compile_rule(Rule(rule.head, (*rule.body, due), rule.span), driver, into, resolve, self.codes, types)

    def _proof(self, rule: Rule, views: Mapping[str, AgedView]) -> Compiled:
        """A function from a leaf of rows that may be deleted to those of them that earlier rows derive."""
        direct = {name: EarlierRows(view.ages, view.gone) for name, view in views.items()}
        tested = {name: EarlierRows(view.ages, view.gone, lazy=True) for name, view in views.items()}
        searched: frozenset[Atom] = frozenset()

        def resolve(atom: Atom) -> Readable:
            if atom.variant is Variant.EARLIER:
                return (tested if atom in searched else direct)[atom.relation]
            return self.tables.resolve(atom)

        searched = _searched(rule, lambda atom, bound: resolve(atom).fanout(bound))
        # p^earlier is part of p: rows are found by an index of p, then tested.
        body = [a for literal in rule.body for a in ((_in_view(literal), literal) if literal in searched else (literal,))]
        types = variable_types(rule, self.program.relations)
        into = Pending(views[rule.head.relation].kept)
        return compile_rule(Rule(rule.head, tuple(body), rule.span), 0, into, resolve, self.codes, types)

    def _closure_phase(self, component: Component) -> ClosurePhase:
        closure = closure_of(component)
        assert closure is not None
        assert closure.step is not None
        step, view = self.tables.source(closure.step, Variant.OLD), self.tables.table(closure.relation)
        lost_steps, gone = self.tables.table(closure.step, Variant.DEL), self.tables.table(closure.relation, Variant.DEL)
        return ClosurePhase(ClosureDeletions(step.lookup((0,)), step.lookup((1,)), lost_steps, view.lookup((0,)), gone))

    def _flow(self, rule: Rule, driver: int, types: Mapping[str, Type]) -> Flow | None:
        """Which keys a leaf of the driver flows to, where its key alone decides that."""
        if not preserves_leaf(rule, driver):
            return None
        found: list[Key] = []
        function = compile_rule(rule, driver, Keys(found), self.tables.resolve, self.codes, types)

        def flow(key: Key) -> list[Key]:
            found.clear()
            # No bitmap is read on the way to the keys of the head.
            function(key, None)
            return found.copy()

        return flow

    def _target(self, head: Atom) -> Target:
        """Insertions must be new in the new state, where that is an overlay; everything else must be new in its own table."""
        table = self.tables.table(head.relation, head.variant)
        seen: Readable = table
        # Idle insertions are dropped when they are found, so that they do not propagate (decision 2).
        if head.variant is Variant.INS and head.relation in self.tables.states:
            seen = self.tables.source(head.relation, Variant.NEW)
        # A state that is derived on demand is probed for the rows found, not looked up whole.
        if seen.lazy:
            return Target(table, table.lookup(table.primary_columns), disqualify=seen.probe())
        return Target(table, seen.lookup(table.primary_columns), record=self._recorder(head))

    def _growing(self, atom: Atom, targets: Mapping[tuple[str, Variant], Target]) -> Target | None:
        """The target whose growth is the driver's: the atom's own table, or the part of the new state that this phase adds to."""
        if (atom.relation, atom.variant) in targets:
            return targets[atom.relation, atom.variant]
        # p^new = (p - p^del) + p^red + p^ins: in the phase that fills p^red or p^ins, it grows by those alone.
        state = self.tables.states.get(atom.relation)
        if atom.variant is Variant.NEW and state is not None:
            return next((targets[atom.relation, v] for v in state.came if (atom.relation, v) in targets), None)
        return None

    # Filtration

    def _filter_phase(self, component: Component, rules: tuple[MaintenanceRule, ...]) -> FilterPhase:
        """The filter is tested once for each approximation, not in every join."""
        views = {m.rule.head.relation: self._filtered(m) for m in rules}
        seeds: list[tuple[PropagationRule, Readable]] = []
        steps: dict[str, list[PropagationRule]] = {}
        for m in rules:
            (driver,) = m.drivers
            assert driver is not None
            atom = m.rule.body[driver]
            assert isinstance(atom, Atom)
            assert m.origin is not None
            types = variable_types(m.rule, self.program.relations)
            into = Pending(views[m.rule.head.relation].target.pending)
            function = compile_rule(m.rule, driver, into, self.tables.resolve, self.codes, types)
            sign = "minus" if m.rule.head.variant is Variant.DEL else "plus"
            step_atom = step_of(m.rule, atom)
            follow = self.tables.resolve(step_atom).lookup((0,)) if step_atom is not None else None
            step = PropagationRule(function, m.origin, atom.relation, m.rule.head.relation, sign, follow)
            # Updates of the same sign within the component lead to further calls; the others start them.
            if atom.relation in views and atom.variant is m.rule.head.variant:
                steps.setdefault(atom.relation, []).append(step)
            else:
                seeds.append((step, self.tables.resolve(atom)))
        return FilterPhase(seeds, steps, views, self.codes, inventing_rule(component), self.trace)

    def _filtered(self, m: MaintenanceRule) -> FilteredUpdates:
        assert m.filter is not None
        head = m.rule.head
        table = self.tables.table(head.relation, head.variant)
        other = self.tables.source(head.relation, m.filter)
        decided = other.decided() if isinstance(other, ClosureAnswers) else lambda _: None
        target = Target(table, table.lookup(table.primary_columns))
        return FilteredUpdates(target, other.probe(), Table("disqualified", table.arity), decided)

    # Counts

    def _count_phase(self, component: Component, phase: Phase) -> CountPhase:
        (name,) = component.relations
        changes: dict[CodedRow, int] = {}
        failures: list[ScalarError] = []
        compiled = []
        for m in phase.rules:
            (driver,) = m.drivers
            assert driver is not None
            atom = m.rule.body[driver]
            assert isinstance(atom, Atom)
            types = variable_types(m.rule, self.program.relations)
            function = compile_rule(m.rule, driver, Counts(changes, failures), self.tables.resolve, self.codes, types)
            # (Ai) adds derivations, (Si) takes them away.
            times = 1 if m.rule.head.variant is Variant.ADD else -1
            compiled.append((function, self.tables.table(atom.relation, atom.variant), times))
        counts = self._counts.setdefault(name, {})
        gone, came = self.tables.table(name, Variant.DEL), self.tables.table(name, Variant.INS)
        return CountPhase(tuple(compiled), changes, counts, gone, came, failures, self._strict_phase(component, phase))

    def _count_initial(self, component: Component, phase: Phase) -> Runnable:
        (name,) = component.relations
        changes: dict[CodedRow, int] = {}
        failures: list[ScalarError] = []
        functions = []
        for m in phase.rules:
            types = variable_types(m.rule, self.program.relations)
            functions.append(compile_rule(m.rule, None, Counts(changes, failures), self.tables.resolve, self.codes, types))
        view, counts = self.tables.stored_table(name), self._counts.setdefault(name, {})
        return CountInitial(tuple(functions), changes, counts, view, failures, self._strict_phase(component, phase))

    def _strict_phase(self, component: Component, phase: Phase) -> Callable[[], SetPhase]:
        """The strict rules, compiled when a functor first fails: most never do."""
        return lambda: self._set_phase(component, phase.strict)

    # Aggregates

    def _stored_groups(self, aggregate: Aggregate) -> Groups:
        # The totals outlive the transaction, so initial evaluation and maintenance share one object.
        return self._groups.setdefault(aggregate.relation, self.tables.groups(aggregate))

    def _fold_phase(self, fold: Fold) -> FoldPhase:
        source = self.tables.source(fold.aggregate.source, fold.state)
        return FoldPhase(self.tables.groups(fold.aggregate), source, self.tables.table(fold.aggregate.relation, fold.into))

    def _group_phase(self, section: Section, aggregate: Aggregate) -> Runnable:
        source, view = aggregate.source, aggregate.relation
        t, s = self.tables.table, self.tables.source
        if not section.is_stored:
            states = (s(view, Variant.OLD), s(view, Variant.NEW))
            arity = self.program.relations[source].arity
            changed = (t(source, Variant.DEL), t(source, Variant.INS))
            ranks = aggregate.is_window
            return ComparePhase(aggregate.group, arity, changed, states, (t(view, Variant.DEL), t(view, Variant.INS)), ranks)
        # A stored aggregate changes by the rows of the delta; s^new is read where an extreme left, and to number rows.
        change = (t(source, Variant.DEL), t(source, Variant.INS), s(source, Variant.NEW))
        self._stored_groups(aggregate).prepare(change[-1])
        stored = self.tables.stored_table(view)
        return GroupPhase(self._stored_groups(aggregate), change, (stored, t(view, Variant.DEL), t(view, Variant.INS)))
