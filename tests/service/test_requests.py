"""Requests that change and read, and what bad ones get: a problem with a stable code, and nothing changed."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
from collections.abc import Iterator
from threading import Thread
from time import perf_counter
from typing import Any

import httpx
import pyarrow
import pytest

from tests.service.conftest import GRAPH, Serve, Served, start, until

TYPES = """
.decl t(s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, w: timestamp, m: decimal(9,2))
.decl v(s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, w: timestamp, m: decimal(9,2))
v(s, n, u, f, b, d, w, m) :- t(s, n, u, f, b, d, w, m).
"""
ROW = ['a,"b', -(2**63), 2**64 - 1, 0.1, True, "2024-02-29", "2024-02-29T12:30:00", "1.50"]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all requests that change nothing."""
    served = start(tmp_path_factory.mktemp("quiet") / "project")
    yield served
    served.end()


def code(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == response.status_code
    assert body["type"] == f"urn:rederive:error:{body['code']}"
    return response.status_code, body["code"]


def test_a_transaction(graph: Served) -> None:
    response = graph.commit({"insert": {"edge": [["a", "b"], {"y": "c", "x": "b"}]}, "upsert": {"stock": [["bolt", 3]]}})
    assert response.json() == {"version": 1, "repeated": False}
    assert (graph.rows("closure"), graph.rows("low")) == ([["a", "b"], ["a", "c"], ["b", "c"]], [["bolt", 3]])


def test_a_repeated_key_is_applied_once(graph: Served) -> None:
    first, second = (graph.commit({"insert": {"edge": [["a", "b"]]}}, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert [r.json() for r in (first, second)] == [{"version": 1, "repeated": False}, {"version": 1, "repeated": True}]
    other = graph.commit({"insert": {"edge": [["b", "c"]]}}, **{"Idempotency-Key": "k"})
    assert code(other) == (409, "conflict")
    assert graph.rows("closure") == [["a", "b"]]


def test_lines_of_transactions(graph: Served) -> None:
    lines = b'{"insert": {"edge": [["a", "b"]]}}\n\n{"insert": {"stock": [["bolt", 3]]}}\n'
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "file"}
    first, second = (graph.request("POST", "/v1/transactions", content=lines, headers=headers) for _ in range(2))
    assert [t["version"] for t in first.json()["transactions"]] == [1, 2]
    assert [t["repeated"] for t in second.json()["transactions"]] == [True, True]


def test_lines_up_to_the_one_that_the_data_refuse_stand(graph: Served) -> None:
    stock = [["bolt", 3], ["bolt", 4], ["nut", 5]]
    lines = "\n".join(json.dumps({"insert": {"stock": [row]}}) for row in stock)
    response = graph.request("POST", "/v1/transactions", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert code(response) == (409, "duplicate_key")
    assert (response.json()["committed"], response.json()["place"]) == ([1], "body:2")
    assert graph.rows("low") == [["bolt", 3]]


def test_an_ill_typed_line_refuses_them_all(graph: Served) -> None:
    lines = '{"insert": {"stock": [["bolt", 3]]}}\n{"insert": {"stock": [["nut", "x"]]}}'
    response = graph.request("POST", "/v1/transactions", content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert code(response) == (422, "ill_typed")
    assert "body:2" in response.json()["place"]
    assert graph.get("/v1/health").json()["version"] == 0


BAD: dict[str, tuple[Any, tuple[int, str]]] = {
    "unknown relation": ({"insert": {"edges": []}}, (404, "unknown_relation")),
    "a view": ({"insert": {"closure": [["a", "b"]]}}, (422, "not_a_base")),
    "unknown column": ({"insert": {"edge": [{"x": "a", "z": "b"}]}}, (422, "unknown_column")),
    "ill typed": ({"insert": {"stock": [["bolt", "three"]]}}, (422, "ill_typed")),
    "too few values": ({"insert": {"stock": [["bolt"]]}}, (422, "ill_typed")),
    "unknown action": ({"inserts": {"edge": []}}, (400, "malformed")),
    "no object": ([1], (400, "malformed")),
    "two rows with one key": ({"insert": {"stock": [["bolt", 1], ["bolt", 2]]}}, (409, "duplicate_key")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_transactions(quiet: Served, name: str) -> None:
    body, expected = BAD[name]
    assert code(quiet.request("POST", "/v1/transactions", json=body)) == expected
    assert quiet.get("/v1/health").json()["version"] == 0


@pytest.mark.parametrize("body", [b"", b"{", b'{"insert": {}, "insert": {}}', b"\xff", b'{"insert": {"stock": [["a", NaN]]}}'])
def test_malformed_bodies(quiet: Served, body: bytes) -> None:
    response = quiet.request("POST", "/v1/transactions", content=body, headers={"Content-Type": "application/json"})
    assert code(response) == (400, "malformed")


def test_a_body_must_say_what_it_is(quiet: Served) -> None:
    response = quiet.request("POST", "/v1/transactions", content=b"{}", headers={"Content-Type": "text/plain"})
    assert code(response) == (415, "wrong_media")


def test_an_oversized_body_is_refused_before_it_is_read(serve: Serve) -> None:
    graph = serve(settings="[bounds]\nbody = 1000")
    assert code(graph.commit({"insert": {"edge": [["a", "x" * 2000]]}})) == (413, "too_large")
    chunked = (b"x" * 500 for _ in range(4))
    response = graph.request("POST", "/v1/transactions", content=chunked, headers={"Content-Type": "application/json"})
    assert code(response) == (413, "too_large")


def test_a_client_that_leaves_half_way_changes_nothing(graph: Served) -> None:
    host, port = graph.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        head = f"POST /v1/transactions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        raw.sendall(head.encode() + b'{"insert": {"edge": [["a", "b"]')
    assert graph.insert("edge", ["b", "c"]) == 1
    assert graph.rows("closure") == [["b", "c"]]


def test_rows_in_json_csv_and_arrow(serve: Serve) -> None:
    served = serve(TYPES)
    served.insert("t", ROW)
    answer = served.get("/v1/views/v/rows")
    assert (answer.json()["rows"], answer.headers["rederive-version"]) == ([ROW], "1")
    assert answer.json()["columns"][7] == {"name": "m", "type": "decimal(9,2)"}
    text = served.get("/v1/views/v/rows", headers={"Accept": "text/csv"}).text
    assert list(csv.reader(io.StringIO(text, newline=""))) == [list("snufbdwm"), [*map(str, ROW[:4]), "true", *ROW[5:]]]
    media = "application/vnd.apache.arrow.stream"
    table = pyarrow.ipc.open_stream(served.get("/v1/views/v/rows", headers={"Accept": media}).content).read_all()
    assert [str(value) for value in table.to_pylist()[0].values()] == [
        *map(str, ROW[:6]),
        "2024-02-29 12:30:00",
        "1.50",
    ]
    assert code(served.get("/v1/views/v/rows", headers={"Accept": "image/png"})) == (406, "not_acceptable")


def test_bindings_of_every_type(serve: Serve) -> None:
    served = serve(TYPES)
    served.insert("t", ROW)
    for name, value in zip("snufbdwm", ROW, strict=True):
        text = "true" if value is True else str(value)
        assert served.get("/v1/relations/t/rows", params={name: text}).json()["rows"] == [ROW], name
        assert served.get("/v1/views/v/rows", params={f"v.{name}": text}).json()["rows"] == [ROW], name
    assert code(served.get("/v1/views/v/rows?n=x")) == (422, "ill_typed")
    assert code(served.get("/v1/views/v/rows?nn=1")) == (422, "unknown_column")
    assert code(served.get("/v1/views/v/rows?n=1&n=2")) == (400, "malformed")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/views/closures/rows", (404, "unknown_relation")),
        ("/v1/views/closures/changes", (404, "unknown_relation")),
        ("/v1/views/closures/explain", (404, "unknown_relation")),
        ("/v1/views/edge/changes", (404, "unknown_relation")),
        ("/v1/views/closure/changes?z=1", (422, "unknown_column")),
        ("/v1/views/closure/changes?only=both", (400, "unknown_option")),
        ("/v1/views/closure/changes?precision=vague", (400, "unknown_option")),
        ("/v1/views/closure/changes?every=soon", (400, "malformed")),
        ("/v1/views/closure/changes?every=1ms", (400, "malformed")),
        ("/v1/views/closure/changes?since=-1", (400, "malformed")),
        ("/v1/views/closure/changes?since=one", (400, "malformed")),
        ("/v1/views/closure/explain?format=pdf", (400, "unknown_option")),
        ("/v1/changes", (400, "malformed")),
        ("/v1/changes?view=closure&view=nothing", (404, "unknown_relation")),
        ("/v1/changes?view=closure&x=a", (400, "malformed")),
        ("/v2/views", (404, "not_found")),
    ],
)
def test_bad_questions(quiet: Served, path: str, expected: tuple[int, str]) -> None:
    assert code(quiet.get(path)) == expected


def test_a_rejected_transaction_shows_the_rows_that_violate(serve: Serve) -> None:
    program = """.decl account(who: symbol, n: number) key(who)
    .decl overdrawn(who: symbol, n: number)
    overdrawn(who, n) :- account(who, n), n < 0.
    .constraint overdrawn(mode=reject)"""
    tokens = """[[token]]\nname = "all"\nsecret = "ALL"\nread = ["*"]\nwrite = ["*"]
    [[token]]\nname = "blind"\nsecret = "BLIND"\nwrite = ["*"]"""
    secrets = {"ALL": "sixteen characters", "BLIND": "other characters"}
    served = serve(program, tokens, **secrets)
    bodies = {}
    for name, secret in secrets.items():
        response = served.commit({"insert": {"account": [["ann", 7], ["bob", -7]]}}, Authorization=f"Bearer {secret}")
        assert code(response) == (409, "violated")
        bodies[name] = response.json()
    assert bodies["ALL"]["violations"] == {"view": "overdrawn", "rows": [["bob", -7]], "more": 0}
    assert (bodies["BLIND"]["violations"]["rows"], "bob" in str(bodies["BLIND"])) == ([], False)
    assert served.get("/v1/health").json()["version"] == 0


def test_a_wrong_method(quiet: Served) -> None:
    response = quiet.request("PATCH", "/v1/views")
    assert code(response) == (405, "wrong_method")
    assert "POST" in response.headers["allow"]


def test_polling_and_an_expired_cursor(serve: Serve) -> None:
    graph = serve(settings="retention = 2")
    for name in "bcde":
        graph.insert("edge", ["a", name])
    lines = {"Accept": "application/x-ndjson"}
    told = [json.loads(line) for line in graph.get("/v1/views/closure/changes?since=2", headers=lines).text.splitlines()]
    assert [(change["version"], change["plus"]) for change in told] == [(3, [["a", "d"]]), (4, [["a", "e"]])]
    assert code(graph.get("/v1/views/closure/changes?since=1", headers=lines)) == (410, "expired")
    assert code(graph.get("/v1/views/closure/changes?since=9", headers=lines)) == (409, "mismatch")


def test_defining_replacing_and_dropping(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    text = '.decl far(y: symbol)\nfar(y) :- closure("a", y).\n.output far'
    made = graph.request("POST", "/v1/views", json={"language": "datalog", "text": text})
    assert (made.status_code, made.json()) == (201, {"version": 2, "changed": ["far"]})
    assert "far" in [view["name"] for view in graph.get("/v1/views").json()["views"]]
    assert code(graph.request("DELETE", "/v1/views/closure")) == (409, "still_needed")
    replaced = graph.request("PUT", "/v1/views/far", json={"text": "far(y) :- closure(y, _)."})
    assert replaced.json() == {"version": 3, "changed": ["far"]}
    assert graph.request("DELETE", "/v1/views/far").json() == {"version": 4, "changed": ["far"]}
    assert code(graph.request("DELETE", "/v1/views/far")) == (404, "unknown_relation")


def test_definitions_outlive_the_server_and_files_that_do_not_have_them_are_refused_only_when_they_change(serve: Serve) -> None:
    served = serve()
    text = '.decl far(y: symbol)\nfar(y) :- closure("a", y).'
    assert served.request("POST", "/v1/views", json={"text": text}).status_code == 201
    served.end()
    served = serve()
    assert "far" in [view["name"] for view in served.get("/v1/views").json()["views"]]
    served.end()
    with pytest.raises(Exception, match="far"):
        serve(GRAPH + "\n.decl more(x: symbol)\n")
    served = serve(GRAPH + text + "\n.decl more(x: symbol)\n")
    assert "more" in [relation["name"] for relation in served.get("/v1/relations").json()["relations"]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"text": ".decl p(x: symbol)  p(x) :- edg(x, _)."}, (422, "unknown_name")),
        ({"text": "p(x :-"}, (422, "syntax")),
        ({"text": ".decl edge(x: symbol)"}, (409, "redefined")),
        ({"language": "cobol", "text": ""}, (400, "malformed")),
        ({"language": "sql", "text": "INSERT INTO edge VALUES ('a', 'b')"}, (422, "unsupported")),
        ({}, (400, "malformed")),
        ({"text": 1}, (400, "malformed")),
        ({"text": "", "name": "x"}, (400, "malformed")),
    ],
)
def test_bad_definitions(quiet: Served, body: Any, expected: tuple[int, str]) -> None:
    assert code(quiet.request("POST", "/v1/views", json=body)) == expected
    assert code(quiet.request("PUT", "/v1/views/nothing", json={"text": "nothing(x) :- edge(x, _)."})) == (
        404,
        "unknown_relation",
    )
    assert quiet.get("/v1/health").json()["version"] == 0


def test_a_problem_shows_where(graph: Served) -> None:
    problem = graph.request("POST", "/v1/views", json={"text": ".decl p(x: symbol)\np(x) :- edg(x, _)."}).json()
    assert (problem["place"], problem["hint"]) == ("body:2:9", "did you mean 'edge'?")
    assert "^^^" in problem["excerpt"]


def test_why_and_why_not(graph: Served) -> None:
    graph.insert("edge", ["a", "b"], ["b", "c"])
    answer = graph.get('/v1/views/closure/why?row=["a","c"]&depth=1').json()
    assert (answer["version"], answer["present"]) == (1, True)
    assert answer["derivations"][0]["premises"][0] == {"relation": "edge", "row": ["a", "b"], "base": True}
    assert not graph.get('/v1/views/closure/why?row=["c","a"]').json()["present"]
    assert graph.get('/v1/views/edge/why?row=["a","b"]&text=true').json()["text"] == 'edge("a", "b")'
    assert "is not there" in graph.get('/v1/views/closure/why?row=["c","a"]&text=true').json()["text"]
    entered = graph.get('/v1/views/closure/why?row=["a","c"]&version=1&changed=true&text=true').json()["text"]
    assert entered.startswith('closure("a", "c") entered')
    assert graph.get('/v1/views/closure/why?row=["c"]').status_code == 422
    assert graph.get('/v1/views/closure/why?row=["a","c"]&depth=0').status_code == 400
    assert graph.get("/v1/views/closure/why").status_code == 400


def test_explain_metrics_and_health(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    assert "closure" in graph.get("/v1/views/closure/explain").text
    assert json.loads(graph.get("/v1/views/closure/explain?format=json").text)
    metrics = graph.get("/v1/metrics").text
    assert "rederive_version 1.0" in metrics
    assert 'rederive_requests_total{method="POST",route="/v1/transactions",status="200"} 1.0' in metrics
    assert graph.get("/v1/health").json() == {"status": "ok", "version": 1, "engine": "resident", "busy": 0.0}


def test_too_many_subscriptions(serve: Serve) -> None:
    graph = serve(settings="[bounds]\nsubscriptions = 1")
    with graph.events("/v1/views/closure/changes") as events:
        next(events)
        assert code(graph.get("/v1/views/closure/changes")) == (429, "too_many")
    until(lambda: not graph.get("/v1/subscriptions").json()["subscriptions"])
    with graph.events("/v1/views/closure/changes") as events:
        assert next(events)["event"] == "snapshot"


def test_too_many_requests(serve: Serve) -> None:
    graph = serve(settings="[bounds]\nrate = 1\nburst = 3")
    codes = [graph.get("/v1/health").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]


def test_waiting_transactions_share_a_sync(graph: Served) -> None:
    """Many clients at once: fewer syncs than versions, and every version its own."""

    async def load() -> list[int]:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=graph.url, limits=limits, timeout=30) as client:
            bodies = [{"insert": {"edge": [["a", str(i)]]}} for i in range(80)]
            answers = await asyncio.gather(*(client.post("/v1/transactions", json=body) for body in bodies))
            return [answer.json()["version"] for answer in answers]

    assert sorted(asyncio.run(load())) == list(range(1, 81))
    metrics = dict(line.rsplit(" ", 1) for line in graph.get("/v1/metrics").text.splitlines() if line[0] != "#")
    assert float(metrics["rederive_commits_total"]) == 80
    assert float(metrics["rederive_commit_groups_total"]) < 80


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_fails_leaves_nobody_waiting(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug between the sync and the subscribers: the service says so and serves no more; the next start has the version."""
    served = serve()
    service = served.server._app.state.service

    def fail(result: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(service.writer._followed, "published_version", fail)
    assert served.commit({"insert": {"edge": [["a", "b"]]}}, Connection="close").json()["code"] == "internal"
    assert code(served.commit({"insert": {"edge": [["b", "c"]]}})) == (503, "closed")
    assert code(served.get("/v1/health")) == (503, "closed")
    served.end()
    assert serve().rows("closure") == [["a", "b"]]


def test_work_over_its_budget_is_refused_and_health_does_not_wait_for_it(serve: Serve) -> None:
    """One client's cross product: the others are answered when its budget is spent, health at once."""
    served = serve(GRAPH + ".decl n(x: number)\n", settings="[budgets]\nseconds = 1\n")
    served.insert("n", *([i] for i in range(400)))
    cross = ".decl p(x: number, y: number, z: number)  p(x, y, z) :- n(x), n(y), n(z). .output p"
    found: list[httpx.Response] = []
    body = {"language": "datalog", "text": cross}
    asking = Thread(target=lambda: found.append(served.request("POST", "/v1/views", json=body)))
    started = perf_counter()
    asking.start()
    until(lambda: served.get("/v1/health").json()["busy"] > 0.3)
    assert served.get("/v1/health").json()["status"] == "ok"
    asking.join(10)
    assert perf_counter() - started < 8
    assert code(found[0]) == (422, "limit")
    assert served.insert("edge", ["a", "b"]) == 2
    assert code(served.get("/v1/views/p/rows")) == (404, "unknown_relation")


def test_an_endless_definition_and_an_endless_search_stop_nobody_else(serve: Serve) -> None:
    program = GRAPH + ".decl t(s: symbol, p: symbol) .decl v(s: symbol) v(s) :- t(s, p), match(p, s). .output v\n"
    served = serve(program, settings="[budgets]\nseconds = 1\nrounds = 1000\n")
    served.insert("edge", ["a", "b"])
    endless = ".decl lim(x: number) .decl conf(x: number) conf(0). conf(x + 1) :- conf(x), !lim(x). .output conf"
    assert code(served.request("POST", "/v1/views", json={"language": "datalog", "text": endless})) == (422, "limit")
    assert served.rows("closure") == [["a", "b"]]
    found: list[httpx.Response] = []
    body = {"insert": {"t": [["a" * 100 + "b", "(a|aa)+c?"]]}}
    asking = Thread(target=lambda: found.append(served.commit(body)))
    asking.start()
    until(lambda: served.get("/v1/health").json()["busy"] > 0.3)
    asking.join(60)
    assert code(found[0]) == (422, "limit")
    assert served.insert("edge", ["b", "c"]) == 2
