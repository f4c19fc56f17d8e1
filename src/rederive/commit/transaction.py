"""A transaction under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast

from rederive.boundary import given_rows, guard_class
from rederive.commit.pipeline import Pipeline
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import WrongUse
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value
from rederive.result import Result
from rederive.rows import base_relation, typed_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GivenRows: TypeAlias = "Iterable[Sequence[Value] | Mapping[str, Value]] | DataFrame"


@guard_class
class Transaction:
    """Collects changes of base relations; they are committed as a whole when the `with` block ends, or not at all.

    Later calls win over earlier ones: inserting a row and then deleting it leaves it out. Each call is a statement: immediate
    rules are processed before it returns.
    """

    def __init__(self, pipeline: Pipeline, key: str | None = None) -> None:
        self._pipeline = pipeline
        self._pending = pipeline.begin(key)

    def insert(self, relation: str, rows: GivenRows) -> None:
        """Insert rows: tuples in column order, dictionaries by column name, or a Spark data frame. Existing rows stay."""
        self._add(Action.INSERT, relation, rows)

    def delete(self, relation: str, rows: GivenRows) -> None:
        """Delete rows. Rows that do not exist change nothing."""
        self._add(Action.DELETE, relation, rows)

    def upsert(self, relation: str, rows: GivenRows) -> None:
        """Insert rows, each in place of the row that has the same key."""
        self._add(Action.UPSERT, relation, rows)

    def _add(self, action: Action, relation: str, rows: GivenRows) -> None:
        if self._pending.is_committed:
            raise WrongUse("the transaction is committed", hint="begin another one")
        state = self._pipeline.state
        program = state.rules.program
        typed = requested_rows(state.tables.get(relation) or base_relation(program, relation), rows, program.zone)
        self._pipeline.execute(self._pending, [Operation(action, relation, typed)])

    @property
    def result(self) -> Result:
        """The version and the changes, once committed."""
        result = self._pending.result
        if result is None or not self._pending.is_committed:
            raise WrongUse("the transaction is not committed", hint="read the result after the `with` block")
        return result

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._pipeline.commit(self._pending)


def requested_rows(relation: Relation, rows: GivenRows, zone: str) -> tuple[Row, ...] | Bulk:
    """Rows checked against the columns of their relation; those of a data frame stay in Spark.

    `zone`: the time zone of the database; timestamps of a data frame must be in it.
    """
    if hasattr(rows, "sparkSession"):
        from rederive.lake.frame_rows import requested_frame_rows

        return requested_frame_rows(cast("DataFrame", rows), relation, zone)
    return tuple([typed_row(relation, row) for row in given_rows(rows)])
