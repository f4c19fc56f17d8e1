"""One-edge changes: an edge leaves and comes back, and what the view loses it must win again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, TypeVar

from rederive import Change, Database, Result

T = TypeVar("T")
Edge = tuple[Any, ...]


def timed(step: Callable[[], T]) -> tuple[float, T]:
    """How long a step takes, in seconds of CPU time of this process, and what it returns."""
    started = time.process_time()
    value = step()
    return time.process_time() - started, value


def elapsed(step: Callable[[], T]) -> tuple[float, T]:
    """The same on the clock: for what other processes work on too, such as the JVM of Spark."""
    started = time.perf_counter()
    value = step()
    return time.perf_counter() - started, value


@dataclass(frozen=True, slots=True)
class Round:
    """One row deleted and inserted. The times end with the exact change in hand, coded; `decode` is what its rows cost more.

    `touched`: the tuples that the delete and the insert looked at.
    """

    delete: float
    insert: float
    decode: float
    touched: tuple[int, int]
    rows: tuple[Edge, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the 95th percentile and the largest of some times.

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(median=2.0, p95=3.0, largest=3.0)
    """

    median: float
    p95: float
    largest: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        return cls(median(times), min(quantiles(times, n=20)[-1], max(times)), max(times))


def one_round(
    db: Database,
    edge: Edge,
    view: str = "closure",
    relation: str = "edge",
    *,
    monotone: bool = True,
    after: Callable[[], object] = lambda: None,
) -> Round:
    """Delete an edge, or another row, and insert it again, each as a transaction of its own; `after` runs after each, untimed.

    A monotone view gains nothing by a delete; under negation or an aggregate, what it gains the insert must take back.
    """
    deleting, deleted = timed(lambda: delete(db, relation, edge))
    after()
    inserting, inserted = timed(lambda: insert(db, relation, edge))
    after()
    lost, won = deleted.changes.get(view), inserted.changes.get(view)
    decoding, rows = timed(lambda: _minus(lost))
    verified = rows == _plus(won) and _plus(lost) == _minus(won) and not (monotone and _plus(lost))
    return Round(deleting, inserting, decoding, (deleted.touched, inserted.touched), tuple(rows), verified)


def delete(db: Database, relation: str, row: Edge) -> Result:
    with db.transaction() as tx:
        tx.delete(relation, [row])
    return tx.result


def insert(db: Database, relation: str, row: Edge) -> Result:
    with db.transaction() as tx:
        tx.insert(relation, [row])
    return tx.result


def _plus(change: Change | None) -> list[Any]:
    return [] if change is None else change.plus


def _minus(change: Change | None) -> list[Any]:
    return [] if change is None else change.minus
