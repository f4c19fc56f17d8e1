"""Tokens: who may read, write and define what, down to the row."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rederive.errors import RederiveError
from rederive.service.project import read_project
from tests.service.conftest import Serve, Served
from tests.service.test_requests import code

PROGRAM = """
.decl orders(who: symbol, what: symbol)
.decl account(who: symbol, n: number) key(who)
.decl item(what: symbol, who: symbol) key(what)
.decl wanted(who: symbol, what: symbol)
.decl secret(who: symbol)
wanted(who, what) :- orders(who, what).
secret(who) :- account(who, n), n > 100.
"""
TOKENS = """
[[token]]
name = "ann"
secret = "ANN"
read = ["wanted", "orders"]
write = ["orders", "account", "item"]
rows = { wanted = { who = "ann" }, orders = { who = "ann" }, account = { who = "ann" }, item = { who = "ann" } }

[[token]]
name = "reader"
secret = "READER"
read = ["*"]

[[token]]
name = "chief"
secret = "CHIEF"
read = ["*"]
write = ["*"]
define = true
admin = true
"""
SECRETS = {"ANN": "a-secret-of-ann-0001", "READER": "a-secret-of-reader-01", "CHIEF": "a-secret-of-chief-001"}


@pytest.fixture
def shop(serve: Serve) -> Served:
    return serve(PROGRAM, TOKENS, **SECRETS)


def as_(served: Served, name: str) -> Served:
    headers = {"Authorization": f"Bearer {SECRETS[name]}"}
    return Served(served.url, served.folder, served.server, served.thread, headers)


def test_without_a_token_or_with_a_wrong_one(shop: Served) -> None:
    response = shop.get("/v1/views")
    assert code(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    for header in ("Bearer wrong", "Bearer", "Basic YTpi", f"Bearer {SECRETS['ANN']}x"):
        assert code(shop.get("/v1/views", headers={"Authorization": header})) == (401, "unauthorized")
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{shop.url.replace('http', 'ws')}/v1/views/wanted/changes").close()
    assert refused.value.response.status_code == 401
    assert shop.get("/v1/health").status_code == 200


def test_scopes(shop: Served) -> None:
    reader, chief, ann = (as_(shop, name) for name in ("READER", "CHIEF", "ANN"))
    assert code(reader.commit({"insert": {"orders": [["ann", "bolt"]]}})) == (403, "forbidden")
    assert code(reader.request("POST", "/v1/views", json={"text": ".decl x(y: symbol)"})) == (403, "forbidden")
    assert code(reader.request("PUT", "/v1/views/wanted", json={"text": ""})) == (403, "forbidden")
    assert code(reader.request("DELETE", "/v1/views/wanted")) == (403, "forbidden")
    assert code(reader.get("/v1/subscriptions")) == (403, "forbidden")
    assert code(reader.get("/v1/metrics")) == (403, "forbidden")
    for path in ("/v1/views/secret/rows", "/v1/views/secret/changes", "/v1/views/secret/explain", "/v1/changes?view=secret"):
        assert code(ann.get(path)) == (403, "forbidden")
    assert code(ann.get("/v1/changes?view=wanted&view=secret")) == (403, "forbidden")
    assert code(ann.commit({"insert": {"unknown": []}})) == (403, "forbidden")  # as for what is there and not hers to write
    assert [view["name"] for view in ann.get("/v1/views").json()["views"]] == ["wanted"]
    assert chief.insert("orders", ["bob", "nut"]) == 1
    assert chief.get("/v1/metrics").status_code == 200


def test_what_a_token_does_not_read_is_not_told_apart_from_what_is_not_there(shop: Served) -> None:
    ann = as_(shop, "ANN")
    there, nowhere = (ann.get(f"/v1/views/{name}/rows") for name in ("secret", "nothing"))
    assert (code(there), code(nowhere)) == ((403, "forbidden"), (403, "forbidden"))


def test_rows_are_bound_by_the_server(shop: Served) -> None:
    ann, chief = as_(shop, "ANN"), as_(shop, "CHIEF")
    chief.insert("orders", ["bob", "nut"], ["ann", "bolt"])
    assert ann.rows("wanted") == [["ann", "bolt"]]
    assert ann.get("/v1/relations/orders/rows", params={"who": "ann"}).json()["rows"] == [["ann", "bolt"]]
    assert code(ann.get("/v1/views/wanted/rows?who=bob")) == (403, "forbidden")
    assert code(ann.get("/v1/views/wanted/changes?who=bob")) == (403, "forbidden")
    for path in ("/v1/views/wanted/changes", "/v1/changes?view=wanted"):
        with ann.events(path) as events:
            assert next(events)["rows"] == ann.rows("wanted")
            chief.insert("orders", ["bob", path], ["ann", path])
            change = next(events)
            assert change.get("changes", [change])[0]["plus"] == [["ann", path]]
    lines = {"Accept": "application/x-ndjson"}
    assert "bob" not in ann.get("/v1/views/wanted/changes?since=0", headers=lines).text


@pytest.mark.parametrize("action", ["insert", "delete", "upsert"])
def test_rows_of_others_are_not_written(shop: Served, action: str) -> None:
    ann = as_(shop, "ANN")
    for relation, row in (("orders", ["bob", "nut"]), ("account", ["bob", 1])):
        response = ann.commit({action: {relation: [["ann", row[1]], row]}})
        assert code(response) == (403, "forbidden")
    assert shop.get("/v1/health").json()["version"] == 0


def test_an_upsert_that_could_replace_a_row_of_another(shop: Served) -> None:
    """`item` is keyed by what alone: the row with that key may be bob's."""
    ann, chief = as_(shop, "ANN"), as_(shop, "CHIEF")
    chief.insert("item", ["bolt", "bob"])
    assert code(ann.commit({"upsert": {"item": [["bolt", "ann"]]}})) == (403, "forbidden")
    response = ann.commit({"insert": {"item": [["bolt", "ann"]]}})
    assert code(response) == (403, "forbidden")
    assert "bob" not in response.text
    assert ann.commit({"upsert": {"account": [["ann", 7]]}}).status_code == 200


def test_pages_of_other_hosts(serve: Serve) -> None:
    graph = serve(settings='origins = ["https://example.org"]')
    port = graph.url.rpartition(":")[2]
    assert code(graph.get("/v1/views", headers={"Origin": "https://evil.test"})) == (403, "forbidden")
    assert code(graph.get("/v1/views", headers={"Host": f"evil.test:{port}"})) == (403, "forbidden")
    allowed = graph.get("/v1/views", headers={"Origin": "https://example.org"})
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    assert graph.get("/v1/views", headers={"Origin": graph.url}).status_code == 200
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert graph.request("OPTIONS", "/v1/transactions", headers=asked).status_code == 200


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("address = '0.0.0.0:8420'", "address", "other machines can reach"),
        ("address = 'localhost'", "address", "not HOST:PORT"),
        ("adress = 'localhost:1'", "adress", "unknown key 'adress'"),
        ("engine = 'steam'", "engine", "unknown engine 'steam'"),
        ("retention = 0", "retention", "less than 1"),
        ("retention = true", "retention", "not a number"),
        ("[bounds]\nbody = 'much'", "bounds.body", "not a number"),
        ("[bounds]\nbodies = 1", "bounds.bodies", "unknown key"),
        ("[[token]]\nname = 'a'", "token[0].secret", "a token needs a name"),
        ("[[token]]\nname = 'a'\nsecret = 'NOWHERE'", "token[0].secret", "NOWHERE is not set"),
        ("[[token]]\nname = 'a'\nsecret = 'SHORT'", "token[0].secret", "too short"),
        ("[[token]]\nname = 'a'\nsecret = 'LONG'\nrows = { v = 1 }", "token[0].rows.v", "not a table"),
        ("store = 1", "store", "not a string"),
        ("token = 1", "token", "not a list of tables"),
        ("x =", "", "not TOML"),
    ],
)
def test_projects_that_are_refused(tmp_path: Path, text: str, place: str, message: str) -> None:
    (tmp_path / "rederive.toml").write_text(f'programs = ["views.dl"]\n{text}')
    with pytest.raises(RederiveError) as refused:
        read_project(tmp_path, {"SHORT": "short", "LONG": "long enough to be a secret"})
    assert refused.value.code == "project"
    assert message in refused.value.message
    assert str(refused.value.place).endswith(f"rederive.toml: {place}" if place else "rederive.toml")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('{ wnted = { who = "ann" } }', "unknown relation 'wnted'"),
        ('{ wanted = { whom = "ann" } }', "has no column 'whom'"),
        ("{ wanted = { who = 1 } }", "1 is not a symbol"),
    ],
)
def test_a_binding_that_would_bind_nothing_is_refused_at_the_start(serve: Serve, rows: str, message: str) -> None:
    with pytest.raises(RederiveError) as refused:
        serve(PROGRAM, f'[[token]]\nname = "a"\nsecret = "ANN"\nread = ["*"]\nrows = {rows}', **SECRETS)
    assert (refused.value.code, message in refused.value.message) == ("project", True)


def test_keys_of_one_token_are_nothing_to_another(shop: Served) -> None:
    ann, chief = as_(shop, "ANN"), as_(shop, "CHIEF")
    for who, row in ((ann, ["ann", "bolt"]), (chief, ["bob", "nut"])):
        answers = [who.commit({"insert": {"orders": [row]}}, **{"Idempotency-Key": "k"}).json() for _ in range(2)]
        assert [answer["repeated"] for answer in answers] == [False, True]


def test_a_token_opens_other_addresses(tmp_path: Path) -> None:
    (tmp_path / "rederive.toml").write_text(
        'programs = ["views.dl"]\naddress = "0.0.0.0:80"\n[[token]]\nname = "a"\nsecret = "LONG"\n'
    )
    project = read_project(tmp_path, {"LONG": "long enough to be a secret"})
    assert (str(project.address), "enough" in repr(project)) == ("0.0.0.0:80", False)
