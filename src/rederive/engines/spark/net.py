"""The net effect of a transaction: what is left when opposite and idle changes cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.engines.base import Action, Delta, Operation
from rederive.engines.resident.codes import Codes
from rederive.engines.resident.net import net_effect
from rederive.engines.resident.table import Table
from rederive.engines.spark.jobs import Jobs
from rederive.engines.spark.kept import Kept
from rederive.engines.spark.sources import NULL_SAFE, Frame, Local, Source, listed, overlay, same, union
from rederive.engines.spark.types import column, columns, from_spark, literal
from rederive.errors import DuplicateKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value

Range = tuple[Value, Value]
_SENT_ROWS = 1_000_000  # of a transaction, to every worker


def net_rows(operations: Sequence[Operation], relations: Mapping[str, Relation], kept: Kept, jobs: Jobs) -> Mapping[str, Delta]:
    """Of operations in order: the rows that they are about, or that share a key with one of them, are fetched in one query for
    each relation; the rest is the resident engine's."""
    codes = Codes()
    tables = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        relation = relations[name]
        rows = (row for operation in operations if operation.relation == name for row in operation.rows)
        tables[name] = Table(name, relation.arity)
        tables[name].load(codes.encode_rows(relation.types, _concerned(relation, frozenset(rows), kept.source(name), jobs)))
    encoders = {name: codes.encoder(relations[name].types) for name in tables}
    return net_effect(operations, relations, tables.__getitem__, encoders, codes)


def _concerned(relation: Relation, rows: frozenset[Row], source: Source, jobs: Jobs) -> list[Row]:
    """The rows of a base relation that a transaction speaks of."""
    if isinstance(source, Local):
        return list(source.rows)
    given = jobs.frame(rows, relation.types)
    on = [column(i) for i in relation.key] or columns(relation.types)
    matching = " AND ".join(f"s.{c} <=> f.{c}" for c in on)
    text = f"SELECT /*+ BROADCAST(f) */ s.* FROM {source.text()} s LEFT SEMI JOIN {given.text()} f ON {matching}"
    return from_spark(jobs.few(text), relation.types)


def beginning(source: Source, prefixes: Frame, jobs: Jobs) -> list[Row]:
    """The rows of a source whose first columns are one of these, in one query."""
    if source.empty or prefixes.empty:
        return []
    if isinstance(source, Local) and isinstance(prefixes, Local):
        return [row for row in source.rows if row[: len(prefixes.types)] in prefixes.rows]
    matching = " AND ".join(f"s.{c} <=> p.{c}" for c in columns(prefixes.types))
    text = f"SELECT s.* FROM {source.text()} s LEFT SEMI JOIN {prefixes.text()} p ON {matching}"
    return jobs.rows(jobs.materialise(text, source.types))


def net_bulk(
    operations: Sequence[Operation], relations: Mapping[str, Relation], kept: Kept, jobs: Jobs
) -> dict[str, tuple[Frame, Frame]]:
    """Of operations of any size, in order: the rows that leave and those that enter, for each relation that changes."""
    found = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        relation, source = relations[name], kept.source(name)
        gone = came = _nothing(relation)
        for operation in operations:
            if operation.relation == name:
                gone, came = _after(operation, relation, source, gone, came, jobs)
        gone, came = _effective(relation, source, gone, came, jobs)
        if not gone.empty or not came.empty:
            found[name] = (gone, came)
    return found


def _effective(relation: Relation, source: Source, gone: Frame, came: Frame, jobs: Jobs) -> tuple[Frame, Frame]:
    """What of the rows that shall go is there, and what of those that shall come is not. The relation is read once, and only
    where the first column of its identity is in the range of theirs."""
    by = identity(relation)[0] if relation.arity else 0
    frames = [frame for frame in (gone, came) if not frame.empty]
    ranges = jobs.bounds(frames, by, relation.types[by]) if relation.arity else []
    if len(frames) == 2 and (len(ranges) < 2 or _meet(*ranges)):
        gone = jobs.minus(gone, [came])
    near = _near(relation, source, frames, ranges, jobs)
    gone, came = jobs.both(gone, near), jobs.minus(came, [near])
    check_keys(relation, overlay(near, gone, [came]), came, jobs)
    return gone, came


def identity(relation: Relation) -> tuple[int, ...]:
    """The columns that identify a row."""
    return relation.key or tuple(range(relation.arity))


def _meet(one: Range, other: Range) -> bool:
    """Whether two ranges of values have one in common, as far as can be told here."""
    if None in (*one, *other):
        return True
    return bool(one[0] <= other[1] and other[0] <= one[1])  # type: ignore[operator]


def _near(relation: Relation, source: Source, frames: Sequence[Frame], ranges: Sequence[Range], jobs: Jobs) -> Frame:
    """The rows of a base relation that a transaction speaks of, or that share a key with one of those."""
    if source.empty or not frames:
        return _nothing(relation)
    given = union(relation.types, frames)
    on = " AND ".join(f"s.{column(i)} {jobs.equal} f.{column(i)}" for i in identity(relation)) or "TRUE"
    hint = "/*+ BROADCAST(f) */ " if sum(map(len, frames)) <= _SENT_ROWS else ""
    rows = f"(SELECT * FROM {source.text()}{_within(relation, ranges, jobs)})"
    text = f"SELECT {hint}s.* FROM {rows} s LEFT SEMI JOIN {given.text()} f ON {on}"
    return jobs.materialise(text, relation.types)


def _within(relation: Relation, ranges: Sequence[Range], jobs: Jobs) -> str:
    if not ranges:
        return ""
    by = identity(relation)[0]
    value, type = column(by), relation.types[by]
    known = ((low, high) for low, high in ranges if low is not None and high is not None)
    tests = [f"{value} BETWEEN {literal(low, type)} AND {literal(high, type)}" for low, high in known]
    tests += [f"{value} IS NULL"] if jobs.equal == NULL_SAFE or not tests else []
    return f" WHERE {' OR '.join(tests)}"


def _nothing(relation: Relation) -> Frame:
    return Local(relation.types, frozenset())


def _after(operation: Operation, relation: Relation, source: Source, gone: Frame, came: Frame, jobs: Jobs) -> tuple[Frame, Frame]:
    """What shall be gone and what shall be there, after one more operation."""
    rows = jobs.given(operation.rows, relation.types)
    match operation.action:
        case Action.DELETE:
            return jobs.plus(gone, rows), jobs.minus(came, [rows])
        case Action.UPSERT if relation.key:
            rivals = _same_key(relation, source, rows, jobs)
            drafted = _same_key(relation, came, rows, jobs)
            return jobs.minus(jobs.plus(gone, jobs.plus(rivals, drafted)), [rows]), jobs.plus(jobs.minus(came, [drafted]), rows)
        case _:
            return gone, jobs.plus(came, rows)  # what comes is not gone: `_effective` sees to that


def _same_key(relation: Relation, source: Source, rows: Frame, jobs: Jobs) -> Frame:
    """The rows of a source that share a key with one of these."""
    if source.empty or rows.empty:
        return _nothing(relation)
    matching = " AND ".join(f"s.{column(i)} <=> f.{column(i)}" for i in relation.key)
    text = f"SELECT s.* FROM {source.text()} s LEFT SEMI JOIN {rows.text()} f ON {matching}"
    return jobs.materialise(text, relation.types)


def check_keys(relation: Relation, state: Source, came: Source, jobs: Jobs) -> None:
    """Refuse a state in which two rows share the key of a row that entered."""
    if not relation.key or came.empty:
        return
    key = [column(i) for i in relation.key]
    near = " AND ".join(f"s.{c} <=> k.{c}" for c in key)
    rows = f"SELECT s.* FROM {state.text()} s LEFT SEMI JOIN {came.text()} k ON {near}"
    shared = f"SELECT {', '.join(key)} FROM ({rows}) GROUP BY {', '.join(key)} HAVING count(*) > 1 LIMIT 1"
    pairs = f"SELECT s.* FROM {state.text()} s LEFT SEMI JOIN ({shared}) k ON {near} LIMIT 2"
    found = from_spark(jobs.few(pairs), relation.types)
    if found:
        raise DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], found[0], found[1])


def difference(one: Source, other: Source, jobs: Jobs) -> Frame:
    """The rows of one source that another has not."""
    types = one.types
    if isinstance(one, Local):
        return jobs.minus(one, [other])
    if other.empty:
        return jobs.materialise(f"SELECT {listed(types)} FROM {one.text()}", types)
    return jobs.materialise(f"SELECT o.* FROM {one.text()} o LEFT ANTI JOIN {other.text()} k ON {same(types, 'o', 'k')}", types)
