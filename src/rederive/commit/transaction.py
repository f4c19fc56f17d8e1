"""A transaction under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from rederive.boundary import given_rows, guard_class
from rederive.commit.pending import TransactionRequest
from rederive.commit.pipeline import Pipeline
from rederive.delta import LazyRows
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import UnknownOption, Unsupported, WrongUse
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value
from rederive.result import Result
from rederive.rows import base_relation, typed_row, typed_tuples

if TYPE_CHECKING:
    import polars
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rederive.arrow_rows import ArrowRows

REFUSE: Final = "refuse"
EXTRA: Final = (REFUSE, "ignore")
"""What to do with columns of a frame that the relation does not have."""

GivenRows: TypeAlias = (
    "Iterable[Sequence[Value] | Mapping[str, Value]] | pa.Table | pa.RecordBatch | polars.DataFrame | DataFrame"
)


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
        """Insert rows: tuples in column order, dictionaries by column name, or a table of Arrow, pandas, polars or Spark.

        Existing rows stay. The columns of tables and data frames go by name.
        """
        self._add(Action.INSERT, relation, rows)

    def delete(self, relation: str, rows: GivenRows) -> None:
        """Delete rows. Rows that do not exist change nothing. A data frame may have the columns of the key alone."""
        self._add(Action.DELETE, relation, rows)

    def upsert(self, relation: str, rows: GivenRows) -> None:
        """Insert rows, each in place of the row that has the same key."""
        self._add(Action.UPSERT, relation, rows)

    def _add(self, action: Action, relation: str, rows: GivenRows) -> None:
        if self._pending.is_committed:
            raise WrongUse("the transaction is committed", hint="begin another one")
        program, declared = self._pipeline.state.rules.program, self._declared(relation)
        if action is Action.DELETE and has_keys_alone(declared, rows):
            typed: tuple[Row, ...] | LazyRows = self._rows_of_keys(declared, rows)
        else:
            typed = requested_rows(declared, rows, program.zone)
        self._pipeline.execute(self._pending, [Operation(action, relation, typed)])

    def _declared(self, relation: str) -> Relation:
        """The table or base relation of that name."""
        state = self._pipeline.state
        return state.tables.get(relation) or base_relation(state.rules.program, relation)

    def preview(self) -> Result:
        """The result that the transaction would have if it were committed now; it stays open, and nothing is changed.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> tx = db.transaction()
        >>> tx.insert("n", [(1,), (2,)])
        >>> tx.preview().changes["odd"].plus, db.rows("n")
        ([(1,)], [])
        """
        if any(one.rule.immediate for one in self._pipeline.state.rules.active):
            # They ran in each statement already, and would run once more over all of them.
            raise Unsupported("a dry run of a transaction with immediate rules", hint="make the rules deferred")
        return self._pipeline.preview(TransactionRequest(tuple(self._pending.requests)))

    def _rows_of_keys(self, relation: Relation, keys: GivenRows) -> tuple[Row, ...] | Bulk:
        """The stored rows that have these keys."""
        if any(operation.relation == relation.name for operation in self._pending.operations):
            raise WrongUse("keys to delete come first in a transaction", hint="give the whole rows, or use another transaction")
        state = self._pipeline.state
        columns = tuple(relation.columns[i] for i in relation.key)
        typed = requested_rows(Relation(relation.name, columns), keys, state.rules.program.zone)
        stored = state.engine.extent(relation.name)
        if isinstance(stored, Bulk) or isinstance(typed, Bulk):
            from rederive.lake.frame_rows import rows_with_keys

            return rows_with_keys(stored, typed, relation)
        wanted = frozenset(typed)
        return tuple(row for row in stored if tuple(row[i] for i in relation.key) in wanted)

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


def commit_rows(
    pipeline: Pipeline,
    relation: str,
    *,
    deletes: GivenRows | None,
    inserts: GivenRows | None,
    upserts: GivenRows | None,
    key: str | None,
    extra: str,
) -> Result:
    """Commit one transaction of one relation: the deletes, the inserts, then the upserts."""
    if extra not in EXTRA:
        raise UnknownOption("extra", extra, EXTRA)
    with Transaction(pipeline, key) as tx:
        for action, rows in ((Action.DELETE, deletes), (Action.INSERT, inserts), (Action.UPSERT, upserts)):
            if rows is not None:
                tx._add(action, relation, rows if extra == REFUSE else known_columns(tx._declared(relation), rows))
    return tx.result


def requested_rows(relation: Relation, rows: GivenRows, zone: str, *, is_held: bool = True) -> tuple[Row, ...] | Bulk | ArrowRows:
    """Rows checked against the columns of their relation; those of a data frame stay in Spark.

    `zone`: the time zone of the database; timestamps of a data frame must be in it. `is_held`: a data frame is evaluated once,
    however often its rows are read.
    """
    if hasattr(rows, "itertuples"):
        from rederive.arrow_rows import ArrowRows, pandas_rows

        found = pandas_rows(rows, relation)
        if isinstance(found, ArrowRows):
            return found
        rows = found
    elif hasattr(rows, "sparkSession"):
        from rederive.lake.frame_rows import requested_frame_rows

        return requested_frame_rows(cast("DataFrame", rows), relation, zone, is_held=is_held)
    # Tables of Arrow, polars and others that export their columns; who has none does not wait for the import of Arrow.
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        from rederive.arrow_rows import exported_table, typed_columns

        return typed_columns(relation, exported_table(rows))
    given = tuple(given_rows(rows))
    return typed_tuples(given, relation) or tuple([typed_row(relation, row) for row in given])


def known_columns(relation: Relation, rows: GivenRows) -> GivenRows:
    """A frame of any kind or an Arrow table without the columns that the relation does not have; other rows as they are."""
    given: Any = rows
    names = {column.name for column in relation.columns}
    if hasattr(given, "sparkSession"):
        return cast("GivenRows", given.drop(*(name for name in given.columns if name not in names)))
    if hasattr(given, "itertuples"):
        return cast("GivenRows", given[[name for name in given.columns if name in names]])
    if hasattr(given, "select"):  # an Arrow table, whose `columns` are arrays, or a frame of polars
        given_names = given.schema.names if hasattr(given, "column_names") or hasattr(given, "num_rows") else given.columns
        return cast("GivenRows", given.select([name for name in given_names if name in names]))
    return rows


def has_keys_alone(relation: Relation, rows: GivenRows) -> bool:
    """Whether rows are a data frame with the columns of the relation's key and no others."""
    # `column_names`: an Arrow table, whose `columns` are arrays. Rows that are a list have neither.
    names = getattr(rows, "column_names", None) or getattr(rows, "columns", None)
    if not relation.key or names is None or isinstance(rows, list):
        return False
    return sorted(map(str, names)) == sorted(relation.columns[i].name for i in relation.key)
