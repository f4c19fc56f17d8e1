"""The bridge between a warehouse and a database: transactions on the sources become changes of the stored views.

The database has a table `v__stored` for each stored view and the view `v` over it, and tables that say how far the warehouse is.
All of them change in one version: the warehouse can always continue from what is durable.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from rederive.commit.pending import TransactionRequest
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import SourceUnavailable, StrategyError, Unsupported
from rederive.ir.printing import show_relation
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.store.codec import decode_rows, encode_row
from rederive.warehouse.report import MaintenanceReport, MaintenanceStatus
from rederive.warehouse.selfmaint.conjunctive import stored_views
from rederive.warehouse.selfmaint.source_update import SourceUpdate
from rederive.warehouse.warehouse import Warehouse, WarehouseProgress

if TYPE_CHECKING:
    from rederive.commit.pipeline import Pipeline

LOG: Final = logging.getLogger("rederive.warehouse")
REPORT, READS, PENDING = "warehouse_report", "warehouse_reads", "warehouse_pending"
_TABLES: Final = """\
.decl warehouse_report__stored(view: symbol, at: number, status: symbol, sources: symbol, why: symbol)
.decl warehouse_report(view: symbol, at: number, status: symbol, sources: symbol, why: symbol)
warehouse_report(view, at, status, sources, why) :- warehouse_report__stored(view, at, status, sources, why).
.decl warehouse_reads__stored(step: number, at: number, read: symbol, avoided: number)
.decl warehouse_reads(step: number, at: number, read: symbol, avoided: number)
warehouse_reads(step, at, read, avoided) :- warehouse_reads__stored(step, at, read, avoided).
.decl warehouse_pending__stored(number: number, relation: symbol, sign: symbol, row: symbol)
.output warehouse_report
.output warehouse_reads
"""


def stored_table(name: str) -> str:
    """Return the table that holds the rows of a stored view."""
    return f"{name}__stored"


def bridge_program_text(program: Program) -> str:
    """Return the program of the database that stores the views of a warehouse.

    >>> from rederive.lang import compile_program
    >>> text = bridge_program_text(compile_program('''
    ...     .decl r(x: symbol)  .decl s(x: symbol)  .remote r, s  .decl v(x: symbol)  v(x) :- r(x), s(x).
    ... '''))
    >>> print(*text.splitlines()[:6], sep="\\n")
    .decl r(x: symbol)
    .decl s(x: symbol)
    .decl v__stored(x: symbol)
    .decl v(x: symbol)
    v(x) :- v__stored(x).
    .output v
    """
    views = [view.name for view in stored_views(program)]
    if lost := [name for name in program.monitored if name not in views]:
        hint = "name it in .stored, or do not monitor it"
        raise StrategyError(f"the monitored view '{lost[0]}' is not stored, and a warehouse has stored views only", hint=hint)
    if program.constraints:
        hint = "check the rows in their sources, or in a subscriber"
        raise StrategyError(f"'{program.constraints[0].view}' is a constraint, and a warehouse checks none", hint=hint)
    for name in (*program.bases, *views):
        _check_writable(program.relations[name])
    lines = [show_relation(program.relations[name]) for name in program.bases]
    for name in views:
        # The whole row is the key: the warehouse says which rows enter and leave, and never replaces one by key.
        relation = replace(program.relations[name], key=())
        columns = ", ".join(column.name for column in relation.columns)
        lines += [show_relation(replace(relation, name=stored_table(name))), show_relation(relation)]
        lines += [f"{name}({columns}) :- {stored_table(name)}({columns}).", f".output {name}"]
    return "\n".join([*lines, _TABLES])


def _check_writable(relation: Relation) -> None:
    """Refuse what the tables of the database, which are declared in Datalog, cannot hold."""
    if column := next((column.name for column in relation.columns if column.nullable), None):
        hint = "declare the columns NOT NULL, or replace NULL by coalesce(column, value)"
        raise StrategyError(f"the column '{column}' of '{relation.name}' may be NULL", hint=hint)
    if other := next((name for name in (relation.name, *(c.name for c in relation.columns)) if not name.isidentifier()), None):
        raise StrategyError(f"'{other}' is not a name of letters, digits and _", hint="rename it")


@dataclass(frozen=True, slots=True)
class RetryWaitingViews(TransactionRequest):
    """A request without rows: try again to update the views that wait for a source."""


@dataclass(slots=True)
class MaintenanceCounts:
    """Counts since the start: updates of views by status, reads by relation, and reads that were not needed."""

    maintained: Counter[tuple[str, MaintenanceStatus]] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    avoided: int = 0

    def add(self, report: MaintenanceReport) -> None:
        """Add the counts of one report."""
        self.maintained.update((view, outcome.status) for view, outcome in report.views.items())
        self.reads.update(report.reads)
        self.avoided += report.avoided


class WarehouseBridge:
    """The warehouse of a database.

    `_step` numbers the states of the warehouse. If the number in the database is another one, the last changes were not
    committed: the warehouse in memory is ahead, and is loaded from the database again.
    """

    def __init__(self, pipeline: Pipeline, program: Program, *, net: bool = False) -> None:
        self.counts = MaintenanceCounts()
        self._pipeline = pipeline
        self._state = pipeline.state
        self._open = partial(Warehouse, program, net=net)
        self._net = net
        self._step = -1  # no state is loaded
        self._warehouse = self._open()
        if {view for view, *_ in self._stored(REPORT)} != {view.name for view in self._warehouse.views}:
            self._initialize()
        self._reload_if_ahead()

    @property
    def waiting(self) -> dict[str, str]:
        """The views that are behind, each with the reason."""
        return self._warehouse.waiting()

    def translate(self, request: TransactionRequest) -> tuple[Operation, ...]:
        """Return the changes of the stored tables for a transaction on the sources."""
        self._reload_if_ahead()
        report = self._retry() if isinstance(request, RetryWaitingViews) else self._apply(request.operations)
        # Ahead of the database until the pipeline commits these operations. If it does not, the next call finds another number
        # and loads the warehouse again, so that nothing has to be undone.
        self._step += 1
        local = (step for step in request.operations if step.relation not in self._warehouse.remote)
        return (*local, *self._changes(report), *self._bookkeeping(report))

    # Transactions

    def _apply(self, operations: Sequence[Operation]) -> MaintenanceReport:
        update = self._update(operations)
        return self._warehouse.apply(update.inserts, update.deletes)

    def _retry(self) -> MaintenanceReport:
        report = self._warehouse.retry()
        if len(report.waiting) == len(report.views):
            # An error, because an attempt that changes nothing must not make a version.
            raise SourceUnavailable(f"these views still wait for a source: {', '.join(report.waiting)}")
        return report

    def _update(self, operations: Iterable[Operation]) -> SourceUpdate:
        found = SourceUpdate(net=self._net)
        for step in operations:
            rows = {step.relation: step.rows if not isinstance(step.rows, Bulk) else tuple(step.rows)}
            match step.action:
                case Action.INSERT:
                    found = found.then(SourceUpdate.of(insert=rows, net=self._net))
                case Action.DELETE:
                    found = found.then(SourceUpdate.of(delete=rows, net=self._net))
                case Action.UPSERT:
                    hint = "delete the old row and insert the new one"
                    message = (
                        f"an upsert of the remote relation '{step.relation}' replaces a row that the warehouse does not know"
                    )
                    raise Unsupported(message, hint=hint)
        return found

    def _changes(self, report: MaintenanceReport) -> Iterator[Operation]:
        for view, outcome in report.views.items():
            yield Operation(Action.DELETE, stored_table(view), outcome.minus)
            yield Operation(Action.INSERT, stored_table(view), outcome.plus)

    def _bookkeeping(self, report: MaintenanceReport) -> Iterator[Operation]:
        """Return the changes of the tables that say how far each view is, and write a line of the log."""
        self.counts.add(report)
        summary = "; ".join(f"{view} {outcome}" for view, outcome in report.views.items())
        LOG.info("transaction %d: %s; %d reads avoided", report.version, summary, report.avoided)
        progress = self._warehouse.progress
        before = {str(row[0]): row for row in self._stored(REPORT)}
        # Views that this transaction does not touch keep the line of the step that changed them last.
        lines = []
        for view, at in progress.views.items():
            if (outcome := report.views.get(view)) is None:
                lines.append(before[view])
            else:
                lines.append((view, at, outcome.status.value, ", ".join(outcome.read), outcome.why))
        yield from self._replace_rows(REPORT, lines)
        yield from self._replace_rows(READS, [(self._step, report.version, ", ".join(report.reads), report.avoided)])
        yield from self._replace_rows(PENDING, _pending_rows(progress))

    def _replace_rows(self, name: str, rows: Iterable[Row]) -> Iterator[Operation]:
        # Only the difference is written, so an unchanged table costs nothing in the journal.
        present, new = frozenset(self._stored(name)), frozenset(rows)
        yield Operation(Action.DELETE, stored_table(name), tuple(present - new))
        yield Operation(Action.INSERT, stored_table(name), tuple(new - present))

    # State in the database

    def _stored(self, name: str) -> list[Row]:
        return self._state.rows(stored_table(name))

    def _reload_if_ahead(self) -> None:
        if self._stored(READS) and self._stored(READS)[0][0] == self._step:
            return
        self._warehouse = self._open()
        # The table has one row: the last state that is durable.
        ((self._step, version, *_),) = self._stored(READS)  # type: ignore[assignment]
        views = {str(view): int(at) for view, at, *_ in self._stored(REPORT)}  # type: ignore[arg-type]
        local = {n for view in self._warehouse.views for n in view.sources} - self._warehouse.remote
        contents = {name: self._stored(name) for name in views} | {name: self._state.rows(name) for name in local}
        self._warehouse.restore(WarehouseProgress(version, views, self._pending()), contents)  # type: ignore[arg-type]

    def _pending(self) -> dict[int, SourceUpdate]:
        found: dict[int, dict[str, dict[str, list[Row]]]] = {}
        for number, relation, sign, text in self._stored(PENDING):
            sides = found.setdefault(int(number), {"insert": {}, "delete": {}})  # type: ignore[arg-type]
            # The line of a transaction without rows, which still counts as one that a view has not seen.
            if relation:
                declared = self._state.program.relations[str(relation)]
                sides[str(sign)].setdefault(str(relation), []).extend(decode_rows("[" + str(text) + "]", declared))
        return {number: SourceUpdate.of(**sides, net=self._net) for number, sides in found.items()}

    def _initialize(self) -> None:
        """Read all sources and evaluate all views: the first state."""
        local = {n for view in self._warehouse.views for n in view.sources} - self._warehouse.remote
        self._warehouse.load_typed({name: self._state.rows(name) for name in local})
        self._warehouse.refresh()
        progress = self._warehouse.progress
        rows = [(view, at, "evaluated from the sources", "", "") for view, at in progress.views.items()]
        steps = [
            step for view in self._warehouse.views for step in self._replace_rows(view.name, self._warehouse.rows(view.name))
        ]
        steps += [*self._replace_rows(REPORT, rows), *self._replace_rows(READS, [(0, progress.version, "", 0)])]
        self._pipeline.commit_operations([step for step in (*steps, *self._replace_rows(PENDING, ())) if step.rows])
        self._step = 0


def _pending_rows(progress: WarehouseProgress) -> Iterator[Row]:
    """Return the rows of the transactions that some view lacks. A transaction without rows has one line with empty fields."""
    for number, update in progress.pending.items():
        sides: Sequence[tuple[str, str, Row]] = [
            (relation, sign, row)
            for sign, changed in (("insert", update.inserts), ("delete", update.deletes))
            for relation, rows in changed.items()
            for row in rows
        ]
        yield from ((number, relation, sign, encode_row(row)) for relation, sign, row in sides)
        if not sides:
            yield (number, "", "", "")
