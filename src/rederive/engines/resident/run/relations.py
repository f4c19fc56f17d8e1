"""Where an atom of a maintenance rule finds its rows: stored, transient, through an overlay, or derived on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from rederive.analysis.closure import closure_from, closure_of
from rederive.analysis.graph import Component
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.closure_search import ClosureAnswers, StartedClosureAnswers
from rederive.engines.resident.run.derived_views import Answers, DerivedView, GroupAnswers, RuleAnswers
from rederive.engines.resident.run.extreme_groups import ExtremeGroups
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.refolded_groups import RefoldedGroups
from rederive.engines.resident.run.window_groups import WindowGroups
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.column_table import ColumnTable, is_wide
from rederive.engines.resident.storage.table import Overlay, Readable, StoredTable, Table
from rederive.ir.rules import EXTREMES, TOTALS, Aggregate, Atom, Variant
from rederive.limits import Limits
from rederive.maintain.passes.magic_sets import BindingPattern, QueryRules
from rederive.maintain.program import MaintenanceProgram, Strategy


def is_stored_by_column(maintenance: MaintenanceProgram, name: str) -> bool:
    """Whether the rows of a relation are arrays: wide base relations, and views without recursion that are wide or aggregate."""
    relation, section = maintenance.program.relations[name], maintenance.section_of.get(name)
    if not maintenance.program.is_view(name):
        return is_wide(relation)
    if section is None or section.component.recursive or not section.is_stored:
        return False
    aggregate = section.aggregate
    if aggregate is not None:
        return aggregate.is_window or (aggregate.function in TOTALS | EXTREMES and bool(aggregate.group))
    return section.strategy is Strategy.MATERIALIZED and is_wide(relation)


def stored_key(maintenance: MaintenanceProgram, name: str) -> tuple[int, ...]:
    """The columns that no two rows of a relation share: as declared, or the group of an aggregate that is stored by column."""
    relation, section = maintenance.program.relations[name], maintenance.section_of.get(name)
    if section is not None and section.aggregate is not None and is_stored_by_column(maintenance, name):
        return tuple(range(relation.arity - 1))
    return relation.key


def groups_class(aggregate: Aggregate) -> type[Groups]:
    """How an aggregate is maintained."""
    if aggregate.is_window:
        return WindowGroups
    if aggregate.function in EXTREMES:
        return ExtremeGroups
    return Groups if aggregate.function in TOTALS else RefoldedGroups


@dataclass(frozen=True, slots=True)
class Detached:
    """Tables that were taken out of a program, until it is known that they are not needed any more."""

    tables: Mapping[tuple[str, Variant], Table]
    wide: Mapping[str, ColumnTable]


class Tables:
    """The tables of all relations and variants, made when first named.

    The maintenance program says which new states are overlays; the views `on_demand` are not stored in any state.
    """

    def __init__(
        self,
        maintenance: MaintenanceProgram,
        on_demand: Collection[str],
        codes: Codes,
        meter: Meter,
        limits: Limits,
    ) -> None:
        self.use(maintenance, on_demand)
        self.codes = codes
        self.meter = meter
        self.limits = limits
        self.transient: list[Table] = []  # what a transaction fills and its end empties
        self._tables: dict[tuple[str, Variant], Table] = {}
        self._wide: dict[str, ColumnTable] = {}
        self.answers: dict[tuple[Component, Variant], Answers | ClosureAnswers] = {}

    def use(self, maintenance: MaintenanceProgram, on_demand: Collection[str]) -> None:
        """Follow a maintenance program: the first one, or one that differs in new relations, or that stores more of the old."""
        self.maintenance = maintenance
        self.program = maintenance.program
        self.states = maintenance.states
        self.on_demand = frozenset(on_demand)

    def detach(self, relations: Collection[str], unstored: Collection[str] = ()) -> Detached:
        """Take out the tables of some relations, and the stored ones of others; what was derived of them is forgotten."""
        if not relations and not unstored:
            return Detached({}, {})
        changed = {*relations, *unstored}
        keys = [key for key in self._tables if key[0] in relations or (key[0] in unstored and key[1] is Variant.OLD)]
        taken = {key: self._tables.pop(key) for key in keys}
        wide = {name: self._wide.pop(name) for name in changed if name in self._wide}
        identities = set(map(id, taken.values()))
        self.transient = [table for table in self.transient if id(table) not in identities]
        # One by one: the hash of a component is that of all its rules.
        for key in [key for key in self.answers if not changed.isdisjoint(key[0].relations)]:
            del self.answers[key]
        return Detached(taken, wide)

    def attach(self, detached: Detached) -> None:
        """Put back what was taken out."""
        self._tables.update(detached.tables)
        self._wide.update(detached.wide)
        self.transient += [table for (_, variant), table in detached.tables.items() if variant is not Variant.OLD]

    def table(self, relation: str, variant: Variant = Variant.OLD) -> Table:
        """Return the table of a relation in one variant, made when it is first named."""
        key = (relation, variant)
        if key not in self._tables:
            assert variant is not Variant.OLD or relation not in self._wide, f"{relation} is stored by column"
            name = f"{relation}^{variant.value}" if variant is not Variant.OLD else relation
            declared = self.program.relations[relation]
            self._tables[key] = Table(name, declared.arity, declared.key)
            # Only old states outlive a transaction.
            if variant is not Variant.OLD:
                self.transient.append(self._tables[key])
        return self._tables[key]

    def stored_table(self, relation: str) -> StoredTable:
        """Return the table of a relation's old state, which is by column where `is_stored_by_column` says so."""
        declared = self.program.relations[relation]
        if relation in self._wide:
            return self._wide[relation]
        if (relation, Variant.OLD) in self._tables or not is_stored_by_column(self.maintenance, relation):
            return self.table(relation)
        return self._wide.setdefault(relation, ColumnTable(relation, declared.arity, stored_key(self.maintenance, relation)))

    def stored(self) -> Iterable[StoredTable]:
        """All tables, those of a transaction included."""
        return (*self._tables.values(), *self._wide.values())

    def adopt(self, relation: str, table: StoredTable) -> None:
        """Use a table that already holds rows."""
        # The declared key may differ from that of the program before.
        key = self.program.relations[relation].key
        if isinstance(table, ColumnTable):
            table.use_key(stored_key(self.maintenance, relation))
            self._wide[relation] = table
        else:
            table.key = key
            self._tables[relation, Variant.OLD] = table

    def resolve(self, atom: Atom) -> Readable:
        """Return what an atom of a rule reads."""
        return self.source(atom.relation, atom.variant)

    def source(self, relation: str, variant: Variant) -> Readable:
        """Return what a relation is read from in one variant: an overlay, a derived view or a table."""
        state = self.states.get(relation)
        # p^new = (p - p^del) + p^came, by the law that the maintenance program gives for p (decision 1).
        if variant is Variant.NEW and state is not None:
            came = tuple(self.table(relation, v) for v in state.came)
            return Overlay(self.source(relation, Variant.OLD), self.table(relation, state.gone), came)
        # Without a law, a new state is derived from the new states below.
        if variant in (Variant.OLD, Variant.NEW) and relation in self.on_demand:
            return self.demand(relation, variant)
        return self.table(relation, variant) if variant is not Variant.OLD else self.stored_table(relation)

    def demand(self, relation: str, state: Variant) -> Readable:
        """A view derived on demand in one state of the database."""
        component = self.maintenance.component(relation)
        # One set of answers for a component and a state: mutually recursive views share their fixpoint.
        if (component, state) not in self.answers:
            self.answers[component, state] = self._answers_of(component, state)
        answers = self.answers[component, state]
        return answers if isinstance(answers, ClosureAnswers) else DerivedView(answers, self.program.relations[relation])

    def _answers_of(self, component: Component, state: Variant) -> Answers | ClosureAnswers:
        for definition in component.definitions:
            if isinstance(definition, Aggregate):
                source = self.source(definition.source, state)
                view = self.program.relations[definition.relation]
                return GroupAnswers(definition, self.groups(definition), view, source, self.meter)
        lower = partial(self.source, variant=state)
        # By way of this object: the program that is followed may be another one when a pattern is first requested.
        relations, limits = self.program.relations, self.limits
        rules = RuleAnswers(component, relations, self._query_rules, lower, self.codes, self.meter, limits)
        closure = closure_of(component)
        # A search walks codes, so the halves of the closure must be one column each, and its steps one relation.
        if closure is not None and closure.step is not None and closure.width == 1:
            return ClosureAnswers(closure.relation, self.source(closure.step, state), rules, self.meter)
        # The ends from one start, which a monitored view names: reached or not is decided by a search from both sides.
        if (part := closure_from(component)) is not None:
            start = self.codes.codec(part.start.type).encode(part.start.value)
            return StartedClosureAnswers(part.relation, start, self.source(part.step, state), rules, self.meter)
        return rules

    def _query_rules(self, pattern: BindingPattern) -> QueryRules:
        return self.maintenance.query_rules(pattern)

    def groups(self, aggregate: Aggregate) -> Groups:
        """Return the folding state of an aggregate, without any group."""
        source, view = self.program.relations[aggregate.source], self.program.relations[aggregate.relation]
        return groups_class(aggregate)(aggregate, source, view.columns[-1].type, self.codes)

    def rows(self, relation: str) -> float:
        """For `analysis.cost`: the rows of a relation, a guess where it is not stored."""
        # 1,000: only compared with other estimates, and a view derived on demand is seldom tiny.
        return float(len(self.stored_table(relation))) if relation not in self.on_demand else 1000.0

    def fanout(self, relation: str, bound: tuple[int, ...]) -> float:
        """For `analysis.cost`: about how many rows match a key of these columns."""
        return self.source(relation, Variant.OLD).fanout(bound) if self.rows(relation) else 0.0

    def derived(self, relation: str, state: Variant = Variant.OLD) -> Table | None:
        """What has been derived on demand of a view so far."""
        answers = self.answers.get((self.maintenance.component(relation), state))
        return answers.table(relation) if answers is not None else None

    def derived_sizes(self) -> dict[str, int]:
        """How many rows of each view were derived, in both states together."""
        sizes: dict[str, int] = {}
        for (component, _), answers in self.answers.items():
            for name in component.relations:
                if size := answers.size(name):
                    sizes[name] = sizes.get(name, 0) + size
        return sizes

    def forget(self) -> None:
        """Drop all that was derived on demand."""
        for answers in self.answers.values():
            answers.clear()
