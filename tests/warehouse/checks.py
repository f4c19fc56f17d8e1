"""What the tests of self-maintenance share: a problem, and its answer by each of the ways there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rederive.engines.protocol import Engine
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.rules import Program
from rederive.ir.terms import Kind as TypeKind
from rederive.ir.to_sql import DUCKDB, identifier, sql_text
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import StoredView, stored_views
from rederive.warehouse.selfmaint.search import KnownRows
from rederive.warehouse.selfmaint.source_update import KnownRelations, SourceUpdate, UpdateKind
from tests.duck import empty_duckdb
from tests.oracle import evaluate

Extents = dict[str, set[tuple[Any, ...]]]
SQL_TYPES = {TypeKind.SYMBOL: "VARCHAR", TypeKind.NUMBER: "BIGINT"}


@dataclass(frozen=True)
class Setting:
    """Views over remote relations, as a text declares them."""

    text: str
    program: Program = field(init=False)
    views: tuple[StoredView, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "program", compile_program(self.text))
        object.__setattr__(self, "views", stored_views(self.program))

    def view(self, name: str) -> StoredView:
        return next(view for view in self.views if view.name == name)

    def compiled(self, name: str, kind: UpdateKind, given: KnownRelations | None = None) -> CompiledMaintenance:
        found = compile_maintenance(self.view(name), self.views, self.program.relations, kind, given or KnownRelations())
        assert found is not None
        return found


def kind_of(update: SourceUpdate) -> UpdateKind:
    return UpdateKind.of(update.inserts, update.deletes)


def given_of(knowledge: KnownRows, update: SourceUpdate) -> KnownRelations:
    log = frozenset((*knowledge.log.present, *knowledge.log.absent))
    return KnownRelations(frozenset(knowledge.local), frozenset(knowledge.read), log, update.net)


def extents(knowledge: KnownRows, update: SourceUpdate) -> Extents:
    """The rows of everything that compiled rules may read."""
    found: Extents = {name: set(rows) for name, rows in (*knowledge.views.items(), *knowledge.local.items())}
    parts: list[tuple[str, Mapping[str, Any]]] = [
        (names.INSERTED, update.inserts),
        (names.DELETED, update.deletes),
        (names.READ, knowledge.read),
        (names.PRESENT, knowledge.log.present),
        (names.ABSENT, knowledge.log.absent),
    ]
    for part, rows_by_name in parts:
        found |= {names.of(name, part): set(rows) for name, rows in rows_by_name.items()}
    return found


def by_oracle(test: CompiledMaintenance, rows: Extents) -> tuple[bool, set[Any]]:
    """The compiled test's answer and the view's new rows, by the naive evaluator."""
    found = evaluate(test.program, {name: rows.get(name, set()) for name in test.program.bases})
    return test.always or not found[names.of(test.view, names.DEPENDS)], found[names.of(test.view, names.NEXT)]


def by_engine(test: CompiledMaintenance, rows: Extents, engine: Engine | None = None) -> tuple[bool, set[Any]]:
    """The same on an engine, the resident one unless another is given, nothing of the rules kept."""
    engine = engine or ResidentEngine()
    bases = {name: rows.get(name, set()) for name in test.program.bases}
    engine.install(plan(test.program, (), "on_demand"), (), bases)
    engine.commit()
    maintainable = test.always or bool(engine.rows(names.of(test.view, names.MAINTAINABLE), {}))
    return maintainable, set(engine.rows(names.of(test.view, names.NEXT), {}))


class Duck:
    """The printed SQL on DuckDB."""

    def __init__(self, test: CompiledMaintenance) -> None:
        self._test = test
        self._connection = empty_duckdb()
        self._bases = test.program.bases
        for name in self._bases:
            relation = test.program.relations[name]
            columns = ", ".join(f'"{c.name}" {SQL_TYPES[c.type.kind]}' for c in relation.columns) or "holds BOOLEAN"
            self._connection.execute(f'CREATE TABLE "{identifier(name)}" ({columns})')

    def load(self, rows: Extents) -> None:
        for name in self._bases:
            self._connection.execute(f'DELETE FROM "{identifier(name)}"')
            for row in rows.get(name, ()):
                marks = ", ".join("?" * len(row)) or "TRUE"
                self._connection.execute(f'INSERT INTO "{identifier(name)}" VALUES ({marks})', row)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def maintainable(self) -> bool:
        if self._test.always:
            return True
        ((answer,),) = self.ask(sql_text(self._test.program, names.of(self._test.view, names.MAINTAINABLE), DUCKDB))
        return bool(answer)

    def rows(self, part: str) -> set[tuple[Any, ...]]:
        return set(self.ask(sql_text(self._test.program, names.of(self._test.view, part), DUCKDB)))
