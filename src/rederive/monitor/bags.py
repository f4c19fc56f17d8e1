"""Bags over an engine that knows sets: the copies of a table's row are numbered 1 to n, and a view's rows are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rederive.engines.base import Action, Bulk, Engine, Operation
from rederive.errors import Unsupported
from rederive.ir.rules import BAG, Program
from rederive.ir.terms import Row, Value


def told(name: str) -> str:
    """The view that a counting relation tells the changes of.

    >>> told("v.bag"), told("v")
    ('v', 'v')
    """
    return name.removesuffix(f".{BAG}")


def bag_tables(program: Program) -> frozenset[str]:
    """The tables that may hold a row several times."""
    return frozenset(name for name in program.relations if program.copies_of(name))


def copies(program: Program, name: str, bindings: Mapping[int, Value], engine: Engine) -> list[Row]:
    """The rows of a relation; of a bag, each as often as it is in it."""
    numbered = program.copies_of(name)
    if numbered is not None:
        return [row[:-1] for row in engine.rows(numbered, bindings)]
    counted = program.counted(name)
    if counted == name:
        return engine.rows(name, bindings)
    return [tuple(row) for *row, count in engine.rows(counted, bindings) for _ in range(_number(count))]


def _number(count: Value) -> int:
    assert isinstance(count, int)
    return count


def numbered(program: Program, initial: Mapping[str, Collection[Row]], engine: Engine) -> dict[str, Collection[Row]]:
    """Initial rows with the copies of bags numbered, behind those that are there; the rows of sets as they are given."""
    found: dict[str, Collection[Row]] = {}
    for name, rows in initial.items():
        base = program.copies_of(name)
        found[base or name] = _behind(_each(rows, name), base, engine) if base else rows
    return found


def _behind(rows: Collection[Row], base: str, engine: Engine) -> list[Row]:
    present = Counter(row[:-1] for row in engine.rows(base, {}))
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
    done: list[Operation] = []
    moved: dict[str, dict[Row, tuple[int, int]]] = {}
    for operation in operations:
        base = program.copies_of(operation.relation)
        if base is None:
            done.append(operation)
            continue
        counts = moved.setdefault(base, {})
        step = -1 if operation.action is Action.DELETE else 1
        for row in _each(operation.rows, operation.relation):
            before, now = counts.get(row) or (_present(base, row, engine),) * 2
            counts[row] = (before, max(now + step, 0))
    for base, counts in moved.items():
        gone = [(*row, i) for row, (before, now) in counts.items() for i in range(now + 1, before + 1)]
        came = [(*row, i) for row, (before, now) in counts.items() for i in range(before + 1, now + 1)]
        done += [Operation(Action.DELETE, base, tuple(gone)), Operation(Action.INSERT, base, tuple(came))]
    return done


def _present(base: str, row: Row, engine: Engine) -> int:
    return len(engine.rows(base, dict(enumerate(row))))
