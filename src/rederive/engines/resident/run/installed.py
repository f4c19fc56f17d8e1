"""A program as an engine runs it: tables, compiled sections, and what it takes over from the program before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import process_time
from typing import TypeAlias

from pyroaring import BitMap

from rederive.analysis.graph import Component, edges
from rederive.analysis.relevance import Patterns, base_patterns
from rederive.delta import Delta, LazyRows, Pattern
from rederive.engines.machine_memory import USABLE, available_memory
from rederive.engines.protocol import DoesNotFit, Query
from rederive.engines.resident.batch.encoding import encode_columns
from rederive.engines.resident.batch.vectors import Space
from rederive.engines.resident.run.filtration import Traced
from rederive.engines.resident.run.fixpoint import Meter, OverBudget
from rederive.engines.resident.run.linker import AuxiliaryState, Linker
from rederive.engines.resident.run.net_effect import check_keys
from rederive.engines.resident.run.phases import LinkedSection
from rederive.engines.resident.run.relations import Detached, Tables
from rederive.engines.resident.run.saved_state import SavedState, fill_codes, fill_table, saved_table, saved_values
from rederive.engines.resident.storage.codes import Code, CodedRow, Codes, Encode
from rederive.engines.resident.storage.column_table import CodeColumns, CodedColumns, ColumnTable
from rederive.engines.resident.storage.memory import Memory, memory_of
from rederive.engines.resident.storage.table import CodedRows, Key, Leaf, Leaves, Lookup, Probe, Versions, whole_rows
from rederive.ir.rules import Program, Relation, Variant
from rederive.ir.terms import Row
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram, PlanExtension, Section, Strategy

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
    trace: Traced


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

    def forget(self) -> None:
        """Look its tables up again: another program may have others of the same name."""
        self._sources.clear()

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
    """One program. It is built while its predecessor is in use, and takes over base relations and views that did not change.

    `before`: the predecessor where this program extends it. The two share tables and compiled sections, and only what is new is
    built: until `accept`, the predecessor runs on, and does not see the tables that are added.
    """

    def __init__(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        bound: Sequence[Query],
        around: Surroundings,
        before: Installed | None = None,
    ) -> None:
        self.maintenance = maintenance
        self.program = maintenance.program
        self.monitored = tuple(monitored)
        self.around = around
        self.stored_views = maintenance.stored_views
        self.before = before
        self.skipped = sum(section.skipped_paths for section in maintenance.sections)
        self.touched = 0
        self.versions: dict[str, Versions] = {}
        self.sections: tuple[LinkedSection, ...] = ()
        self.stored: tuple[Versions, ...] = ()
        # deltas that nothing reads after the section at a position: under differencing they are dropped as the wave passes
        self.passed: dict[int, list[Versions]] = {}
        self._readers: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._taken: list[tuple[Tables, Detached]] = []
        self._taken_state: AuxiliaryState | None = None
        self._added: dict[str, Added] = {}
        extension = maintenance.extends
        is_more = extension is not None and not extension.gone and not extension.replaced
        known = {view.query: view for view in before.bound} if before is not None and is_more else {}
        self.tables: Tables
        self.queries: Tables
        self.linker: Linker
        self.patterns: Patterns
        self._patterns_of: dict[str, Patterns]
        self.encoders: dict[str, Encode]
        self.bound: tuple[BoundView, ...] = tuple(
            known[query] if query in known else BoundView(query, self.program) for query in bound
        )
        if before is not None:
            self.tables, self.queries, self.linker = before.tables, before.queries, before.linker
            self._share()
            return
        # `tables` serves transactions and `queries` serves readers; each forgets what it derived when its own use ends.
        self.tables = self._new_tables(maintenance.derived_views)
        self.queries = self._new_tables(self._queried_views)
        self.linker = Linker(maintenance, self.tables, around.codes, around.trace)
        # A transaction none of whose rows fits these patterns changes nothing that is stored or monitored.
        self._patterns_of = self._base_patterns((*self.monitored, *self.stored_views))
        self.patterns = self._patterns(self.program.bases)
        self.encoders = self._encoders(self.program.bases)

    def _share(self) -> None:
        """Take over what is known of the predecessor's relations."""
        before, extension = self.before, self.maintenance.extends
        assert before is not None
        assert extension is not None
        gone, defined = extension.gone, self.program.defined
        bases = [name for name in extension.relations if name not in defined]
        stored = [n for s in extension.sections if s.is_stored for n in s.component.relations]
        lost = {base for name in gone for base in before._patterns_of.get(name, ())}
        found = self._base_patterns((*(n for n in extension.relations if n in self.monitored), *stored))
        self._patterns_of = {name: read for name, read in before._patterns_of.items() if name not in gone} | found
        grown = lost.union(bases, *found.values())
        known = {base: patterns for base, patterns in before.patterns.items() if base not in gone}
        self.patterns = {**known, **self._patterns(base for base in grown if base in self.program.relations)}
        self.encoders = {name: e for name, e in before.encoders.items() if name not in gone} | self._encoders(bases)

    def _use(self, program: Installed, extension: PlanExtension) -> None:
        self.tables.use(program.maintenance, program.maintenance.derived_views)
        self.queries.use(program.maintenance, program._queried_views)
        self.linker.use(program.maintenance, extension)

    @property
    def _queried_views(self) -> set[str]:
        return set(self.program.views).difference(self.stored_views)

    def _base_patterns(self, names: Iterable[str]) -> dict[str, Patterns]:
        return {name: base_patterns(self.program, name) for name in names}

    def _patterns(self, bases: Iterable[str]) -> dict[str, frozenset[Pattern]]:
        found: dict[str, set[Pattern]] = {base: set() for base in bases}
        for read in self._patterns_of.values():
            for base in read.keys() & found.keys():
                found[base].update(read[base])
        return {base: frozenset(patterns) for base, patterns in found.items()}

    def _encoders(self, bases: Iterable[str]) -> dict[str, Encode]:
        return {name: self.around.codes.encoder(self.program.relations[name].types) for name in bases}

    def _new_tables(self, on_demand: Collection[str]) -> Tables:
        around = self.around
        return Tables(self.maintenance, on_demand, around.codes, around.meter, around.limits)

    def build(self, before: Installed | None, affected: Collection[str], initial: Mapping[str, Iterable[Row]]) -> None:
        """Fill the views bottom up, and compile each section when its own are filled. Where it fails, `undo` must follow."""
        if self.before is not None:
            self._build_more(initial)
            return
        reused = self._reuse(before, affected) if before is not None else frozenset[str]()
        self._fill_bases(self.program.bases, initial)
        # Keys first: views over rows that break a key would be evaluated for nothing.
        self._evaluate(reused)
        self._finish()

    def restore(self, saved: SavedState) -> None:
        """Continue from a saved state: no view is evaluated."""
        fill_codes(self.around.codes, saved.values)
        for name in (*self.program.bases, *self.stored_views):
            fill_table(self.tables.stored_table(name), saved.tables[name])
        self._index_keys(self.program.bases)
        for section in self.maintenance.sections:
            self.linker.restore(section, saved)
        self._evaluate(self.stored_views)
        self._finish()

    def save(self) -> SavedState:
        """The state of this program, whose parts are shared with it."""
        tables = {name: saved_table(self.tables.stored_table(name)) for name in (*self.program.bases, *self.stored_views)}
        return SavedState(saved_values(self.around.codes), tables, *self.linker.save(), self.linker.seconds)

    def _index_keys(self, bases: Iterable[str]) -> None:
        """No transaction waits for the index that keys are checked by."""
        for relation in (self.program.relations[name] for name in bases):
            table = self.tables.stored_table(relation.name)
            if relation.key and not isinstance(table, ColumnTable):
                table.entries(relation.key)

    def _finish(self) -> None:
        self.versions = {name: self._versions(name) for name in (*self.program.bases, *self.program.views)}
        self.stored = tuple(self.versions[name] for name in (*self.program.bases, *self.stored_views))
        self._find_passed()
        for name in (*self.program.bases, *self.stored_views):
            self.queries.adopt(name, self.tables.stored_table(name))

    def _build_more(self, initial: Mapping[str, Iterable[Row]]) -> None:
        """Fill and compile what the predecessor lacks; its other sections are used as they are."""
        before, extension = self.before, self.maintenance.extends
        assert before is not None
        assert extension is not None
        stored = {*before.stored_views}
        unstored = [n for s in extension.replaced if not s.is_stored for n in s.component.relations if n in stored]
        self._take_out(extension.gone, unstored)
        self._use(self, extension)
        self._fill_bases([name for name in extension.relations if name not in self.program.defined], initial)
        meter = self.around.meter
        meter.touched = 0
        stored -= extension.gone
        linked = {}
        for section in extension.sections:
            if not stored.issuperset(section.component.relations):
                self._fill(section)
            linked[section.component.relations] = self.linker.link(section)
        self._forget_first_evaluation()
        old = before.sections
        if extension.gone:
            old = tuple(one for one in old if extension.gone.isdisjoint(one.section.component.relations))
        if extension.replaced:
            old = tuple(linked.get(one.section.component.relations, one) for one in old)
        self.sections = (*old, *(linked[section.component.relations] for section in extension.added))
        more = [name for name in self._newly_stored if name not in stored]
        versions = {name: one for name, one in before.versions.items() if name not in extension.gone}
        self.versions = {**versions, **{name: self._versions(name) for name in (*extension.relations, *more, *unstored)}}
        left = (name for name in (*before.program.bases, *before.stored_views) if name not in extension.gone)
        is_less = bool(extension.gone or unstored)
        kept = tuple(self.versions[n] for n in left if n not in unstored) if is_less else before.stored
        self.stored = (*kept, *(self.versions[name] for name in more))
        self._find_passed()
        for name in more:
            self.queries.adopt(name, self.tables.stored_table(name))

    def _take_out(self, gone: Collection[str], unstored: Collection[str]) -> None:
        """Take out what the predecessor has more, until this program is accepted."""
        if gone or unstored:
            self._taken = [(tables, tables.detach(gone, unstored)) for tables in (self.tables, self.queries)]
            self.queries.answers.clear()  # whoever derived rows from what was stored finds other tables
            self._taken_state = self.linker.detach({*gone, *unstored})

    @property
    def _newly_stored(self) -> list[str]:
        """The base relations and stored views that the predecessor lacks or does not store."""
        extension = self.maintenance.extends
        assert extension is not None
        bases = [name for name in extension.relations if name not in self.program.defined]
        return bases + [n for s in extension.sections if s.is_stored for n in s.component.relations]

    def _fill_bases(self, bases: Iterable[str], initial: Mapping[str, Iterable[Row]]) -> None:
        # `_added` records every change of a table that the predecessor shares, so that `undo` can take it back.
        for name, rows in initial.items():
            self._added[name] = self._load(name, rows)
        self._index_keys(bases)
        check_keys(self.program.relations, self.tables, initial, self.around.codes)

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
        self._taken, self._taken_state = [], None
        self.before = None  # nobody keeps all predecessors in memory

    def undo(self) -> None:
        """Take everything back that the predecessor would see: initial rows of its base relations, and tables that they share."""
        if self.before is not None:
            self._undo_more(self.before)
            return
        for name, rows in self._added.items():
            table = self.tables.stored_table(name)
            table.unload(rows)  # type: ignore[arg-type]  # a table takes out what its own `load` returned

    def _undo_more(self, before: Installed) -> None:
        extension = self.maintenance.extends
        assert extension is not None
        new = frozenset(extension.relations)
        kept = {*before.stored_views, *before.program.bases}
        emptied = [name for name in self._newly_stored if name not in new and name not in kept]
        for tables in (self.tables, self.queries):
            tables.detach(new)
        self.queries.detach((), emptied)
        for name in emptied:
            self.tables.table(name).clear()
        self.linker.detach({*new, *emptied})
        for view in before.bound:
            view.forget()
        for tables, taken in self._taken:
            tables.attach(taken)
        if self._taken_state is not None:
            self.linker.attach(self._taken_state)
        self._use(before, extension)
        # Their compiled functions may read what was emptied, and groups look up in it.
        changed = {section.component.relations for section in extension.replaced}
        before.sections = tuple(
            self.linker.link(one.section) if one.section.component.relations in changed else one for one in before.sections
        )

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
            self.tables.adopt(name, before.tables.stored_table(name))
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
        self._forget_first_evaluation()
        self.sections = tuple(sections)

    def _forget_first_evaluation(self) -> None:
        self.tables.forget()
        self.linker.by_column.forget()
        self.touched = self.around.meter.touched

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
            if section.is_stored:
                self.linker.seconds[section.component.relations] = process_time() - start
        except OverBudget:
            raise DoesNotFit(section.component.relations) from None
        finally:
            meter.most = inf

    def memory(self) -> Memory:
        """The memory of tables and of auxiliary state."""
        return memory_of(self.tables.stored(), self.linker.auxiliary_state(), self.around.codes.codecs())

    def _find_passed(self) -> None:
        """Find the deltas that nothing reads behind the section at a position."""
        before, extension = self.before, self.maintenance.extends
        if before is None or extension is None:
            added, readers = self.maintenance.sections, dict[str, tuple[tuple[str, ...], ...]]()
        else:
            added, readers = extension.sections, dict(before._readers)
            changed = {*extension.gone, *(name for section in extension.replaced for name in section.component.relations)}
            known = before.maintenance.section_of
            left = {known[name].component.relations: known[name].component for name in changed if name in known}
            for source in {name for component in left.values() for name in _sources(component)}:
                readers[source] = tuple(one for one in readers[source] if one not in left)
        for section in added:
            for source in _sources(section.component):
                readers[source] = (*readers.get(source, ()), section.component.relations)
        self._readers = readers
        place = {section.component.relations: i for i, section in enumerate(self.maintenance.sections)}
        monitored, waves = set(self.monitored), (s for s in self.maintenance.sections if s.strategy is Strategy.DIFFERENCING)
        names = [name for wave in waves for name in wave.component.relations if name not in monitored and readers.get(name)]
        self.passed = {}
        for name in names:
            last = max(place[reader] for reader in readers[name])
            self.passed.setdefault(last, []).append(self.versions[name])

    def columns(self, name: str) -> CodedColumns | None:
        """All rows of a relation that is stored by column, as they are now."""
        table = self.tables.stored_table(name) if name in (*self.program.bases, *self.stored_views) else None
        if not isinstance(table, ColumnTable):
            return None
        copied = tuple(column.copy() for column in table.scan())
        return CodedColumns(self.program.relations[name], copied, self.around.codes)

    def extent(self, name: str) -> dict[Key, Leaf]:
        """All rows of a relation, derived for this query where they are not stored."""
        try:
            return dict(self.queries.source(name, Variant.OLD).items())
        finally:
            self.queries.forget()


def _sources(component: Component) -> set[str]:
    return {edge.source for definition in component.definitions for edge in edges(definition)}


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
