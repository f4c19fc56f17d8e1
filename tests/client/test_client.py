"""The clients against a real server, through lost connections, restarts and resets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rederive
from rederive.client.blocking import Connection
from rederive.client.sse import SseParser
from rederive.delta import Row
from rederive.errors import MalformedInput, Refused, Unreachable
from tests.client.proxy import Proxy
from tests.service.conftest import Served, start


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = start(tmp_path / "project", settings="retention = 4\n[bounds]\nheartbeat = 0.1")
    yield running
    if running.thread.is_alive():
        running.end()


@pytest.fixture
def proxy(served: Served) -> Iterator[Proxy]:
    with Proxy(served.url) as between:
        yield between


@pytest.fixture
def db(proxy: Proxy) -> Iterator[Connection]:
    with rederive.connect(proxy.url, patience=20) as connection:
        yield connection


def test_importing_rederive_imports_no_http_library() -> None:
    code = "import sys, rederive; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_change_is_all_rows_and_then_come_the_others(db: Connection) -> None:
    assert db.apply(insert={"edge": [("a", "b")]}).version == 1
    with db.subscribe("closure") as changes:
        first = next(changes)
        assert (first.kind, first.version, first.plus) == ("snapshot", 1, (("a", "b"),))
        with db.transaction() as tx:
            tx.insert("edge", [("b", "c"), {"x": "x", "y": "\u2028\x85"}])
            tx.delete("edge", [("a", "b")])
        second = next(changes)
        assert (second.kind, second.version, second.minus) == ("change", tx.committed.version, (("a", "b"),))
        assert sorted(changes.rows) == sorted(db.rows("closure")) == [("b", "c"), ("x", "\u2028\x85")]
        assert (changes.version, changes.columns_of("closure")) == (2, ("x", "y"))
    assert db.rows("closure", x="b") == [("b", "c")]


def test_a_lost_connection_is_made_again_and_nothing_is_missed_or_repeated(db: Connection, proxy: Proxy, served: Served) -> None:
    with db.subscribe("closure", "low", where={"low.item": "bolt"}) as changes:
        assert next(changes).plus == ()
        versions: list[int] = []
        for i in range(6):
            proxy.cut()
            version = served.insert("edge", ["a", f"n{i}"])
            change = next(changes)
            assert (change.deltas["closure"].plus, change.coalesced) == ((("a", f"n{i}"),), "")
            versions.append(change.version)
            assert version == change.version
        assert versions == sorted(set(versions))
        served.insert("stock", ["bolt", 3], ["nut", 3])
        assert next(changes).deltas["low"].plus == (("bolt", 3),)
        assert sorted(changes.rows_of("closure")) == sorted(db.rows("closure"))
    assert proxy.cuts == 6


def test_a_snapshot_that_was_cut_begins_anew(db: Connection, proxy: Proxy, served: Served) -> None:
    served.insert("stock", *([f"s{i:05}", 1] for i in range(12_000)))  # three pieces
    proxy.cut_after(100_000)
    with db.subscribe("low") as changes:
        snapshot = next(changes)
        assert (proxy.cuts, len(snapshot.plus), len(set(snapshot.plus))) == (1, 12_000, 12_000)
        assert len(changes.rows) == 12_000


def test_after_a_reset_the_copy_is_compared_with_the_new_snapshot(db: Connection, proxy: Proxy, served: Served) -> None:
    """Six versions while nobody listened, of which four are kept."""
    served.insert("edge", ["a", "b"], ["x", "y"])
    with db.subscribe("closure") as changes:
        assert len(next(changes).plus) == 2
        proxy.stop()
        served.delete("edge", ["a", "b"])
        for i in range(6):
            served.insert("edge", ["n", f"{i}"])
        proxy.go()
        change = next(changes)
        assert (change.kind, change.coalesced, change.since, change.version) == ("change", "reset", 1, 8)
        assert (change.minus, len(change.plus)) == ((("a", "b"),), 6)
        assert sorted(changes.rows) == sorted(db.rows("closure"))


def test_going_on_where_an_earlier_process_was(db: Connection, served: Served) -> None:
    served.insert("edge", ["a", "b"])
    with db.subscribe("closure") as changes:
        next(changes)
        held, version = changes.rows, changes.position
    served.insert("edge", ["b", "c"])
    with db.subscribe("closure", since=version, rows={"closure": held}) as changes:
        assert next(changes).plus == (("a", "c"), ("b", "c"))
        assert sorted(changes.rows) == sorted(db.rows("closure"))
    for i in range(6):
        served.insert("edge", ["n", f"{i}"])
    with db.subscribe("closure", since=version) as changes:
        assert next(changes).kind == "snapshot"  # without the rows there is nothing to compare it with


def test_a_service_that_ends_and_is_there_again(db: Connection, proxy: Proxy, served: Served) -> None:
    with db.subscribe("closure") as changes:
        next(changes)
        served.end()
        proxy.stop()
        again = start(served.folder, settings="retention = 4")
        try:
            again.insert("edge", ["a", "b"])
            proxy.target(again.url)
            proxy.go()
            assert next(changes).plus == (("a", "b"),)
        finally:
            again.end()


def test_a_transaction_whose_answer_is_lost_is_applied_once(db: Connection, proxy: Proxy, served: Served) -> None:
    for step in range(5):
        proxy.lose_answers(1 + step % 2)
        done = db.apply(upsert={"stock": [("bolt", step)]})
        assert (done.version, done.repeated) == (step + 1, True)
    assert served.get("/v1/health").json()["version"] == 5
    assert db.apply(insert={"edge": [("a", "b")]}, key="mine").repeated is False
    assert db.apply(insert={"edge": [("a", "b")]}, key="mine").repeated is True
    with pytest.raises(Refused, match="key") as refused:
        db.apply(insert={"edge": [("a", "c")]}, key="mine")
    assert (refused.value.code, refused.value.status) == ("conflict", 409)


def test_a_transaction_that_fails_inside_its_block_is_not_sent(db: Connection, served: Served) -> None:
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.insert("edge", [("a", "b")])
        raise KeyError
    assert served.get("/v1/health").json()["version"] == 0


def test_what_is_refused_has_the_services_code(db: Connection) -> None:
    assert refused(lambda: db.rows("closures")) == ("unknown_relation", 404)
    assert refused(lambda: db.apply(insert={"closure": [("a", "b")]})) == ("not_a_base", 422)
    assert refused(lambda: next(db.subscribe("closures"))) == ("unknown_relation", 404)
    assert refused(lambda: next(db.subscribe("closure", every="fortnight"))) == ("malformed", 400)
    with pytest.raises(MalformedInput, match="no view"):
        db.subscribe()
    with pytest.raises(MalformedInput, match="not a value of a column"):
        db.apply(insert={"edge": [(object(), "b")]})


def refused(call: object) -> tuple[str, int]:
    with pytest.raises(Refused) as caught:
        call()  # type: ignore[operator]
    return caught.value.code, caught.value.status


def test_a_view_that_is_dropped_ends_its_subscription(db: Connection, served: Served) -> None:
    with db.subscribe("inner") as changes:
        next(changes)
        assert served.request("DELETE", "/v1/views/inner").status_code == 200
        with pytest.raises(Refused) as error:
            next(changes)
    assert error.value.code == "unknown_relation"


def test_nobody_waits_for_ever(proxy: Proxy) -> None:
    proxy.stop()
    with rederive.connect(proxy.url, patience=0.2) as db:
        with pytest.raises(Unreachable, match="no answer"):
            db.rows("closure")
        with pytest.raises(Unreachable, match="no answer"):
            next(db.subscribe("closure"))


def test_one_sign_and_intervals(db: Connection, served: Served) -> None:
    with db.subscribe("closure", only="plus", every="100ms", x="a") as changes:
        assert next(changes).kind == "snapshot"
        served.insert("edge", ["a", "b"], ["b", "c"])
        assert next(changes).plus == (("a", "b"), ("a", "c"))


def test_bags_are_copied_with_their_copies(tmp_path: Path) -> None:
    running = start(tmp_path / "bags")
    try:
        for text in ("CREATE TABLE t (x INT, y INT PRIMARY KEY)", "CREATE VIEW v AS SELECT x FROM t"):
            assert running.request("POST", "/v1/views", json={"language": "sql", "text": text}).status_code == 201
        with rederive.connect(running.url) as db, db.subscribe("v") as changes:
            next(changes)
            db.apply(insert={"t": [(1, 1), (1, 2), (2, 3)]})
            assert sorted(next(changes).plus) == [(1,), (1,), (2,)]
            db.apply(delete={"t": [(1, 1)]})
            assert next(changes).minus == ((1,),)
            assert sorted(changes.rows) == sorted(db.rows("v")) == [(1,), (2,)]
    finally:
        running.end()


def test_the_asynchronous_client(proxy: Proxy, served: Served) -> None:
    async def followed() -> tuple[list[Row], list[Row]]:
        async with rederive.connect_async(proxy.url, patience=20) as db, db.subscribe("closure") as changes:
            assert (await anext(changes)).kind == "snapshot"
            for i in range(4):
                proxy.cut()
                proxy.lose_answers(1)
                assert (await db.apply(insert={"edge": [("a", f"n{i}")]})).repeated
                assert (await anext(changes)).plus == (("a", f"n{i}"),)
            assert (await db.rows("closure", y="n1")) == [("a", "n1")]
            with pytest.raises(Refused):
                await db.rows("closures")
            with pytest.raises(Refused):
                await anext(db.subscribe("closures"))
            return changes.rows, await db.rows("closure")

    copied, fresh = asyncio.run(followed())
    assert sorted(copied) == sorted(fresh)
    assert len(fresh) == 4


def test_events_in_pieces_of_any_size() -> None:
    first = 'retry: 1000\n\nevent: change\r\nid: 7\r\ndata: {"x":\ndata: "\u2028é"}\n\n: a comment\n\n'
    stream = f"{first}event: progress\ndata: {{}}\n\n".encode()
    whole = SseParser().feed(stream)
    assert [(event.name, event.id, event.data) for event in whole] == [("change", "7", {"x": "\u2028é"}), ("progress", None, {})]
    for size in (1, 2, 3, 7):
        parser = SseParser()
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [event for piece in pieces for event in parser.feed(piece)] == whole
