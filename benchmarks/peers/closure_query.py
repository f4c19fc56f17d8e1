"""The peer: DuckDB, which computes a closure by recursive SQL, and computes it again after every change.

It runs on one thread, as we do: times are CPU time of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

Pair = tuple[Any, ...]

# SJ96's right-linear program:  closure(x, y) :- edge(x, y).  closure(x, y) :- edge(x, z), closure(z, y).
CLOSURE = """
    WITH RECURSIVE closure(x, y) AS (
        SELECT x, y FROM edge UNION SELECT edge.x, closure.y FROM edge JOIN closure ON edge.y = closure.x)
"""


class DuckDB:
    """A graph in a DuckDB table, in memory.

    >>> graph = DuckDB.of([("a", "b"), ("b", "c")])
    >>> graph.closure_size(), graph.lost(("b", "c")), graph.agrees([("a", "b"), ("b", "c")])
    (3, [('a', 'c'), ('b', 'c')], False)
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})

    @classmethod
    def of(cls, edges: Sequence[Pair]) -> DuckDB:
        graph = cls()
        graph._connection.register("rows", _columns(edges))
        graph._connection.execute("CREATE TABLE edge AS FROM rows")
        graph._connection.unregister("rows")
        return graph

    @classmethod
    def of_csv(cls, path: Path) -> DuckDB:
        graph = cls()
        graph._connection.execute("CREATE TABLE edge AS SELECT #1 AS x, #2 AS y FROM read_csv(?, header = true)", [str(path)])
        return graph

    def coded(self) -> DuckDB:
        """The same graph over small integers in place of its values."""
        edges = self._connection.execute("SELECT x, y FROM edge").fetchall()
        codes: dict[Any, int] = {}
        return DuckDB.of([(codes.setdefault(x, len(codes)), codes.setdefault(y, len(codes))) for x, y in edges])

    def closure_size(self) -> int:
        """Compute the closure and count it. DuckDB's best case: nothing is stored or handed over."""
        return self._number(f"{CLOSURE} SELECT count(*) FROM closure")

    def store_closure(self) -> None:
        """Compute the closure into a table."""
        self._connection.execute(f"CREATE OR REPLACE TABLE stored AS {CLOSURE} FROM closure")

    def stored_size(self) -> int:
        return self._number("SELECT count(*) FROM stored")

    def delete(self, edge: Pair) -> None:
        self._connection.execute("DELETE FROM edge WHERE x = ? AND y = ?", edge)

    def insert(self, edge: Pair) -> None:
        self._connection.execute("INSERT INTO edge VALUES (?, ?)", edge)

    def lost(self, edge: Pair) -> list[Pair]:
        """The rows of the closure that are not in the closure without this edge, in order."""
        self.store_closure()
        self.delete(edge)
        rows = self._connection.execute(f"FROM stored EXCEPT ({CLOSURE} FROM closure) ORDER BY ALL").fetchall()
        self.insert(edge)
        return rows

    def agrees(self, closure: Sequence[Pair]) -> bool:
        """Whether these are the rows of the closure, each once: as many as there are, and none of those missing."""
        self.store_closure()
        self._connection.register("given", _columns(closure))
        missing = self._number("SELECT count(*) FROM (FROM stored EXCEPT FROM given)")
        self._connection.unregister("given")
        return not missing and len(closure) == self.stored_size()

    def _number(self, query: str) -> int:
        [(number,)] = self._connection.execute(query).fetchall()
        return int(number)


def _columns(rows: Sequence[Pair]) -> pyarrow.Table:
    return pyarrow.table({"x": [x for x, _ in rows], "y": [y for _, y in rows]})
