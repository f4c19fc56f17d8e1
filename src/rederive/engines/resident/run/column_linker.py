"""From a maintenance program to what runs by column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rederive.analysis.graph import edges
from rederive.analysis.types import variable_types
from rederive.engines.resident.batch.batch_rule import BatchRule
from rederive.engines.resident.batch.encoding import as_batch
from rederive.engines.resident.batch.sources import ColumnSource, column_source
from rederive.engines.resident.batch.vectors import Batch, NotByColumn, Space
from rederive.engines.resident.run.column_phases import (
    ColumnComparison,
    ColumnInitial,
    ColumnPhase,
    Differential,
    UnpackPhase,
    pays,
)
from rederive.engines.resident.run.phases import Runnable
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.column_table import CodedColumns, ColumnTable
from rederive.engines.resident.storage.table import StoredTable, Table
from rederive.ir.rules import EXTREMES, TOTALS, Aggregate, Atom, Comparison, Negation, Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import MaintenanceProgram, PlanExtension, Section, Semantics, Strategy


class ColumnLinker:
    """Finds what of a program can run by column, and links it to the tables."""

    def __init__(self, maintenance: MaintenanceProgram, tables: Tables, codes: Codes) -> None:
        self._maintenance = maintenance
        self._program = maintenance.program
        self._tables = tables
        self._codes = codes
        self._space = Space(codes)
        self._sources: dict[tuple[str, Variant], ColumnSource | None] = {}
        self._whole: dict[str, Batch | None] = {}
        self._passed_on = {s.component.relations[0]: s for s in maintenance.sections if _is_passed_on(s)}

    def use(self, maintenance: MaintenanceProgram, extension: PlanExtension) -> None:
        """Follow a maintenance program that extends the one before, or the one before again."""
        changed = {name for section in extension.sections for name in section.component.relations}
        self._maintenance = maintenance
        self._program = maintenance.program
        for name in changed.union(extension.relations, extension.gone):
            for variant in Variant:
                self._sources.pop((name, variant), None)
        for name in changed.union(extension.gone):
            section = maintenance.section_of.get(name)
            if section is not None and _is_passed_on(section):
                self._passed_on[name] = section
            else:
                self._passed_on.pop(name, None)

    # Changes

    def phase(self, section: Section, by_row: tuple[Runnable, ...]) -> ColumnPhase | None:
        """The phase of a view without recursion; None where its rules do not run by column."""
        if not _runs_by_column(section):
            return None
        table = self._tables.table
        found: dict[Variant, list[Differential]] = {Variant.DEL: [], Variant.RED: [], Variant.INS: []}
        for m in (m for phase in section.phases if phase.semantics is Semantics.SET for m in phase.rules):
            (driver,) = m.drivers
            rule = self._rule(m.rule, driver)
            if rule is None:
                return None
            assert driver is not None
            changed = m.rule.body[driver]
            assert isinstance(changed, Atom)
            found[m.rule.head.variant].append(Differential(rule, table(changed.relation, changed.variant)))
        (name,) = section.component.relations
        names = {edge.source for definition in section.component.definitions for edge in edges(definition)}
        return ColumnPhase(
            tuple(found[Variant.DEL]),
            tuple(d.rule for d in found[Variant.RED]),
            tuple(found[Variant.INS]),
            table(name, Variant.DEL),
            table(name, Variant.INS),
            self._tables.stored_table(name) if section.is_stored else None,
            by_row,
            tuple(t for phase in self.unpack(names) for t in phase.tables),
        )

    def comparison(self, section: Section, by_row: tuple[Runnable, ...]) -> tuple[Runnable, ...]:
        """The evaluation from scratch of a section, by column where it can be."""
        if not _runs_by_column(section) or not section.is_stored:
            return by_row
        (name,), table = section.component.relations, self._tables.table
        phases = (phase for phase in section.from_scratch if phase.semantics is Semantics.SET)
        rules = [self._rule(m.rule, None) for phase in phases for m in phase.rules]
        by_column = tuple(rule for rule in rules if rule is not None)
        view = column_source(self._tables.stored_table(name))
        if len(by_column) < len(rules) or view is None:
            return by_row
        changes = table(name, Variant.DEL), table(name, Variant.INS)
        is_distinct = section.has_one_derivation and len(by_column) == 1
        return (ColumnComparison(by_column, *changes, view, by_row, is_distinct),)

    def evaluation(self, rules: Sequence[MaintenanceRule], by_row: Runnable, staged: Table, view: StoredTable) -> ColumnInitial:
        """The first evaluation of a view without recursion."""
        found = [self._rule(m.rule, None) for m in rules]
        by_column = tuple(rule for rule in found if rule is not None)
        return ColumnInitial(by_column if len(by_column) == len(found) else None, by_row, staged, view)

    def is_grouped(self, section: Section) -> bool:
        """Whether a section is a stored aggregate that takes changes by column."""
        return section.is_stored and section.aggregate is not None and _takes_columns(section.aggregate)

    def unpack(self, names: Collection[str]) -> tuple[UnpackPhase, ...]:
        """What has to become rows before these relations are read by row: their changes, and those under views on demand."""
        found: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found[name] = None
            if name in self._tables.on_demand or name not in self._tables.states:
                waiting += [edge.source for definition in self._program.definitions_of(name) for edge in edges(definition)]
        may_be = [name for name in found if self._may_change_by_column(name)]
        tables = [self._tables.table(name, variant) for name in may_be for variant in (Variant.DEL, Variant.INS)]
        return (UnpackPhase(tuple(tables)),) if tables else ()

    def _may_change_by_column(self, name: str) -> bool:
        if not self._program.is_view(name):
            return self._is_wide(name)
        # Whatever its section is: a definition that comes later may have the view stored.
        section = self._maintenance.section_of.get(name)
        return section is not None and not section.component.recursive

    def _is_wide(self, name: str) -> bool:
        return name not in self._tables.on_demand and isinstance(self._tables.stored_table(name), ColumnTable)

    # First evaluation

    def whole(self, aggregate: Aggregate, state: Variant) -> Callable[[], Batch | None] | None:
        """All rows of an aggregate's source in its old state, where they can be found by column."""
        name = aggregate.source
        if not _takes_columns(aggregate) or state is not Variant.OLD:
            return None
        if self._is_wide(name):
            return lambda: self._whole_table(name)
        if name in self._passed_on:
            return lambda: self._whole_view(name)
        return None

    def forget(self) -> None:
        """Drop the rows of first evaluations, which several aggregates may share."""
        self._whole.clear()

    def _whole_table(self, name: str) -> Batch:
        table = self._tables.stored_table(name)
        assert isinstance(table, ColumnTable)
        return as_batch(CodedColumns(self._program.relations[name], table.scan(), self._codes))

    def _whole_view(self, name: str) -> Batch | None:
        if name not in self._whole:
            (definition,) = self._program.definitions_of(name)
            assert isinstance(definition, Rule)
            rule = self._rule(definition, None)
            self._whole[name] = None
            if rule is not None and pays([rule]):
                try:
                    self._whole[name] = rule.run(self._tables.meter)
                except NotByColumn:
                    self._whole[name] = None
        return self._whole[name]

    # Rules

    def _rule(self, rule: Rule, driver: int | None) -> BatchRule | None:
        # A relation without columns has one row at most: no array is needed to find it.
        if not rule.head.terms:
            return None
        atoms = [
            literal.atom if isinstance(literal, Negation) else literal
            for literal in rule.body
            if not isinstance(literal, Comparison)
        ]
        sources = {}
        for atom in atoms:
            source = self._source(atom)
            if source is None:
                return None
            sources[atom] = source
        return BatchRule(rule, driver, sources, self._space, variable_types(rule, self._program.relations))

    def _source(self, atom: Atom) -> ColumnSource | None:
        key = (atom.relation, atom.variant)
        if key not in self._sources:
            self._sources[key] = column_source(self._tables.resolve(atom))
        return self._sources[key]


def _runs_by_column(section: Section) -> bool:
    """Whether the change of a view is found by rules that run once."""
    if _is_passed_on(section):
        return True
    return section.strategy is Strategy.MATERIALIZED and section.aggregate is None and not section.component.recursive


def _is_passed_on(section: Section) -> bool:
    """Whether a view is one rule whose rows have one derivation each and are only summed and counted."""
    is_once = section.strategy is Strategy.DIFFERENCING and section.has_one_derivation
    return is_once and all(phase.semantics is Semantics.SET for phase in section.phases)


def _takes_columns(aggregate: Aggregate) -> bool:
    """Whether the change of a group follows from its changed rows, or from its least or largest value."""
    return aggregate.function in TOTALS | EXTREMES and not aggregate.is_window
