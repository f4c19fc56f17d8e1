"""Change tables: `_version`, `_change` ('plus' or 'minus'), `_count`, then the columns of a relation.

Each row says that a version put `_count` copies of the rest into the relation, or took them out. The same columns are used for
the changes of base relations on their way to a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rederive.errors import SchemaMismatch
from rederive.ir.rules import Relation
from rederive.lake.declaration import schema_difference
from rederive.lake.names import column_names, quote
from rederive.lake.types import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION: Final = "_version"
CHANGE: Final = "_change"
COUNT: Final = "_count"
PLUS: Final = "plus"
MINUS: Final = "minus"


def change_schema(relation: Relation) -> StructType:
    """The columns of the change table of a relation."""
    own = [StructField(VERSION, LongType()), StructField(CHANGE, StringType()), StructField(COUNT, LongType())]
    return StructType(own + schema_of(relation).fields)


def check_changes(changes: DataFrame, relation: Relation) -> None:
    """Refuse a frame whose columns are not those of the relation's change table."""
    if difference := schema_difference(changes.schema, change_schema(relation)):
        raise SchemaMismatch(f"not changes of relation '{relation.name}': {difference}")


def changes_after(changes: DataFrame, version: int | None) -> DataFrame:
    """The changes of the versions after this one; of all versions for None."""
    return changes if version is None else changes.where(F.col(VERSION) > version)


def net_changes(changes: DataFrame, relation: Relation) -> DataFrame:
    """The net effect of changes of a set: its columns and `_change`, each row at most once.

    The first and the last change of a row decide. In a set they alternate, so if they are equal the row changes by them, and if
    they differ the row ends as it began.
    """
    names = [quote(name) for name in column_names(relation)]
    first, last = F.min_by(CHANGE, VERSION), F.max_by(CHANGE, VERSION)
    # GROUP BY puts NULLs into one group, so rows with NULL are one row, as in an engine.
    ends = changes.groupBy(*names).agg(first.alias("_first"), last.alias(CHANGE))
    return ends.where(F.col("_first") == F.col(CHANGE)).drop("_first")
