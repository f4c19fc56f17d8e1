"""Micro-batches of a Delta table's change data feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from rederive.engines.protocol import Action
from rederive.ingest.arrow_rows import arrow_value, row_as_json
from rederive.ingest.micro_batch import Item, RowOrigin, typed_operations
from rederive.ir.rules import Relation

if TYPE_CHECKING:
    import pyarrow

TYPE: Final = "_change_type"
COMMIT: Final = "_commit_version"
TIME: Final = "_commit_timestamp"
_ACTIONS: Final = {
    "delete": Action.DELETE,
    "update_preimage": Action.DELETE,
    "insert": Action.INSERT,
    "update_postimage": Action.INSERT,
}


def feed_items(table: pyarrow.Table, relation: Relation, name: str) -> Iterator[Item]:
    """The items of a batch, commit by commit, deletions before insertions: a row with both is present afterwards.

    Spark may return the rows of a commit in another order next time. They are sorted here, so that reading a batch again gives
    the same operations.
    """
    names = [column.name for column in relation.columns]
    kinds: list[Any] = table.column(TYPE).to_pylist()
    # Within a commit False sorts before True: rows leave before others enter, so that a replaced key never conflicts.
    ranked = table.append_column("_rank", [[_ACTIONS[kind] is Action.INSERT for kind in kinds]])
    ordered = ranked.sort_by([(column, "ascending") for column in (COMMIT, "_rank", *names, TYPE)])
    columns = [ordered.column(column).to_pylist() for column in names]
    shown = ordered.drop_columns(["_rank", TIME])
    commits = ordered.column(COMMIT)
    origin = RowOrigin(lambda row: f"{name}@{commits[row].as_py()}", lambda row: row_as_json(shown, row))
    yield from typed_operations(ordered.column(TYPE).to_pylist(), columns, relation, arrow_value, origin, _ACTIONS)
