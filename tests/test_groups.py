"""Tests that share what is expensive to start run in one process of `make test`."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def shared() -> int:
    return 1


def test_the_group_of_a_test_reaches_xdist(shared: int, request: pytest.FixtureRequest) -> None:
    """xdist finds a group at the end of an id: after a group that it did not read, every process started a Spark of its own."""
    (group,) = (mark.args[0] for mark in request.node.iter_markers("xdist_group"))
    assert group == "tests/test_groups.py"
    assert request.node.nodeid.endswith(f"@{group}") is getattr(request.config.option, "loadgroup", False)
