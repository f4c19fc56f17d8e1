"""Which cases of a parametrized test run in `make test`, and which only in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def fast_only(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """Mark every case but the fast ones as slow.

    >>> [(case.values[0], [mark.name for mark in case.marks]) for case in fast_only(["a", "b"], "b")]
    [('a', ['slow']), ('b', [])]
    """
    listed = list(cases)
    unknown = [case for case in fast if case not in listed]
    assert not unknown, f"not among the cases: {unknown}"
    return [pytest.param(case, marks=() if case in fast else pytest.mark.slow) for case in listed]
