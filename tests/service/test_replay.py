"""The law of subscriptions: a snapshot with the events after it is the answer of a fresh query, also across reconnects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.conftest import CLIENT, Served, Told, parsed, start

NAMES = st.sampled_from("abcd")
CHANGES = st.fixed_dictionaries(
    {
        "insert": st.fixed_dictionaries({"edge": st.lists(st.tuples(NAMES, NAMES), max_size=3)}),
        "delete": st.fixed_dictionaries({"edge": st.lists(st.tuples(NAMES, NAMES), max_size=3)}),
        "upsert": st.fixed_dictionaries({"stock": st.lists(st.tuples(NAMES, st.integers(7, 12)), max_size=2)}),
    }
)
PATHS = (
    "/v1/views/closure/changes",
    "/v1/views/closure/changes?x=a",
    "/v1/views/inner/changes",
    "/v1/changes?view=closure&view=low&low.item=b",
    "/v1/views/low/changes?every=50ms",
)
STEPS = st.lists(st.one_of(CHANGES, st.integers(0, len(PATHS) - 1)), max_size=12)


class Mirror:
    """A client that keeps a copy of what a stream tells, and can lose its connection."""

    def __init__(self, served: Served, path: str) -> None:
        self.served = served
        self.path = path
        self.rows: dict[str, set[tuple[Any, ...]]] = {}
        self.version: int | None = None
        self.position: str | None = None
        self.connect()

    def connect(self) -> None:
        headers = {"Last-Event-ID": self.position} if self.position is not None else {}
        request = CLIENT.build_request("GET", f"{self.served.url}{self.path}", headers=headers)
        self.response = CLIENT.send(request, stream=True)
        self.events = parsed(self.response.iter_lines())

    def lose(self) -> None:
        self.response.close()

    def follow(self, version: int) -> None:
        """Apply events up to a version; progress marks come when nothing else does."""
        while self.version is None or self.version < version:
            self.apply(next(self.events))

    def apply(self, event: Told) -> None:
        match event["event"]:
            case "reset":
                self.rows = {}
            case "snapshot":
                assert self.rows.setdefault(event["view"], set()) == set()
                self.rows[event["view"]] = {tuple(row) for row in event["rows"]}
            case "change":
                for change in event.get("changes", [event]):
                    rows = self.rows[change["view"]]
                    plus, minus = ({tuple(row) for row in change[side]} for side in ("plus", "minus"))
                    assert not plus & rows
                    assert minus <= rows
                    self.rows[change["view"]] = (rows - minus) | plus
        if event["id"] is not None:
            self.version, self.position = int(event["id"]), event.position


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = "retention = 4\n[bounds]\nheartbeat = 0.05\nrate = 100000"
    running = start(tmp_path_factory.mktemp("replay") / "project", settings=settings)
    yield running
    running.end()


@settings(max_examples=30)
@given(STEPS)
def test_a_replayed_subscription_is_a_fresh_query(served: Served, steps: list[Any]) -> None:
    mirrors = [Mirror(served, path) for path in PATHS]
    for mirror in mirrors:
        mirror.follow(0)
    for step in steps:
        if isinstance(step, int):
            mirrors[step].lose()
            mirrors[step].connect()
        else:
            assert served.request("POST", "/v1/transactions", content=json.dumps(step), headers=JSON).status_code == 200
    check(served, mirrors)
    for mirror in mirrors:
        mirror.lose()
        mirror.connect()
    check(served, mirrors)
    for mirror in mirrors:
        mirror.lose()


JSON = {"Content-Type": "application/json"}


def check(served: Served, mirrors: list[Mirror]) -> None:
    last = served.get("/v1/health").json()["version"]
    for mirror in mirrors:
        mirror.follow(last)
    fresh = {view: [tuple(row) for row in served.rows(view)] for view in ("closure", "inner", "low")}
    whole, bound, inner, together, every = (mirror.rows for mirror in mirrors)
    assert sorted(whole["closure"]) == fresh["closure"]
    assert sorted(bound["closure"]) == [row for row in fresh["closure"] if row[0] == "a"]
    assert sorted(inner["inner"]) == fresh["inner"]
    assert sorted(together["closure"]) == fresh["closure"]
    assert sorted(together["low"]) == [row for row in fresh["low"] if row[0] == "b"]
    assert sorted(every["low"]) == fresh["low"]
