"""Restores under a service: whoever resumes with what it has of a lost history ends with the rows of the present one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from websockets.sync.client import connect

import rederive
from rederive.client.firings import list_firings
from rederive.store.backup import back_up, restore
from tests.rules.receiver import receiver, until
from tests.service.conftest import GRAPH, Serve, Served

LINES = {"Accept": "application/x-ndjson"}


def restored(served: Served, backup: Path, serve: Serve, program: str = GRAPH, settings: str = "", **secrets: str) -> Served:
    """The same project, from a backup."""
    if served.thread.is_alive():
        served.end()
    shutil.rmtree(served.folder / "store")
    restore(backup, served.folder / "store")
    return serve(program, settings, **secrets)


def test_an_id_of_a_lost_history_is_reset(serve: Serve, tmp_path: Path) -> None:
    """The case of the issue: a store copied at version 1, other transactions, and an id of the history that is gone."""
    served = serve()
    served.insert("edge", ["a", "b"])
    back_up(served.folder / "store", tmp_path / "backup")
    served.insert("edge", ["lost", "row"])
    with served.events("/v1/views/closure/changes") as events:
        position = next(events).position
    assert served.get("/v1/views/closure/rows").headers["Rederive-Position"] == position
    served = restored(served, tmp_path / "backup", serve)
    made = served.commit({"insert": {"edge": [["b", "c"]]}})
    assert made.json() == {"version": 2, "repeated": False}
    with served.events("/v1/views/closure/changes", last=position) as events:
        reset, snapshot = next(events), next(events)
    assert (reset["event"], reset["code"], reset.position) == ("reset", "mismatch", None)
    assert (snapshot["event"], snapshot["rows"]) == ("snapshot", [["a", "b"], ["a", "c"], ["b", "c"]])
    assert snapshot.position == made.headers["Rederive-Position"] != position
    with served.events(f"/v1/views/closure/changes?since={snapshot.position}") as events:
        assert next(events)["event"] == "progress"
    for old in (position, "2"):  # a number alone may be of either history
        answer = served.get(f"/v1/views/closure/changes?since={old}", headers=LINES)
        assert (answer.status_code, answer.json()["code"]) == (409, "mismatch")
        assert "place" not in answer.json()  # a folder of the service
        with connect(f"{served.url.replace('http', 'ws')}/v1/views/closure/changes?since={old}") as socket:
            assert [json.loads(socket.recv())["event"] for _ in range(2)] == ["reset", "snapshot"]
    told = served.get("/v1/views/closure/changes?since=1", headers=LINES)
    assert [json.loads(line)["version"] for line in told.text.splitlines()] == [2]
    assert told.headers["Rederive-Position"] == snapshot.position


def test_ids_of_another_store_are_reset(serve: Serve) -> None:
    """A project whose store was removed and made again."""
    served = serve()
    served.insert("edge", ["a", "b"])
    with served.events("/v1/views/closure/changes") as events:
        position = next(events).position
    served.end()
    shutil.rmtree(served.folder / "store")
    served = serve()
    served.insert("edge", ["c", "d"])
    with served.events("/v1/views/closure/changes", last=position) as events:
        assert [next(events)["event"] for _ in range(2)] == ["reset", "snapshot"]


@pytest.mark.parametrize("seed", range(3))
def test_clients_that_resume_through_restores_at_random_points(serve: Serve, tmp_path: Path, seed: int) -> None:
    """Each has saved its position and rows at some moment; whatever was lost and made since, it ends as a fresh query does."""
    random = Random(seed)
    served = serve()
    backups: list[Path] = []
    saved: list[tuple[Any, list[Any]]] = [(None, [])]
    for step in range(24):
        x, y = random.choice("abcde"), random.choice("abcde")
        match random.choice(["insert", "insert", "delete", "save", "save", "backup", "restore"]):
            case "insert":
                served.insert("edge", [x, y])
            case "delete":
                served.delete("edge", [x, y])
            case "backup":
                backups.append(tmp_path / f"backup{step}")
                back_up(served.folder / "store", backups[-1])
            case "restore" if backups:
                served = restored(served, random.choice(backups), serve)
            case _:
                position, rows = random.choice(saved)
                resumed = {"since": position, "rows": {"closure": rows}}
                with rederive.connect(served.url) as db, db.subscribe("closure", **resumed) as changes:
                    served.insert("edge", [x, f"new{step}"])  # something is told at the end
                    while not any(row[1] == f"new{step}" for row in changes.rows):
                        next(changes)
                    assert sorted(changes.rows) == sorted(db.rows("closure"))
                    saved.append((changes.position, changes.rows))


def test_a_client_is_told_the_difference_of_the_histories(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    served.insert("edge", ["a", "b"])
    back_up(served.folder / "store", tmp_path / "backup")
    served.insert("edge", ["lost", "row"])
    with rederive.connect(served.url) as db, db.subscribe("closure") as changes:
        next(changes)
        position, rows = changes.position, changes.rows
    served = restored(served, tmp_path / "backup", serve)
    served.insert("edge", ["x", "y"])
    with rederive.connect(served.url) as db, db.subscribe("closure", since=position, rows={"closure": rows}) as changes:
        change = next(changes)
        assert (change.plus, change.minus, change.coalesced) == ((("x", "y"),), (("lost", "row"),), "reset")


def test_numbers_of_firings_and_keys_of_webhooks_are_of_one_history(serve: Serve, tmp_path: Path) -> None:
    with receiver() as hook:
        settings = f'[webhooks]\nhosts = ["{hook.host}"]\nsecret = "HOOK"\nprivate = true'
        served = serve(GRAPH, settings, HOOK="h" * 16)
        rule = {"language": "sql", "text": f"CREATE RULE tell WHEN TABLE low DO WEBHOOK '{hook.url}'"}
        assert served.request("POST", "/v1/views", json=rule).status_code == 201
        back_up(served.folder / "store", tmp_path / "backup")
        served.insert("stock", ["lost", 1])
        until(lambda: len(hook.received) == 1)
        with served.events("/v1/firings?since=0") as events:
            position = [next(events) for _ in range(2)][-1].position
        served = restored(served, tmp_path / "backup", serve, GRAPH, settings, HOOK="h" * 16)
        served.insert("stock", ["bolt", 1])
        until(lambda: len(hook.received) == 2)
    keys = [one.headers["Idempotency-Key"] for one in hook.received]
    assert (hook.keys(), len(set(keys))) == (
        ["tell:1", "tell:1"],
        2,
    )  # another message, which its receiver must not take for a repetition
    with served.events("/v1/firings", last=position) as events:
        reset, firing = next(events), next(events)
        assert (reset["event"], firing["plus"]) == ("reset", [["bolt", 1]])
    answer = served.get(f"/v1/firings?since={position}")
    assert (answer.status_code, answer.json()["code"]) == (409, "mismatch")
    assert served.get(f"/v1/firings?since={firing.position}").json()["firings"] == []
    with rederive.connect(served.url) as db:
        assert [one["plus"] for one in list_firings(db)] == [[["bolt", 1]]]
        assert list(list_firings(db, since=firing.position or "")) == []
