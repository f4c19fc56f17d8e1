"""Rows that know their columns: what `rows`, `query` and changes return, as a list, a data frame or a table of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rederive.boundary import guard_class
from rederive.errors import Unsupported
from rederive.html_tables import html_table
from rederive.ir.rules import Column
from rederive.ir.terms import Kind, Row, Value

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

_MOST_SHOWN = 20  # rows of a table in a notebook


@guard_class
class RowList(list[Row]):
    """A list of rows with their columns. It is equal to a list of the same rows.

    >>> import rederive
    >>> db = rederive.open()
    >>> _ = db.define('.decl stock(item: symbol, n: number)  stock("bolt", 3). stock("nut", 4).')
    >>> rows = db.rows("stock")
    >>> rows, rows.columns
    ([('bolt', 3), ('nut', 4)], ('item', 'n'))
    >>> rows.to_pandas()["n"].sum()
    np.int64(7)
    """

    def __init__(self, rows: Iterable[Row], declared: Sequence[Column]) -> None:
        super().__init__(rows)
        self.declared = tuple(declared)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.declared)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table. Every value stays what it is; NULL is null."""
        return arrow_table(self, self.declared)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas data frame. Integers with NULLs have the type `Int64`, which holds both exactly."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars data frame."""
        return to_polars(self.to_arrow())

    def _repr_html_(self) -> str:
        return html_table(self.columns, self[:_MOST_SHOWN], more=len(self) - _MOST_SHOWN)


def arrow_table(rows: Sequence[Row], columns: Sequence[Column]) -> pa.Table:
    """Rows as an Arrow table."""
    import pyarrow as pa

    if not columns:
        raise Unsupported("a table of Arrow, pandas or polars without columns", hint="the number of rows is len(rows)")
    values: Sequence[Sequence[Value]] = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [_array(column, declared) for column, declared in zip(values, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _array(values: Sequence[Value], column: Column) -> pa.Array[Any]:
    import pyarrow as pa

    from rederive.arrow_types import to_arrow_column

    # Spark has no unsigned integers, and everybody else has.
    if column.type.kind is Kind.UNSIGNED:
        return pa.array(values, pa.uint64())
    return to_arrow_column(values, column.type)


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """A table as a pandas data frame, with every value exact."""
    import pandas
    import pyarrow as pa

    # With pandas' default, one NULL turns a column of integers into floats, which have 53 bits.
    frame: pandas.DataFrame = table.to_pandas(integer_object_nulls=True)
    for position, field in enumerate(table.schema):
        if table.column(position).null_count and (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
            exact = {"int64": "Int64", "uint64": "UInt64", "bool": "boolean"}[str(field.type)]
            frame.isetitem(position, pandas.array(table.column(position).to_pylist(), dtype=exact))
    return frame


def to_polars(table: pa.Table) -> polars.DataFrame:
    """A table as a polars data frame."""
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame
