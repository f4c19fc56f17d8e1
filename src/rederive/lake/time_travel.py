"""A view at a settled version: its table at or before that version, by Delta's time travel, and the changes from there on.

A table is not written at every version, so the table of an earlier version and the change table give the rows in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import functions as F

from rederive.engines.spark.session.sessions import described
from rederive.engines.spark.session.types import literal
from rederive.errors import VersionGone
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value
from rederive.lake.change_table import MINUS, PLUS
from rederive.lake.delta_log import FAILURES
from rederive.lake.names import quote
from rederive.lake.staging import changed_rows
from rederive.lake.tables import Area, Lake
from rederive.lake.types import collect

_MISSING: Final = ("FILE_NOT_EXIST", "FileNotFoundException")


def rows_at(lake: Lake, relation: Relation, version: int, bindings: Mapping[int, Value]) -> Iterable[Row]:
    """The rows of a view at a version, each as often as it was there. `bindings`: values of columns, by position."""
    names = [quote(column.name) for column in relation.columns]
    # A binding may be NULL.
    tests = (F.expr(f"{names[i]} <=> {literal(value, relation.types[i])}") for i, value in bindings.items())
    where = reduce(and_, tests) if bindings else None
    table, start = lake.read_before(Area.VIEWS, relation, version)
    with _report_missing_files(version), described(lake.spark, f"read {relation.name} at version {version}"):
        found = Counter(collect(table if where is None else table.where(where), relation))
    if start < version and lake.has_table(Area.CHANGES, relation.name):
        for sign, move in ((PLUS, found.update), (MINUS, found.subtract)):
            for row, number in changed_rows(lake, relation, start, version, sign, where):
                move({row: number})
    return found.elements()


@contextmanager
def _report_missing_files(version: int) -> Iterator[None]:
    """Raise VersionGone if the files of the version that is read inside were removed."""
    try:
        yield
    except FAILURES as error:
        if not any(sign in str(error) for sign in _MISSING):
            raise
        raise VersionGone(f"the files of version {version} were removed", hint="ask for a later version") from None
