"""A transaction under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast

from rederive.boundary import given_rows, guard_class
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import IllTypedRow, NotABase, UnknownColumn, UnknownRelation, WrongUse
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import UTC, Row, Value
from rederive.result import Result
from rederive.values import column_value, from_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rederive.database import Database


Given: TypeAlias = "Iterable[Sequence[Value] | Mapping[str, Value]] | DataFrame"


@guard_class
class Transaction:
    """Collects changes of base relations; they are applied as a whole when the `with` block ends, or not at all.

    Later calls win over earlier ones: inserting a row and then deleting it leaves it out. Each call is a statement: immediate
    rules are processed before it returns.
    """

    def __init__(self, database: Database, key: str | None = None) -> None:
        self._database = database
        self._key = key
        self._course = database.begin(key)
        self._result: Result | None = None

    def insert(self, relation: str, rows: Given) -> None:
        """Add rows: tuples in column order, dictionaries by column name, or a data frame of Spark's. Rows that are there
        already change nothing.
        """
        self._add(Action.INSERT, relation, rows)

    def delete(self, relation: str, rows: Given) -> None:
        """Take rows out. Rows that are not there change nothing."""
        self._add(Action.DELETE, relation, rows)

    def upsert(self, relation: str, rows: Given) -> None:
        """Add rows, each in place of the row that has the same key."""
        self._add(Action.UPSERT, relation, rows)

    def _add(self, action: Action, relation: str, rows: Given) -> None:
        if self._result is not None:
            raise WrongUse("the transaction is committed", hint="begin another one")
        declared = base_relation(self._database.program, relation)
        self._course.statement([Operation(action, relation, typed_rows(declared, rows, self._database.program.zone))])

    @property
    def result(self) -> Result:
        """The version and the changes, once committed."""
        if self._result is None:
            raise WrongUse("the transaction is not committed", hint="ask for the result after the `with` block")
        return self._result

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._result = self._database.write((), self._key, self._course)
            self._database.announce(self._result)


def base_relation(program: Program, name: str) -> Relation:
    """The declaration of a base relation, or an error that says why it is none."""
    if name not in program.relations:
        raise UnknownRelation(name, (n for n, r in program.relations.items() if not r.auxiliary))
    if program.is_view(name) and program.copies_of(name) is None:
        raise NotABase(name)
    return program.relations[name]


def typed_rows(relation: Relation, rows: Given, zone: str = UTC) -> tuple[Row, ...] | Bulk:
    """Rows checked against the columns of their relation; those of a data frame stay where they are.

    `zone`: the database's, in which a data frame with timestamps must be too.
    """
    if hasattr(rows, "sparkSession"):
        from rederive.lake.external import given_rows as given_frame

        return given_frame(cast("DataFrame", rows), relation, zone)
    return tuple(typed_row(relation, row) for row in given_rows(rows))


def typed_row(relation: Relation, row: Sequence[Value] | Mapping[str, Value]) -> Row:
    """A row of Python values checked against the columns of its relation.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> typed_row(Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER))), {"n": 3, "item": "bolt"})
    ('bolt', 3)
    """
    names = [column.name for column in relation.columns]
    if isinstance(row, Mapping):
        for name in row:
            if name not in names:
                raise UnknownColumn(relation.name, name, names)
        missing = [name for name in names if name not in row]
        if missing:
            raise IllTypedRow(f"relation '{relation.name}': the row {row!r} lacks column '{missing[0]}'")
        row = [row[name] for name in names]
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(names):
        raise IllTypedRow(f"relation '{relation.name}' has {len(names)} columns ({', '.join(names)}), not the row {row!r}")
    values = []
    for column, value in zip(relation.columns, row, strict=True):
        try:
            values.append(column_value(value, column, from_python))
        except ValueError as error:
            raise IllTypedRow(f"relation '{relation.name}', column '{column.name}': {error}") from None
    return tuple(values)
