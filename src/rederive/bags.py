"""Bags over an engine that knows sets: the copies of a table's row are numbered 1 to n, and a view's rows are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rederive.engines.protocol import Action, Bulk, Engine, Operation
from rederive.errors import Unsupported
from rederive.ir.rules import Program
from rederive.ir.terms import Row, Value


def copies(program: Program, name: str, bindings: Mapping[int, Value], engine: Engine) -> list[Row]:
    """The rows of a relation; of a bag, each as often as it is in it."""
    numbered = program.numbered_copies(name)
    if numbered is not None:
        return [row[:-1] for row in engine.rows(numbered, bindings)]
    counted = program.counting_relation(name)
    if counted == name:
        return engine.rows(name, bindings)
    return [tuple(row) for *row, count in engine.rows(counted, bindings) for _ in range(_number(count))]


def _number(count: Value) -> int:
    assert isinstance(count, int)
    return count


def numbered(
    program: Program, initial: Mapping[str, Collection[Row]], engine: Engine, known: Collection[str]
) -> dict[str, Collection[Row]]:
    """Initial rows with the copies of bags numbered, behind those that are there; the rows of sets as they are given.

    `known`: the base relations that the engine has.
    """
    found: dict[str, Collection[Row]] = {}
    for name, rows in initial.items():
        base = program.numbered_copies(name)
        if base is None:
            found[name] = rows
        else:
            each = _each(rows, name)
            found[base] = _behind(each, _present(base, each, engine) if base in known else Counter())
    return found


def _behind(rows: Collection[Row], present: Counter[Row]) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        present[row] += 1
        found.append((*row, present[row]))
    return found


def _each(rows: Collection[Row], name: str) -> Collection[Row]:
    """A data frame is taken as a set, and would lose the copies that a bag counts."""
    if isinstance(rows, Bulk):
        raise Unsupported(f"data frames are not taken for '{name}' yet: it has no key", hint="give the table a PRIMARY KEY")
    return rows


def on_copies(program: Program, operations: Sequence[Operation], engine: Engine) -> list[Operation]:
    """The operations on bags as operations on numbered copies: one more is the next, and one less is the last."""
    done = [operation for operation in operations if program.numbered_copies(operation.relation) is None]
    for name in dict.fromkeys(operation.relation for operation in operations):
        if (base := program.numbered_copies(name)) is not None:
            done += _moved(base, [operation for operation in operations if operation.relation == name], engine)
    return done


def _moved(base: str, operations: Sequence[Operation], engine: Engine) -> list[Operation]:
    """The operations on one bag: the copies that leave it, and those that enter."""
    rows = {row: None for operation in operations for row in _each(operation.rows, operation.relation)}
    before = _present(base, rows, engine)
    now = Counter(before)
    for operation in operations:
        step = -1 if operation.action is Action.DELETE else 1
        for row in operation.rows:
            now[row] = max(now[row] + step, 0)
    gone = [(*row, i) for row in rows for i in range(now[row] + 1, before[row] + 1)]
    came = [(*row, i) for row in rows for i in range(before[row] + 1, now[row] + 1)]
    return [Operation(Action.DELETE, base, tuple(gone)), Operation(Action.INSERT, base, tuple(came))]


def _present(base: str, rows: Collection[Row], engine: Engine) -> Counter[Row]:
    """How many copies of these rows there are."""
    return Counter(row[:-1] for row in engine.beginning(base, dict.fromkeys(rows)))
