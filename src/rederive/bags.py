"""Bags over engines that know sets: what is read of a bag, and how changes of a bag become changes of its numbered copies.

A table that is a bag is held by the base relation of its numbered copies: (row, 1) ... (row, n) for a row of multiplicity n. The
numbers have no gaps, so that one copy more is the next number, one copy less is the last number, and the multiplicity of a row is
the number of its copies. Rows of a data frame that are many are numbered where they are, by an engine on Spark. A view that is a
bag is held by a relation that counts its rows; see `ir.rules.BagRelations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from rederive.delta import Delta, copies, nonempty, sum_of_counts
from rederive.engines.protocol import Action, Bulk, Engine, Operation
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
        elif base in known:
            entering = engine.net_effect_of_bag(base, [Operation(Action.INSERT, name, rows)]) if isinstance(rows, Bulk) else None
            present = Counter(_multiplicities(base, rows, engine)) if entering is None else Counter()
            found[base] = entering.plus if entering is not None else _next_copies(rows, present)
        elif isinstance(rows, Bulk) and not rows.is_in_driver:
            found[base] = rows.number_copies()
        else:
            found[base] = _next_copies(rows, Counter())
    return found


def net_effect(program: Program, operations: Sequence[Operation], engine: Engine) -> Mapping[str, Delta]:
    """The deltas of base relations that are left after opposite and idle requests cancel; of bags, those of their copies."""
    on_sets: list[Operation] = []
    on_bags: dict[str, list[Operation]] = {}
    for operation in operations:
        base = program.numbered_copies(operation.relation)
        (on_sets if base is None else on_bags.setdefault(base, [])).append(operation)
    in_spark = {base: given for base, given in on_bags.items() if any(isinstance(one.rows, Bulk) for one in given)}
    for base in (base for base in on_bags if base not in in_spark):
        on_sets += _operations_on(base, on_bags[base], engine)
    found = dict(engine.net_effect(on_sets))
    for base, given in in_spark.items():
        delta = engine.net_effect_of_bag(base, given)
        found |= nonempty({base: delta}) if delta is not None else engine.net_effect(_operations_on(base, given, engine))
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
    left = [(*row, i) for row in rows for i in range(after[row] + 1, before.get(row, 0) + 1)]
    entered = [(*row, i) for row in rows for i in range(before.get(row, 0) + 1, after[row] + 1)]
    return [Operation(Action.DELETE, base, tuple(left)), Operation(Action.INSERT, base, tuple(entered))]


def _next_copies(rows: Collection[Row], present: Counter[Row]) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        present[row] += 1
        found.append((*row, present[row]))
    return found


def _multiplicities(base: str, rows: Collection[Row], engine: Engine) -> Mapping[Row, int]:
    """How many copies of each of these rows there are."""
    return engine.copies(base, dict.fromkeys(rows))
