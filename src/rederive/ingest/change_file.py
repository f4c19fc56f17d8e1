"""Change files: JSON lines, one transaction each.

    {"insert": {"edge": [["h", "d"]]}, "delete": {"edge": [["b", "c"]]}, "upsert": {"stock": [{"item": "bolt", "n": 3}]}}

Every line makes one version, even `{}`; blank lines are skipped. A row is an array, or an object by column name. The order of the
keys has no meaning: `RequestedChanges.operations` says what applies first.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rederive.engines.protocol import Action, Operation
from rederive.errors import MalformedInput, RederiveError, UnknownRelation, nearest
from rederive.ingest.input_file import name_file_errors
from rederive.ingest.strict_json import Json, key_column, parse_line
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.rows import RowPlace, base_relation, typed_json_rows

ACTIONS = ("insert", "delete", "upsert")


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One line of a change file as JSON: well formed, but not yet checked against any relation."""

    place: str
    insert: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    delete: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    upsert: Mapping[str, Sequence[Json]] = field(default_factory=dict)

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations that the line names, with or without rows."""
        return (*self.insert, *self.delete, *self.upsert)

    @property
    def steps(self) -> Iterator[tuple[Action, str, Sequence[Json]]]:
        """The rows by action and relation, in the order in which they apply."""
        for action, step in ((Action.DELETE, self.delete), (Action.INSERT, self.insert), (Action.UPSERT, self.upsert)):
            for relation, rows in step.items():
                yield action, relation, rows

    @property
    def has_rows(self) -> bool:
        """Whether the line requests any change."""
        return any(rows for side in (self.insert, self.delete, self.upsert) for rows in side.values())


@dataclass(frozen=True, slots=True)
class RequestedChanges:
    """The typed rows that one transaction requests to delete, insert and upsert, by base relation. `place`: for errors."""

    insert: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    delete: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    upsert: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations in the order in which they apply: a row that is both deleted and inserted is present afterwards.

        >>> requested = RequestedChanges({"edge": (("a", "b"),)}, {"edge": (("b", "c"),)})
        >>> [operation.action.value for operation in requested.operations]
        ['delete', 'insert']
        """
        # JSON objects have no order, so the file format fixes one.
        steps = ((Action.DELETE, self.delete), (Action.INSERT, self.insert), (Action.UPSERT, self.upsert))
        return tuple(Operation(action, relation, rows) for action, step in steps for relation, rows in step.items())


def parse_change_line(line: str, name: str, number: int) -> ChangeLine:
    """Parse line `number` of the change file called `name`.

    >>> parse_change_line('{"insert": {"edge": [["h", "d"]]}}', "changes.jsonl", 1).insert
    {'edge': [['h', 'd']]}
    """
    value, place = parse_line(line, name, number), f"{name}:{number}"
    if not isinstance(value, dict):
        raise MalformedInput("a transaction must be a JSON object", hint='{"insert": {"edge": [["h", "d"]]}}').at(f"{place}:1")
    # Unknown keys are refused with their column: a misspelt "inserts" must not be an empty transaction.
    for key, inner in value.items():
        if (error := _wrong_key(key, inner)) is not None:
            raise error.at(f"{place}:{key_column(line, key)}")
    return ChangeLine(place, **value)  # type: ignore[arg-type]  # as `_wrong_key` has found


def _wrong_key(action: str, value: Json) -> MalformedInput | None:
    """What is wrong with a key of a line; None if it is an action with lists of rows by relation."""
    if action not in ACTIONS:
        return MalformedInput(f"unknown key '{action}'", hint=nearest(action, ACTIONS))
    if not isinstance(value, dict):
        return MalformedInput(f"'{action}' must be an object from relations to lists of rows")
    for relation, rows in value.items():
        if not isinstance(rows, list):
            return MalformedInput(f"'{action}' must give a list of rows for '{relation}'")
    return None


def type_change_line(line: ChangeLine, program: Program) -> RequestedChanges:
    """The requested changes of a line, with rows typed as the base relations of `program` declare.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> edge = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
    >>> type_change_line(ChangeLine("line 1", insert={"edge": [["h", "d"]]}), Program({"edge": edge}, ())).insert
    {'edge': (('h', 'd'),)}
    """
    return RequestedChanges(
        _typed_rows(line.insert, "insert", line.place, program),
        _typed_rows(line.delete, "delete", line.place, program),
        _typed_rows(line.upsert, "upsert", line.place, program),
        line.place,
    )


def type_change_lines(lines: Sequence[ChangeLine], program: Program) -> Iterator[Operation]:
    """The operations of consecutive lines in their order; rows of neighbours that do the same to one relation are typed together.

    Errors name the first line: whoever needs the place of a wrong row types the lines one by one.
    """
    steps = (step for line in lines for step in line.steps)
    for (action, name), run in groupby(steps, key=itemgetter(0, 1)):
        where = f"{lines[0].place}: {action.value}.{name}"
        rows = [row for _, _, given in run for row in given]
        yield Operation(action, name, tuple(typed_json_rows(rows, input_relation(name, program, where), _element(where))))


def _typed_rows(
    rows_by_relation: Mapping[str, Sequence[Json]], action: str, place: str, program: Program
) -> dict[str, tuple[Row, ...]]:
    typed = {}
    for name, rows in rows_by_relation.items():
        where = f"{place}: {action}.{name}"
        relation = input_relation(name, program, where)
        typed[name] = tuple(typed_json_rows(rows, relation, _element(where)))
    return typed


def _element(where: str) -> RowPlace:
    return lambda row: f"{where}[{row}]"


def input_relation(name: str, program: Program, place: str) -> Relation:
    """The base relation that a name from outside denotes; an error names the place. Auxiliary relations are unknown there."""
    if name in program.relations and program.relations[name].is_auxiliary:
        raise UnknownRelation(name, program.tables).at(place)
    try:
        return base_relation(program, name)
    except RederiveError as error:
        raise error.at(place) from None


def read_changes(path: Path, program: Program) -> Iterator[RequestedChanges]:
    """The transactions of a file, or of standard input for `-`, one at a time.

    A wrong line raises an error when it is read: the lines before it may have been applied by then. To apply a file completely or
    not at all, use `read_change_file`.
    """
    for name, number, text in read_lines(path):
        yield type_change_line(parse_change_line(text, name, number), program)


def read_lines(path: Path) -> Iterator[tuple[str, int, str]]:
    """The lines of a file, or of standard input for `-`, that are not blank: the name for errors, the line number, the text."""
    # The name is for errors; `-` alone would look like a part of the message.
    name = "<stdin>" if str(path) == "-" else str(path)
    with name_file_errors(path), _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            text = decode_line(line, name, number)
            if text.strip():
                yield name, number, text


def read_change_file(path: Path, program: Program) -> tuple[RequestedChanges, ...]:
    """All transactions of a file, or of standard input for `-`; one wrong line is an error of the file."""
    return tuple(read_changes(path, program))


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield file


def decode_line(line: bytes, name: str, number: int) -> str:
    """The text of a line of UTF-8. The first line may start with a byte order mark."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        # The line is valid up to the wrong byte, so its characters can be counted.
        column = len(line[: error.start].decode("utf-8")) + 1
        raise MalformedInput(f"not UTF-8: byte 0x{line[error.start]:02x}").at(f"{name}:{number}:{column}") from None
