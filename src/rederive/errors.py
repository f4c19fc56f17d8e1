"""Everything `rederive` raises, in one tree. Each class has a stable `code`; the command line exits with 2 for all of them,
but with 70 for `internal`.

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
│   ├── TooDeep             too_deep          a text that nests deeper than it may
│   └── ProgramRefused      (of its first)    several of the above, together
├── UnknownOption           unknown_option    a strategy, engine or format that there is not
├── WrongArgument           argument          a call of the API that does not fit its signature; also a TypeError
├── WrongUse                use               a call at the wrong time: the result of an open transaction; also a RuntimeError
├── Internal                internal          a bug in rederive; its cause is the original error (see boundary.py)
├── PlaceError              place             a path or an address that cannot be used for what it is given for
├── StrategyError           strategy          the view cannot be maintained that way
├── DataError               the rows or files handed in are at fault
│   ├── MissingFile         missing_file
│   ├── MalformedInput      malformed         a line that is not CSV, JSON or tab separated as declared
│   ├── IllTypedRow         ill_typed         a value that does not fit its column, or too many or few of them
│   │   └── WrongRows       ill_typed         something that is not rows at all
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
│   ├── TooLarge            too_large         a body or headers beyond the limit
│   ├── TimedOut            timed_out         a request that did not arrive in time
│   ├── Unauthorized        unauthorized      no token, or one that is not known
│   ├── Forbidden           forbidden         the token does not reach this view, relation or row
│   ├── TooMany             too_many          beyond the rate, or the number of subscriptions
│   └── Busy                busy              too much is waiting already
├── ClientError             client            what a client of the service meets
│   ├── Refused             (the service's)   the service refused: its own code, and its problem details
│   ├── Unreachable         unreachable       it did not answer for as long as the client has patience
│   └── OutOfStep           out_of_step       a change that does not fit the client's copy
├── EvaluationError         evaluation        a rule fails on the data: division by zero, overflow, a bad conversion
│   └── LimitExceeded       limit             more time, rows, memory or text than allowed
│       └── Endless         limit             recursion that invents values without end
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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SourceText:
    """A program text and the name that errors call it by."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of program text; lines and columns count from 1, the end is exclusive."""

    source: SourceText
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
    """Base of all errors that are the caller's to mend: a stable `code`, a message, and what to do about it.

    `about`: the relations whose rows, columns or rules the message may show; empty where it shows nothing but what the caller
    sent, None where that is not known. The service shows an error whole only to those who read all of these.
    """

    code = "error"
    place: str | None = None
    about: Collection[str] | None = None

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


class TooDeep(ProgramError):
    """An expression inside an expression inside an expression ..., more often than `most` times."""

    code = "too_deep"

    def __init__(self, most: int | None = None, span: Span | None = None) -> None:
        levels = f": more than {most} levels" if most is not None else ""
        hint = "name parts of it as columns of a subquery or as views of their own; lists (IN, AND, OR, ||) may be long"
        super().__init__(f"the text nests too deeply{levels}", span, hint=hint)


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
    about = ()

    def __init__(self, option: str, value: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {option} '{value}'", hint=nearest(value, known))


class WrongArgument(RederiveError, TypeError):
    """A call that does not fit the signature, or an argument of the wrong type."""

    code = "argument"
    about = ()


class WrongUse(RederiveError, RuntimeError):
    code = "use"


class Internal(RederiveError):
    """Something went wrong that is not the caller's to mend. `__cause__` is the original error."""

    code = "internal"

    def __init__(self, error: BaseException) -> None:
        super().__init__(
            f"rederive failed: {type(error).__name__}: {shorten(str(error), quoted=False)}",
            hint="report this bug with the call or command, the program, the versions of rederive and Python, and the traceback "
            "(the command line and the service show it with REDERIVE_DEBUG=1)",
        )


class PlaceError(RederiveError):
    code = "place"


class StrategyError(RederiveError):
    code = "strategy"
    about = ()


class DataError(RederiveError):
    """Rows or files are refused; `place` says where: `edge.csv:3`."""

    code = "data"


class MissingFile(DataError):
    code = "missing_file"


class MalformedInput(DataError):
    code = "malformed"
    about = ()


class IllTypedRow(DataError):
    code = "ill_typed"
    about = ()


class WrongRows(IllTypedRow):
    """What is handed in as rows is not an iterable of rows."""

    def __init__(self, rows: object) -> None:
        super().__init__(
            f"rows are an iterable of tuples or dictionaries, not {shorten(rows)}", hint="as in [(1, 'a'), (2, 'b')]"
        )


class UnknownRelation(DataError):
    code = "unknown_relation"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"unknown relation '{name}'", hint=nearest(name, self.known))

    def among(self, known: Collection[str]) -> UnknownRelation:
        """The same error for somebody who knows of these relations alone."""
        error = UnknownRelation(self.name, (name for name in self.known if name in known))
        return error if self.place is None else error.at(self.place)


class UnknownColumn(DataError):
    code = "unknown_column"
    about = ()

    def __init__(self, relation: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"relation '{relation}' has no column '{name}'", hint=nearest(name, known))


class NotABase(DataError):
    code = "not_a_base"
    about = ()

    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' is a view: its rows follow from rules and cannot be changed by a transaction",
            hint="change the base relations under it",
        )


class DuplicateKey(DataError):
    code = "duplicate_key"

    def __init__(self, relation: str, key: Sequence[str], one: Sequence[object], two: Sequence[object]) -> None:
        self.relation = relation
        self.about = (relation,)
        rows = " and ".join(f"({', '.join(map(repr, row))})" for row in (one, two))
        super().__init__(
            f"relation '{relation}' has the key ({', '.join(key)}), and two rows share it: {rows}",
            hint="delete the old row in the same transaction, or use upsert",
        )


class SchemaMismatch(DataError):
    code = "schema_mismatch"


class NullInKey(DataError):
    code = "null_in_key"
    about = ()


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
        self.about = (view,)
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
    about = ()


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


class TimedOut(RequestError):
    code = "timed_out"


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

    def of(self, relations: Collection[str]) -> Self:
        """The same error, with the relations whose rows it may show."""
        self.about = relations
        return self


class LimitExceeded(EvaluationError):
    code = "limit"


class Endless(LimitExceeded):
    """A recursion made new values until it was stopped: over other rows it may end."""


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
    about = ()


class Conflict(StoreError):
    code = "conflict"
    about = ()


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
    about = ()

    def __init__(self) -> None:
        super().__init__("the database is closed", hint="open it again: rederive.open(path)")


def shorten(value: object, most: int = 200, *, quoted: bool = True) -> str:
    """A value as an error shows it.

    >>> shorten("x" * 1000, 10)
    "'xxxxxxxxx..."
    """
    try:
        text = repr(value) if quoted else str(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known name, or with all of them where they are few.

    >>> nearest("egde", ["edge", "node"])
    "did you mean 'edge'?"
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if 0 < len(names) <= 8 else None
