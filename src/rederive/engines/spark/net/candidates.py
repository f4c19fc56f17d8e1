"""The rows of a relation that the wishes of a transaction can be about."""

from __future__ import annotations

from collections.abc import Sequence

from rederive.engines.spark.net.requested import Wishes, by_identity
from rederive.engines.spark.plan.sources import Frame, listed, shown
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import identity
from rederive.engines.spark.run.storage import Held
from rederive.engines.spark.session.types import column, literal

_SENT_ROWS = 1_000_000  # of a transaction, to every worker

Part = tuple[Frame, int]  # rows, and whether they are there, 1, or were taken out of those that are, -1


def parts_near(wishes: Wishes, held: Held) -> list[Part]:
    """A relation's rows and their changes, where some can be wished for."""
    return [(frame, was) for frame, was in ((held.rows, 1), *held.signed) if not frame.empty and wishes.meet(frame)]


def near(wishes: Wishes, parts: Sequence[Part], jobs: Jobs) -> str:
    """A query for those that are wished for or share a key with one of these; `was` is 1 or -1.

    Where the range of the wishes holds few others, all of it is taken. Nothing, where there are none.
    """
    relation = wishes.relation
    chosen, within = listed(shown(relation.types)), _within(wishes)
    rows = " UNION ALL ".join(f"SELECT {chosen}, {was}L AS was FROM {frame.text()}{within}" for frame, was in parts)
    if not parts or wishes.dense:
        return rows
    equal = "=" if relation.key else jobs.equal
    on = " AND ".join(f"s.{c} {equal} f.{c}" for c in by_identity(relation))
    hint = "/*+ BROADCAST(f) */ " if len(wishes.rows) <= _SENT_ROWS else ""
    return f"SELECT {hint}s.* FROM ({rows}) s LEFT SEMI JOIN {wishes.rows.text()} f ON {on}"


def _within(wishes: Wishes) -> str:
    relation = wishes.relation
    if not relation.arity:
        return ""
    by = identity(relation)[0]
    value, type = column(by), relation.types[by]
    tests = [f"{value} BETWEEN {literal(low, type)} AND {literal(high, type)}" for low, high in wishes.ranges]
    tests += [f"{value} IS NULL"] if wishes.nulls or not tests else []
    return f" WHERE {' OR '.join(tests)}"
