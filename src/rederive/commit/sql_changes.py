"""Changes of data in SQL as operations on tables: what INSERT, UPDATE and DELETE ask for over the current rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rederive.analysis.graph import needed
from rederive.bags import net_effect, read_rows
from rederive.commit.state import DatabaseState
from rederive.delta import sort_rows
from rederive.engines.protocol import Action, Operation
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.term_functions import row_function
from rederive.errors import DuplicateKey, EvaluationError, IllTypedRow, SyntaxProblem, UnknownTime
from rederive.ir.printing import show_value
from rederive.ir.rules import CLOCK, Program, Relation
from rederive.ir.terms import Row, Term, Value
from rederive.lang.sql.dml import (
    ChangeMatching,
    ChangeQuery,
    CompiledQuery,
    DataChange,
    InsertQuery,
    InsertValues,
    MergeRows,
    ReplaceRows,
    compile_change,
    compile_select,
)
from rederive.lang.sql.parser import ParsedStatement, parse
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.result import Answer
from rederive.row_list import RowList
from rederive.rows import typed_row
from rederive.scalar.failures import ScalarError


class ChangeEvaluator:
    """Evaluates statements that change data.

    `pending`: the operations of the open transaction, which its statements see; None outside of one. `given`: rows of tables
    that exist for these statements alone.
    """

    def __init__(
        self,
        state: DatabaseState,
        pending: Sequence[Operation] | None = None,
        given: Mapping[str, Sequence[Row]] | None = None,
    ) -> None:
        self._state = state
        self._given = given or {}
        self.pending = pending

    def compile(self, parsed: ParsedStatement) -> DataChange:
        """Compile a statement. Keys hold when the transaction ends: until then, it reads tables as sets of rows.

        The rules of a view rely on keys: a statement that reads one inside a transaction meets a key conflict at once.
        """
        program = self._state.program
        if self.pending:
            change = compile_change(parsed, without_keys(program))
            if not any(_reads_view(asked, program) for asked in _questions(change)):
                return change
        return compile_change(parsed, program)

    def operations(self, change: DataChange, parsed: ParsedStatement) -> list[Operation]:
        """The operations that a statement asks for."""
        table = self._state.program.relations[change.table]
        match change:
            case InsertValues(_, rows):
                return [_insert(table, (_constants(row) for row in rows), parsed)]
            case InsertQuery(_, asked):
                return [_insert(table, self._answers(asked), parsed)]
            case ChangeMatching():
                return self._change_matching(table, change, parsed)
            case ChangeQuery(_, asked, updates):
                found = self._answers(asked)
                self._check_one_change((row[: table.arity] for row in found), table, parsed)
                return self._replace(table, [(r[: table.arity], r[table.arity :] if updates else None) for r in found], parsed)
            case ReplaceRows(_, removed, added, condition):
                # Both are evaluated over the rows before the statement.
                entering = self.operations(added, parsed)
                if condition is not None:
                    _check_entering(table, condition, entering, parsed)
                return [*self.operations(removed, parsed), *entering]
            case MergeRows():
                return self._merge(table, change, parsed)

    def _is_bag(self, table: Relation) -> bool:
        return self._state.program.numbered_copies(table.name) is not None

    def _merge(self, table: Relation, change: MergeRows, parsed: ParsedStatement) -> list[Operation]:
        """Rows that are updated or deleted leave, then new rows enter. A row may have one action."""
        pairs: list[tuple[Row, Row | None]] = []
        for asked in (change.matched, change.by_source):
            for row in self._answers(asked) if asked is not None else ():
                if (action := row[table.arity]) is not None:
                    pairs.append((row[: table.arity], None if action in change.deletes else row[table.arity + 1 :]))
        self._check_one_change((old for old, _ in pairs), table, parsed)
        new = self._answers(change.by_target) if change.by_target is not None else []
        inserted = [row[1:] for row in new if row[0] is not None]
        operations = self._replace(table, pairs, parsed)
        twice = next((row for row, count in Counter(inserted).items() if count > 1), None)
        if twice is not None and not self._is_bag(table):
            raise DuplicateKey(table.name, [c.name for c in table.columns], twice, twice).at(str(parsed.span))
        return [*operations, _insert(table, inserted, parsed)]

    def _check_one_change(self, rows: Iterable[Row], table: Relation, parsed: ParsedStatement) -> None:
        """Refuse a statement that would change one row twice, as Spark refuses such a MERGE. Each copy of a row counts."""
        several = {row: count for row, count in Counter(rows).items() if count > 1}
        if several and self._is_bag(table):
            copies = Counter(self._rows(table, {}))
            several = {row: count for row, count in several.items() if count > copies[row]}
        if several:
            shown = ", ".join(map(show_value, next(iter(several))))
            message = f"several rows of the source match the row ({shown}) of '{table.name}'"
            raise EvaluationError(message, hint="make the condition match at most one row").at(str(parsed.span))

    def _answers(self, asked: CompiledQuery) -> list[Row]:
        return answers(self._state, asked, self.pending or (), self._given)

    def _change_matching(self, table: Relation, change: ChangeMatching, parsed: ParsedStatement) -> list[Operation]:
        columns = [f"c{i}" for i in range(table.arity)]
        types = dict(zip(columns, table.types, strict=True))
        rows = self._rows(table, dict(change.bindings))
        try:
            if change.condition is not None:
                holds = row_function(change.condition, columns, types)
                # WHERE selects the rows for which the condition is true: neither false nor NULL.
                rows = [row for row in rows if holds(row) is True]
            if change.values is None:
                return self._replace(table, [(row, None) for row in rows], parsed)
            functions = [row_function(value, columns, types) for value in change.values]
            return self._replace(table, [(row, tuple(f(row) for f in functions)) for row in rows], parsed)
        except ScalarError as error:
            raise error.kind(str(error)).at(str(parsed.span)) from None

    def _replace(self, table: Relation, rows: Sequence[tuple[Row, Row | None]], parsed: ParsedStatement) -> list[Operation]:
        """Operations that put new rows in the place of old ones; None deletes."""
        old = tuple(row for row, _ in rows)
        new = tuple(check_row(table, row, parsed) for _, row in rows if row is not None)
        if new and self._state.program.numbered_copies(table.name) is None:
            self._check_distinct(table, old, [before for before, row in rows if row is not None], new, parsed)
        # All old rows leave before a new one enters. So `SET k = k + 1` does not conflict with the rows that it replaces.
        return [Operation(Action.DELETE, table.name, old), Operation(Action.INSERT, table.name, new)]

    def _check_distinct(
        self, table: Relation, old: Sequence[Row], updated: Sequence[Row], new: Sequence[Row], parsed: ParsedStatement
    ) -> None:
        """Refuse an update that makes two rows equal: a set would keep one of them.

        Rows that share a key and differ otherwise are refused when the transaction ends.
        """
        key = table.key or tuple(range(table.arity))
        # Between BEGIN and COMMIT two rows may share a key for a while: then any column may make them equal.
        is_pending = any(operation.relation == table.name for operation in self.pending or ())
        deciding = range(table.arity) if is_pending else key
        moved = [row for row, before in zip(new, updated, strict=True) if any(row[i] != before[i] for i in deciding)]
        if not moved:
            return
        # One row is looked up by its new key; several cost one reading of the table.
        found = self._rows(table, {i: moved[0][i] for i in key} if len(moved) == 1 else {})
        unchanged = set(found).difference(old)
        double = next((row for row, count in Counter((*new, *unchanged)).items() if count > 1), None)
        if double is not None:
            names = [table.columns[i].name for i in key]
            raise DuplicateKey(table.name, names, double, double).at(str(parsed.span))

    def _rows(self, table: Relation, bindings: dict[int, Value]) -> list[Row]:
        """The rows of a table, with the pending operations applied."""
        found = read_rows(self._state.program, table.name, bindings, self._state.engine)
        touched = [operation for operation in self.pending or () if operation.relation == table.name]
        if not touched:
            return found
        bag = Counter(found)
        is_bag = self._state.program.numbered_copies(table.name) is not None
        for operation in touched:
            step = -1 if operation.action is Action.DELETE else 1
            for row in operation.rows:
                if all(row[i] == value for i, value in bindings.items()):
                    # In a set the last request about a row decides. In a bag each
                    # request is one copy, and there are never fewer than none.
                    bag[row] = max(bag[row] + step, 0) if is_bag else max(step, 0)
        return list(bag.elements())


def _check_entering(table: Relation, condition: Term, entering: Sequence[Operation], parsed: ParsedStatement) -> None:
    columns = [f"c{i}" for i in range(table.arity)]
    holds = row_function(condition, columns, dict(zip(columns, table.types, strict=True)))
    for row in (row for operation in entering for row in operation.rows):
        if holds(row) is not True:
            shown = ", ".join(map(show_value, row))
            raise EvaluationError(f"the row ({shown}) does not fulfil the condition of REPLACE WHERE").at(str(parsed.span))


def without_keys(program: Program) -> Program:
    """The program whose base relations are sets of rows, in which two rows may share a key."""
    relations = {n: replace(r, key=()) if n in program.bases else r for n, r in program.relations.items()}
    return replace(program, relations=relations)


def _questions(change: DataChange) -> list[CompiledQuery]:
    match change:
        case InsertQuery() | ChangeQuery():
            return [change.question]
        case ReplaceRows():
            return [*_questions(change.removed), *_questions(change.added)]
        case MergeRows():
            return [asked for asked in (change.matched, change.by_target, change.by_source) if asked is not None]
        case _:
            return []


def _reads_view(asked: CompiledQuery, program: Program) -> bool:
    read = needed(asked.program, [asked.view])
    return any(view in read and program.numbered_copies(view) is None for view in program.views)


def _constants(terms: Sequence[Term]) -> Row:
    try:
        return tuple(row_function(term, [], {})(()) for term in terms)
    except ScalarError as error:
        raise error.kind(str(error)) from None


def _insert(table: Relation, rows: Iterator[Row] | list[Row], parsed: ParsedStatement) -> Operation:
    return Operation(Action.INSERT, table.name, tuple(check_row(table, row, parsed) for row in rows))


def check_row(table: Relation, row: Row, parsed: ParsedStatement) -> Row:
    """A row that a statement makes, checked against the columns of its table."""
    try:
        return typed_row(table, row)
    except IllTypedRow as error:
        raise error.at(str(parsed.span)) from None


def answers(
    state: DatabaseState,
    asked: CompiledQuery,
    pending: Sequence[Operation] = (),
    given: Mapping[str, Sequence[Row]] | None = None,
) -> list[Row]:
    """The answers of a query over the current tables and pending operations, evaluated by an engine of its own.

    `given`: the rows of tables that exist for the query alone.
    """
    program, target = asked.program, asked.program.counting_relation(asked.view)
    read = needed(program, [target])
    scratch = ResidentEngine(state.limits)
    own = given or {}
    bases = [base for base in program.bases if base in read]
    initial = {base: own[base] if base in own else current_rows(state, base) for base in bases}
    with scratch.budget(state.limits):
        scratch.install(plan(program, [target], Strategy.MATERIALIZED.value), (target,), initial)
        scratch.commit()
        if pending:
            scratch.propagate(net_effect(program, pending, scratch))
            scratch.commit()
        return read_rows(program, asked.view, {}, scratch)


def current_rows(state: DatabaseState, base: str) -> Iterable[Row]:
    """The rows of a base relation. A query that reads the time needs a database that knows it."""
    rows = state.engine.rows(base, {}) if base in state.program.relations else ()
    if base == CLOCK and not rows:
        raise UnknownTime
    return rows


def select_rows(state: DatabaseState, text: str) -> RowList:
    """The answers of a query in SQL, in order."""
    parsed, *others = parse(text, "<query>")
    if others:
        raise SyntaxProblem("one query at a time", others[0].span, hint="db.sql runs several statements")
    rows = answer_query(state, parsed).rows
    assert isinstance(rows, RowList)
    return rows


def answer_query(state: DatabaseState, parsed: ParsedStatement, pending: Sequence[Operation] = ()) -> Answer:
    """The answer to a query, in order; inside a transaction, over its changes."""
    asked = compile_select(parsed, without_keys(state.program) if pending else state.program)
    if pending and _reads_view(asked, state.program):
        asked = compile_select(parsed, state.program)
    rows = RowList(sort_rows(answers(state, asked, pending)), asked.program.relations[asked.view].columns)
    return Answer(rows.columns, rows)
