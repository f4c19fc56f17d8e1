"""What a micro-batch holds once it is read: operations in the order in which they apply, and what could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from rederive.engines.protocol import Action, Operation
from rederive.errors import DataError, MalformedInput, nearest
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.rows import Convert, RowPlace, typed_rows

ACTIONS: Final = {action.value: action for action in Action} | {"i": Action.INSERT, "d": Action.DELETE, "u": Action.UPSERT}
"""What an operation column may say; in capitals too."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that cannot be read: its text, where there is one, and why."""

    error: DataError
    raw: str | None


Item: TypeAlias = Operation | Rejected


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a batch come from, and how they were written. Asked for only when a row is at fault."""

    place: RowPlace
    raw: RowPlace


@dataclass(frozen=True, slots=True)
class Decoded:
    """A micro-batch: one transaction, and what is left out of it."""

    operations: tuple[Operation, ...]
    rejected: tuple[Rejected, ...]

    @property
    def rows(self) -> int:
        return sum(len(operation.rows) for operation in self.operations)


def gathered(items: Iterable[Item]) -> Decoded:
    """Neighbours that do the same to the same relation become one operation, with their rows in the same order.

    >>> insert = [Operation(Action.INSERT, "n", ((x,),)) for x in (1, 2)]
    >>> gathered(insert).operations
    (Operation(action=<Action.INSERT: 'insert'>, relation='n', rows=((1,), (2,))),)
    """
    found = list(items)
    steps = (item for item in found if isinstance(item, Operation))
    runs = groupby(steps, key=lambda step: (step.action, step.relation))
    operations = (Operation(*what, tuple(row for step in run for row in step.rows)) for what, run in runs)
    rejected = tuple(item for item in found if isinstance(item, Rejected))
    return Decoded(tuple(operation for operation in operations if operation.rows), rejected)


def attempted(read: Callable[[], Iterable[Operation]], raw: str | None) -> Iterator[Item]:
    """What `read` gives, or why it gives nothing: all of it or nothing."""
    try:
        items: Iterable[Item] = tuple(read())
    except DataError as error:
        items = (Rejected(error, raw),)
    yield from items


def typed_operations(
    words: Sequence[Any],
    columns: Sequence[Sequence[Any]],
    relation: Relation,
    convert: Convert,
    origin: Origin,
    actions: Mapping[str, Action] = ACTIONS,
) -> Iterator[Item]:
    """Rows with a word each that says what is to be done with them; rows at fault are rejected one by one.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> n, origin = Relation("n", (Column("x", NUMBER),)), Origin(lambda row: f"n.csv:{row + 2}", str)
    >>> for item in typed_operations(["I", "I", "?"], [[1, 2, 3]], n, lambda value, type: value, origin):
    ...     print(item.rows if isinstance(item, Operation) else item.error)
    ((1,), (2,))
    n.csv:4: error[malformed]: '?' is no operation
      help: known: d, delete, i, insert, u, upsert
    """
    for word, run in groupby(range(len(words)), key=words.__getitem__):
        rows = list(run)
        if (action := actions.get(str(word).lower())) is None:
            yield from (Rejected(_no_operation(word, actions, origin.place(row)), origin.raw(row)) for row in rows)
        else:
            yield from _typed_run(action, slice(rows[0], rows[-1] + 1), columns, relation, convert, origin)


def _no_operation(word: object, actions: Mapping[str, Action], place: str) -> MalformedInput:
    return MalformedInput(f"{word!r} is no operation", hint=nearest(str(word), actions)).at(place)


def _typed_run(
    action: Action, run: slice, columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, origin: Origin
) -> Iterator[Item]:
    """All at once where all are well typed, and otherwise one by one."""

    def read(part: slice) -> list[Operation]:
        return [Operation(action, relation.name, tuple(_rows(part, columns, relation, convert, origin)))]

    try:
        yield from read(run)
    except DataError:
        for row in range(run.start, run.stop):
            yield from attempted(lambda row=row: read(slice(row, row + 1)), origin.raw(row))  # type: ignore[misc]


def _rows(part: slice, columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, origin: Origin) -> Sequence[Row]:
    if not relation.columns:
        return [()] * (part.stop - part.start)
    return typed_rows([column[part] for column in columns], relation, convert, lambda row: origin.place(row + part.start))
