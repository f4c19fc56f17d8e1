"""A program as an engine runs it: tables, compiled sections, and what it takes over from the program before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import process_time
from typing import TypeAlias

from pyroaring import BitMap

from rederive.analysis.graph import edges
from rederive.analysis.relevance import base_patterns
from rederive.delta import Delta, LazyRows, Pattern
from rederive.engines.machine_memory import USABLE, available_memory
from rederive.engines.protocol import DoesNotFit, Query
from rederive.engines.resident.batch.encoding import encode_columns
from rederive.engines.resident.batch.vectors import Space
from rederive.engines.resident.run.filtration import TraceCall
from rederive.engines.resident.run.fixpoint import Meter, OverBudget
from rederive.engines.resident.run.linker import Linker
from rederive.engines.resident.run.net_effect import check_keys
from rederive.engines.resident.run.phases import LinkedSection
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.run.saved_state import SavedState, fill_codes, fill_table, saved_table, saved_values
from rederive.engines.resident.storage.codes import Code, CodedRow, Codes
from rederive.engines.resident.storage.column_table import CodeColumns, CodedColumns, ColumnTable
from rederive.engines.resident.storage.memory import Memory, memory_of
from rederive.engines.resident.storage.table import CodedRows, Key, Leaf, Leaves, Lookup, Probe, Versions, whole_rows
from rederive.ir.rules import Program, Relation, Variant
from rederive.ir.terms import Row
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram, Section, Strategy

Added: TypeAlias = dict[Key, list[Code]] | CodeColumns
"""What a load put into a table, by which it can be taken back."""
MANY = 100_000  # tuples between two measurements of a first evaluation, at least
LEAST = 16  # bytes of a row in a stored view, at least


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all programs of one engine share."""

    codes: Codes
    meter: Meter
    limits: Limits
    trace: TraceCall


class FillBudget:
    """Watches a first evaluation: the tables are measured when they may have come half the way to the limit."""

    def __init__(self, memory: int, measure: Callable[[], Memory], meter: Meter) -> None:
        self._memory: float = memory
        self._usable: float | None = None
        self._measure = measure
        self._meter = meter
        self._start = meter.touched

    def check(self) -> float:
        """How many tuples there may be before the next check."""
        used = self._measure().total
        # Read once: the memory that is available shrinks while these tables grow.
        self._usable = self._usable or used + USABLE * available_memory()
        most = min(self._memory, self._usable)
        if used > most:
            raise OverBudget
        done = self._meter.touched - self._start
        # The next check is due when the tables may have taken half of the room that is left, at the bytes per tuple so
        # far; at least a hundredth of the tuples later, so that measuring stays a small part of the work.
        return self._meter.touched + done * max((most - used) / (2 * used), 0.01)


class BoundView:
    """A query that is subscribed to, and the base rows that can matter to it."""

    def __init__(self, query: Query, program: Program) -> None:
        self.query = query
        self.patterns = base_patterns(program, query.view, query.bindings)
        # An overlay remembers every lookup that it gave away, so each is made once.
        self._sources: dict[Variant, tuple[Tables, Lookup, Probe]] = {}

    def change(self, tables: Tables, program: Program, codes: Codes) -> Delta:
        """Its rows in both states, and their difference."""
        old, new = (self._rows_in(tables, state, codes) for state in (Variant.OLD, Variant.NEW))
        return self.difference(old, new, program, codes)

    def rows(self, installed: Installed) -> set[CodedRow]:
        """Its rows in a program, where that has the view at all."""
        if self.query.view not in installed.program.relations:
            return set()
        try:
            return self._rows_in(installed.queries, Variant.OLD, installed.around.codes)
        finally:
            installed.queries.forget()

    def difference(self, old: set[CodedRow], new: set[CodedRow], program: Program, codes: Codes) -> Delta:
        """Return the delta from the old to the new rows; they are decoded when somebody reads them."""
        relation = program.relations[self.query.view]
        return Delta(Decodable(relation, tuple(new - old), codes), Decodable(relation, tuple(old - new), codes))

    def _rows_in(self, tables: Tables, state: Variant, codes: Codes) -> set[CodedRow]:
        relation = tables.program.relations[self.query.view]
        coded = [(i, codes.codec(relation.columns[i].type).encode(value)) for i, value in self.query.bindings]
        bound, key = tuple(i for i, _ in coded), tuple(code for _, code in coded)
        made = self._sources.get(state)
        if made is None or made[0] is not tables:
            source = tables.source(relation.name, state)
            made = self._sources[state] = (tables, source.lookup(bound), source.probe())
        return self._rows(made[1], made[2], bound, key[0] if len(key) == 1 else key, max(relation.arity, 1))

    @staticmethod
    def _rows(lookup: Lookup, probe: Probe, bound: tuple[int, ...], key: Key, arity: int) -> set[CodedRow]:
        # With all columns bound a probe asks for one row; a lookup in a derived view would ask for its whole leaf.
        if len(bound) == arity:
            first, last = (key[:-1], key[-1]) if isinstance(key, tuple) else ((), key)
            holds = probe(first[0] if len(first) == 1 else first, BitMap((last,)))
            return {key if isinstance(key, tuple) else (key,)} if holds else set()
        return set(whole_rows(bound, key, lookup(key) or (), arity))


@dataclass(frozen=True, slots=True)
class Decodable(LazyRows):
    """Coded rows of a part of a view."""

    relation: Relation
    rows: tuple[CodedRow, ...]
    codes: Codes

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.codes.decode_rows(self.relation.types, self.rows))


class Installed:
    """One program. It is built while its predecessor is in use, and takes over base relations and views that did not change."""

    def __init__(
        self, maintenance: MaintenanceProgram, monitored: Sequence[str], bound: Sequence[Query], around: Surroundings
    ) -> None:
        self.maintenance = maintenance
        self.program = maintenance.program
        self.monitored = tuple(monitored)
        self.bound = tuple(BoundView(query, self.program) for query in bound)
        self.around = around
        self.stored_views = maintenance.stored_views
        # A transaction none of whose rows fits these patterns changes nothing that is stored or monitored.
        read = [base_patterns(self.program, name) for name in (*self.monitored, *self.stored_views)]
        self.patterns = {base: frozenset[Pattern]().union(*(p.get(base, ()) for p in read)) for base in self.program.bases}
        # `tables` serves transactions and `queries` serves readers; each forgets what it derived when its own use ends.
        self.tables = self._new_tables(maintenance.derived_views)
        self.queries = self._new_tables(set(self.program.views).difference(self.stored_views))
        self.linker = Linker(maintenance, self.tables, around.codes, around.trace)
        self.sections: tuple[LinkedSection, ...] = ()
        self.versions: dict[str, Versions] = {}
        self.stored: tuple[Versions, ...] = ()
        self.encoders = {name: around.codes.encoder(self.program.relations[name].types) for name in self.program.bases}
        self.skipped = sum(section.skipped_paths for section in maintenance.sections)
        self.touched = 0
        # deltas that nothing reads after the section at a position: under differencing they are dropped as the wave passes
        self.passed: dict[int, list[Versions]] = {}
        self._added: dict[str, Added] = {}

    def _new_tables(self, on_demand: Collection[str]) -> Tables:
        around = self.around
        return Tables(self.maintenance, on_demand, around.codes, around.meter, around.limits)

    def build(self, before: Installed | None, affected: Collection[str], initial: Mapping[str, Iterable[Row]]) -> None:
        """Fill the views bottom up, and compile each section when its own are filled. Where it fails, `undo` must follow."""
        reused = self._reuse(before, affected) if before is not None else frozenset[str]()
        # `_added` records every change of a table that the predecessor shares, so that `undo` can take it back.
        for name, rows in initial.items():
            self._added[name] = self._load(name, rows)
        self._index_keys()
        check_keys(self.program.relations, self.tables, initial, self.around.codes)
        # Keys first: views over rows that break a key would be evaluated for nothing.
        self._evaluate(reused)
        self._finish()

    def restore(self, saved: SavedState) -> None:
        """Continue from a saved state: no view is evaluated."""
        fill_codes(self.around.codes, saved.values)
        for name in (*self.program.bases, *self.stored_views):
            fill_table(self.tables.stored_table(name), saved.tables[name])
        self._index_keys()
        for section in self.maintenance.sections:
            self.linker.restore(section, saved)
        self._evaluate(self.stored_views)
        self._finish()

    def save(self) -> SavedState:
        """The state of this program, whose parts are shared with it."""
        tables = {name: saved_table(self.tables.stored_table(name)) for name in (*self.program.bases, *self.stored_views)}
        return SavedState(saved_values(self.around.codes), tables, *self.linker.save(), self.linker.seconds)

    def _index_keys(self) -> None:
        """No transaction waits for the index that keys are checked by."""
        for relation in (self.program.relations[name] for name in self.program.bases):
            table = self.tables.stored_table(relation.name)
            if relation.key and not isinstance(table, ColumnTable):
                table.entries(relation.key)

    def _finish(self) -> None:
        self.versions = {name: self._versions(name) for name in (*self.program.bases, *self.program.views)}
        self.stored = tuple(self.versions[name] for name in (*self.program.bases, *self.stored_views))
        self.passed = self._last_readers()
        for name in (*self.program.bases, *self.stored_views):
            self.queries.adopt(name, self.tables.stored_table(name))

    def _load(self, name: str, rows: Iterable[Row]) -> Added:
        table = self.tables.stored_table(name)
        if isinstance(table, ColumnTable):
            return table.load_columns(encode_columns(self.program.relations[name], rows, Space(self.around.codes)))
        return table.load(self.encoders[name](rows))

    def _versions(self, name: str) -> Versions:
        table = self.tables.table
        return Versions(self.tables.stored_table(name), table(name, Variant.DEL), table(name, Variant.INS))

    def accept(self) -> None:
        """Make the program final: nothing can be undone any more."""
        self._added.clear()

    def undo(self) -> None:
        """Take the initial rows out of the base relations again, which the predecessor has too."""
        for name, rows in self._added.items():
            table = self.tables.stored_table(name)
            table.unload(rows)  # type: ignore[arg-type]  # a table takes out what its own `load` returned

    def entered(self) -> dict[str, CodedRows | CodedColumns]:
        """The initial rows that were not there before."""
        found: dict[str, CodedRows | CodedColumns] = {}
        for name, rows in self._added.items():
            relation, codes = self.program.relations[name], self.around.codes
            if isinstance(rows, tuple):
                found[name] = CodedColumns(relation, rows, codes)
            else:
                leaves = {key: BitMap(lasts) for key, lasts in rows.items() if lasts}
                found[name] = CodedRows(relation, leaves, codes)
        return {name: rows for name, rows in found.items() if len(rows)}

    def _reuse(self, before: Installed, affected: Collection[str]) -> frozenset[str]:
        for name in before.program.shared_bases(self.program):
            self.tables.adopt(name, before.tables.stored_table(name))
        # A stored view is reused only under the same strategy: auxiliary state such as counts belongs to it.
        strategies = {n: s.strategy for s in before.maintenance.sections for n in s.component.relations}
        same = {n for s in self.maintenance.sections for n in s.component.relations if strategies.get(n) is s.strategy}
        reused = same.intersection(self.stored_views).difference(affected)
        for name in reused:
            self.tables.adopt(name, before.tables.table(name))
        self.linker.inherit(before.linker, reused)
        return frozenset(reused)

    def _evaluate(self, reused: Collection[str]) -> None:
        meter = self.around.meter
        meter.touched = 0
        sections = []
        # Bottom up. A section is compiled after it is filled, because the join order follows the sizes of tables.
        for section in self.maintenance.sections:
            if not reused or not all(name in reused for name in section.component.relations):
                self._fill(section)
            sections.append(self.linker.link(section))
        self.tables.forget()
        self.linker.by_column.forget()
        self.sections, self.touched = tuple(sections), meter.touched

    def _fill(self, section: Section) -> None:
        """The first evaluation of a section's views; under strategy auto, within what memory is left."""
        meter, limits = self.around.meter, self.around.limits
        if section.is_adaptive:
            budget = FillBudget(limits.memory, self.memory, meter)
            meter.most, meter.check = meter.touched + min(MANY, limits.memory // LEAST), budget.check
        start = process_time()
        try:
            for phase in self.linker.initial(section):
                phase.run(meter, limits)
                phase.commit()
            if section.strategy.is_stored:
                self.linker.seconds[section.component.relations] = process_time() - start
        except OverBudget:
            raise DoesNotFit(section.component.relations) from None
        finally:
            meter.most = inf

    def memory(self) -> Memory:
        """The memory of tables and of auxiliary state."""
        return memory_of(self.tables.stored(), self.linker.auxiliary_state(), self.around.codes.codecs())

    def _last_readers(self) -> dict[int, list[Versions]]:
        last: dict[str, int] = {}
        for i, section in enumerate(self.maintenance.sections):
            # Sections are in order, so the last assignment is the last reader.
            last.update({edge.source: i for definition in section.component.definitions for edge in edges(definition)})
        waves = (s for s in self.maintenance.sections if s.strategy is Strategy.DIFFERENCING)
        names = (name for s in waves for name in s.component.relations if name not in self.monitored and name in last)
        found: dict[int, list[Versions]] = {}
        for name in names:
            found.setdefault(last[name], []).append(self.versions[name])
        return found

    def extent(self, name: str) -> dict[Key, Leaf]:
        """All rows of a relation, derived for this query where they are not stored."""
        try:
            return dict(self.queries.source(name, Variant.OLD).items())
        finally:
            self.queries.forget()


def redefined(relations: tuple[Relation | None, Relation | None], old: Leaves, new: Leaves, codes: Codes) -> Delta:
    """Both sides of a change of definition. Rows of other types are other rows: the old ones leave, and the new ones enter."""
    before, after = relations
    # Codes of different types are different numberings and cannot be compared.
    if before is not None and after is not None and before.types != after.types:
        return Delta(CodedRows(after, new, codes), CodedRows(before, old, codes))
    relation = after or before
    assert relation is not None
    return difference(relation, old, new, codes)


def difference(relation: Relation, old: Leaves, new: Leaves, codes: Codes) -> Delta:
    """Both sides of a change, from two whole answers."""

    def without(one: Leaves, other: Leaves) -> CodedRows:
        left = {key: leaf - other[key] if key in other else leaf.copy() for key, leaf in one.items()}
        return CodedRows(relation, {key: leaf for key, leaf in left.items() if leaf}, codes)

    return Delta(without(new, old), without(old, new))
