"""The resident engine: relations and views in this process's memory, small transactions in well under a millisecond."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rederive.engines.base import Delta, Operation, Propagation, ViewDelta
from rederive.engines.resident.codes import Code, CodedRow, Codes
from rederive.engines.resident.fixpoint import Limits, Meter
from rederive.engines.resident.link import LinkedSection, Linker
from rederive.engines.resident.net import check_keys, net_effect
from rederive.engines.resident.table import Key, Leaf, Readable, Table, rows_of, whole_rows
from rederive.engines.resident.tables import Tables
from rederive.ir.rules import Program, Relation, Variant
from rederive.ir.terms import Row, Value
from rederive.maintain.program import MaintenanceProgram, Strategy


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Rows of a view at one version; decoded when asked for."""

    relation: Relation
    leaves: Mapping[Key, Leaf]
    codes: Codes

    def __len__(self) -> int:
        return sum(map(len, self.leaves.values()))

    def decoded(self) -> list[Row]:
        return self.codes.decode_rows(self.relation.types, rows_of(dict(self.leaves), self.relation.arity))


@dataclass(frozen=True, slots=True)
class Versions:
    """A relation's rows, and what a transaction takes out of and puts into them."""

    old: Table
    gone: Table
    came: Table

    @classmethod
    def of(cls, tables: Tables, name: str) -> Versions:
        return cls(tables.table(name), tables.table(name, Variant.DEL), tables.table(name, Variant.INS))

    def settle(self) -> None:
        """The new state becomes the old one."""
        if self.gone:
            self.old.remove_all(self.gone)
        if self.came:
            self.old.add_all(self.came)


DERIVED = (Strategy.ON_DEMAND, Strategy.FILTRATION, Strategy.DIFFERENCING)


class ResidentEngine:
    """See `engines.base.Engine`."""

    name = "resident"

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.codes = Codes()
        self.program = Program({}, ())
        self.maintenance = MaintenanceProgram(self.program, (), ())
        self.meter = Meter()
        self.tables = self._new_tables(self.maintenance, ())
        self.queries = self.tables
        self.sections: tuple[LinkedSection, ...] = ()
        self.monitored: tuple[str, ...] = ()
        self._versions: dict[str, Versions] = {}
        self._stored: list[Versions] = []

    def install(
        self, maintenance: MaintenanceProgram, monitored: Sequence[str], initial: Mapping[str, Iterable[Row]] | None = None
    ) -> int:
        """Build everything beside what is there, and switch over when it stands: a failure changes nothing."""
        program = maintenance.program
        unstored = [name for s in maintenance.sections if s.strategy in DERIVED for name in s.component.relations]
        tables = self._new_tables(maintenance, unstored)
        for name in program.bases:
            if name in self.program.bases:
                tables.adopt(name, self.tables.table(name))
        added = []
        try:
            for name, rows in (initial or {}).items():
                table = tables.table(name)
                added.append((table, table.load(self.codes.encode_rows(program.relations[name].types, rows))))
            check_keys(program.relations, tables, initial or {}, self.codes)
            sections, touched = self._evaluate(maintenance, tables)
        except BaseException:
            for table, rows_added in added:
                table.unload(rows_added)
            raise
        self.program, self.tables, self.sections = program, tables, sections
        self.maintenance, self.monitored = maintenance, tuple(monitored)
        self._versions = {name: Versions.of(tables, name) for name in (*program.bases, *program.views)}
        kept = [name for s in maintenance.sections if s.strategy.stored for name in s.component.relations]
        self._stored = [self._versions[name] for name in (*program.bases, *kept)]
        self.queries = self._new_tables(maintenance, set(program.views).difference(kept))
        for name in (*program.bases, *kept):
            self.queries.adopt(name, tables.table(name))
        return touched

    def _new_tables(self, maintenance: MaintenanceProgram, on_demand: Collection[str]) -> Tables:
        return Tables(maintenance.program, maintenance.states, on_demand, self.codes, self.meter, self.limits)

    def load(self, initial: Mapping[str, Iterable[Row]]) -> int:
        return self.install(self.maintenance, self.monitored, initial)

    def _evaluate(self, maintenance: MaintenanceProgram, tables: Tables) -> tuple[tuple[LinkedSection, ...], int]:
        """Fill the views bottom up, and compile each section when its own are filled."""
        linker = Linker(maintenance, tables, self.codes)
        self.meter.touched = 0
        sections = []
        for section in maintenance.sections:
            for phase in linker.initial(section):
                phase.run(self.meter, self.limits)
                phase.commit()
            sections.append(linker.link(section))
        tables.forget()
        return tuple(sections), self.meter.touched

    def net(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        tables = {operation.relation: self.tables.table(operation.relation) for operation in operations}
        return net_effect(operations, self.program.relations, tables, self.codes)

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        self.meter.touched = 0
        try:
            for name, delta in net.items():
                types, versions = self.program.relations[name].types, self._versions[name]
                versions.came.load(self.codes.encode_rows(types, delta.plus))
                versions.gone.load(self.codes.encode_rows(types, delta.minus))
            if net:
                for section in self.sections:
                    if section.affected():
                        for phase in section.phases:
                            phase.run(self.meter, self.limits)
            return Propagation(self._changes(), self.meter.touched)
        except BaseException:
            self.rollback()
            raise

    def _changes(self) -> dict[str, ViewDelta]:
        changes = {}
        for name in self.monitored:
            versions = self._versions[name]
            if versions.gone or versions.came:
                relation = self.program.relations[name]
                plus = CodedRows(relation, versions.came.snapshot(), self.codes)
                minus = CodedRows(relation, versions.gone.snapshot(), self.codes)
                changes[name] = ViewDelta(plus, minus)
        return changes

    def commit(self) -> None:
        for versions in self._stored:
            versions.settle()
        for section in self.sections:
            for phase in section.phases:
                phase.commit()
        self._clear()

    def rollback(self) -> None:
        for section in self.sections:
            for phase in section.phases:
                phase.rollback()
        self._clear()

    def _clear(self) -> None:
        for table in self.tables.transient:
            table.clear()
        self.tables.forget()

    def rows(self, relation: str, bindings: Mapping[int, Value]) -> list[Row]:
        declared = self.program.relations[relation]
        wanted = {}
        for column, value in sorted(bindings.items()):
            code = self.codes.codec(declared.columns[column].type).find(value)
            if code is None:
                return []
            wanted[column] = code
        self.meter.touched = 0
        try:
            found = self._matching(self.queries.source(relation, Variant.OLD), wanted)
            return self.codes.decode_rows(declared.types, found if declared.columns else (() for _ in found))
        finally:
            self.queries.forget()

    @staticmethod
    def _matching(source: Readable, wanted: Mapping[int, Code]) -> Iterable[CodedRow]:
        """A view that is not kept is asked with its bindings; a table is searched, by an index where it has the right one."""
        if isinstance(source, Table):
            return source.matching(wanted)
        if not wanted:
            return rows_of(dict(source.items()), source.arity)
        key = tuple(wanted.values())
        entry = source.lookup(tuple(wanted))(key[0] if len(key) == 1 else key)
        return whole_rows(tuple(wanted), key, entry or (), source.arity)

    def size(self, relation: str) -> int:
        try:
            return sum(len(leaf) for _, leaf in self.queries.source(relation, Variant.OLD).items())
        finally:
            self.queries.forget()
