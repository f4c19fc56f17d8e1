"""The net effect of a transaction of any size, in two queries for each relation.

The first gathers what the operations wish of each row that they name. The second reads the rows of the relation that have the
identity of one of these, where the identity's first column is in their range, and tells which rows enter and which leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rederive.engines.base import Action, Bulk, Operation
from rederive.engines.spark.bulk import lacking
from rederive.engines.spark.jobs import Jobs
from rederive.engines.spark.kept import Held, Kept
from rederive.engines.spark.net import duplicate, identity
from rederive.engines.spark.sources import Distributed, Ends, Frame, Local, listed, shown
from rederive.engines.spark.types import column, columns, from_spark, literal
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row

_DENSE = 4  # rows of a range for each that is wished for, at most, for all of it to be taken
_SENT_ROWS = 1_000_000  # of a transaction, to every worker


@dataclass(frozen=True, slots=True)
class _Wishes:
    """Rows with two columns more: the last wish for each, `2 * number`, one more where it shall be there; and the number of the
    last upsert of it, or 0.

    `ends`: the least and greatest values of the identity's first column, for rows that shall leave and for those that shall be
    there. `upserts`: whether rows leave that are not named.
    """

    rows: Distributed
    ends: Mapping[bool, Ends]
    upserts: bool

    def around(self, relation: Relation) -> tuple[Ends | None, Ends | None]:
        """Values between which the rows that leave are, and those that enter; NULL is between none."""
        if not relation.arity or relation.columns[identity(relation)[0]].nullable:
            return None, None
        return None if self.upserts else self.ends.get(False), self.ends.get(True)


def net_bulk(
    operations: Sequence[Operation], relations: Mapping[str, Relation], kept: Kept, jobs: Jobs
) -> dict[str, tuple[Frame, Frame]]:
    """Of operations in order: the rows that leave and those that enter, for each relation that changes."""
    found = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        relation = relations[name]
        wishes = _wishes([operation for operation in operations if operation.relation == name], relation, jobs)
        gone, came = _effect(wishes, relation, kept.held[name], jobs)
        if not gone.empty or not came.empty:
            found[name] = (gone, came)
    return found


def _wishes(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> _Wishes:
    types = shown(relation.types)
    wish, _ = _beside(relation)
    rows = " UNION ALL ".join(_numbered(operations, relation, jobs))
    found = jobs.cut(jobs.session.sql(rows), (*types, NUMBER, NUMBER))
    first = _identity(relation)[0]
    named = jobs.named(found, types, 0)
    nulls = (f"WHEN {column(i)} IS NULL THEN {i}" for i, c in enumerate(relation.columns) if not c.nullable)
    null = f"min(CASE {' '.join(nulls)} WHEN FALSE THEN 0 END)"
    asked = f"{wish} % 2 AS there, count(*), {null}, min({first}), max({first})"
    told = jobs.few(f"SELECT {asked} FROM {named.text()} GROUP BY {wish} % 2")
    for row in told:
        if row[2] is not None:
            raise lacking(relation, row[2])
    by = types[identity(relation)[0]] if relation.arity else types[0]
    values = from_spark((row[3:] for row in told), (by, by))
    ends = {bool(row[0]): (low, high) for row, (low, high) in zip(told, values, strict=True)}
    upserts = any(operation.action is Action.UPSERT for operation in operations)
    return _Wishes(replace(named, count=sum(row[1] for row in told)), ends, upserts)


def _numbered(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> Iterator[str]:
    """The rows of each operation with what it wishes. Those of a list are wished for one after the other."""
    chosen, wish, upsert = listed(shown(relation.types)), *_beside(relation)
    number = 1
    for operation in operations:
        there, upserted = int(operation.action is not Action.DELETE), int(operation.action is Action.UPSERT)
        if isinstance(operation.rows, Bulk):
            source, order = jobs.handed(operation.rows, relation.types), str(number)
            number += 1
        else:
            rows = {row or (True,): n for n, row in enumerate(operation.rows, number)}
            source, order = jobs.frame(((*row, n) for row, n in rows.items()), (*shown(relation.types), NUMBER)), wish
            number += len(operation.rows)
        yield (
            f"SELECT {chosen}, CAST(2 * {order} + {there} AS BIGINT) AS {wish}, "
            f"CAST({upserted} * {order} AS BIGINT) AS {upsert} FROM {source.text()}"
        )


def _effect(wishes: _Wishes, relation: Relation, held: Held, jobs: Jobs) -> tuple[Frame, Frame]:
    """The rows that leave and those that enter; refused where two that are left share a key."""
    if not len(wishes.rows):
        return _nothing(relation), _nothing(relation)
    sign, rivals = _beside(relation)
    data = jobs.cut(jobs.session.sql(_compared(wishes, relation, held, jobs)), (*shown(relation.types), NUMBER, NUMBER))
    found = jobs.named(data, relation.types, 0)
    told = {row[0]: row[1:] for row in jobs.few(f"SELECT {sign}, count(*), max({rivals}) FROM {found.text()} GROUP BY {sign}")}
    if any(most > 1 for _, most in told.values()):
        _refuse(relation, found, jobs)
    return jobs.by_sign(found, {way: number for way, (number, _) in told.items()}, wishes.around(relation))


def _compared(wishes: _Wishes, relation: Relation, held: Held, jobs: Jobs) -> str:
    """Rows with `sign`, -1 where they leave and 1 where they enter, and with the number of rows that then have their key."""
    chosen, wish, upsert = listed(shown(relation.types)), *_beside(relation)
    key = ", ".join(column(i) for i in relation.key)
    rows = f"SELECT {chosen}, {wish}, {upsert}, 0 AS was FROM {wishes.rows.text()}"
    if near := _near(wishes, relation, held, jobs):
        rows += f" UNION ALL SELECT {chosen}, -1L, 0L, was FROM ({near})"
    last = f"max({wish}) AS {wish}, max({upsert}) AS {upsert}, sum(was) AS was"
    each = f"SELECT {chosen}, {last} FROM ({_by_identity(rows, relation, jobs)}) GROUP BY {chosen}"
    upserted = f"max({upsert}) OVER (PARTITION BY {key})" if key and wishes.upserts else "0L"
    stays = f"CASE WHEN {wish} DIV 2 < upserted THEN 0 WHEN {wish} < 0 THEN was ELSE {wish} % 2 END"
    states = f"SELECT {chosen}, was, {stays} AS stays FROM (SELECT *, {upserted} AS upserted FROM ({each}))"
    rivals = f"sum(stays) OVER (PARTITION BY {key})" if key else "1"
    signed = f"SELECT {chosen}, CAST(stays - was AS BIGINT) AS {wish}, CAST({rivals} AS BIGINT) AS {upsert} FROM ({states})"
    return f"SELECT * FROM ({signed}) WHERE {wish} <> 0 OR {upsert} > 1"


def _near(wishes: _Wishes, relation: Relation, held: Held, jobs: Jobs) -> str:
    """The rows of a relation that are wished for or share a key with one of these, and their changes: `was` is 1 or -1.

    Where the range of the wishes holds few others, all of it is taken. Nothing, where there are none.
    """
    chosen, within = listed(shown(relation.types)), _within(wishes, relation)
    parts = [(frame, was) for frame, was in ((held.rows, 1), *held.signed) if not frame.empty and _meets(wishes, frame)]
    rows = " UNION ALL ".join(f"SELECT {chosen}, {was} AS was FROM {frame.text()}{within}" for frame, was in parts)
    if not parts or _dense(wishes, relation):
        return rows
    equal = "=" if relation.key else jobs.equal
    on = " AND ".join(f"s.{c} {equal} f.{c}" for c in _identity(relation))
    hint = "/*+ BROADCAST(f) */ " if len(wishes.rows) <= _SENT_ROWS else ""
    return f"SELECT {hint}s.* FROM ({rows}) s LEFT SEMI JOIN {wishes.rows.text()} f ON {on}"


def _meets(wishes: _Wishes, frame: Frame) -> bool:
    """Whether rows can be among those wished for, as far as can be told here."""
    if isinstance(frame, Local) or frame.ends is None:
        return True
    low, high = frame.ends
    return any(
        None in (low, high, least, greatest) or (low <= greatest and least <= high)  # type: ignore[operator]
        for least, greatest in wishes.ends.values()
    )


def _dense(wishes: _Wishes, relation: Relation) -> bool:
    """Whether the ranges of a key cannot hold many more rows than there are wishes."""
    if len(relation.key) != 1 or relation.types[relation.key[0]] != NUMBER:
        return False
    most = sum(high - low + 1 for low, high in wishes.ends.values() if isinstance(low, int) and isinstance(high, int))
    return most <= _DENSE * len(wishes.rows)


def _within(wishes: _Wishes, relation: Relation) -> str:
    if not relation.arity:
        return ""
    by = identity(relation)[0]
    value, type = column(by), relation.types[by]
    known = ((low, high) for low, high in wishes.ends.values() if low is not None and high is not None)
    tests = [f"{value} BETWEEN {literal(low, type)} AND {literal(high, type)}" for low, high in known]
    tests += [f"{value} IS NULL"] if relation.columns[by].nullable or not tests else []
    return f" WHERE {' OR '.join(tests)}"


def _refuse(relation: Relation, found: Distributed, jobs: Jobs) -> None:
    _, rivals = _beside(relation)
    key = ", ".join(column(i) for i in relation.key)
    text = f"SELECT {listed(relation.types)} FROM {found.text()} WHERE {rivals} > 1 ORDER BY {key} LIMIT 2"
    rows: list[Row] = from_spark(jobs.few(text), relation.types)
    raise duplicate(relation, rows)


def _beside(relation: Relation) -> tuple[str, str]:
    """The two columns beside those of a relation."""
    width = len(shown(relation.types))
    return column(width), column(width + 1)


def _identity(relation: Relation) -> list[str]:
    return [column(i) for i in identity(relation)] or columns(())


def _by_identity(rows: str, relation: Relation, jobs: Jobs) -> str:
    """Rows where the others of their identity are."""
    return f"SELECT /*+ REPARTITION({jobs.parts}, {', '.join(_identity(relation))}) */ * FROM ({rows})"


def _nothing(relation: Relation) -> Local:
    return Local(relation.types, frozenset())
