"""Row typing for Spark data frames: the columns of a frame become those of a relation, where the frame is.

`convert_frame` gives each row its values `v0, v1, ...` and a `problem`, the reason why the row is not one of the relation, or
NULL. `check_rows` raises the first problem; `values` leaves the values alone. Rows of Python, JSON or text: `rederive.rows`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType, TimestampNTZType, TimestampType

from rederive.engines.spark.run.data_frames import DataFrameRows, missing_value
from rederive.engines.spark.session.sessions import in_session
from rederive.errors import IllTypedRow, MalformedInput, SchemaMismatch, nearest
from rederive.ir.rules import Relation
from rederive.ir.terms import UTC, Row
from rederive.lake.conversion import ConvertedColumn, from_typed
from rederive.lake.names import PRESENT, column_names, quote
from rederive.lake.session import check_zone
from rederive.lake.types import METADATA, dataframe, holds_exactly, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROBLEM: Final = "problem"


def requested_frame_rows(frame: DataFrame, relation: Relation, zone: str = UTC, *, is_held: bool = True) -> DataFrameRows:
    """The rows of a data frame; columns go by name, and a row may occur twice.

    Values of other types are checked here. NULL in a column that needs a value is checked by whoever reads the rows, so that a
    frame whose types fit is not read in advance. `zone`: the time zone of the database. `is_held`: the frame is evaluated once.
    """
    if any(isinstance(column.dataType, TimestampType) for column in frame.schema.fields):
        check_zone(frame.sparkSession, zone)
    check_times(frame.schema, zone)
    make = DataFrameRows.held if is_held else DataFrameRows
    check = partial(check_requested, relation)
    # Every value of these types fits, so nothing has to be converted or read in advance.
    if (plain := _as_is(frame, relation)) is not None:
        return make(plain, relation.types, check)
    converted = convert_frame(frame, relation)
    has_problems = _has_problems(converted)
    found = values(converted, relation, *([PROBLEM] if has_problems else []))
    # By position: a relation may have a column of the same name.
    rows = make(found.toDF(*(f"c{i}" for i in range(len(found.columns)))), relation.types, check)
    if has_problems:
        rows.check()
    return rows


def check_times(schema: StructType, zone: str) -> None:
    """Refuse timestamps without a time zone for a database outside UTC. A lake writes its own in UTC, and marks them."""
    for column in schema.fields if zone != UTC else ():
        if isinstance(column.dataType, TimestampNTZType) and METADATA not in (column.metadata or {}):
            raise SchemaMismatch(
                f"column '{column.name}' is timestamp_ntz, which has no time zone, and the database is in '{zone}'",
                hint="cast it to timestamp",
            )


def rows_with_keys(stored: Collection[Row], keys: Collection[Row], relation: Relation) -> DataFrameRows | tuple[Row, ...]:
    """The stored rows that have one of these keys, where one of both is in Spark."""
    if not isinstance(stored, DataFrameRows):
        wanted = frozenset(keys)
        return tuple(row for row in stored if tuple(row[i] for i in relation.key) in wanted)
    data = stored.data
    shape = Relation("keys", tuple(relation.columns[i] for i in relation.key))
    given = keys.data if isinstance(keys, DataFrameRows) else dataframe(data.sparkSession, shape, keys)
    named = in_session(data.sparkSession, given).toDF(*(data.columns[i] for i in relation.key))
    # Columns of a key are never NULL, so that plain equality finds every row.
    found = data.join(named.distinct(), named.columns, "left_semi").select(*data.columns)
    return DataFrameRows.held(found, relation.types)


# Converting


def convert_frame(frame: DataFrame, relation: Relation, extra: Sequence[str] = ()) -> DataFrame:
    """The columns `v0, v1, ...` of the relation, then `problem`, then the columns `extra` of the frame as they are."""
    check_names([name for name in frame.columns if name not in extra], relation)
    found = {f.name: f.dataType for f in frame.schema.fields}
    pairs = zip(frame_columns(frame, relation), relation.columns, strict=True)
    return converted_frame(frame, [from_typed(F.col(quote(n)), found[n], c) for n, c in pairs], extra=extra)


def converted_frame(
    frame: DataFrame, columns: Sequence[ConvertedColumn], *, shape: ConvertedColumn | None = None, extra: Sequence[str] = ()
) -> DataFrame:
    """`v0, v1, ...`, the first problem of each row, and `extra`. `shape`: a problem of the row as a whole, which comes first."""
    problems = [column.problem for column in ((shape,) if shape else ()) + tuple(columns) if column.problem is not None]
    # Without any problem column Spark types the literal as void, which `_has_problems` looks at.
    # One problem for each row: the first in the order of the columns.
    problem = F.coalesce(*problems, F.lit(None).cast("string")) if problems else F.lit(None)
    return frame.select(*(c.value.alias(f"v{i}") for i, c in enumerate(columns)), problem.alias(PROBLEM), *extra)


def frame_columns(frame: DataFrame, relation: Relation) -> list[str]:
    """For each column of the relation, the frame's column: by its own name, or by the name that a table of the lake gives it."""
    stored = column_names(relation)
    # Tables of a lake give columns other names where Delta refuses the declared ones.
    return [c.name if c.name in frame.columns else stored[i] for i, c in enumerate(relation.columns)]


def values(converted: DataFrame, relation: Relation, *extra: str) -> DataFrame:
    """The values of a converted frame, under the names of the relation's table, then the columns `extra`."""
    if not relation.columns:
        return converted.select(F.lit(True).alias(PRESENT), *extra)
    fields = schema_of(relation).fields
    return converted.select(*(F.col(f"v{i}").alias(f.name, metadata=f.metadata) for i, f in enumerate(fields)), *extra)


def _as_is(frame: DataFrame, relation: Relation) -> DataFrame | None:
    """The frame's columns in the relation's order, if they can only hold values of the relation's types, or NULL."""
    found = {field.name: field.dataType for field in frame.schema.fields}
    declared = {column.name: column for column in relation.columns}
    # Names of a lake's table, which may differ from the declared ones, take the general way.
    if not declared or found.keys() != declared.keys() or len(frame.columns) > len(declared):
        return None
    if not all(holds_exactly(found[name], declared[name]) for name in found):
        return None
    return frame if list(found) == list(declared) else frame.select(*map(quote, declared))


# Checking


def check_names(names: Sequence[str], relation: Relation) -> None:
    """Refuse column names that are not exactly those of the relation, or of its table."""
    stored = column_names(relation)
    declared = [column.name for column in relation.columns]
    for name, other in zip(declared, stored, strict=False):
        if name not in names and other not in names:
            raise SchemaMismatch(f"column '{name}' of relation '{relation.name}' is missing", hint=nearest(name, names))
    if surplus := [name for name in names if name not in declared and name not in stored]:
        raise SchemaMismatch(
            f"relation '{relation.name}' has no column '{surplus[0]}'", hint=f"leave it out: {', '.join(declared)}"
        )


def check_rows(converted: DataFrame, relation: Relation, required: Sequence[int] | None = None) -> None:
    """Refuse the first row with a problem, or with NULL in a `required` column; by default those that are not nullable.

    Columns of which Spark knows that they hold no NULL are not looked at.
    """
    if required is None:
        required = _required(relation)
    fields = {field.name: field for field in converted.schema.fields}
    # Spark knows some columns to be without NULL; these need no query.
    nullable = [i for i in required if fields[f"v{i}"].nullable]
    nulls = [F.col(f"v{i}").isNull() for i in nullable]
    watched = [*nulls, *([F.col(PROBLEM).isNotNull()] if _has_problems(converted) else [])]
    wrong = converted.where(reduce(or_, watched)).select(PROBLEM, *nulls).limit(1).collect() if watched else []
    for problem, *null in wrong:
        if problem is not None:
            raise _problem_of(relation, problem)
        raise missing_value(relation, nullable[null.index(True)])


def check_requested(relation: Relation, rows: DataFrame | pa.Table) -> None:
    """The same for the columns of a relation, in order, and perhaps the problems of rows: in Spark, or in the driver."""
    names = [*(f"v{i}" for i in range(relation.arity)), PROBLEM] if relation.arity else [PRESENT, PROBLEM]
    if not isinstance(rows, pa.Table):
        named = rows.toDF(*names[: len(rows.columns)])
        check_rows(named if PROBLEM in named.columns else named.withColumn(PROBLEM, F.lit(None)), relation)
        return
    wrong = {i: pc.index(pc.is_null(rows.column(i)), True).as_py() for i in _required(relation) if rows.column(i).null_count}
    if rows.num_columns == len(names):
        problems = rows.column(len(names) - 1)
        first = pc.index(pc.is_valid(problems), True).as_py()
        if first >= 0 and first <= min(wrong.values(), default=first):
            raise _problem_of(relation, problems[first].as_py())
    if wrong:
        raise missing_value(relation, min(wrong, key=wrong.__getitem__))


def _required(relation: Relation) -> list[int]:
    return [i for i, one in enumerate(relation.columns) if not one.nullable]


def _problem_of(relation: Relation, problem: str) -> MalformedInput | IllTypedRow:
    is_shape = problem.startswith(("not a JSON", "unknown column"))
    return (MalformedInput if is_shape else IllTypedRow)(f"relation '{relation.name}': {problem}")


def _has_problems(converted: DataFrame) -> bool:
    """Whether some value may not be one of the relation's type; NULL aside."""
    return not isinstance(converted.schema[PROBLEM].dataType, NullType)
