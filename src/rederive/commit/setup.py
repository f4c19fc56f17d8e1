"""Definitions and initial rows that belong together: gathered first, evaluated then, once and as one version."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rederive.catalog import Catalog, CatalogChange
from rederive.errors import Mismatch
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import RuleStatement
from rederive.result import Result

if TYPE_CHECKING:
    from rederive.database import Database


class Setup:
    """A `with` block: what is defined and loaded inside it is one version, made when it ends; an exception discards it.

    `result`: that version, or None where nothing changed. `touched`: the tuples that its evaluation looked at. Statements about
    active rules run after it, in their order: initial rows fire nothing, so that this makes no difference.
    """

    def __init__(self, database: Database) -> None:
        self.result: Result | None = None
        self.touched = 0
        self._database = database
        self._before: Catalog = database.definitions
        self._steps: list[CatalogChange] = []
        self._rules: list[RuleStatement] = []

    def __enter__(self) -> Self:
        if self._database.gathering is not None:
            raise Mismatch("a setup is open already", hint="end its block first")
        self._database.gathering = self
        return self

    def add(self, step: CatalogChange) -> None:
        self._steps.append(step)

    def add_rule(self, statement: RuleStatement) -> None:
        self._rules.append(statement)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        database, last = self._database, self._database.definitions
        database.gathering = None
        database.take_back(self._before)
        if kind is None:
            if self._steps:
                self.result, self.touched = database.advance(self._together(last))
            for statement in self._rules:
                database.run_rule_statement(statement)

    def _together(self, last: Catalog) -> CatalogChange:
        parts: dict[str, list[Iterable[Row]]] = {}
        for step in self._steps:
            for relation, rows in step.facts.items():
                parts.setdefault(relation, []).append(rows)
        given = {name: _joined(rows) for name, rows in parts.items() if name in last.program.relations}
        return CatalogChange(last, given, any(s.always for s in self._steps), any(s.loads for s in self._steps))


def _joined(parts: list[Iterable[Row]]) -> Iterable[Row]:
    """The rows of all parts; those of one alone stay where they are."""
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
