"""Errors show a token nothing that it does not read: no rows, no names of relations, columns, rules or files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.conftest import Serve, Served
from tests.service.test_requests import code

PROGRAM = """
.decl account(who: symbol, n: number) key(who)
.decl payment(who: symbol, amount: symbol)
.decl amounts(who: symbol, n: number)
.decl hidden_ratio(who: symbol, n: number)
amounts(who, to_number(amount)) :- payment(who, amount).
hidden_ratio(who, 1000 / n) :- account(who, n).
.output amounts
.output hidden_ratio
"""
TOKENS = """
[[token]]
name = "writer"
secret = "WRITER"
write = ["account", "payment"]

[[token]]
name = "auditor"
secret = "AUDITOR"
read = ["account", "hidden_ratio"]
write = ["account", "payment"]

[[token]]
name = "nobody"
secret = "NOBODY"

[[token]]
name = "newcomer"
secret = "NEWCOMER"
read = ["hidden_ratios"]

[[token]]
name = "chief"
secret = "CHIEF"
read = ["*"]
write = ["*"]
define = true
admin = true
"""
NAMES = ("WRITER", "AUDITOR", "NOBODY", "NEWCOMER", "CHIEF")
SECRETS = {name: f"a-secret-of-{name.lower()}-01" for name in NAMES}


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.service.conftest import start

    served = start(tmp_path_factory.mktemp("bank") / "project", PROGRAM, TOKENS, 0, **SECRETS)
    chief = as_(served, "CHIEF")
    action = "INSERT INTO payment SELECT who, 'not a number' FROM FIRING"
    rule = f"CREATE RULE audit WHEN SELECT who FROM account WHERE n > 50 DO {action}"
    made = chief.request("POST", "/v1/views", json={"language": "sql", "text": rule})
    assert made.status_code in (200, 201), made.text
    assert chief.commit({"insert": {"account": [["bob", 7]]}}).status_code == 200
    yield served
    served.end()


def as_(served: Served, name: str) -> Served:
    headers = {"Authorization": f"Bearer {SECRETS[name]}"}
    return Served(served.url, served.folder, served.server, served.thread, headers)


def tells(response: Any, *secrets: str) -> list[str]:
    return [secret for secret in secrets if secret in response.text]


def test_a_key_conflict_does_not_show_the_other_row(bank: Served) -> None:
    response = as_(bank, "WRITER").commit({"insert": {"account": [["bob", 8]]}})
    assert code(response) == (409, "duplicate_key")
    assert tells(response, "7", "bob", "(who)") == []
    for name in ("AUDITOR", "CHIEF"):
        assert "('bob', 7)" in as_(bank, name).commit({"insert": {"account": [["bob", 8]]}}).json()["detail"]


def test_an_evaluation_error_does_not_show_values_and_rules(bank: Served) -> None:
    for change in ({"insert": {"account": [["ann", 0]]}}, {"insert": {"payment": [["ann", "many"]]}}):
        response = as_(bank, "WRITER").commit(change)
        assert code(response) == (422, "evaluation")
        assert tells(response, "1000", "ratio", "amounts", "rule", "many", "views.dl") == []
        assert "in the rule" in as_(bank, "CHIEF").commit(change).json()["detail"]
    shown = as_(bank, "AUDITOR").commit({"insert": {"account": [["ann", 0]]}})
    assert "1000 / 0" in shown.json()["detail"]  # it reads both relations of that rule
    assert "many" not in as_(bank, "AUDITOR").commit({"insert": {"payment": [["ann", "many"]]}}).text


def test_a_failing_action_does_not_show_the_rule_nor_its_rows(bank: Served) -> None:
    response = as_(bank, "WRITER").commit({"insert": {"account": [["zoe", 99]]}})
    assert code(response) == (422, "action_failed")
    assert tells(response, "audit", "zoe", "not a number", "amounts") == []
    assert "audit" in as_(bank, "CHIEF").commit({"insert": {"account": [["zoe", 99]]}}).json()["detail"]


@pytest.mark.parametrize("name", ["NOBODY", "NEWCOMER"])
def test_a_token_without_rights_learns_no_names(bank: Served, name: str) -> None:
    stranger = as_(bank, name)
    answers = [
        stranger.commit({"insert": {"acount": [["x", 1]]}}),
        stranger.commit({"insert": {"account": [["x"]]}}),
        stranger.commit({"insert": {"account": [{"whom": "x"}]}}),
        stranger.commit({"insert": {"amounts": [["x", 1]]}}),
        stranger.commit({}),
        stranger.get("/v1/views/hidden_ratios/rows"),
        stranger.get("/v1/views/hidden_ratios/changes"),
        stranger.get("/v1/views/hidden_ratios/explain"),
        stranger.get('/v1/views/hidden_ratios/why?row=["x"]'),
        stranger.get("/v1/changes?view=hidden_ratios"),
        stranger.get("/v1/relations/hidden_ratios/rows"),
        stranger.get("/v1/views/account/rows"),
        stranger.request("POST", "/v1/views", json={"text": ".decl x("}),
        stranger.request("DELETE", "/v1/views/acount"),
        stranger.get("/v1/rules"),
        stranger.get("/v1/rules/audit/firings"),
    ]
    for answer in answers:
        assert answer.status_code in (403, 404), answer.text
        text = answer.text.replace("hidden_ratios", "")
        assert [
            secret for secret in ("payment", "amounts'?", "hidden_ratio", "who", "did you mean", "known:") if secret in text
        ] == []
    assert [stranger.get("/v1/relations").json()["relations"], stranger.get("/v1/views").json()["views"]] == [[], []]


@pytest.mark.parametrize("empty", [{}, {"insert": {}}, {"insert": {"account": []}}, {"delete": {"account": []}, "upsert": {}}])
def test_an_empty_transaction_needs_the_right_to_write_and_makes_no_version(bank: Served, empty: dict[str, Any]) -> None:
    before = bank.get("/v1/health").json()["version"]
    assert code(as_(bank, "NOBODY").commit(empty)) == (403, "forbidden")
    assert as_(bank, "WRITER").commit(empty).json() == {"version": before, "repeated": False}
    assert bank.get("/v1/health").json()["version"] == before


def test_empty_lines_among_others_make_no_version(serve: Serve) -> None:
    graph = serve()
    body = '{}\n{"insert": {"edge": [["a", "b"]]}}\n{"delete": {}}\n{"insert": {"edge": [["b", "c"]]}}\n{}\n'
    lines = {"Content-Type": "application/x-ndjson"}
    answers = graph.request("POST", "/v1/transactions", content=body, headers=lines).json()["transactions"]
    assert [answer["version"] for answer in answers] == [0, 1, 1, 2, 2]
    body = '{}\n{"insert": {"stock": [["a", 1]]}}\n{}\n{"insert": {"stock": [["a", 2]]}}\n'
    refused = graph.request("POST", "/v1/transactions", content=body, headers=lines).json()
    assert (refused["code"], refused["committed"], refused["place"]) == ("duplicate_key", [3], "body:4")
