"""What a warehouse maintains without a source is what the definition of self-maintainability says, by brute force."""

from __future__ import annotations

import pytest

import rederive
from tests.selection import fast_only
from tests.warehouse.definition import LOCAL, random_problem

PROBED_AND_COMPARED = 744  # a rule narrowed the rows of a probe that found none
SEEDS = (*range(300), PROBED_AND_COMPARED)


@pytest.mark.parametrize("seed", fast_only(SEEDS, *range(12), PROBED_AND_COMPARED))
def test_every_consistent_database_gives_the_maintained_view(seed: int) -> None:
    """Projections, unions, comparisons, functors, negated local relations, keys, and updates that are net or not."""
    problem = random_problem(seed)
    warehouse = rederive.Warehouse(problem.text(), net=problem.net)
    if any(LOCAL in view.sources for view in warehouse.views):
        warehouse.load(LOCAL, problem.state[LOCAL])
    for i in range(len(problem.views)):
        warehouse.load(f"v{i}", problem.answer(i, problem.state))
    report = warehouse.apply(insert=problem.insert, delete=problem.delete)
    candidates = list(problem.consistent())
    for i in range(len(problem.views)):
        if f"v{i}" not in report.waiting:
            expected = {problem.answer(i, problem.updated(database)) for database in candidates}
            assert expected == {frozenset(warehouse.rows(f"v{i}"))}
