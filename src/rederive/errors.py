"""Every error that `rederive` raises, in one tree. A class says who is at fault, its `code` never changes.

The command line exits with 70 for `internal` and with 2 for all others.

RederiveError
├── ProgramError            the author of the program: its text is refused; carries a Span
│   ├── SyntaxProblem       syntax            the text does not parse
│   ├── Unsupported         unsupported       the text uses a construct that rederive does not have
│   ├── UnknownName         unknown_name      a relation, column, type, functor or option is not declared
│   ├── Redefined           redefined         a name is declared twice
│   ├── WrongArity          wrong_arity       there are more or fewer arguments than columns
│   ├── TypeClash           type_clash        a value does not have the type that its place needs
│   ├── UnsafeVariable      unsafe            nothing binds a variable
│   ├── Unstratified        unstratified      a recursion goes through a negation or an aggregate
│   ├── StillNeeded         still_needed      a view cannot be dropped while another statement reads it
│   ├── TooDeep             too_deep          the text nests deeper than the limit
│   └── ProgramRefused      (of its first)    several of these errors, together
├── UnknownOption           unknown_option    the caller: a strategy, engine, format or zone that does not exist
├── WrongArgument           argument          the caller: a call does not fit the signature; also a TypeError
├── WrongUse                use               the caller: a call comes at the wrong time; also a RuntimeError
├── Internal                internal          rederive: a bug; the cause is the original error (see boundary.py)
├── PlaceError              place             the caller: a path or an address does not suit its purpose
├── StrategyError           strategy          the caller: a view cannot be maintained by the chosen strategy
├── DataError               the provider of the data: rows or files are refused; `place` says where
│   ├── MissingFile         missing_file      a file does not exist
│   ├── MalformedInput      malformed         a line is not CSV, JSON or tab-separated as declared
│   ├── IllTypedRow         ill_typed         a value does not fit its column, or a row has too many or too few values
│   │   └── WrongRows       ill_typed         the argument is not an iterable of rows
│   ├── UnknownRelation     unknown_relation  a relation or view does not exist
│   ├── UnknownColumn       unknown_column    a relation does not have the column
│   ├── NotABase            not_a_base        a transaction changes a view
│   ├── SchemaMismatch      schema_mismatch   the columns of a table are not those of the relation
│   ├── NullInKey           null_in_key       a row has no value in a column of its key
│   ├── NotATable           not_a_table       a path holds no table, or a table of another format
│   ├── DuplicateKey        duplicate_key     two rows share a key and differ in other columns
│   ├── AbsentRow           absent_row        the row that is to be explained is not there
│   ├── PresentRow          present_row       the row whose absence is to be explained is there
│   ├── UnchangedRow        unchanged_row     the row whose change is to be explained did not change at that version
│   └── InconsistentViews   inconsistent_views  no state of the sources gives the rows of the stored views
├── SourceUnavailable       source_unavailable  a remote source: it cannot be read now, or not in the state that is needed
├── MissingDependency       missing_dependency  the installation: Spark, Java or one of their libraries is missing
├── LakeError               lake              the lake: its tables are not in a usable state; `place` is the path
│   ├── NewerFormat         newer_format      a later version of rederive wrote the table
│   ├── VersionGone         version_gone      the rows of a version are no longer retained
│   └── WriteConflict       write_conflict    another writer keeps changing the table
├── StreamError             stream            the stream: its source or Spark ended it
├── RuleError               rule              an active rule: it stopped a transaction, which is rolled back
│   ├── ActionFailed        action_failed     its action raised an error
│   ├── UnknownFunction     unknown_function  its function is not registered in this process
│   ├── CascadeLimit        cascade           rules fire each other without end
│   └── InAction            in_action         its action begins a transaction or changes a definition
├── Violated                violated          the transaction: it violates a constraint; carries the violating rows
├── ProjectError            project           the author of rederive.toml: a key is refused
├── RequestError            request           the HTTP client: a request is refused before the database sees it
│   ├── NotFound            not_found         the address does not exist
│   ├── WrongMethod         wrong_method      the address does not accept the method
│   ├── NotAcceptable       not_acceptable    none of the requested formats is available
│   ├── WrongMedia          wrong_media       the format of the body is not accepted
│   ├── TooLarge            too_large         the body or the headers exceed the limit
│   ├── TimedOut            timed_out         the request did not arrive in time
│   ├── Unauthorized        unauthorized      the token is missing or unknown
│   ├── Forbidden           forbidden         the token does not grant this view, relation or row
│   ├── TooMany             too_many          the client exceeds its rate or its number of subscriptions
│   └── Busy                busy              too many requests are waiting; retry later
├── ClientError             client            what a client of the service raises
│   ├── Refused             (the service's)   the service refused the request: its code and its problem details
│   ├── Unreachable         unreachable       the service did not answer within the client's patience
│   └── OutOfStep           out_of_step       a change does not fit the replica: one of the two has a bug
├── EvaluationError         evaluation        the data: a rule fails on it, by division by zero, overflow or a bad conversion
│   └── LimitExceeded       limit             an operation needs more time, rows, memory or text than its limit
│       └── Endless         limit             a recursion makes new values without end
└── StoreError              store             the store: its folder cannot be read or written
    ├── NotAStore           not_a_store       the path holds something else
    ├── CorruptStore        corrupt           the content of the journal is damaged
    ├── NewerStore          newer_store       a later version of rederive wrote the store
    ├── StoreLocked         locked            another process has the store open
    ├── Mismatch            mismatch          the program, the options or the version are not those of the store
    ├── Expired             expired           the changes of a version are no longer retained, or never were
    ├── Conflict            conflict          an idempotency key was used for another transaction
    ├── LateLoad            late_load         a script loads a table that it creates after a change of data
    ├── NoStore             no_store          the operation needs a store
    ├── NoLake              no_lake           the operation needs a lake
    └── Closed              closed            the database is closed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SourceText:
    """A program text and the name that errors give it."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a program text. Lines and columns count from 1; the end is exclusive."""

    source: SourceText
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The first line of the span."""
        line = self._line()
        end = self.end_column - 1 if self.end_line == self.line else len(line)
        return line[self.column - 1 : end]

    @property
    def whole(self) -> str:
        """The whole text of the span."""
        first, *others = self.source.text.split("\n")[self.line - 1 : self.end_line]
        if not others:
            return first[self.column - 1 : self.end_column - 1]
        return "\n".join([first[self.column - 1 :], *others[:-1], others[-1][: self.end_column - 1]])

    def contains(self, other: Span) -> bool:
        """Whether another span is a part of this one."""
        first, last = (self.line, self.column), (self.end_line, self.end_column)
        is_inside = first <= (other.line, other.column) and (other.end_line, other.end_column) <= last
        return self.source is other.source and is_inside

    def excerpt(self) -> str:
        """The first line, with carets under the span."""
        width = max(1, len(self.text))
        return f"{self.line:>5} | {self._line()}\n      | {' ' * (self.column - 1)}{'^' * width}"

    def _line(self) -> str:
        lines = self.source.text.split("\n")
        return lines[self.line - 1] if self.line <= len(lines) else ""


class RederiveError(Exception):
    """The base of all errors: a stable `code`, a message that says what is wrong, and a `hint` that says what to do.

    `about` names the relations whose rows, columns or rules the message may show. It is empty if the message shows only what
    the caller sent, and None if that is not known. The service shows the whole error only to those who may read all of them.
    """

    code = "error"
    place: str | None = None
    about: Collection[str] | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def at(self, place: str) -> Self:
        """Set the place that the error is about, and return the error.

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
    """The text of a program is refused; `span` says where."""

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
    """The text does not parse."""

    code = "syntax"


class Unsupported(ProgramError):
    """The text uses a construct that rederive does not have."""

    code = "unsupported"


class UnknownName(ProgramError):
    """A relation, column, type, functor or option is not declared."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], span: Span | None = None) -> None:
        super().__init__(f"unknown {kind} '{name}'", span, hint=nearest(name, known))


class Redefined(ProgramError):
    """A name is declared twice."""

    code = "redefined"


class WrongArity(ProgramError):
    """There are more or fewer arguments than columns."""

    code = "wrong_arity"


class TypeClash(ProgramError):
    """A value does not have the type that its place needs."""

    code = "type_clash"


class UnsafeVariable(ProgramError):
    """Nothing binds a variable."""

    code = "unsafe"


class Unstratified(ProgramError):
    """A recursion goes through a negation or an aggregate: neither stratum can be complete before the other."""

    code = "unstratified"

    def __init__(self, cycle: Sequence[str], through: str, span: Span | None = None) -> None:
        self.cycle = tuple(cycle)
        super().__init__(
            f"{through} inside a recursion: {' -> '.join(self.cycle)}",
            span,
            hint="break the cycle: the relation under the " + through + " must not depend on the rule's head",
        )


class StillNeeded(ProgramError):
    """A view cannot be dropped while another statement reads it."""

    code = "still_needed"


class TooDeep(ProgramError):
    """The text nests more than `most` levels deep."""

    code = "too_deep"

    def __init__(self, most: int | None = None, span: Span | None = None) -> None:
        levels = f": more than {most} levels" if most is not None else ""
        hint = "name parts of it as columns of a subquery or as views; lists (IN, AND, OR, ||) may be long"
        super().__init__(f"the text nests too deeply{levels}", span, hint=hint)


class ProgramRefused(ProgramError):
    """A program has several errors; `errors` lists them in the order of the text."""

    def __init__(self, errors: Sequence[ProgramError]) -> None:
        first = errors[0]
        super().__init__(first.message, first.span, hint=first.hint)
        self.errors = tuple(errors)
        self.code = first.code

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class UnknownOption(RederiveError):
    """The value of an option is not one of the known values."""

    code = "unknown_option"
    about = ()

    def __init__(self, option: str, value: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {option} '{value}'", hint=nearest(value, known))


class WrongArgument(RederiveError, TypeError):
    """A call does not fit the signature, or an argument has the wrong type."""

    code = "argument"
    about = ()


class WrongUse(RederiveError, RuntimeError):
    """A call comes at the wrong time, such as reading the result of an open transaction."""

    code = "use"


class Internal(RederiveError):
    """A bug in rederive: the caller cannot fix it. `__cause__` is the original error."""

    code = "internal"

    def __init__(self, error: BaseException) -> None:
        super().__init__(
            f"rederive failed: {type(error).__name__}: {shorten(str(error), quoted=False)}",
            hint="report this bug with the call or command, the program, the versions of rederive and Python, and the traceback "
            "(the command line and the service show it with REDERIVE_DEBUG=1)",
        )


class PlaceError(RederiveError):
    """A path or an address does not suit its purpose."""

    code = "place"


class StrategyError(RederiveError):
    """A view cannot be maintained by the chosen strategy."""

    code = "strategy"
    about = ()


class DataError(RederiveError):
    """Rows or files are refused; `place` says where, as in `edge.csv:3`."""

    code = "data"


class MissingFile(DataError):
    """A file does not exist."""

    code = "missing_file"


class MalformedInput(DataError):
    """A line is not CSV, JSON or tab-separated as declared."""

    code = "malformed"
    about = ()


class IllTypedRow(DataError):
    """A value does not fit its column, or a row has too many or too few values."""

    code = "ill_typed"
    about = ()


class WrongRows(IllTypedRow):
    """The argument is not an iterable of rows."""

    def __init__(self, rows: object) -> None:
        super().__init__(
            f"rows must be an iterable of tuples or dictionaries, not {shorten(rows)}",
            hint="pass a list such as [(1, 'a'), (2, 'b')]",
        )


class UnknownTime(DataError):
    """A query or `advance` needs the time of the database, which nobody has set."""

    code = "unknown_time"

    def __init__(self, reason: str = "the time of the database is not known") -> None:
        super().__init__(reason, hint="define a view that reads now(), then call db.advance(to)")


class UnknownRelation(DataError):
    """A relation or view does not exist."""

    code = "unknown_relation"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"unknown relation '{name}'", hint=nearest(name, self.known))

    def among(self, known: Collection[str]) -> UnknownRelation:
        """The same error for a reader who may know these relations only."""
        error = UnknownRelation(self.name, (name for name in self.known if name in known))
        return error if self.place is None else error.at(self.place)


class AbsentRow(DataError):
    """The row that is to be explained is not there."""

    code = "absent_row"

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact} is not there", hint="ask why_not")


class PresentRow(DataError):
    """The row whose absence is to be explained is there."""

    code = "present_row"

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact} is there", hint="ask why")


class UnchangedRow(DataError):
    """The row whose change is to be explained did not change at that version."""

    code = "unchanged_row"

    def __init__(self, fact: str, version: int) -> None:
        super().__init__(f"{fact} neither entered nor left at version {version}", hint="ask about another version")


class UnknownColumn(DataError):
    """A relation does not have the column."""

    code = "unknown_column"
    about = ()

    def __init__(self, relation: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"relation '{relation}' has no column '{name}'", hint=nearest(name, known))


class NotABase(DataError):
    """A transaction changes a view."""

    code = "not_a_base"
    about = ()

    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' is a view: its rows follow from rules, so a transaction cannot change them",
            hint="change the base relations that it reads",
        )


class DuplicateKey(DataError):
    """Two rows share a key and differ in other columns."""

    code = "duplicate_key"

    def __init__(self, relation: str, key: Sequence[str], one: Sequence[object], two: Sequence[object]) -> None:
        self.relation = relation
        self.about = (relation,)
        rows = " and ".join(f"({', '.join(map(repr, row))})" for row in (one, two))
        super().__init__(
            f"relation '{relation}' has the key ({', '.join(key)}), but two rows share it: {rows}",
            hint="delete the old row in the same transaction, or use upsert",
        )


class SchemaMismatch(DataError):
    """The columns of a table are not those of the relation."""

    code = "schema_mismatch"


class NullInKey(DataError):
    """A row has no value in a column of its key."""

    code = "null_in_key"
    about = ()


class NotATable(DataError):
    """A path holds no table, or a table of another format."""

    code = "not_a_table"


class MissingDependency(RederiveError):
    """Spark, Java or one of their libraries is missing."""

    code = "missing_dependency"


class LakeError(RederiveError):
    """A table of the lake cannot be used; `place` is its path."""

    code = "lake"


class NewerFormat(LakeError):
    """A later version of rederive wrote the table."""

    code = "newer_format"


class VersionGone(LakeError):
    """The rows of a version are no longer retained."""

    code = "version_gone"


class WriteConflict(LakeError):
    """Another writer keeps changing the table."""

    code = "write_conflict"


class WrittenInPlace(DataError):
    """A table in place is written by others, not by transactions of the database."""

    code = "written_in_place"

    def __init__(self, name: str, location: str) -> None:
        hint = f"write it with Spark, then db.refresh(): {location}"
        super().__init__(f"'{name}' is a table in place, which this database reads and does not write", hint=hint)


class SourceChanged(LakeError):
    """The table that a base relation is attached to has other columns, or is another table."""

    code = "source_changed"


class SourceGone(LakeError):
    """The commits or files of an attached table that a refresh needs no longer exist."""

    code = "source_gone"


class StreamError(RederiveError):
    """The source of a stream, or Spark, ended the stream."""

    code = "stream"


class InconsistentViews(DataError):
    """No state of the sources gives the rows of the stored views."""

    code = "inconsistent_views"

    def __init__(self, views: Iterable[str]) -> None:
        super().__init__(
            f"no state of the sources gives the rows stored for {', '.join(views)}",
            hint="load the views from their sources again",
        )


class SourceUnavailable(RederiveError):
    """A remote source cannot be read now, or not in the state that is needed."""

    code = "source_unavailable"


class RuleError(RederiveError):
    """An active rule stops a transaction, which is rolled back; `rule` is its name."""

    code = "rule"

    def __init__(self, rule: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"rule '{rule}': {message}", hint=hint)
        self.rule = rule


class ActionFailed(RuleError):
    """The action of a rule raised an error."""

    code = "action_failed"


class UnknownFunction(RuleError):
    """The function of a rule is not registered in this process."""

    code = "unknown_function"

    def __init__(self, rule: str, function: str) -> None:
        hint = "call db.rules.register(function) before the transaction, or deactivate the rule"
        super().__init__(rule, f"its function '{function}' is not registered", hint=hint)


class CascadeLimit(RuleError):
    """Rules fire each other without end."""

    code = "cascade"


class InAction(RuleError):
    """The action of a rule begins a transaction or changes a definition."""

    code = "in_action"


class Violated(RederiveError):
    """A transaction is refused: it would add `rows` to the constraint `view`, or of more than 1,000 rows these and others.

    `table`, `text`: the table that declares the constraint, and its words.
    """

    code = "violated"

    def __init__(
        self, view: str, rows: Sequence[tuple[Any, ...]], table: str | None = None, text: str = "", *, number: int = 0
    ) -> None:
        self.view = table or view
        self.rows = tuple(rows)
        self.about = (self.view,)
        more = f" and {max(number, len(rows)) - 5} more" if len(rows) > 5 else ""
        shown = ", ".join(f"({', '.join(map(repr, row))})" for row in rows[:5])
        which = f": {shown}{more}" if rows else ""
        what = f"{text} of '{table}'" if table is not None else f"'{view}'"
        super().__init__(f"the transaction violates {what}{which}", hint="correct these rows; the transaction changed nothing")


class ProjectError(RederiveError):
    """A key of `rederive.toml` is refused; `place` is the file and the key."""

    code = "project"


class RequestError(RederiveError):
    """A request is refused before the database sees it."""

    code = "request"
    about = ()


class NotFound(RequestError):
    """The address does not exist."""

    code = "not_found"


class WrongMethod(RequestError):
    """The address does not accept the method."""

    code = "wrong_method"


class NotAcceptable(RequestError):
    """None of the requested formats is available."""

    code = "not_acceptable"


class WrongMedia(RequestError):
    """The format of the body is not accepted."""

    code = "wrong_media"


class TooLarge(RequestError):
    """The body or the headers exceed the limit."""

    code = "too_large"


class TimedOut(RequestError):
    """The request did not arrive in time."""

    code = "timed_out"


class Unauthorized(RequestError):
    """The token is missing or unknown."""

    code = "unauthorized"


class Forbidden(RequestError):
    """The token does not grant this view, relation or row."""

    code = "forbidden"


class TooMany(RequestError):
    """The client exceeds its rate or its number of subscriptions."""

    code = "too_many"


class Busy(RequestError):
    """Too many requests are waiting; retry later."""

    code = "busy"


class ClientError(RederiveError):
    """The base of the errors that a client of the service raises."""

    code = "client"


class Refused(ClientError):
    """The service refused a request. `code` is its code; `problem` has all details, such as the violating rows."""

    code = "refused"

    def __init__(
        self, code: str, message: str, *, hint: str | None = None, status: int = 0, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.status = status
        self.problem = problem or {}


class Unreachable(ClientError):
    """The service did not answer within the client's patience."""

    code = "unreachable"


class OutOfStep(ClientError):
    """The replica and the service do not agree: one of the two has a bug."""

    code = "out_of_step"


class EvaluationError(RederiveError):
    """A rule fails on the data: division by zero, overflow or a bad conversion."""

    code = "evaluation"

    def of(self, relations: Collection[str]) -> Self:
        """Set the relations whose rows the message may show, and return the error."""
        self.about = relations
        return self


class LimitExceeded(EvaluationError):
    """An operation needs more time, rows, memory or text than its limit."""

    code = "limit"


class Endless(LimitExceeded):
    """A recursion makes new values until it is stopped. Over other rows it may end."""


class StoreError(RederiveError):
    """A store, or an operation on it, is refused; `place` is its folder or file."""

    code = "store"


class NotAStore(StoreError):
    """The path holds something else."""

    code = "not_a_store"


class CorruptStore(StoreError):
    """The content of the journal is damaged."""

    code = "corrupt"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="restore the folder from a backup")


class NewerStore(StoreError):
    """A later version of rederive wrote the store."""

    code = "newer_store"


class StoreLocked(StoreError):
    """Another process has the store open."""

    code = "locked"


class Mismatch(StoreError):
    """The program, the options or the version are not those of the store."""

    code = "mismatch"


class Expired(StoreError):
    """The changes of a version are no longer retained, or never were."""

    code = "expired"
    about = ()


class Conflict(StoreError):
    """An idempotency key was used for another transaction."""

    code = "conflict"
    about = ()


class LateLoad(StoreError):
    """A script loads a table that it creates after a change of data."""

    code = "late_load"


class NoStore(StoreError):
    """The operation needs a store."""

    code = "no_store"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a store, but this database is only in memory", hint="open it with a folder: rederive.open(path)"
        )


class NoLake(StoreError):
    """The operation needs a lake."""

    code = "no_lake"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs a lake, but this database has none", hint="open it with rederive.open(path, lake=...)")


class Closed(StoreError):
    """The database is closed."""

    code = "closed"
    about = ()

    def __init__(self) -> None:
        super().__init__("the database is closed", hint="open it again with rederive.open(path)")


def shorten(value: object, most: int = 200, *, quoted: bool = True) -> str:
    """A value as an error message shows it, cut after `most` characters.

    >>> shorten("x" * 1000, 10)
    "'xxxxxxxxx..."
    """
    try:
        text = repr(value) if quoted else str(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known name, or with all known names if there are at most 8.

    >>> nearest("egde", ["edge", "node"])
    "did you mean 'edge'?"
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 8 else None
