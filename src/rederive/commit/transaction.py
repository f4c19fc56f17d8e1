"""A transaction under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast

from rederive.boundary import given_rows, guard_class
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import WrongUse
from rederive.ir.rules import Relation
from rederive.ir.terms import UTC, Row, Value
from rederive.result import Result
from rederive.rows import base_relation, typed_row

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
        self._course.statement([Operation(action, relation, requested_rows(declared, rows, self._database.program.zone))])

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


def requested_rows(relation: Relation, rows: Given, zone: str = UTC) -> tuple[Row, ...] | Bulk:
    """Rows checked against the columns of their relation; those of a data frame stay where they are.

    `zone`: the database's, in which a data frame with timestamps must be too.
    """
    if hasattr(rows, "sparkSession"):
        from rederive.lake.frame_rows import requested_frame_rows

        return requested_frame_rows(cast("DataFrame", rows), relation, zone)
    return tuple(typed_row(relation, row) for row in given_rows(rows))
