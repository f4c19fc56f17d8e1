"""What monitoring a condition costs: tuples touched, which do not depend on how many rows there are."""

from __future__ import annotations

import pytest

import rederive

SALARIES = """
CREATE TABLE employee (id BIGINT PRIMARY KEY, salary BIGINT NOT NULL);
CREATE TABLE budget (most BIGINT PRIMARY KEY);
"""
RULE = """
CREATE RULE overspent WHEN SELECT b.most FROM (SELECT sum(salary) AS total FROM employee) s JOIN budget b ON s.total > b.most
DO CALL alarm
"""


def costs(employees: int) -> list[int]:
    """The tuples touched by raises, a hiring and a departure, one of which breaks the budget."""
    db = rederive.open()
    alarms: list[object] = []
    db.sql(SALARIES)
    db.load("employee", ((i, 1000) for i in range(employees)))
    db.load("budget", [(1000 * employees + 1500,)])
    db.rules.register(alarms.append, "alarm")
    db.sql(RULE)
    found = []
    for statement in (
        "UPDATE employee SET salary = 1900 WHERE id = 7",
        "UPDATE employee SET salary = 2900 WHERE id = 8",
        "DELETE FROM employee WHERE id = 8",
        f"INSERT INTO employee VALUES ({employees}, 1100)",
    ):
        (result,) = db.sql(statement)
        found.append(result.touched)
    assert len(alarms) == 1
    return found


def test_the_salary_example_costs_the_same_for_any_number_of_employees() -> None:
    assert costs(1_000) == costs(20_000)


@pytest.mark.slow
def test_the_salary_example_with_a_million_employees() -> None:
    assert costs(1_000) == costs(1_000_000)


def test_an_inactive_rule_costs_nothing() -> None:
    db = rederive.open()
    alarms: list[object] = []
    db.sql(SALARIES)
    db.rules.register(alarms.append, "alarm")
    db.sql("INSERT INTO budget VALUES (100)")
    db.sql(RULE)
    db.sql("ALTER RULE overspent DEACTIVATE")
    (result,) = db.sql("INSERT INTO employee VALUES (1, 1000)")
    assert (result.touched, alarms) == (0, [])
