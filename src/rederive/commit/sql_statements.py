"""SQL statements, run in order: definitions at once, changes of data as transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rederive.analysis.graph import needed
from rederive.bags import copies, on_copies
from rederive.engines.protocol import Action, Operation
from rederive.engines.resident.compile.expressions import row_function
from rederive.engines.resident.engine import ResidentEngine
from rederive.errors import (
    DuplicateKey,
    EvaluationError,
    IllTypedRow,
    RuleError,
    Span,
    SyntaxProblem,
    UnknownRelation,
    Unsupported,
    Violated,
)
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row, Term, Value
from rederive.lang.rules.parser import parse_rule_statement
from rederive.lang.sql.ddl import definition_of, dropped_view
from rederive.lang.sql.definition import SqlDefinition
from rederive.lang.sql.dml import (
    ChangeMatching,
    ChangeQuery,
    CompiledQuery,
    DataChange,
    InsertQuery,
    InsertValues,
    compile_change,
    compile_select,
)
from rederive.lang.sql.parser import ParsedStatement, parse
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.result import Result
from rederive.scalar.failures import ScalarError
from rederive.values import column_value, from_python, sort_key

if TYPE_CHECKING:
    from rederive.commit.execution import Course
    from rederive.database import Database


class SqlRun:
    """One text of statements. Between BEGIN and COMMIT, changes wait in `pending` and are seen by the statements after them.

    `before_change` is called once, behind the definitions that the text starts with, and may make a version. `given`: rows of
    tables that are there for the statements alone. With `again`, definitions that stood before the text began are passed over.
    """

    def __init__(
        self,
        database: Database,
        before_change: Callable[[], Result | None] = lambda: None,
        given: Mapping[str, Sequence[Row]] | None = None,
        *,
        again: bool = False,
    ) -> None:
        self.database = database
        self.before_change = before_change
        self.given = given or {}
        self.again = again
        self.stood: frozenset[SqlDefinition] = frozenset()
        self.pending: list[Operation] | None = None
        self.course: Course | None = None

    def run(self, text: str, name: str = "<text>") -> Iterator[Result]:
        """Run the statements; what each version did. A text that does not parse, or does not end its BEGIN, changes nothing."""
        statements = _checked_statements(text, name)
        self.stood = self.standing(statements) if self.again else frozenset()
        changed = False
        for parsed in statements:
            if not changed and parsed.kind not in ("create", "drop", "rule"):
                changed = True
                if (result := self.before_change()) is not None:
                    yield result
            if (result := self.statement(parsed)) is not None:
                yield result

    def standing(self, statements: Sequence[ParsedStatement]) -> frozenset[SqlDefinition]:
        """The definitions among these statements that stand already."""
        return frozenset(d for p in statements if p.kind == "create" and self.database.stands(d := definition_of(p)))

    def define(self, text: str, name: str = "<text>") -> None:
        """The definitions alone; the other statements are checked and not run."""
        for parsed in _checked_statements(text, name):
            match parsed.kind:
                case "create" | "drop" | "rule":
                    self.statement(parsed)
                case "change":
                    compile_change(parsed, self.database.definitions.program)
                case "query":
                    compile_select(parsed, self.database.definitions.program)

    def statement(self, parsed: ParsedStatement) -> Result | None:
        match parsed.kind:
            case "begin":
                self.course = self.database.begin()
                self.pending = self.course.operations
            case "rollback":
                self.course = self.pending = None
            case "commit":
                course, self.course, self.pending = self.course, None, None
                return self.committed((), parsed.span, course)
            case "change":
                return self.change(parsed)
            case "query":
                raise Unsupported("a query is no statement to run", parsed.span, hint="ask with db.query or `rederive query`")
            case kind:
                return self.defined(kind, parsed)
        return None

    def defined(self, kind: str, parsed: ParsedStatement) -> Result | None:
        if self.pending is not None:
            raise parsed.unsupported("a definition inside a transaction", None, "COMMIT first")
        if kind == "create":
            created = definition_of(parsed)
            passed_over = created in self.stood and self.database.stands(created)
            return self.database.create(created) if not passed_over else None
        if kind == "rule":
            self.database.run_rule_statement(parse_rule_statement(parsed))
            return None
        view, may_miss = dropped_view(parsed)
        try:
            return self.database.drop(view)
        except UnknownRelation as error:
            if may_miss:
                return None
            raise error.at(str(parsed.span)) from None

    def committed(self, operations: Sequence[Operation], span: Span, course: Course | None = None) -> Result:
        try:
            return self.database.commit(operations, course=course)
        except (EvaluationError, IllTypedRow, RuleError, Violated) as error:
            raise error.at(error.place or str(span)) from error.__cause__

    # Changes of data

    def change(self, parsed: ParsedStatement) -> Result | None:
        operations = self.operations(self.lowered(parsed), parsed)
        if self.course is None:
            return self.committed(operations, parsed.span)
        self.course.statement(operations)
        return None

    def lowered(self, parsed: ParsedStatement) -> DataChange:
        """What a statement asks for. Keys hold when the transaction ends: until then, it reads tables as sets of rows.

        The rules of a view rely on keys: who reads one inside a transaction meets a key conflict at once.
        """
        program = self.database.program
        if self.pending:
            change = compile_change(parsed, without_keys(program))
            if not isinstance(change, InsertQuery | ChangeQuery) or not _reads_view(change.question, program):
                return change
        return compile_change(parsed, program)

    def operations(self, change: DataChange, parsed: ParsedStatement) -> list[Operation]:
        table = self.database.program.relations[change.table]
        match change:
            case InsertValues(_, rows):
                return [self.inserted(table, (_constants(row) for row in rows), parsed)]
            case InsertQuery(_, asked):
                return [self.inserted(table, answers(self.database, asked, self.pending or (), self.given), parsed)]
            case ChangeMatching():
                return self.changed(table, change, parsed)
            case ChangeQuery(_, asked, updates):
                found = answers(self.database, asked, self.pending or (), self.given)
                return self.exchanged(table, [(r[: table.arity], r[table.arity :] if updates else None) for r in found], parsed)

    def inserted(self, table: Relation, rows: Iterator[Row] | list[Row], parsed: ParsedStatement) -> Operation:
        return Operation(Action.INSERT, table.name, tuple(_checked(table, row, parsed) for row in rows))

    def changed(self, table: Relation, change: ChangeMatching, parsed: ParsedStatement) -> list[Operation]:
        columns = [f"c{i}" for i in range(table.arity)]
        types = dict(zip(columns, table.types, strict=True))
        rows = self.rows(table, dict(change.bindings))
        try:
            if change.condition is not None:
                holds = row_function(change.condition, columns, types)
                rows = [row for row in rows if holds(row) is True]
            if change.values is None:
                return self.exchanged(table, [(row, None) for row in rows], parsed)
            functions = [row_function(value, columns, types) for value in change.values]
            return self.exchanged(table, [(row, tuple(f(row) for f in functions)) for row in rows], parsed)
        except ScalarError as error:
            raise error.kind(str(error)).at(str(parsed.span)) from None

    def exchanged(self, table: Relation, rows: Sequence[tuple[Row, Row | None]], parsed: ParsedStatement) -> list[Operation]:
        """Old rows leave, and new ones take their places."""
        old = tuple(row for row, _ in rows)
        new = tuple(_checked(table, row, parsed) for _, row in rows if row is not None)
        if new and self.database.program.copies_of(table.name) is None:
            self.check_distinct(table, old, new, parsed)
        return [Operation(Action.DELETE, table.name, old), Operation(Action.INSERT, table.name, new)]

    def check_distinct(self, table: Relation, old: Sequence[Row], new: Sequence[Row], parsed: ParsedStatement) -> None:
        """An update leaves as many rows as there were: a set would make one of two that become the same.

        Rows that share a key and differ otherwise are refused when the transaction ends.
        """
        key = table.key or tuple(range(table.arity))
        moved = [row for row, before in zip(new, old, strict=True) if any(row[i] != before[i] for i in key)]
        if not moved:
            return
        found = self.rows(table, {i: moved[0][i] for i in key} if len(moved) == 1 else {})
        unchanged = set(found).difference(old)
        double = next((row for row, count in Counter((*new, *unchanged)).items() if count > 1), None)
        if double is not None:
            names = [table.columns[i].name for i in key]
            raise DuplicateKey(table.name, names, double, double).at(str(parsed.span))

    def rows(self, table: Relation, bindings: dict[int, Value]) -> list[Row]:
        """The rows of a table now, the pending changes included."""
        found = copies(self.database.program, table.name, bindings, self.database.engine)
        touched = [operation for operation in self.pending or () if operation.relation == table.name]
        if not touched:
            return found
        bag = Counter(found)
        is_bag = self.database.program.copies_of(table.name) is not None
        for operation in touched:
            step = -1 if operation.action is Action.DELETE else 1
            for row in operation.rows:
                if all(row[i] == value for i, value in bindings.items()):
                    bag[row] = max(bag[row] + step, 0) if is_bag else max(step, 0)
        return list(bag.elements())


def without_keys(program: Program) -> Program:
    """The program whose base relations are sets of rows, in which two rows may share a key."""
    relations = {n: replace(r, key=()) if n in program.bases else r for n, r in program.relations.items()}
    return replace(program, relations=relations)


def _reads_view(asked: CompiledQuery, program: Program) -> bool:
    read = needed(asked.program, [asked.view])
    return any(view in read and program.copies_of(view) is None for view in program.views)


def _checked_statements(text: str, name: str) -> tuple[ParsedStatement, ...]:
    statements = parse(text, name)
    _check_transactions(statements)
    for parsed in statements:
        if parsed.kind == "rule":
            parse_rule_statement(parsed)
    return statements


def _check_transactions(statements: Sequence[ParsedStatement]) -> None:
    """BEGIN and COMMIT must alternate."""
    begun: ParsedStatement | None = None
    for parsed in statements:
        match parsed.kind, begun:
            case "begin", ParsedStatement():
                raise SyntaxProblem("BEGIN inside a transaction", parsed.span, hint="COMMIT first")
            case "begin", None:
                begun = parsed
            case (("commit" | "rollback"), None):
                raise SyntaxProblem(f"{parsed.kind.upper()} without BEGIN", parsed.span)
            case (("commit" | "rollback"), _):
                begun = None
    if begun is not None:
        raise SyntaxProblem("the transaction is never committed", begun.span, hint="end it with COMMIT")


def _constants(terms: Sequence[Term]) -> Row:
    try:
        return tuple(row_function(term, [], {})(()) for term in terms)
    except ScalarError as error:
        raise error.kind(str(error)) from None


def _checked(table: Relation, row: Row, parsed: ParsedStatement) -> Row:
    values = []
    for column, value in zip(table.columns, row, strict=True):
        try:
            values.append(column_value(value, column, from_python))
        except ValueError as error:
            message = f"relation '{table.name}', column '{column.name}': {error}"
            raise IllTypedRow(message).at(str(parsed.span)) from None
    return tuple(values)


def answers(
    database: Database, asked: CompiledQuery, pending: Sequence[Operation] = (), given: Mapping[str, Sequence[Row]] | None = None
) -> list[Row]:
    """The answers of a query over the tables as they are, with changes that are not committed yet: evaluated apart.

    `given`: the rows of tables that only the query knows of.
    """
    program, target = asked.program, asked.program.counted(asked.view)
    read = needed(program, [target])
    scratch = ResidentEngine(database.limits)
    apart = given or {}
    initial = {base: apart[base] if base in apart else database.engine.rows(base, {}) for base in program.bases if base in read}
    with scratch.budget(database.limits):
        scratch.install(plan(program, [target], Strategy.MATERIALIZED.value), (target,), initial)
        scratch.commit()
        if pending:
            scratch.propagate(scratch.net(on_copies(program, pending, scratch)))
            scratch.commit()
        return copies(program, asked.view, {}, scratch)


def asked_rows(database: Database, text: str) -> list[Row]:
    """The answers of a query in SQL, in order."""
    parsed, *others = parse(text, "<query>")
    if others:
        raise SyntaxProblem("one query at a time", others[0].span, hint="db.sql runs several statements")
    return sorted(answers(database, compile_select(parsed, database.program)), key=sort_key)
