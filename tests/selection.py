"""Which cases of a parametrized test, and how many examples of a property, run in `make test` and in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


def fast_only(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """Mark every case but the fast ones as slow.

    >>> [(case.values[0], [mark.name for mark in case.marks]) for case in fast_only(["a", "b"], "b")]
    [('a', ['slow']), ('b', [])]
    """
    listed = list(cases)
    unknown = [case for case in fast if case not in listed]
    assert not unknown, f"not among the cases: {unknown}"
    return [pytest.param(case, marks=() if case in fast else pytest.mark.slow) for case in listed]


def examples(percent: int) -> settings:
    """Run this share of the profile's number of examples, and at least three."""
    return settings(max_examples=max(3, settings().max_examples * percent // 100), suppress_health_check=list(HealthCheck))
