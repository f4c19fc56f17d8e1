"""Everything `rederive` raises, in one tree. Each class has a stable `code`; the command line exits with 2 for all of them.

RederiveError
├── ProgramError            the program's text is at fault; carries a Span
│   ├── SyntaxProblem       syntax            it does not parse
│   ├── Unsupported         unsupported       a construct that is refused, by name
│   ├── UnknownName         unknown_name      relation, type, functor or option that was never declared
│   ├── Redefined           redefined         declared twice
│   ├── WrongArity          wrong_arity       more or fewer arguments than columns
│   ├── TypeClash           type_clash        two types where one is needed
│   ├── UnsafeVariable      unsafe            a variable that nothing binds
│   ├── Unstratified        unstratified      negation or aggregation through recursion
│   ├── StillNeeded         still_needed      a view that is to be dropped, but something else reads it
│   └── ProgramRefused      (of its first)    several of the above, together
├── UnknownOption           unknown_option    a strategy, engine or format that there is not
├── StrategyError           strategy          the view cannot be maintained that way
├── DataError               the rows or files handed in are at fault
│   ├── MissingFile         missing_file
│   ├── MalformedInput      malformed         a line that is not CSV, JSON or tab separated as declared
│   ├── IllTypedRow         ill_typed         a value that does not fit its column, or too many or few of them
│   ├── UnknownRelation     unknown_relation  no such relation or view
│   ├── UnknownColumn       unknown_column
│   ├── NotABase            not_a_base        a change to a view
│   ├── SchemaMismatch      schema_mismatch   a table whose columns are not those of the relation
│   ├── NullInKey           null_in_key       a row without a value in a column of its key
│   ├── NotATable           not_a_table       a path that holds no table, or none of the expected format
│   ├── DuplicateKey        duplicate_key     two rows with one key and different values
│   └── InconsistentViews   inconsistent_views  stored views that no state of their sources explains
├── SourceUnavailable       source_unavailable  a remote relation that cannot be read now, or not in the state that is needed
├── MissingDependency       missing_dependency  Spark, Java or its libraries are not installed
├── LakeError               lake              the tables of a lake are not in a state to be used
│   ├── NewerFormat         newer_format      written by a later version of rederive
│   ├── VersionGone         version_gone      a version whose rows are kept no longer
│   └── WriteConflict       write_conflict    another writer changed the table again and again
├── StreamError             stream            a stream was ended by its source or by Spark
├── RuleError               rule              an active rule stopped a transaction, which is rolled back whole
│   ├── ActionFailed        action_failed     its action raised an error
│   ├── UnknownFunction     unknown_function  its function is not registered in this process
│   ├── CascadeLimit        cascade           rules that set each other off without end
│   └── InAction            in_action         an action that began a transaction or changed a definition
├── Violated                violated          a transaction that a constraint rejects; carries the violating rows
├── ProjectError            project           a project's rederive.toml cannot be used as it is written
├── RequestError            request           a request to the service is refused as such
│   ├── NotFound            not_found         no such address
│   ├── WrongMethod         wrong_method      the address does not take this method
│   ├── NotAcceptable       not_acceptable    none of the formats that were asked for can be given
│   ├── WrongMedia          wrong_media       a body in a format that is not taken
│   ├── TooLarge            too_large         a body beyond the limit
│   ├── Unauthorized        unauthorized      no token, or one that is not known
│   ├── Forbidden           forbidden         the token does not reach this view, relation or row
│   ├── TooMany             too_many          beyond the rate, or the number of subscriptions
│   └── Busy                busy              too much is waiting already
├── ClientError             client            what a client of the service meets
│   ├── Refused             (the service's)   the service refused: its own code, and its problem details
│   ├── Unreachable         unreachable       it did not answer for as long as the client has patience
│   └── OutOfStep           out_of_step       a change that does not fit the client's copy
├── EvaluationError         evaluation        a rule fails on the data: division by zero, overflow, a bad conversion
│   └── LimitExceeded       limit             recursion that invents values without end
└── StoreError              store             the store's folder cannot be read or written: permissions, a full disk
    ├── NotAStore           not_a_store       something else stands at the path
    ├── CorruptStore        corrupt           a journal whose content is damaged
    ├── NewerStore          newer_store       written by a later rederive
    ├── StoreLocked         locked            another process has it open
    ├── Mismatch            mismatch          another program, other options, or a version that the store does not have
    ├── Expired             expired           changes that are no longer kept, or never were
    ├── Conflict            conflict          an idempotency key that was used for something else
    ├── LateLoad            late_load         initial rows of a table that a script creates after a change of data
    ├── NoStore             no_store          what only a database with a store can do
    ├── NoLake              no_lake           what only a store with a lake can do
    └── Closed              closed            a database that was closed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Source:
    """A program text and the name that errors call it by."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of program text; lines and columns count from 1, the end is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The first line of what the span covers."""
        line = self._line()
        end = self.end_column - 1 if self.end_line == self.line else len(line)
        return line[self.column - 1 : end]

    @property
    def whole(self) -> str:
        """All that the span covers."""
        first, *others = self.source.text.split("\n")[self.line - 1 : self.end_line]
        if not others:
            return first[self.column - 1 : self.end_column - 1]
        return "\n".join([first[self.column - 1 :], *others[:-1], others[-1][: self.end_column - 1]])

    def excerpt(self) -> str:
        """The line with a caret under the offending part."""
        width = max(1, len(self.text))
        return f"{self.line:>5} | {self._line()}\n      | {' ' * (self.column - 1)}{'^' * width}"

    def _line(self) -> str:
        lines = self.source.text.split("\n")
        return lines[self.line - 1] if self.line <= len(lines) else ""


class RederiveError(Exception):
    """Base of all errors that are the caller's to mend: a stable `code`, a message, and what to do about it."""

    code = "error"
    place: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def at(self, place: str) -> Self:
        """The same error, with the place that it is about.

        >>> print(MissingFile("no such file").at("edge.facts"))
        edge.facts: error[missing_file]: no such file
        """
        self.place = place
        return self

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        hint = f"\n  help: {self.hint}" if self.hint else ""
        return f"{place}error[{self.code}]: {self.message}{hint}"


class ProgramError(RederiveError):
    """The program is refused; `span` says where."""

    code = "program"

    def __init__(self, message: str, span: Span | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.span = span

    def __str__(self) -> str:
        if self.span is None:
            return super().__str__()
        hint = f"\n  help: {self.hint}" if self.hint else ""
        return f"{self.span}: error[{self.code}]: {self.message}\n{self.span.excerpt()}{hint}"


class SyntaxProblem(ProgramError):
    code = "syntax"


class Unsupported(ProgramError):
    code = "unsupported"


class UnknownName(ProgramError):
    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], span: Span | None = None) -> None:
        super().__init__(f"unknown {kind} '{name}'", span, hint=nearest(name, known))


class Redefined(ProgramError):
    code = "redefined"


class WrongArity(ProgramError):
    code = "wrong_arity"


class TypeClash(ProgramError):
    code = "type_clash"


class UnsafeVariable(ProgramError):
    code = "unsafe"


class Unstratified(ProgramError):
    """Negation or aggregation inside a recursion: no stratum can be computed before the other."""

    code = "unstratified"

    def __init__(self, cycle: Sequence[str], through: str, span: Span | None = None) -> None:
        self.cycle = tuple(cycle)
        super().__init__(
            f"{through} inside a recursion: {' -> '.join(self.cycle)}",
            span,
            hint="break the cycle: the relation under the " + through + " must not depend on the rule's head",
        )


class StillNeeded(ProgramError):
    code = "still_needed"


class ProgramRefused(ProgramError):
    """Several errors of one program, in the order of its text."""

    def __init__(self, errors: Sequence[ProgramError]) -> None:
        first = errors[0]
        super().__init__(first.message, first.span, hint=first.hint)
        self.errors = tuple(errors)
        self.code = first.code

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class UnknownOption(RederiveError):
    """An option's value that is not one of the known ones."""

    code = "unknown_option"

    def __init__(self, option: str, value: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {option} '{value}'", hint=nearest(value, known))


class StrategyError(RederiveError):
    code = "strategy"


class DataError(RederiveError):
    """Rows or files are refused; `place` says where: `edge.csv:3`."""

    code = "data"


class MissingFile(DataError):
    code = "missing_file"


class MalformedInput(DataError):
    code = "malformed"


class IllTypedRow(DataError):
    code = "ill_typed"


class UnknownRelation(DataError):
    code = "unknown_relation"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown relation '{name}'", hint=nearest(name, known))


class UnknownColumn(DataError):
    code = "unknown_column"

    def __init__(self, relation: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"relation '{relation}' has no column '{name}'", hint=nearest(name, known))


class NotABase(DataError):
    code = "not_a_base"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' is a view: its rows follow from rules and cannot be changed by a transaction",
            hint="change the base relations under it",
        )


class DuplicateKey(DataError):
    code = "duplicate_key"

    def __init__(self, relation: str, key: Sequence[str], one: Sequence[object], two: Sequence[object]) -> None:
        self.relation = relation
        rows = " and ".join(f"({', '.join(map(repr, row))})" for row in (one, two))
        super().__init__(
            f"relation '{relation}' has the key ({', '.join(key)}), and two rows share it: {rows}",
            hint="delete the old row in the same transaction, or use upsert",
        )


class SchemaMismatch(DataError):
    code = "schema_mismatch"


class NullInKey(DataError):
    code = "null_in_key"


class NotATable(DataError):
    code = "not_a_table"


class MissingDependency(RederiveError):
    code = "missing_dependency"


class LakeError(RederiveError):
    """A table of the lake cannot be used; `place` is its path."""

    code = "lake"


class NewerFormat(LakeError):
    code = "newer_format"


class VersionGone(LakeError):
    code = "version_gone"


class WriteConflict(LakeError):
    code = "write_conflict"


class StreamError(RederiveError):
    code = "stream"


class InconsistentViews(DataError):
    code = "inconsistent_views"

    def __init__(self, views: Iterable[str]) -> None:
        super().__init__(
            f"no state of the sources gives the rows stored for {', '.join(views)}",
            hint="load the views anew from their sources",
        )


class SourceUnavailable(RederiveError):
    code = "source_unavailable"


class RuleError(RederiveError):
    """A transaction is rolled back because of an active rule; `rule` is its name."""

    code = "rule"

    def __init__(self, rule: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"rule '{rule}': {message}", hint=hint)
        self.rule = rule


class ActionFailed(RuleError):
    code = "action_failed"


class UnknownFunction(RuleError):
    code = "unknown_function"

    def __init__(self, rule: str, function: str) -> None:
        hint = "register it before the transaction: db.register(function), or deactivate the rule"
        super().__init__(rule, f"its function '{function}' is not registered", hint=hint)


class CascadeLimit(RuleError):
    code = "cascade"


class InAction(RuleError):
    code = "in_action"


class Violated(RederiveError):
    """A transaction is refused; `rows` are those that it would have added to the constraint `view`."""

    code = "violated"

    def __init__(self, view: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self.view = view
        self.rows = tuple(rows)
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        shown = ", ".join(f"({', '.join(map(repr, row))})" for row in rows[:5])
        which = f": {shown}{more}" if rows else ""
        super().__init__(f"the transaction violates '{view}'{which}", hint="nothing was changed; mend these rows first")


class ProjectError(RederiveError):
    """A key of `rederive.toml` is refused; `place` is the file and the key."""

    code = "project"


class RequestError(RederiveError):
    """A request is refused before the database is asked."""

    code = "request"


class NotFound(RequestError):
    code = "not_found"


class WrongMethod(RequestError):
    code = "wrong_method"


class NotAcceptable(RequestError):
    code = "not_acceptable"


class WrongMedia(RequestError):
    code = "wrong_media"


class TooLarge(RequestError):
    code = "too_large"


class Unauthorized(RequestError):
    code = "unauthorized"


class Forbidden(RequestError):
    code = "forbidden"


class TooMany(RequestError):
    code = "too_many"


class Busy(RequestError):
    code = "busy"


class ClientError(RederiveError):
    """What a client of the service meets."""

    code = "client"


class Refused(ClientError):
    """The service refused. `code` is what it said, `problem` all of it: the violating rows, say, or versions that stand."""

    code = "refused"

    def __init__(
        self, code: str, message: str, *, hint: str | None = None, status: int = 0, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.status = status
        self.problem = problem or {}


class Unreachable(ClientError):
    code = "unreachable"


class OutOfStep(ClientError):
    """The copy and the service do not agree: one of the two has a bug."""

    code = "out_of_step"


class EvaluationError(RederiveError):
    code = "evaluation"


class LimitExceeded(EvaluationError):
    code = "limit"


class StoreError(RederiveError):
    """A store is refused, or something asked of it; `place` is its folder or file."""

    code = "store"


class NotAStore(StoreError):
    code = "not_a_store"


class CorruptStore(StoreError):
    code = "corrupt"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="restore the folder from a backup")


class NewerStore(StoreError):
    code = "newer_store"


class StoreLocked(StoreError):
    code = "locked"


class Mismatch(StoreError):
    code = "mismatch"


class Expired(StoreError):
    code = "expired"


class Conflict(StoreError):
    code = "conflict"


class LateLoad(StoreError):
    code = "late_load"


class NoStore(StoreError):
    code = "no_store"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a store: this database is in memory alone", hint="open it with a folder: rederive.open(path)"
        )


class NoLake(StoreError):
    code = "no_lake"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs a lake, and this store has none", hint="open it with one: rederive.open(path, lake=...)")


class Closed(StoreError):
    code = "closed"

    def __init__(self) -> None:
        super().__init__("the database is closed", hint="open it again: rederive.open(path)")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known name, or with all of them where they are few.

    >>> nearest("egde", ["edge", "node"])
    "did you mean 'edge'?"
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 8 else None
