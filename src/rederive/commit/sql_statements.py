"""SQL statements, run in order: definitions at once, changes of data as transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rederive.commit.pending import PendingVersion, TransactionRequest
from rederive.commit.pipeline import Pipeline
from rederive.commit.spark_tables import SparkTables
from rederive.commit.sql_answers import shown_answer
from rederive.commit.sql_changes import ChangeEvaluator, answer_query
from rederive.commit.sql_definitions import SqlDefinitions, existing_tables
from rederive.engines.protocol import Operation
from rederive.errors import (
    EvaluationError,
    IllTypedRow,
    MalformedInput,
    RuleError,
    Span,
    SyntaxProblem,
    UnknownName,
    Violated,
)
from rederive.lang.rules.parser import parse_rule_statement
from rederive.lang.sql.alter_table import altered_name
from rederive.lang.sql.ddl import definition_of, refreshed_name, table_in_place
from rederive.lang.sql.definition import SqlDefinition
from rederive.lang.sql.dml import compile_change, compile_select
from rederive.lang.sql.parser import ParsedStatement, parse
from rederive.result import Result
from rederive.rules.api import Rules


class SqlRun:
    """Runs one text of statements. Between BEGIN and COMMIT, statements see the changes before them.

    `before_change` is called once, after the definitions that the text starts with, and may make a version. With `again`,
    definitions that existed before the text began are skipped.
    """

    def __init__(
        self, pipeline: Pipeline, before_change: Callable[[], Result | None] = lambda: None, *, again: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._state = pipeline.state
        self._before_change = before_change
        self._again = again
        self._existing: frozenset[SqlDefinition] = frozenset()
        self._existing_tables: frozenset[str] = frozenset()
        self._transaction: PendingVersion | None = None
        self._savepoints: list[tuple[str, int]] = []  # names, and how many operations came before each

    def run(self, text: str, name: str = "<text>") -> Iterator[Result]:
        """Run the statements; yields each version. A text that does not parse, or does not end its BEGIN, changes nothing."""
        # A generator: a statement runs when the caller asks for the next version.
        statements = _checked_statements(text, name)
        if self._again:
            self._existing = self._existing_definitions(statements)
            self._existing_tables = existing_tables(statements, self._state.catalog)
        has_changed = False
        for parsed in statements:
            if not has_changed and parsed.kind not in ("create", "drop", "alter", "rule"):
                has_changed = True
                if (result := self._before_change()) is not None:
                    yield result
            if (result := self._run_statement(parsed)) is not None:
                yield result

    def run_changes(self, text: str, name: str, check: Callable[[Sequence[Operation]], None]) -> Result:
        """Run statements that change data as one transaction; any other statement is refused.

        `check` may refuse the operations that they ask for.
        """
        statements = parse(text, name)
        for parsed in statements:
            if parsed.kind != "change":
                raise parsed.unsupported("a statement that does not change data", None, "use INSERT, UPDATE, DELETE or MERGE")
        if not statements:
            raise MalformedInput("the text has no statement", hint="INSERT INTO t VALUES (1)").at(name)
        self._transaction = transaction = self._pipeline.begin()
        for parsed in statements:
            self._change(parsed)
        check(transaction.requests)
        return self._commit(transaction, statements[-1].span)

    def define(self, text: str, name: str = "<text>") -> None:
        """Run the definitions alone; the other statements are checked and not run."""
        for parsed in _checked_statements(text, name):
            match parsed.kind:
                case "create" | "drop" | "alter" | "rule":
                    self._run_statement(parsed)
                case "change":
                    compile_change(parsed, self._state.catalog.program)
                case "query":
                    compile_select(parsed, self._state.catalog.program)

    def _existing_definitions(self, statements: Sequence[ParsedStatement]) -> frozenset[SqlDefinition]:
        catalog = self._state.catalog
        return frozenset(d for p in statements if p.kind == "create" and catalog.has(d := definition_of(p)))

    def _run_statement(self, parsed: ParsedStatement) -> Result | None:
        match parsed.kind:
            case "begin":
                self._transaction, self._savepoints = self._pipeline.begin(), []
            case "rollback":
                self._transaction = None
            case "savepoint":
                self._use_savepoint(parsed)
            case "commit":
                transaction, self._transaction = self._transaction, None
                assert transaction is not None
                return self._commit(transaction, parsed.span)
            case "change":
                return self._change(parsed)
            case "refresh":
                return self._refresh(parsed)
            case "query" | "show":
                return self._answer(parsed)
            case kind:
                return self._define(kind, parsed)
        return None

    def _answer(self, parsed: ParsedStatement) -> Result:
        """A result that answers a statement and changes nothing."""
        pending = self._transaction.operations if self._transaction is not None else ()
        with self._state.budget():
            shows = parsed.kind == "show"
            found = shown_answer(self._state, parsed) if shows else answer_query(self._state, parsed, pending)
        return Result(self._state.version, {}, "", "", 0.0, 0, {}, 0, {}, 0, 0, answer=found)

    def _use_savepoint(self, parsed: ParsedStatement) -> None:
        """SAVEPOINT, RELEASE SAVEPOINT and ROLLBACK TO: what came after a savepoint is taken back."""
        transaction, command, name = self._transaction, parsed.tree.this, str(parsed.tree.expression)
        assert transaction is not None
        if self._state.rules.active:
            raise parsed.unsupported("a savepoint in a database with active rules", None, "use a transaction of its own")
        if command == "SAVEPOINT":
            self._savepoints.append((name, len(transaction.operations)))
            return
        place = next((i for i in reversed(range(len(self._savepoints))) if self._savepoints[i][0] == name), None)
        if place is None:
            raise UnknownName("savepoint", name, [known for known, _ in self._savepoints], parsed.span)
        if command == "ROLLBACK TO":
            count = self._savepoints[place][1]
            del transaction.operations[count:], transaction.requests[count:]
        # A savepoint outlives a rollback to it, and not its release; those after it are gone in both cases.
        del self._savepoints[place + (command == "ROLLBACK TO") :]

    def _define(self, kind: str, parsed: ParsedStatement) -> Result | None:
        # A definition is a version of its own, and so cannot be a part of another one.
        if self._transaction is not None:
            raise parsed.unsupported("a definition inside a transaction", None, "COMMIT first")
        if kind == "rule":
            Rules(self._pipeline).run(parse_rule_statement(parsed))
            return None
        if self._again and self._is_done(kind, parsed):
            return None
        definitions = SqlDefinitions(self._pipeline)
        match kind:
            case "create":
                change = definitions.overwriting(parsed)
                return self._change(change) if change is not None else definitions.create(parsed)
            case "drop":
                return definitions.drop(parsed)
            case _:
                return definitions.alter(parsed)

    def _is_done(self, kind: str, parsed: ParsedStatement) -> bool:
        """Whether the definition existed before the text began."""
        if kind == "alter":
            return altered_name(parsed) in self._existing_tables
        if kind == "drop" or table_in_place(parsed) is not None:
            return False
        created = definition_of(parsed)
        return created.name in self._existing_tables or (created in self._existing and self._state.catalog.has(created))

    def _refresh(self, parsed: ParsedStatement) -> Result | None:
        """One version for all tables in place: a view that is refreshed alone would not agree with the others."""
        if self._transaction is not None:
            raise parsed.unsupported("REFRESH inside a transaction", None, "COMMIT first")
        self._state.relation(refreshed_name(parsed))
        return SparkTables(self._pipeline).refresh()

    def _change(self, parsed: ParsedStatement) -> Result | None:
        transaction = self._transaction
        evaluator = ChangeEvaluator(self._state, transaction.operations if transaction is not None else None)
        operations = evaluator.operations(evaluator.compile(parsed), parsed)
        if transaction is None:
            return self._commit(TransactionRequest(operations), parsed.span)
        self._pipeline.execute(transaction, operations)
        return None

    def _commit(self, transaction: PendingVersion | TransactionRequest, span: Span) -> Result:
        try:
            return self._pipeline.commit(transaction)
        except (EvaluationError, IllTypedRow, RuleError, Violated) as error:
            raise error.at(error.place or str(span)) from error.__cause__


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
            case (("commit" | "rollback" | "savepoint"), None):
                raise SyntaxProblem(f"{parsed.kind.upper()} without BEGIN", parsed.span)
            case (("commit" | "rollback"), _):
                begun = None
    if begun is not None:
        raise SyntaxProblem("the transaction is never committed", begun.span, hint="end it with COMMIT")
