"""A micro-batch after reading: operations in the order in which they apply, and input that could not be read."""

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
"""The words of an operation column, in lower or upper case."""


@dataclass(frozen=True, slots=True)
class RejectedInput:
    """Input that cannot be read: the reason, and its text if it has one."""

    error: DataError
    raw: str | None


Item: TypeAlias = Operation | RejectedInput


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Says where a row of a batch comes from, and how it was written. It is called only for rows that are wrong."""

    place: RowPlace
    raw: RowPlace


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One transaction of a micro-batch, and the input that is left out of it."""

    operations: tuple[Operation, ...]
    rejected: tuple[RejectedInput, ...]

    @property
    def rows(self) -> int:
        """How many rows the operations have."""
        return sum(len(operation.rows) for operation in self.operations)


def decode_batch(items: Iterable[Item]) -> DecodedBatch:
    """The operations and the rejected input of a batch. Consecutive equal operations on one relation become one, in their order.

    >>> insert = [Operation(Action.INSERT, "n", ((x,),)) for x in (1, 2)]
    >>> decode_batch(insert).operations
    (Operation(action=<Action.INSERT: 'insert'>, relation='n', rows=((1,), (2,))),)
    """
    found = list(items)
    steps = (item for item in found if isinstance(item, Operation))
    # Later operations on a row win, so only neighbours are joined.
    runs = groupby(steps, key=lambda step: (step.action, step.relation))
    operations = (Operation(*what, tuple(row for step in run for row in step.rows)) for what, run in runs)
    rejected = tuple(item for item in found if isinstance(item, RejectedInput))
    return DecodedBatch(tuple(operation for operation in operations if operation.rows), rejected)


def read_or_reject(read: Callable[[], Iterable[Operation]], raw: str | None) -> Iterator[Item]:
    """All operations that `read` returns, or, if it raises an error, one rejected input with that error."""
    try:
        items: Iterable[Item] = tuple(read())
    except DataError as error:
        items = (RejectedInput(error, raw),)
    yield from items


def typed_operations(
    words: Sequence[Any],
    columns: Sequence[Sequence[Any]],
    relation: Relation,
    convert: Convert,
    origin: RowOrigin,
    actions: Mapping[str, Action] = ACTIONS,
) -> Iterator[Item]:
    """The operations of rows with an operation word each. Wrong rows are rejected one by one.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> n, origin = Relation("n", (Column("x", NUMBER),)), RowOrigin(lambda row: f"n.csv:{row + 2}", str)
    >>> for item in typed_operations(["I", "I", "?"], [[1, 2, 3]], n, lambda value, type: value, origin):
    ...     print(item.rows if isinstance(item, Operation) else item.error)
    ((1,), (2,))
    n.csv:4: error[malformed]: '?' is not an operation
      help: known: d, delete, i, insert, u, upsert
    """
    # Neighbours with one word are typed together; the order of different words decides what a row is in the end.
    for word, run in groupby(range(len(words)), key=words.__getitem__):
        rows = list(run)
        if (action := actions.get(str(word).lower())) is None:
            yield from (RejectedInput(_unknown_operation(word, actions, origin.place(row)), origin.raw(row)) for row in rows)
        else:
            yield from _typed_run(action, slice(rows[0], rows[-1] + 1), columns, relation, convert, origin)


def _unknown_operation(word: object, actions: Mapping[str, Action], place: str) -> MalformedInput:
    return MalformedInput(f"{word!r} is not an operation", hint=nearest(str(word), actions)).at(place)


def _typed_run(
    action: Action, run: slice, columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, origin: RowOrigin
) -> Iterator[Item]:
    """Type all rows at once; only if that fails, one by one, to find the wrong ones."""

    def read(part: slice) -> list[Operation]:
        return [Operation(action, relation.name, tuple(_typed_slice(part, columns, relation, convert, origin)))]

    try:
        yield from read(run)
    except DataError:
        for row in range(run.start, run.stop):
            yield from read_or_reject(lambda row=row: read(slice(row, row + 1)), origin.raw(row))  # type: ignore[misc]


def _typed_slice(
    part: slice, columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, origin: RowOrigin
) -> Sequence[Row]:
    if not relation.columns:
        # Rows without columns are all equal, and their number is all there is to read.
        return [()] * (part.stop - part.start)
    return typed_rows([column[part] for column in columns], relation, convert, lambda row: origin.place(row + part.start))
