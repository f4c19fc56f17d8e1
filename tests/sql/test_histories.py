"""Random histories against DuckDB: after every step the tables and views are DuckDB's, and the changes lead there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, assert_never

import duckdb
import pytest
from hypothesis import given, reject, seed, settings
from hypothesis import strategies as st

import rederive
from rederive.commit import restart
from rederive.engines.resident.run import window_groups
from rederive.errors import DuplicateKey
from tests.duck import empty_duckdb
from tests.selection import examples
from tests.sql.grammar import TABLES
from tests.sql.histories import Define, Drop, Reopen, Step, Transaction, history
from tests.sql.test_differential import STRATEGIES, Row, as_duck, is_taken

MANY = 20_000  # histories in `make test-all`, over all strategies
PORTIONS = 8  # of the histories of a strategy: processes share them


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store is reopened from a checkpoint, and every partition of a window is stored in order, small as they are."""
    monkeypatch.setattr(restart, "WORTH_SAVING", 0)
    monkeypatch.setattr(window_groups, "_SMALL", 2)
    monkeypatch.setattr(window_groups, "_MANY", 1)


class Both:
    """The same history in rederive, with a store where it is reopened, and in DuckDB.

    DuckDB's tables have no keys; here, a table with a key is a set, and a transaction must end without two rows of one key.
    """

    def __init__(self, strategy: str, store: Path | None, duck: duckdb.DuckDBPyConnection) -> None:
        self.strategy, self.store, self.duck = strategy, store, duck
        self.db = rederive.open(store, strategy=strategy)
        self.bags: dict[str, Counter[Row]] = {}
        tables = "; ".join(TABLES.values())
        self.db.migrate(tables.format(text="STRING"))
        duck.execute(tables.format(text="VARCHAR").replace(" PRIMARY KEY", ""))

    def step(self, step: Step) -> None:
        match step:
            case Transaction():
                self.transaction(step)
            case Define(number, query):
                self.define(f"v{number}", query)
            case Drop():
                view = f"v{len(self.bags) - 1}"
                self.db.sql(f"DROP VIEW {view}")
                self.duck.execute(f"DROP VIEW {view}")
                del self.bags[view]
            case Reopen():
                if self.store is not None:
                    self.db.close()
                    self.db = rederive.open(self.store, strategy=self.strategy)
            case _:
                assert_never(step)
        self.check_rows()

    def define(self, view: str, query: str) -> None:
        if not is_taken(self.strategy, query):
            reject()
        results = self.db.sql(f"CREATE OR REPLACE VIEW {view} AS {query}")
        self.duck.execute(f"CREATE OR REPLACE VIEW {view} AS {as_duck(query)}")
        for name in self.bags.keys() - {view}:
            self.check_change(name, results)
        self.bags[view] = self.answer(view)

    def transaction(self, step: Transaction) -> None:
        self.duck.execute("BEGIN")
        refused = self.applied(step)
        self.duck.execute("ROLLBACK" if refused or step.rollback else "COMMIT")
        alone = len(step.statements) == 1 and not step.rollback
        end = "ROLLBACK" if step.rollback else "COMMIT"
        text = step.statements[0] if alone else "; ".join(["BEGIN", *step.statements, end])
        if refused:
            with pytest.raises(DuplicateKey):
                self.db.sql(text)
            return
        results = self.db.sql(text)
        for name in self.bags:
            self.check_change(name, results)

    def applied(self, step: Transaction) -> bool:
        """Let DuckDB run the statements; whether ours must refuse them."""
        for statement in step.statements:
            self.duck.execute(as_duck(statement))
            if self.count("SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT * FROM t)) FROM t"):
                if statement.startswith("UPDATE"):
                    return True
                self.duck.execute("DELETE FROM t WHERE rowid NOT IN (SELECT min(rowid) FROM t GROUP BY x, y, s)")
        return not step.rollback and bool(self.count("SELECT count(*) - count(DISTINCT x) FROM t"))

    def count(self, query: str) -> int:
        found = self.duck.execute(query).fetchone()
        assert found is not None
        return int(found[0])

    def answer(self, name: str) -> Counter[Row]:
        return Counter(self.duck.execute(f"SELECT * FROM {name}").fetchall())

    def check_rows(self) -> None:
        for name in (*TABLES, *self.bags):
            assert Counter(self.db.rows(name)) == self.answer(name), name

    def check_change(self, name: str, results: Sequence[rederive.Result]) -> None:
        moved = Counter(self.bags[name])
        for result in results:
            apply_change(moved, name, result.changes)
        new = self.answer(name)
        assert {row: n for row, n in moved.items() if n} == dict(new), name
        self.bags[name] = new


def apply_change(bag: Counter[Row], name: str, changes: Mapping[str, Any]) -> None:
    if name in changes:
        change = changes[name]
        counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
        for rows, sign in (("plus", 1), ("minus", -1)):
            for row, count in zip(getattr(change, rows), counts[rows], strict=True):
                assert count > 0
                bag[row] += sign * count


@contextmanager
def store_for(steps: Sequence[Step]) -> Iterator[Path | None]:
    """A folder where the history is reopened; without, a history runs faster."""
    if not any(isinstance(step, Reopen) for step in steps):
        yield None
        return
    with TemporaryDirectory() as folder:
        yield Path(folder) / "store"


def run(steps: Sequence[Step], strategy: str) -> None:
    with store_for(steps) as store, empty_duckdb() as duck:
        both = Both(strategy, store, duck)
        try:
            for step in steps:
                both.step(step)
        finally:
            both.db.close()


@examples(75)
@given(history(), st.sampled_from(STRATEGIES))
def test_histories_are_those_of_duckdb(steps: list[Step], strategy: str) -> None:
    run(steps, strategy)


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(PORTIONS))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_histories_are_those_of_duckdb(strategy: str, portion: int) -> None:
    @settings(max_examples=MANY // (len(STRATEGIES) * PORTIONS), deadline=None)
    @given(history())
    def check(steps: list[Step]) -> None:
        run(steps, strategy)

    # A profile that is not random would draw the same histories for every portion.
    (seed(portion)(check) if settings().derandomize else check)()
