"""The subscription contract of DESIGN 7, over the wire."""

from __future__ import annotations

import json
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.service.conftest import GRAPH, Serve, Served, until


def subscribers(served: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.get("/v1/subscriptions").json()["subscriptions"]
    return found


def test_a_snapshot_and_then_every_change_in_order(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    with graph.events("/v1/views/closure/changes") as events:
        assert next(events) == {
            "event": "snapshot",
            "id": "1",
            "version": 1,
            "view": "closure",
            "columns": ["x", "y"],
            "rows": [["a", "b"]],
            "more": False,
        }
        graph.insert("edge", ["b", "c"])
        graph.insert("stock", ["bolt", 3])
        graph.delete("edge", ["a", "b"])
        first, second = next(events), next(events)
    assert first == {
        "event": "change",
        "id": "2",
        "version": 2,
        "view": "closure",
        "plus": [["a", "c"], ["b", "c"]],
        "minus": [],
    }
    assert (second["version"], second["plus"], second["minus"]) == (4, [], [["a", "b"], ["a", "c"]])


def test_progress_is_marked_while_nothing_changes(serve: Serve) -> None:
    graph = serve(settings="[bounds]\nheartbeat = 0.1")
    with graph.events("/v1/views/closure/changes") as events:
        assert next(events)["event"] == "snapshot"
        version = graph.insert("stock", ["bolt", 3])
        marks = [next(events) for _ in range(3)]
    assert {mark["event"] for mark in marks} == {"progress"}
    assert (marks[-1]["id"], marks[-1]["version"]) == (str(version), version)


def test_resuming_neither_loses_nor_repeats(graph: Served) -> None:
    for name in "bcd":
        graph.insert("edge", ["a", name])
    with graph.events("/v1/views/closure/changes", last=1) as events:
        told = [next(events) for _ in range(3)]
        assert [(event["event"], event["id"]) for event in told] == [("change", "2"), ("change", "3"), ("progress", "3")]
        graph.insert("edge", ["a", "e"])
        assert next(events)["plus"] == [["a", "e"]]
    with graph.events("/v1/views/closure/changes?since=3") as events:
        assert [next(events)["id"] for _ in range(2)] == ["4", "4"]


def test_rows_from_the_program_and_from_definitions_are_changes(serve: Serve) -> None:
    """Whoever begins at version 0 gets everything: facts, a view over rows that are there, a count of nothing."""
    served = serve(GRAPH + 'edge("a", "b"). .decl none(n: number) none(n) :- n = count : { edge(x, x) }. .output none')
    text = ".decl start(x: symbol) start(x) :- edge(x, _). .output start"
    assert served.request("POST", "/v1/views", json={"text": text}).json()["version"] == 2
    served.insert("edge", ["b", "b"])
    expected = {"closure": [["a", "b"], ["b", "b"]], "none": [[1]], "start": [["a"], ["b"]]}
    for view, rows in expected.items():
        with served.events(f"/v1/views/{view}/changes?since=0") as events:
            found: list[list[object]] = []
            while (event := next(events))["event"] == "change":
                found = sorted([row for row in found if row not in event["minus"]] + event["plus"])
            assert (found, event["id"]) == (rows, "3")


def test_the_header_wins_over_the_address(graph: Served) -> None:
    for name in "bcd":
        graph.insert("edge", ["a", name])
    with graph.events("/v1/views/closure/changes?since=0", last=2) as events:
        assert next(events)["version"] == 3


def test_resuming_after_a_restart(serve: Serve) -> None:
    served = serve()
    served.insert("edge", ["a", "b"])
    served.insert("edge", ["b", "c"])
    served.end()
    served = serve()
    with served.events("/v1/views/closure/changes", last=1) as events:
        assert next(events)["plus"] == [["a", "c"], ["b", "c"]]


def test_beyond_the_retention_a_reset_and_a_new_snapshot(serve: Serve) -> None:
    graph = serve(settings="retention = 2")
    for name in "bcdef":
        graph.insert("edge", ["a", name])
    with graph.events("/v1/views/closure/changes", last=1) as events:
        reset, snapshot = next(events), next(events)
    assert (reset["event"], reset["code"], reset["id"]) == ("reset", "expired", None)
    assert (snapshot["event"], snapshot["version"], len(snapshot["rows"])) == ("snapshot", 5, 5)


def test_a_cursor_from_the_future_is_reset(graph: Served) -> None:
    """The store was restored from a backup: the subscriber has versions that never were."""
    with graph.events("/v1/views/closure/changes", last=99) as events:
        assert [next(events)["event"] for _ in range(2)] == ["reset", "snapshot"]


def test_a_view_that_is_not_recorded_is_reset(graph: Served) -> None:
    graph.insert("edge", ["a", "b"], ["b", "c"])
    with graph.events("/v1/views/inner/changes", last=0) as events:
        reset, snapshot = next(events), next(events)
        assert (reset["code"], snapshot["rows"]) == ("mismatch", [["b"]])
        graph.insert("edge", ["z", "a"])
        assert next(events)["plus"] == [["a"]]


def test_several_views_are_told_together_by_version(graph: Served) -> None:
    with graph.events("/v1/changes?view=closure&view=low") as events:
        first, second = next(events), next(events)
        assert [(e["view"], e["more"], e["id"]) for e in (first, second)] == [("closure", True, None), ("low", False, "0")]
        graph.commit({"insert": {"edge": [["a", "b"]], "stock": [["bolt", 3]]}})
        graph.insert("stock", ["nut", 4])
        both, one = next(events), next(events)
    assert (both["id"], [change["view"] for change in both["changes"]]) == ("1", ["closure", "low"])
    assert one["changes"] == [{"view": "low", "plus": [["nut", 4]], "minus": []}]
    with graph.events("/v1/changes?view=closure&view=low", last=0) as events:
        assert [next(events) for _ in range(2)] == [both, one]


def test_a_large_snapshot_comes_in_pieces_and_only_the_last_can_be_resumed_from(graph: Served) -> None:
    graph.insert("edge", *(["a", str(i)] for i in range(12_000)))
    with graph.events("/v1/views/closure/changes") as events:
        pieces = [next(events) for _ in range(3)]
    assert [(piece["id"], piece["more"], len(piece["rows"])) for piece in pieces] == [
        (None, True, 5000),
        (None, True, 5000),
        ("1", False, 2000),
    ]


def test_the_same_over_websocket(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    url = graph.url.replace("http", "ws")
    with connect(f"{url}/v1/views/closure/changes") as socket:
        assert json.loads(socket.recv())["event"] == "snapshot"
        graph.insert("edge", ["b", "c"])
        change = json.loads(socket.recv())
    assert change.pop("id").endswith("-2")
    assert change == {"event": "change", "version": 2, "view": "closure", "plus": [["a", "c"], ["b", "c"]], "minus": []}
    with connect(f"{url}/v1/views/closure/changes?since=1") as socket:
        again = json.loads(socket.recv())
        assert (again.pop("id").endswith("-2"), again) == (True, change)
    until(lambda: not subscribers(graph))


def test_a_dropped_view_ends_its_subscriptions(graph: Served) -> None:
    graph.insert("stock", ["bolt", 3])
    with graph.events("/v1/views/low/changes") as events:
        next(events)
        assert graph.request("DELETE", "/v1/views/low").status_code == 200
        last, problem = next(events), next(events)
        assert (last["minus"], problem["event"], problem["code"]) == ([["bolt", 3]], "problem", "unknown_relation")
        assert list(events) == []
    assert graph.get("/v1/views/low/changes").status_code == 404
    until(lambda: not subscribers(graph))


def test_a_replaced_view_is_a_change_like_any_other(graph: Served) -> None:
    graph.insert("stock", ["bolt", 3], ["nut", 30])
    with graph.events("/v1/views/low/changes") as events:
        next(events)
        body = {"text": "low(item, n) :- stock(item, n), n < 40."}
        assert graph.request("PUT", "/v1/views/low", json=body).json()["changed"] == ["low"]
        assert next(events)["plus"] == [["nut", 30]]


def test_a_client_that_leaves_is_forgotten(graph: Served) -> None:
    with graph.events("/v1/views/closure/changes") as events:
        next(events)
        assert len(subscribers(graph)) == 1
    until(lambda: not subscribers(graph))


def test_shutting_down_tells_subscribers(serve: Serve) -> None:
    served = serve()
    with served.events("/v1/views/closure/changes") as events:
        next(events)
        served.end()
        assert (next(events)["code"], list(events)) == ("closed", [])


# A client that cannot keep up


def test_a_slow_client_is_coalesced_and_told_so(serve: Serve) -> None:
    graph = serve(settings="[bounds]\nqueue = 4")
    wide = "x" * 400_000
    with httpx.stream("GET", f"{graph.url}/v1/views/closure/changes", timeout=10) as response:
        until(lambda: len(subscribers(graph)) == 1)
        count = 0
        while not subscribers(graph)[0]["behind"]:
            graph.insert("edge", [f"{count}", wide])
            count += 1
            assert count < 200, "the client never fell behind"
        graph.insert("edge", ["gone", "again"])
        graph.delete("edge", ["gone", "again"])
        last = graph.insert("edge", ["last", "one"])
        state: set[tuple[str, ...]] = set()
        coalesced = []
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            rows = {tuple(row) for row in event.get("rows", event.get("plus", []))}
            assert not rows & state
            state |= rows
            coalesced += [event] if "from" in event else []
            if event["version"] >= last:
                break
    assert state == {(str(i), wide) for i in range(count)} | {("last", "one")}
    (event,) = coalesced
    assert (event["coalesced"], event["version"], event["minus"]) == ("slow", last, [])
    assert event["from"] <= last - 3


# Quality of service


def test_only_one_sign(graph: Served) -> None:
    with graph.events("/v1/views/closure/changes?only=minus") as events:
        next(events)
        graph.insert("edge", ["a", "b"])
        graph.commit({"insert": {"edge": [["c", "d"]]}, "delete": {"edge": [["a", "b"]]}})
        change = next(events)
    assert (change["version"], change["plus"], change["minus"]) == (2, [], [["a", "b"]])


def test_the_net_effect_of_each_interval(graph: Served) -> None:
    with graph.events("/v1/views/closure/changes?every=1s") as events:
        next(events)
        for name in "bcd":
            graph.insert("edge", ["a", name])
        graph.delete("edge", ["a", "b"])
        seen: set[tuple[str, ...]] = set()
        told = 0
        while seen != {("a", "c"), ("a", "d")}:
            change = next(events)
            seen = (seen - {tuple(row) for row in change["minus"]}) | {tuple(row) for row in change["plus"]}
            told += 1
    assert told < 4, "versions within an interval are told as one"


def test_an_interval_in_which_nothing_remains_is_not_told(graph: Served) -> None:
    with graph.events("/v1/views/low/changes?every=1s") as events:
        next(events)
        graph.insert("stock", ["bolt", 1])
        graph.delete("stock", ["bolt", 1])
        last = graph.insert("stock", ["nut", 2])
        change = next(events)
    assert (change["plus"], change["minus"], change["version"]) == ([["nut", 2]], [], last)
    assert (change["from"], change["coalesced"]) == (1, "every")


def test_bindings(graph: Served) -> None:
    graph.insert("edge", ["a", "b"], ["q", "r"])
    with graph.events("/v1/views/closure/changes?x=a") as events:
        assert next(events)["rows"] == [["a", "b"]]
        graph.insert("edge", ["r", "s"])
        graph.insert("edge", ["b", "c"])
        assert (change := next(events))["plus"] == [["a", "c"]]
    assert change["version"] == 3
    with graph.events("/v1/views/closure/changes?x=a", last=1) as events:
        assert next(events) == change


def test_bindings_of_several_views(graph: Served) -> None:
    graph.insert("edge", ["a", "b"], ["q", "r"])
    with graph.events("/v1/changes?view=closure&view=low&closure.x=q&low.item=bolt") as events:
        assert [next(events)["rows"] for _ in range(2)] == [[["q", "r"]], []]
        graph.insert("stock", ["nut", 1])
        graph.insert("stock", ["bolt", 1])
        assert next(events)["changes"] == [{"view": "low", "plus": [["bolt", 1]], "minus": []}]


def test_a_bound_subscription_to_a_view_that_is_not_kept_is_computed_goal_directed(serve: Serve) -> None:
    """No row of the closure is derived but those that the binding asks for."""
    program = GRAPH.replace(".output closure\n", "")
    graph = serve(program, 'strategy = "on_demand"')
    graph.insert("edge", *([f"n{i}", f"n{i + 1}"] for i in range(200)), ["a", "b"])
    with graph.events("/v1/views/closure/changes?x=a") as events, graph.events("/v1/views/closure/changes?x=z") as others:
        assert (next(events)["rows"], next(others)["rows"]) == ([["a", "b"]], [])
        graph.insert("edge", ["b", "c"])
        assert next(events)["plus"] == [["a", "c"]]
        graph.insert("edge", ["z", "b"])
        assert next(others)["plus"] == [["z", "b"], ["z", "c"]]


def test_nervous_precision(serve: Serve) -> None:
    """Exact changes serve whoever is content with nervous ones, and not the other way round."""
    program = GRAPH[: GRAPH.index("closure(x, y) :-")].replace(".decl closure(x: symbol, y: symbol)", "") + (
        "low(item, n) :- stock(item, n), n < 10.\n.output low\n"
    )
    exact = serve(program)
    with exact.events("/v1/views/low/changes?precision=nervous") as events:
        assert next(events)["event"] == "snapshot"
    nervous = serve(program, 'strategy = "differencing"\nprecision = "nervous"', folder="nervous")
    assert nervous.get("/v1/views/low/changes").json()["code"] == "strategy"
    with nervous.events("/v1/views/low/changes?precision=nervous") as events:
        next(events)
        nervous.insert("stock", ["bolt", 1])
        assert next(events)["plus"] == [["bolt", 1]]
