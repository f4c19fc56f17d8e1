"""Bags over engines that know sets: what is read of a bag, and how changes of a bag become changes of its numbered copies.

A table that is a bag is held by the base relation of its numbered copies: (row, 1) ... (row, n) for a row of multiplicity n. The
numbers have no gaps, so that one copy more is the next number, one copy less is the last number, and the multiplicity of a row is
the number of its copies. Rows of a data frame come to this process to be numbered. A view that is a bag is held by a relation
that counts its rows; see `ir.rules.BagRelations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from rederive.delta import copies, sum_of_counts
from rederive.engines.protocol import Action, Engine, Operation
from rederive.ir.rules import Program
from rederive.ir.terms import Row, Value


def read_rows(program: Program, name: str, bindings: Mapping[int, Value], engine: Engine, limit: int | None = None) -> list[Row]:
    """The rows of a relation; of a bag, each as often as its multiplicity. At most `limit` of them."""
    base = program.numbered_copies(name)
    if base is not None:
        return [row[:-1] for row in engine.rows(base, bindings, limit)]
    counting = program.counting_relation(name)
    found = engine.rows(counting, bindings, limit)
    return found if counting == name else list(islice(copies(sum_of_counts(found)), limit))


def number_rows(
    program: Program, initial: Mapping[str, Collection[Row]], engine: Engine, known: Collection[str]
) -> dict[str, Collection[Row]]:
    """Initial rows by base relation: those of bags as numbered copies after the present ones, those of sets unchanged.

    `known`: the base relations that the engine has already.
    """
    found: dict[str, Collection[Row]] = {}
    for name, rows in initial.items():
        base = program.numbered_copies(name)
        if base is None:
            found[name] = rows
        else:
            found[base] = _next_copies(rows, _multiplicities(base, rows, engine) if base in known else Counter())
    return found


def number_operations(program: Program, operations: Sequence[Operation], engine: Engine) -> list[Operation]:
    """The operations on bags as operations on their numbered copies, after those on sets."""
    found = [operation for operation in operations if program.numbered_copies(operation.relation) is None]
    for name in dict.fromkeys(operation.relation for operation in operations):
        if (base := program.numbered_copies(name)) is not None:
            found += _operations_on(base, [operation for operation in operations if operation.relation == name], engine)
    return found


def _operations_on(base: str, operations: Sequence[Operation], engine: Engine) -> list[Operation]:
    """The operations on one bag: the copies that leave it, then those that enter."""
    rows = {row: None for operation in operations for row in operation.rows}
    before = _multiplicities(base, rows, engine)
    after = Counter(before)
    for operation in operations:
        step = -1 if operation.action is Action.DELETE else 1
        for row in operation.rows:
            after[row] = max(after[row] + step, 0)  # deleting a row that is not there has no effect
    # The highest numbers leave, so that the numbers of the copies that stay have no gap.
    left = [(*row, i) for row in rows for i in range(after[row] + 1, before[row] + 1)]
    entered = [(*row, i) for row in rows for i in range(before[row] + 1, after[row] + 1)]
    return [Operation(Action.DELETE, base, tuple(left)), Operation(Action.INSERT, base, tuple(entered))]


def _next_copies(rows: Collection[Row], present: Counter[Row]) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        present[row] += 1
        found.append((*row, present[row]))
    return found


def _multiplicities(base: str, rows: Collection[Row], engine: Engine) -> Counter[Row]:
    """How many copies of each of these rows there are."""
    return Counter(row[:-1] for row in engine.rows_with_prefix(base, dict.fromkeys(rows)))
