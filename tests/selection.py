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


# Examples of a property that costs 10 to 300 ms of CPU each, in `make test` and in `make test-all`. Properties without a
# number of their own cost less, and run what the profile says.
FAST_EXAMPLES = 20
THOROUGH_EXAMPLES = 600


def examples(percent: int) -> settings:
    """Run this share of the examples: in `make test` at most all, and at least three; in `make test-all` more if it says so."""
    few = settings().derandomize  # the profile of `make test`
    number = FAST_EXAMPLES * min(percent, 100) // 100 if few else THOROUGH_EXAMPLES * percent // 100
    return settings(max_examples=max(3, number), suppress_health_check=list(HealthCheck))
