"""The resident engine: relations and views in this process's memory, small transactions in well under a millisecond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from math import inf
from time import perf_counter

from rederive.analysis.affected import affected_relations
from rederive.analysis.cost import Estimate
from rederive.analysis.relevance import Patterns
from rederive.delta import Delta, LazyRows, nonempty, sort_rows
from rederive.engines.machine_memory import available_memory
from rederive.engines.memory_budget import Footprint
from rederive.engines.protocol import CodedExtent, FilterStep, Operation, Propagation, Query, Trace, Unrestorable
from rederive.engines.resident.batch.encoding import as_batch
from rederive.engines.resident.run.filtration import PropagationRule, TraceCall
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.installed import Installed, Surroundings, redefined
from rederive.engines.resident.run.net_effect import net_effect
from rederive.engines.resident.run.saved_state import SavedState, without_collection
from rederive.engines.resident.storage.codes import Code, CodedRow, Codes
from rederive.engines.resident.storage.column_table import CodedColumns, ColumnTable
from rederive.engines.resident.storage.memory import Memory
from rederive.engines.resident.storage.table import CodedRows, Leaves, Readable, Table, rows_of, whole_rows
from rederive.ir.printing import show_rule
from rederive.ir.rules import Program, Variant
from rederive.ir.terms import Row, Value
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram

_OWN = b"resident 3\n"  # what this engine dumps begins with it; the number is that of its form


class ResidentEngine:
    """Implements `engines.protocol.Engine` by tables of coded rows and compiled rules, in this process."""

    name = "resident"
    reason = "requested"

    def __init__(self, limits: Limits | None = None) -> None:
        self.codes = Codes()
        self.meter = Meter(watch=self.codes.watch)
        self.limits = limits or Limits()
        self.traces: list[Trace] = []
        self.around = Surroundings(self.codes, self.meter, self.limits, self._trace)
        self.installed = Installed(MaintenanceProgram(Program({}, ()), (), ()), (), (), self.around)
        self._seconds: dict[str, float] = {}  # of the last propagation, by the first relation of each component
        self._prepared: Installed | None = None  # between `install` and its `commit` or `rollback`

    @contextmanager
    def budget(self, limits: Limits | None) -> Iterator[None]:
        """Stop what runs inside where it exceeds these limits."""
        before, self.meter.rows = self.meter.rows, min(self.meter.rows, limits.rows if limits is not None else inf)
        try:
            with self.codes.watch.within(limits):
                yield
        finally:
            self.meter.rows = before

    @contextmanager
    def pause_budget(self) -> Iterator[None]:
        """What runs inside may have a budget of its own."""
        before, self.meter.rows = self.meter.rows, inf
        try:
            with self.codes.watch.paused():
                yield
        finally:
            self.meter.rows = before

    @property
    def program(self) -> Program:
        """The program that is installed, as the passes left it."""
        return self.installed.program

    def install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None = None,
        *,
        bound: Sequence[Query] = (),
        announce: bool = False,
    ) -> Propagation:
        """Build the new program next to the current one, which stays in use until `commit`."""
        old, extension = self.installed, maintenance.extends
        extends = extension is not None and extension.token is old.maintenance.token
        # Rows of a relation that was there change what its readers hold: everything that they are is built from scratch.
        if extension is not None and extends and set(extension.relations).issuperset(initial or ()):
            new = Installed(maintenance, monitored, bound, self.around, old)
            affected = {*extension.gone, *extension.relations}
        else:
            new = Installed(maintenance, monitored, bound, self.around)
            affected = affected_relations(old.program, new.program, initial or ())
        reported = [n for n in monitored if n in affected] + [n for n in old.monitored if n not in new.program.defined]
        # Both programs share the tables of base relations, so the old extents are taken before `build` adds initial rows.
        before = {name: old.extent(name) for name in reported if announce and name in old.program.relations}
        parts = [view for view in new.bound if announce and view.query.view in affected]
        parts_before = [view.rows(old) for view in parts]
        changes = {}
        bound_changes = {}
        try:
            new.build(old, affected, initial or {})
            entered = new.entered()
            for view, rows in zip(parts, parts_before, strict=True):
                view.forget()
                bound_changes[view.query] = view.difference(rows, view.rows(new), new.program, self.codes)
            for name in reported if announce else ():
                if name not in before and (columns := new.columns(name)) is not None:
                    changes[name] = Delta(columns)
                    continue
                after = new.extent(name) if name in new.program.relations else {}
                relations = (old.program.relations.get(name), new.program.relations.get(name))
                changes[name] = redefined(relations, before.get(name, {}), after, self.codes)
            if announce and new.before is None:
                changes |= self._grown(old, new, entered)
            propagation = Propagation(nonempty(changes), new.touched, {}, 0, nonempty(bound_changes), entered=entered)
        # Also for KeyboardInterrupt: the base tables are the predecessor's, and must lose the initial rows again.
        except BaseException:
            new.undo()
            raise
        self._prepared = new
        return propagation

    def dump(self) -> bytes | None:
        """All rows and auxiliary state, as of the last commit."""
        return _OWN + self.installed.save().to_bytes()

    def restore(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        data: bytes,
        bases: Callable[[], Mapping[str, Collection[Row]]] | None,
        *,
        bound: Sequence[Query] = (),
    ) -> None:
        """Build the program over the dumped state, with the base relations as they were then."""
        if not data.startswith(_OWN):
            raise Unrestorable
        new = Installed(maintenance, monitored, bound, self.around)
        with without_collection():
            new.restore(SavedState.from_bytes(data[len(_OWN) :]))
        self._prepared = new

    @staticmethod
    def _grown(old: Installed, new: Installed, entered: Mapping[str, CodedRows | CodedColumns]) -> dict[str, Delta]:
        """The changes of monitored base relations that both programs have: they share one table, which has only the new rows."""
        # Old and new extents of such a table are the same object, so their difference would be empty.
        both = [name for name in new.monitored if name in old.program.bases and name in new.program.bases]
        nothing = {name: CodedRows(new.program.relations[name], {}, new.around.codes) for name in both}
        return {name: Delta(entered.get(name, nothing[name]), nothing[name]) for name in both}

    def net_effect(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        """Return the deltas of base relations, checked for duplicate keys; the tables stay as they are."""
        present = self.installed
        return net_effect(operations, present.program.relations, present.versions, present.encoders, self.codes)

    def net_effect_of_bag(self, base: str, operations: Sequence[Operation]) -> None:
        """Return nothing: the caller numbers the copies, whose rows come to this process anyway."""

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        """Run the affected sections from the bottom up, and return the exact deltas of the monitored views."""
        self.meter.touched = self.meter.by_column = 0
        try:
            # From now on r^new = (r - r^del) + r^ins holds for every base relation r; r itself changes at `commit`.
            for name, delta in net.items():
                encode, versions = self.installed.encoders[name], self.installed.versions[name]
                for table, rows in ((versions.came, delta.plus), (versions.gone, delta.minus)):
                    if isinstance(rows, CodedColumns) and rows.codes is self.codes:
                        table.add_batch(as_batch(rows)) if len(rows) else None
                    else:
                        table.load(encode(rows))
            self._seconds = {}
            estimated, recomputed = self._run_sections() if self._matters(self.installed.patterns, net) else (0.0, 0)
            bound = self._bound_changes(net)
            derived = self.installed.tables.derived_sizes() if self.installed.tables.on_demand else {}
            costs = self.meter.touched, derived, self.installed.skipped
            seconds, by_column = self._seconds, self.meter.by_column
            return Propagation(self._changes(), *costs, bound, round(estimated), recomputed, by_column=by_column, seconds=seconds)
        except BaseException:
            self.rollback()
            raise

    def _run_sections(self) -> tuple[float, int]:
        """Run what is affected, lowest first; the tuples it was estimated to touch, and how many views were recomputed."""
        estimated, recomputed = 0.0, 0
        # Sections are in the order of their components: when one runs, the deltas of all that it reads are exact.
        for position, section in enumerate(self.installed.sections):
            if section.is_affected():
                started = perf_counter()
                expected, from_scratch = section.run(self.meter, self.limits)
                self._seconds[section.section.component.relations[0]] = perf_counter() - started
                estimated += expected
                recomputed += from_scratch
            # Under differencing a change set is dropped as soon as the last view that reads it is done (SR's wave front).
            for versions in self.installed.passed.get(position, ()):
                versions.drop()
        return estimated, recomputed

    @staticmethod
    def _matters(patterns: Patterns, net: Mapping[str, Delta]) -> bool:
        """Whether a net change can matter at all to what reads these patterns; no rule is evaluated to know it."""
        return any(delta.fits_any(patterns.get(name, ())) for name, delta in net.items())

    def _bound_changes(self, net: Mapping[str, Delta]) -> dict[Query, Delta]:
        present = self.installed
        views = [view for view in present.bound if self._matters(view.patterns, net)]
        for versions in present.versions.values() if views else ():
            versions.gone.unpack()
            versions.came.unpack()
        return nonempty({view.query: view.change(present.tables, present.program, self.codes) for view in views})

    def _changes(self) -> dict[str, Delta]:
        changes = {}
        for name in self.installed.monitored:
            versions = self.installed.versions[name]
            if versions.gone or versions.came:
                changes[name] = Delta(self._snapshot(name, versions.came), self._snapshot(name, versions.gone))
        return changes

    def _snapshot(self, name: str, table: Table) -> LazyRows:
        """The rows of a change, which readers decode later: `commit` clears the table."""
        relation = self.program.relations[name]
        if len(table.batches) == 1 and not table.primary and relation.columns:
            return CodedColumns(relation, table.batches[0].code_columns(), self.codes)
        table.unpack()
        return CodedRows(relation, table.snapshot(), self.codes)

    def _trace(self) -> TraceCall | None:
        """Return what records the calls of filtration, if anybody wants to know them."""
        return self._trace_call if self.traces else None

    def _trace_call(self, step: PropagationRule, updates: Leaves, *outcome: Leaves) -> None:
        sets = [self._rows_in(name, leaves) for name, leaves in ((step.updated, updates), *((step.head, o) for o in outcome))]
        call = FilterStep(show_rule(step.origin), step.updated, sets[0], step.head, step.sign, *sets[1:])
        for trace in self.traces:
            trace(call)

    def _rows_in(self, name: str, leaves: Leaves) -> tuple[Row, ...]:
        relation = self.program.relations[name]
        return tuple(sort_rows(CodedRows(relation, leaves, self.codes)))

    def estimates(self) -> dict[tuple[str, ...], Estimate]:
        """Return the estimates of the sections that can also be evaluated from scratch, at the present sizes."""
        sections = self.installed.sections
        return {s.section.component.relations: s.estimate.present() for s in sections if s.estimate is not None}

    def memory(self) -> Memory:
        """About how many bytes the relations, their indexes and the stored views take."""
        return self.installed.memory()

    def memory_use(self) -> str:
        """Return a sentence about the memory that the base rows and all that depends on them take."""
        rows = sum(map(self.size, self.program.bases))
        footprint = Footprint(self.limits.memory, available_memory)
        footprint.record(rows, self.memory())
        return footprint.describe(rows)

    @property
    def touched(self) -> int:
        """The tuples that the last transaction or query looked at."""
        return self.meter.touched

    def commit(self) -> None:
        """Switch to the prepared program, or apply the deltas of the last propagation to the stored tables."""
        if self._prepared is not None:
            self._prepared.accept()
            self.installed, self._prepared = self._prepared, None
            return
        # Derived views have no table to apply to; auxiliary state such as counts follows in the phases.
        for versions in self.installed.stored:
            versions.apply()
        for section in self.installed.sections:
            for phase in section.phases:
                phase.commit()
        self._clear()

    def rollback(self) -> None:
        """Drop the prepared program, or the deltas of the last propagation; stored tables were never touched."""
        if self._prepared is not None:
            self._prepared.undo()
            self._prepared = None
            return
        for section in self.installed.sections:
            for phase in (*section.phases, *section.from_scratch):
                phase.rollback()
        self._clear()

    def _clear(self) -> None:
        for table in self.installed.tables.transient:
            table.clear()
        if self.installed.tables.on_demand:
            self.installed.tables.forget()

    @property
    def reads_in_place(self) -> bool:
        """This engine holds the rows of tables in place like all others."""
        return False

    def rebase(self, rows: Mapping[str, Collection[Row]]) -> None:
        """Nothing to do: the rows are in this process."""

    def rows(self, relation: str, bindings: Mapping[int, Value], limit: int | None = None) -> list[Row]:
        """Return the rows with these values; rows of a view that is not stored are derived for this query."""
        self.meter.touched = 0
        try:
            return self._rows(relation, bindings, limit)
        finally:
            self.installed.queries.forget()

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        """Yield all rows of each relation; rows derived for one serve the next, until the generator ends."""
        self.meter.touched = 0
        try:
            for relation in relations:
                yield self._rows(relation, {})
        finally:
            self.installed.queries.forget()

    def _rows(self, relation: str, bindings: Mapping[int, Value], limit: int | None = None) -> list[Row]:
        declared = self.program.relations[relation]
        # Queries read the committed state: `queries` adopts the stored tables and derives the rest on its own.
        source = self.installed.queries.source(relation, Variant.OLD)
        codes = {}
        for column, value in sorted(bindings.items()):
            codec = self.codes.codec(declared.columns[column].type)
            code = codec.find(value) if isinstance(source, Table | ColumnTable) else codec.encode(value)
            if code is None:
                return []  # no stored row has a value that was never coded; one that is derived may
            codes[column] = code
        # Decoding is most of the work, so the limit comes first.
        found = islice(self._matching(source, codes), limit)
        return self.codes.decode_rows(declared.types, found if declared.columns else (() for _ in found))

    @staticmethod
    def _matching(source: Readable, codes: Mapping[int, Code]) -> Iterable[CodedRow]:
        """A view that is not stored is looked up by its bindings; a table is searched, by an index where it has the right one."""
        if isinstance(source, Table | ColumnTable):
            return source.matching(codes)
        if not codes:
            return rows_of(dict(source.items()), source.arity)
        key = tuple(codes.values())
        entry = source.lookup(tuple(codes))(key[0] if len(key) == 1 else key)
        return whole_rows(tuple(codes), key, entry or (), source.arity)

    def rows_with_prefix(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        """Return the rows whose first columns are one of the prefixes, by one lookup for each prefix."""
        return [row for prefix in prefixes for row in self.rows(relation, dict(enumerate(prefix)))]

    def copies(self, base: str, rows: Collection[Row]) -> Mapping[Row, int]:
        """Return how many numbered copies each of these rows has."""
        return Counter(row[:-1] for row in self.rows_with_prefix(base, rows))

    def extent(self, relation: str) -> list[Row]:
        """Return all rows of a relation, decoded."""
        return self.rows(relation, {})

    def coded_rows(self, relation: str) -> CodedExtent | None:
        """Return the rows of a stored relation as columns of codes, copied; None for a view that is derived on demand."""
        declared = self.program.relations[relation]
        try:
            source = self.installed.queries.source(relation, Variant.OLD)
            if not declared.columns or not isinstance(source, Table | ColumnTable):
                return None
            scanned = zip(declared.types, source.scan(), strict=True)
            compact = [self.codes.codec(type_).compact(column.copy()) for type_, column in scanned]
        finally:
            self.installed.queries.forget()
        return CodedExtent(tuple(column for column, _ in compact), tuple(values for _, values in compact))

    def size(self, relation: str) -> int:
        """Return the number of rows; a view that is not stored is derived to count them."""
        try:
            source = self.installed.queries.source(relation, Variant.OLD)
            return len(source) if isinstance(source, ColumnTable) else sum(len(leaf) for _, leaf in source.items())
        finally:
            self.installed.queries.forget()
