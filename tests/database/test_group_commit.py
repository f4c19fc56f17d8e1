"""Group commit: many versions, one sync; each transaction stands or is refused as if it had come alone."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rederive
from rederive.commit.pending import BatchOutcome, TransactionRequest
from rederive.engines.protocol import Action, Operation
from rederive.errors import RederiveError
from tests.database.conftest import CLOSURE, STOCK

PROGRAM = CLOSURE + STOCK


def inserted(relation: str, *rows: tuple[Any, ...], key: str | None = None, action: Action = Action.INSERT) -> TransactionRequest:
    return TransactionRequest((Operation(action, relation, rows),), key)


def told(outcome: BatchOutcome) -> tuple[list[int], str | None]:
    code = outcome.error.code if isinstance(outcome.error, RederiveError) else None
    assert outcome.error is None or code is not None
    return [result.version for result in outcome.results], code


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with rederive.open(tmp_path / "store") as opened:
        opened.define(PROGRAM)
        yield opened


def test_a_refused_transaction_refuses_only_itself(db: rederive.Database) -> None:
    writes = [inserted("edge", ("a", "b")), inserted("stock", ("bolt", 1)), inserted("stock", ("bolt", 2))]
    outcomes = db.pipeline.commit_together([[write] for write in [*writes, inserted("edge", ("b", "c"))]])
    assert [told(outcome) for outcome in outcomes] == [([1], None), ([2], None), ([], "duplicate_key"), ([3], None)]
    assert db.rows("closure") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert outcomes[3].results[0].changes["closure"].plus == [("a", "c"), ("b", "c")]


def test_a_request_ends_at_its_first_refusal(db: rederive.Database) -> None:
    long = [inserted("stock", ("bolt", 1)), inserted("stock", ("bolt", 2)), inserted("stock", ("nut", 3))]
    assert [told(o) for o in db.pipeline.commit_together([long, [inserted("stock", ("cog", 4))]])] == [
        ([1], "duplicate_key"),
        ([2], None),
    ]
    assert db.rows("stock") == [("bolt", 1), ("cog", 4)]


def test_subscribers_hear_of_versions_in_order_and_after_the_sync(db: rederive.Database) -> None:
    heard: list[tuple[int, int]] = []
    journal = db.pipeline.state.durable("test").journal
    db.subscribe("closure", lambda change: heard.append((change.version, journal.version)))
    db.pipeline.commit_together([[inserted("edge", ("a", str(i)))] for i in range(3)])
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_one_sync_keeps_them_all(db: rederive.Database) -> None:
    statements: list[str] = []
    connection: sqlite3.Connection = db.pipeline.state.durable("test").journal._connection
    connection.set_trace_callback(statements.append)
    db.pipeline.commit_together([[inserted("edge", ("a", str(i)))] for i in range(20)])
    connection.set_trace_callback(None)
    assert (statements.count("COMMIT"), db.version) == (1, 20)


def test_keys_within_a_group(db: rederive.Database) -> None:
    """A repetition that waits beside its original is one, and another transaction under its key is refused."""
    same, other = inserted("edge", ("a", "b"), key="k"), inserted("edge", ("b", "c"), key="k")
    outcomes = db.pipeline.commit_together([[same], [same], [other], [inserted("edge", ("x", "y"))]])
    assert [told(outcome) for outcome in outcomes] == [([1], None), ([1], None), ([], "conflict"), ([2], None)]
    assert [result.repeated for outcome in outcomes for result in outcome.results] == [False, True, False]


def test_a_full_disk_takes_back_the_whole_group(db: rederive.Database, tmp_path: Path) -> None:
    connection: sqlite3.Connection = db.pipeline.state.durable("test").journal._connection
    db.pipeline.commit_together([[inserted("edge", ("a", "b"))], [inserted("stock", ("bolt", 5))]])
    connection.execute("PRAGMA max_page_count = 1")
    group = [
        [inserted("edge", ("b", "c"))],
        [inserted("edge", ("a", "b"), action=Action.DELETE)],
        [inserted("stock", ("bolt", 7), action=Action.UPSERT)],
        [inserted("stock", ("bolt", 7), ("bolt", 8))],
        [inserted("edge", ("c", "x" * 100_000))],
    ]
    assert [told(o) for o in db.pipeline.commit_together(group)] == [([], "store")] * 3 + [([], "duplicate_key"), ([], "store")]
    assert (db.version, db.rows("closure"), db.rows("low")) == (2, [("a", "b")], [("bolt", 5)])
    connection.execute("PRAGMA max_page_count = 1000000")
    outcomes = db.pipeline.commit_together(group)
    assert [told(o)[0] for o in outcomes] == [[3], [4], [5], [], [6]]
    db.close()
    with rederive.open(tmp_path / "store") as again:
        assert (again.version, len(again.rows("closure")), again.rows("low")) == (6, 3, [("bolt", 7)])


NAMES = st.sampled_from("abc")
WRITES = st.one_of(
    st.builds(lambda action, row: inserted("edge", row, action=action), st.sampled_from(Action), st.tuples(NAMES, NAMES)),
    st.builds(
        lambda action, row: inserted("stock", row, action=action),
        st.sampled_from(Action),
        st.tuples(NAMES, st.integers(8, 11)),
    ),
)


@settings(max_examples=40)
@given(st.lists(st.lists(st.lists(WRITES, max_size=3), max_size=5), max_size=3))
def test_a_group_equals_its_transactions_alone(groups: list[list[list[TransactionRequest]]]) -> None:
    alone = rederive.open()
    alone.define(PROGRAM)
    with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as together:
        together.define(PROGRAM)
        for group in groups:
            expected = [_alone(alone, request) for request in group]
            assert [_changes(outcome) for outcome in together.pipeline.commit_together(group)] == expected
        for view in ("closure", "low"):
            replayed: set[Any] = set()
            for change in together.changes(view, 0):
                replayed = (replayed - set(change.minus)) | set(change.plus)
            assert sorted(replayed) == together.rows(view) == alone.rows(view)


def _changes(outcome: BatchOutcome) -> list[Any]:
    found: list[Any] = [(r.version, {v: (c.plus, c.minus) for v, c in r.changes.items()}) for r in outcome.results]
    return found + ([outcome.error.code] if isinstance(outcome.error, RederiveError) else [])


def _alone(db: rederive.Database, request: list[TransactionRequest]) -> list[Any]:
    outcome = BatchOutcome()
    for write in request:
        try:
            outcome.results.append(db.pipeline.commit_operations(write.operations))
        except RederiveError as error:
            outcome.error = error
            break
    return _changes(outcome)
