"""What a warehouse maintains without a source is what the definition of self-maintainability says, by brute force."""

from __future__ import annotations

import pytest

import rederive
from rederive.warehouse.report import MaintenanceReport
from tests.selection import fast_only
from tests.warehouse.definition import LOCAL, Problem, random_problem

PROBED_AND_COMPARED = 744  # a rule narrowed the rows of a probe that found none
SEEDS = (*range(300), PROBED_AND_COMPARED)
# A "no" that was too careful: decided by rows that change nothing, by rules that contradict themselves, and by the search.
DECIDED = {5: 0, 45: 1, 46: 0, 62: 0, 104: 0, 108: 1, 128: 1, 131: 1, 189: 1, 251: 1, 291: 1}


@pytest.mark.parametrize(("seed", "view"), DECIDED.items())
def test_a_view_is_maintained_if_all_consistent_databases_agree(seed: int, view: int) -> None:
    problem = random_problem(seed)
    assert f"v{view}" not in _maintained(problem)[1].waiting


@pytest.mark.parametrize("seed", fast_only(SEEDS, *range(12), PROBED_AND_COMPARED))
def test_every_consistent_database_gives_the_maintained_view(seed: int) -> None:
    """Projections, unions, comparisons, functors, negated local relations, keys, and updates that are net or not."""
    problem = random_problem(seed)
    warehouse, report = _maintained(problem)
    candidates = list(problem.consistent())
    for i in range(len(problem.views)):
        if f"v{i}" not in report.waiting:
            expected = {problem.answer(i, problem.updated(database)) for database in candidates}
            assert expected == {frozenset(warehouse.rows(f"v{i}"))}


def _maintained(problem: Problem) -> tuple[rederive.Warehouse, MaintenanceReport]:
    warehouse = rederive.Warehouse(problem.text(), net=problem.net)
    if any(LOCAL in view.sources for view in warehouse.views):
        warehouse.load(LOCAL, problem.state[LOCAL])
    for i in range(len(problem.views)):
        warehouse.load(f"v{i}", problem.answer(i, problem.state))
    return warehouse, warehouse.apply(insert=problem.insert, delete=problem.delete)
