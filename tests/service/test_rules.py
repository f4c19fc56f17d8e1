"""Active rules and constraints over HTTP: defined, listed, their firings as lists and as events, violations, webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from rederive.errors import ProjectError
from rederive.rules.outbox import OutboxSender
from tests.rules.receiver import hang, receiver, socket_receiver
from tests.service.conftest import Serve, Served, until

STOCK = """
.decl stock(item: symbol, n: number) key(item)
.decl low(item: symbol, n: number)
.decl orders(item: symbol) key(item)
.decl lost(item: symbol)
low(item, n) :- stock(item, n), n < 10.
lost(item) :- stock(item, n), n < 0.
.output low
.constraint lost(mode=reject)
.rule reorder(when=low, do="INSERT INTO orders SELECT item FROM firing", priority=5)
"""


@pytest.fixture
def stock(serve: Serve) -> Served:
    return serve(STOCK, "[bounds]\nheartbeat = 0.2")


def define(served: Served, text: str) -> Any:
    return served.request("POST", "/v1/views", json={"language": "sql", "text": text})


def fired(served: Served, path: str = "/v1/firings", **parameters: Any) -> list[tuple[Any, ...]]:
    found = served.get(path, params=parameters).json()["firings"]
    return [(one["number"], one["version"], one["rule"], one["plus"], one["outcome"]) for one in found]


def test_rules_are_listed_with_what_they_do(stock: Served) -> None:
    text = "CREATE RULE again ON UPDATE OF stock WHEN TABLE low DO DELETE FROM orders WHERE item = 'x' ON MINUS PRIORITY 9"
    assert define(stock, text).status_code == 201
    assert define(stock, "ALTER RULE again DEACTIVATE FOR ('bolt')").status_code == 201
    first, second = stock.get("/v1/rules").json()["rules"]
    assert first == {
        "name": "again",
        "columns": ["item", "n"],
        "action": "DELETE FROM orders WHERE item = 'x'",
        "precision": "strict",
        "mode": "deferred",
        "on": ["minus"],
        "priority": 9,
        "event": "update of stock",
        "active": True,
        "exceptions": [{"values": ["bolt"], "active": False}],
    }
    assert (second["name"], second["action"]) == ("reorder", "INSERT INTO orders SELECT item FROM firing")
    assert define(stock, "DROP RULE again").status_code == 201
    assert [rule["name"] for rule in stock.get("/v1/rules").json()["rules"]] == ["reorder"]


def test_bad_rules_are_refused_and_change_nothing(stock: Served) -> None:
    for text, code in (
        ("CREATE RULE r WHEN TABLE low DO CALL nobody", "unknown_name"),
        ("CREATE RULE r WHEN TABLE nothing DO DELETE FROM orders WHERE item = 'x'", "unknown_name"),
        ("CREATE RULE r WHEN TABLE low DO WEBHOOK 'https://example.com/'", "unsupported"),
        ("DROP RULE nobody", "unknown_name"),
        ("CREATE RULE", "syntax"),
    ):
        answer = define(stock, text)
        assert (400 <= answer.status_code < 500, answer.json()["code"]) == (True, code), answer.text
    assert len(stock.get("/v1/rules").json()["rules"]) == 1


def test_what_fired_is_listed_by_rule_and_after_a_number(stock: Served) -> None:
    stock.insert("stock", ["bolt", 3])
    stock.insert("stock", ["nut", 30])
    stock.commit({"upsert": {"stock": [["nut", 4]]}})
    assert fired(stock) == [(1, 1, "reorder", [["bolt", 3]], "done"), (2, 3, "reorder", [["nut", 4]], "done")]
    assert fired(stock, since=1) == fired(stock)[1:]
    assert fired(stock, "/v1/rules/reorder/firings", since=2) == []
    assert stock.rows("orders") == [["bolt"], ["nut"]]
    missing = stock.get("/v1/rules/reorders/firings")
    assert (missing.status_code, missing.json()["hint"]) == (404, "did you mean 'reorder'?")


def test_firings_as_events_resume_by_their_number(stock: Served) -> None:
    with stock.events("/v1/firings") as events:
        assert next(events)["event"] == "progress"
        stock.insert("stock", ["bolt", 3])
        first = next(event for event in events if event["event"] != "progress")
        assert (first["event"], first["id"], first["rule"], first["plus"]) == ("firing", "1", "reorder", [["bolt", 3]])
    stock.insert("stock", ["nut", 3])
    stock.insert("stock", ["cog", 3])
    for path in ("/v1/firings", "/v1/rules/reorder/firings"):
        with stock.events(path, last=1) as events:
            assert (next(events)["event"], stock.get("/v1/health").json()["version"]) == ("progress", 3)
            assert [next(events)["plus"] for _ in range(2)] == [[["nut", 3]], [["cog", 3]]]
    with stock.events("/v1/firings?since=0") as events:
        assert [next(events)["id"] for _ in range(2)] == ["0", "1"]
        stock.end()
        assert [event["event"] for event in events][-1] == "problem"


def test_failures_are_told(serve: Serve) -> None:
    """A rule that divides by zero stops its transaction, and is told of with the rows that it fired for."""
    served = serve(STOCK)
    text = "CREATE RULE divide WHEN TABLE low DO INSERT INTO stock SELECT 'x', n / (n - n) FROM firing RECURSIVE"
    assert define(served, text).status_code == 201
    with served.events("/v1/firings?since=0") as events:
        answer = served.commit({"insert": {"stock": [["bolt", 3]]}})
        assert (answer.status_code, answer.json()["code"]) == (422, "action_failed"), answer.text
        failed = next(event for event in events if event["event"] != "progress")
    assert (failed["event"], failed["rule"], failed["outcome"], failed["plus"]) == ("firing", "divide", "failed", [["bolt", 3]])
    assert failed["detail"]
    assert served.get("/v1/health").json()["version"] == 0


def test_a_violation_is_answered_with_its_rows(stock: Served) -> None:
    answer = stock.commit({"insert": {"stock": [["bolt", 3], ["gap", -1], ["hole", -7]]}})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (409, "violated")
    assert problem["violations"] == {"view": "lost", "rows": [["gap"], ["hole"]], "more": 0}
    assert (stock.get("/v1/health").json()["version"], fired(stock)) == (0, [])


def test_violations_are_for_those_who_may_read_them(serve: Serve) -> None:
    secret, other = "w" * 20, "a" * 20
    tokens = """
        [[token]]
        name = "writer"
        secret = "WRITER"
        write = ["stock"]
        [[token]]
        name = "admin"
        secret = "ADMIN"
        admin = true
    """
    served = serve(STOCK, tokens, WRITER=secret, ADMIN=other)
    served.headers = {"Authorization": f"Bearer {secret}"}
    problem = served.commit({"insert": {"stock": [["gap", -1]]}})
    assert (problem.json()["code"], problem.json()["violations"]["rows"], "gap" in problem.text) == ("violated", [], False)
    assert [served.get(path).status_code for path in ("/v1/rules", "/v1/firings", "/v1/rules/reorder/firings")] == [403] * 3
    served.headers = {"Authorization": f"Bearer {other}"}
    assert [served.get(path).status_code for path in ("/v1/rules", "/v1/firings", "/v1/rules/reorder/firings")] == [200] * 3


def test_webhooks_go_where_the_project_allows_and_their_outcome_is_listed(serve: Serve) -> None:
    with receiver() as hook:
        settings = f'[webhooks]\nhosts = ["{hook.host}"]\nsecret = "HOOK"\nprivate = true'
        served = serve(STOCK, settings, HOOK="h" * 16)
        assert define(served, f"CREATE RULE tell WHEN TABLE low DO WEBHOOK '{hook.url}'").status_code == 201
        served.insert("stock", ["bolt", 3])
        until(lambda: ("tell", "delivered") in [(rule, outcome) for _, _, rule, _, outcome in fired(served)])
        assert [one.data["plus"] for one in hook.received] == [[["bolt", 3]]]
        assert "Rederive-Signature" in hook.received[0].headers
        listed = {rule["name"]: rule["action"] for rule in served.get("/v1/rules").json()["rules"]}
        assert listed["tell"] == f"webhook {hook.url}"


def test_health_and_metrics_show_how_webhooks_are_delivered(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rederive.service.http.status.MAX_WEBHOOK_LAG", 0.2)
    with socket_receiver(hang) as hook:
        settings = f'[webhooks]\nhosts = ["{hook.host}"]\nsecret = "HOOK"\nprivate = true\ntimeout = 60'
        served = serve(STOCK, settings, HOOK="h" * 16)

        def health() -> Any:
            return served.get("/v1/health").json()

        assert health()["webhooks"] == {"waiting": 0, "lag": 0.0, "parked": 0, "delivering": True}
        assert define(served, f"CREATE RULE tell WHEN TABLE low DO WEBHOOK '{hook.url}'").status_code == 201
        served.insert("stock", ["bolt", 3])
        until(lambda: health()["webhooks"]["lag"] > 0.2)
        assert health()["webhooks"]["waiting"] == 1
        assert health()["status"].startswith("ok, but webhooks are not delivered: the oldest has waited ")
        metrics = served.get("/v1/metrics").text
        assert "rederive_webhooks_waiting 1.0" in metrics
        assert "rederive_webhooks_delivering 1.0" in metrics
        assert "rederive_webhooks_lag_seconds 0.0\n" not in metrics
        monkeypatch.setattr(OutboxSender, "is_alive", False)  # whatever may end the thread
        assert health()["status"] == "ok, but webhooks are not delivered: the thread that delivers has ended"
        assert health()["webhooks"]["delivering"] is False
        assert "rederive_webhooks_delivering 0.0" in served.get("/v1/metrics").text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[webhooks]\nhosts = ["a.example"]', "webhooks are signed"),
        ('[webhooks]\nhosts = ["a.example"]\nsecret = "HOOK"', "HOOK is not set"),
        ('[webhooks]\nhosts = "a.example"', "not a list of strings"),
        ("[webhooks]\nhost = []", "unknown key 'host'"),
    ],
)
def test_settings_of_webhooks_that_are_refused(serve: Serve, settings: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        serve(STOCK, settings)
