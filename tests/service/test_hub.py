"""The contract by itself: whatever is published and whenever a client takes, its copy is the view at a version that was."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rederive.commit.announce import signs
from rederive.delta import BOTH, Delta
from rederive.engines.protocol import Query
from rederive.service.events import Event, snapshot
from rederive.service.hub import Hub, PublishedVersion, Subscriber
from rederive.service.settings import ServiceLimits
from rederive.service.subscription_request import SubscriptionRequest
from rederive.store.position import Position

PART = Query("v", ())
OTHER = Query("w", ())
Rows = frozenset[tuple[int]]


class Copy:
    """A subscriber's copy. Every event is checked against the contract before it is applied."""

    def __init__(self, client: Subscriber) -> None:
        self.client = client
        self.rows: dict[str, set[tuple[int, ...]]] = {"v": set(), "w": set()}
        self.version = -1
        self.events: list[dict[str, Any]] = []

    def apply(self, events: list[Event]) -> None:
        for event in events:
            data = json.loads(event.data)
            self.events.append({"event": event.name, **data})
            match event.name:
                case "snapshot":
                    self.rows[data["view"]] = {tuple(row) for row in data["rows"]}
                case "change":
                    assert data.get("from", data["version"]) > self.version
                    for change in data.get("changes", [data]):
                        self._change(change)
                case "progress":
                    assert data["version"] >= self.version
            self.version = data["version"]

    def _change(self, change: dict[str, Any]) -> None:
        plus, minus = ({tuple(row) for row in change[side]} for side in ("plus", "minus"))
        rows = self.rows[change["view"]]
        assert not plus & rows, "a row that was there already"
        assert minus <= rows, "a row that was not there"
        self.rows[change["view"]] = (rows - minus) | plus


class Play:
    """Versions of two views, and clients of a hub that follow them."""

    def __init__(self, bounds: ServiceLimits) -> None:
        self.bounds = bounds
        self.hub = Hub(bounds)
        self.states: list[dict[str, Rows]] = [{"v": frozenset(), "w": frozenset()}]
        self.now = 0.0

    def attach(self, request: SubscriptionRequest) -> Copy:
        client = Subscriber(request, self.bounds, lambda: None)
        state = self.states[-1]
        views = {part.view: (["x"], sorted(state[part.view])) for part in request.parts}
        self.hub.attach(client, list(snapshot(Position(len(self.states) - 1), views)), len(self.states) - 1)
        return Copy(client)

    def publish(self, **toggled: set[int]) -> None:
        """Rows that are there leave, and rows that are not enter."""
        before = self.states[-1]
        after = {view: rows ^ {(i,) for i in toggled.get(view, ())} for view, rows in before.items()}
        self.states.append(after)
        changes = {
            Query(view, ()): Delta(sorted(after[view] - before[view]), sorted(before[view] - after[view]))
            for view in toggled
            if after[view] != before[view]
        }
        self.hub.publish(PublishedVersion(len(self.states) - 1, changes))

    def take(self, copy: Copy) -> None:
        copy.apply(self.hub.take(copy.client))
        if not copy.client.is_behind:
            for part in copy.client.request.parts:
                assert copy.rows[part.view] == self.states[-1][part.view]

    def tick(self) -> None:
        self.now += 1.0
        self.hub.end_intervals(self.now)


WISHES = (
    SubscriptionRequest((PART,), BOTH),
    SubscriptionRequest((PART, OTHER), BOTH, together=True),
    SubscriptionRequest((PART,), BOTH, every=2.0),
    SubscriptionRequest((PART, OTHER), BOTH, together=True, every=3.0),
)
SOME = st.sets(st.integers(0, 3), max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("publish"), SOME, SOME),
    st.tuples(st.just("attach"), st.integers(0, 3)),
    st.tuples(st.just("take"), st.integers(0, 5)),
    st.tuples(st.just("detach"), st.integers(0, 5)),
    st.tuples(st.just("tick")),
    st.tuples(st.just("beat")),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
@example([("attach", 0), ("publish", {1}, set()), ("publish", {1}, set()), ("take", 0)], 1)
@example(  # behind since the same change, but not told the same versions before it
    [
        *(("attach", 0), ("publish", set(), {1}), ("attach", 0), ("publish", {1}, set())),
        *(("take", 0), ("take", 0), ("take", 1), ("take", 1)),
    ],
    1,
)
def test_a_copy_is_the_view_at_a_version_that_was(steps: list[tuple[Any, ...]], queue: int) -> None:
    play = Play(ServiceLimits(queue=queue))
    copies: list[Copy] = []
    for step in steps:
        match step:
            case ("publish", v, w):
                play.publish(v=v, w=w)
            case ("attach", which):
                copies.append(play.attach(WISHES[which]))
            case ("take", which) if which < len(copies):
                play.take(copies[which])
            case ("detach", which) if which < len(copies):
                play.hub.detach(copies[which].client)
                copies.pop(which)
            case ("tick",):
                play.tick()
            case ("beat",):
                play.hub.send_heartbeat()
        for copy in copies:
            assert copy.client.waiting <= max(queue, 2) + 3, "the queue is bounded"
    for _ in range(12):
        play.tick()
        for copy in copies:
            play.take(copy)
    for copy in copies:
        for part in copy.client.request.parts:
            assert copy.rows[part.view] == play.states[-1][part.view]
        assert copy.client.version == len(play.states) - 1 or not copy.client.request.every
        play.hub.detach(copy.client)
    assert not play.hub._feeds
    assert not play.hub._of_part
    assert not play.hub._intervals


def test_an_event_is_written_once_for_all_who_get_it() -> None:
    play = Play(ServiceLimits())
    one, two = play.attach(WISHES[0]), play.attach(WISHES[0])
    play.publish(v={1})
    (first,) = (event for event in play.hub.take(one.client) if event.name == "change")
    (second,) = (event for event in play.hub.take(two.client) if event.name == "change")
    assert first is second
    assert first.sse is second.sse


def test_those_who_fell_behind_together_are_told_together() -> None:
    play = Play(ServiceLimits(queue=1))
    copies = [play.attach(WISHES[0]) for _ in range(2)]
    for i in range(3):
        play.publish(v={i})
    for copy in copies:
        copy.apply(play.hub.take(copy.client))
    one, two = (play.hub.take(copy.client) for copy in copies)
    assert one == two
    assert one[0] is two[0]


def test_what_nobody_is_behind_is_let_go() -> None:
    play = Play(ServiceLimits(queue=1))
    slow, slower = play.attach(WISHES[0]), play.attach(WISHES[0])
    for i in range(50):
        play.publish(v={i})
    (feed,) = play.hub._feeds.values()
    assert len(feed._segments) == 1, "what is added up is one net change, however many versions it took"
    for copy in (slow, slower):
        play.take(copy)
        play.take(copy)
    assert not feed._segments


def test_only_one_sign_of_a_net_change() -> None:
    play = Play(ServiceLimits(queue=1))
    play.publish(v={5})
    copy = play.attach(SubscriptionRequest((PART,), signs("plus")))
    play.publish(v={1, 5})
    play.publish(v={1, 2})
    copy.apply(play.hub.take(copy.client))
    (event,) = play.hub.take(copy.client)
    assert json.loads(event.data) == {"version": 3, "from": 2, "coalesced": "slow", "view": "v", "plus": [[2]], "minus": []}


def test_bags_are_added_up_by_their_copies() -> None:
    bounds = ServiceLimits(queue=1)
    hub = Hub(bounds)
    client = Subscriber(WISHES[0], bounds, lambda: None)
    hub.attach(client, list(snapshot(Position(0), {"v": (["x"], [])})), 0)
    for number, delta in enumerate([Delta({(7,): 3}), Delta((), [(7,)]), Delta([(8,)])], 1):
        hub.publish(PublishedVersion(number, {PART: delta}))
    hub.take(client)
    (event,) = hub.take(client)
    assert json.loads(event.data)["counts"] == {"plus": [2, 1], "minus": []}
