"""The changes file: JSON lines, one transaction each.

    {"insert": {"edge": [["h", "d"]]}, "delete": {"edge": [["b", "c"]]}, "upsert": {"stock": [{"item": "bolt", "n": 3}]}}

Every line is one version, `{}` too; a blank line is none. A row is an array, or an object by column name. The order of keys
means nothing: `Transaction.operations` says what applies first.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rederive.engines.protocol import Action, Operation
from rederive.errors import MalformedInput, RederiveError, UnknownRelation, nearest
from rederive.ingest.input_file import reading
from rederive.ingest.strict_json import Json, key_column, parse_line
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.rows import RowPlace, base_relation, typed_json_rows

ACTIONS = ("insert", "delete", "upsert")


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One line of a changes file, as JSON has it: well formed, but not yet compared with any relation."""

    place: str
    insert: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    delete: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    upsert: Mapping[str, Sequence[Json]] = field(default_factory=dict)

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations that it names, with and without rows."""
        return (*self.insert, *self.delete, *self.upsert)

    @property
    def has_rows(self) -> bool:
        return any(rows for side in (self.insert, self.delete, self.upsert) for rows in side.values())


@dataclass(frozen=True, slots=True)
class Transaction:
    """Typed rows to delete, to insert and to upsert, by base relation, and the place that an error should name."""

    insert: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    delete: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    upsert: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What to commit, in the order in which it applies: a row that is both deleted and inserted is there afterwards.

        >>> [operation.action.value for operation in Transaction({"edge": (("a", "b"),)}, {"edge": (("b", "c"),)}).operations]
        ['delete', 'insert']
        """
        steps = ((Action.DELETE, self.delete), (Action.INSERT, self.insert), (Action.UPSERT, self.upsert))
        return tuple(Operation(action, relation, rows) for action, step in steps for relation, rows in step.items())


def parse(line: str, name: str, number: int) -> ChangeLine:
    """One line of the changes file called `name`.

    >>> parse('{"insert": {"edge": [["h", "d"]]}}', "changes.jsonl", 1).insert
    {'edge': [['h', 'd']]}
    """
    value, place = parse_line(line, name, number), f"{name}:{number}"
    if not isinstance(value, dict):
        raise MalformedInput("a transaction must be a JSON object", hint='{"insert": {"edge": [["h", "d"]]}}').at(f"{place}:1")
    rows = {key: _rows_by_relation(key, inner, f"{place}:{key_column(line, key)}") for key, inner in value.items()}
    return ChangeLine(place, **rows)


def _rows_by_relation(action: str, value: Json, place: str) -> dict[str, list[Json]]:
    if action not in ACTIONS:
        raise MalformedInput(f"unknown key '{action}'", hint=nearest(action, ACTIONS)).at(place)
    if not isinstance(value, dict):
        raise MalformedInput(f"'{action}' must be an object from relations to lists of rows").at(place)
    found = {}
    for relation, rows in value.items():
        if not isinstance(rows, list):
            raise MalformedInput(f"'{action}' must give a list of rows for '{relation}'").at(place)
        found[relation] = rows
    return found


def typed(raw: ChangeLine, program: Program) -> Transaction:
    """The transaction with its rows typed as the base relations of `program` declare.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> edge = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
    >>> typed(ChangeLine("line 1", insert={"edge": [["h", "d"]]}), Program({"edge": edge}, ())).insert
    {'edge': (('h', 'd'),)}
    """
    return Transaction(
        _typed_rows(raw.insert, "insert", raw.place, program),
        _typed_rows(raw.delete, "delete", raw.place, program),
        _typed_rows(raw.upsert, "upsert", raw.place, program),
        raw.place,
    )


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


def read_changes(path: Path, program: Program) -> Iterator[Transaction]:
    """The transactions of a file, or of standard input for `-`, each read when it is asked for.

    A line that is refused raises when its turn comes: whatever stood before it may have been applied by then. Where a file is
    to be applied as a whole or not at all, take `read_change_file_whole`.
    """
    for name, number, text in read_lines(path):
        yield typed(parse(text, name, number), program)


def read_lines(path: Path) -> Iterator[tuple[str, int, str]]:
    """The lines of a file, or of standard input for `-`, that are not blank: how errors call the file, the number, the text."""
    name = "<stdin>" if str(path) == "-" else str(path)
    with reading(path), _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            text = decoded(line, name, number)
            if text.strip():
                yield name, number, text


def read_change_file_whole(path: Path, program: Program) -> tuple[Transaction, ...]:
    """All transactions of a file, or of standard input for `-`; any line that is refused refuses the file."""
    return tuple(read_changes(path, program))


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield file


def decoded(line: bytes, name: str, number: int) -> str:
    """The text of a line; a mark of byte order may stand before the first."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        raise MalformedInput(f"not UTF-8: byte 0x{line[error.start]:02x}").at(f"{name}:{number}:{column}") from None
