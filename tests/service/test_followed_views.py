"""How versions are sorted into subscriptions: by look-up, not by comparing every subscription with every row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rederive
from rederive.engines.protocol import Query
from rederive.result import Change
from rederive.service.followed_views import FollowedViews
from tests.service.conftest import GRAPH


@pytest.fixture
def db(tmp_path: Path) -> Iterator[rederive.Database]:
    with rederive.open(tmp_path) as opened:
        opened.define(GRAPH)
        yield opened


def result(db: rederive.Database, *edges: tuple[str, str]) -> rederive.Result:
    with db.transaction() as tx:
        tx.insert("edge", edges)
    return tx.result


def part(view: str, *bindings: tuple[int, str]) -> Query:
    return Query(view, bindings)


def test_bound_parts_of_a_kept_view_are_looked_up(db: rederive.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, the database has one subscription, and no change is filtered for any of them."""
    follower = FollowedViews(db)
    for i in range(500):
        follower.follow(part("closure", (0, f"n{i}")))
    follower.follow(part("closure", (0, "n1"), (1, "y")))
    follower.follow(part("closure", (1, "y")))
    follower.follow(part("closure"))
    assert len(db.pipeline.state.subscriptions.active) == 1
    monkeypatch.delattr(Change, "where")
    changes = follower.published_version(result(db, ("n1", "y"), ("n2", "z"), ("other", "z"))).changes
    assert {question: list(delta.plus) for question, delta in changes.items()} == {
        part("closure", (0, "n1")): [("n1", "y")],
        part("closure", (0, "n2")): [("n2", "z")],
        part("closure", (0, "n1"), (1, "y")): [("n1", "y")],
        part("closure", (1, "y")): [("n1", "y")],
        part("closure"): [("n1", "y"), ("n2", "z"), ("other", "z")],
    }


def test_what_nobody_follows_any_more_is_forgotten(db: rederive.Database) -> None:
    follower = FollowedViews(db)
    one, two = part("closure", (0, "a")), part("closure")
    for question in (one, one, two):
        follower.follow(question)
    for question in (one, two):
        follower.unfollow(question)
    assert set(follower.published_version(result(db, ("a", "b"))).changes) == {one}
    follower.unfollow(one)
    assert follower.published_version(result(db, ("a", "c"))).changes == {}
    assert db.pipeline.state.subscriptions.active == []


def test_bound_parts_of_a_view_that_is_not_kept_are_questions_of_their_own(tmp_path: Path) -> None:
    with rederive.open(tmp_path / "apart", strategy="on_demand") as db:
        db.define(GRAPH.replace(".output closure\n", ""))
        follower = FollowedViews(db)
        question = part("closure", (0, "a"))
        follower.follow(question)
        made = result(db, ("a", "b"), ("c", "d"))
        assert ("closure" in made.changes, set(made.bound)) == (False, {question})
        assert follower.published_version(made).changes[question].plus == [("a", "b")]
