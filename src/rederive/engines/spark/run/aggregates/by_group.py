"""Aggregates by affected group.

Counts and sums of whole numbers are kept beside the view, for each group, and moved by the changed rows alone. A minimum or
maximum looks at its group again only when the row that held it leaves. What Spark does not sum exactly is folded anew, for the
affected groups.
"""

from __future__ import annotations

from rederive.analysis.derivations import derived_once
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, listed
from rederive.engines.spark.run.aggregates.arrow_totals import totals
from rederive.engines.spark.run.aggregates.from_scratch import SUM, check_sums, exactly_native, folded, too_large, value_type
from rederive.engines.spark.run.arrow_sets import comparable
from rederive.engines.spark.run.derivation import derivation
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.run.round import viewed
from rederive.engines.spark.run.storage import Kept
from rederive.engines.spark.session.types import column, columns, sql_type
from rederive.ir.rules import Aggregate, Function, Rule, Variant
from rederive.ir.terms import NUMBER, Kind, Row, Type
from rederive.maintain.maintenance_rule import in_state
from rederive.values import INTEGER_RANGES

TOTAL = Type(Kind.DECIMAL, 38, 0)
Shared = dict[tuple[str, tuple[int, ...]], Frame]  # totals, by the rows and the groups that they are of


def beside(name: str) -> str:
    """What an aggregate keeps beside its view: for each group the number of rows, of values that are not NULL, and their sum."""
    return f"{name}.totals"


def fill(aggregate: Aggregate, relations: Relations, kept: Kept, jobs: Jobs, shared: Shared) -> None:
    """The first evaluation."""
    source = _source(aggregate, relations, Variant.OLD, jobs)
    types = relations.types(aggregate.relation)
    if source.empty:
        kept.write(aggregate.relation, Local(types, frozenset()))
        if _moved_by_rows(aggregate, relations):
            kept.write(beside(aggregate.relation), Local(_totals_types(types), frozenset()))
        return
    rows = f"SELECT {listed(source.types)} FROM {source.text()}"
    if not _moved_by_rows(aggregate, relations):
        kept.write(aggregate.relation, folded(aggregate, relations.program, rows, jobs))
        return
    found = _totals(aggregate, [(source, 1)], relations, jobs, shared)
    kept.write(beside(aggregate.relation), found)
    kept.write(aggregate.relation, jobs.materialise(_results(aggregate, relations, found, jobs), types))


def change(
    aggregate: Aggregate, relations: Relations, kept: Kept, jobs: Jobs, shared: Shared
) -> dict[str, tuple[Source, Source]]:
    """The exact change of the view, and of what is kept beside it."""
    if _moved_by_rows(aggregate, relations):
        return _move(aggregate, relations, kept, jobs, shared)
    touched = _touched(aggregate, relations, jobs)
    old = _of_groups(kept.source(aggregate.relation), touched, range(len(aggregate.group)))
    before = jobs.materialise(old, relations.types(aggregate.relation))
    _replace(aggregate, relations, before, _again(aggregate, relations, touched, jobs), jobs)
    return {}


def compare(aggregate: Aggregate, relations: Relations, jobs: Jobs) -> None:
    """An aggregate that is not kept: the affected groups in both states."""
    touched = _touched(aggregate, relations, jobs)
    bound = tuple(range(len(aggregate.group)))
    states = []
    for state in (Variant.OLD, Variant.NEW):
        lazy = relations.state(aggregate.relation, state)
        assert not isinstance(lazy, Source)
        lazy.ask(bound, touched)
        rows = lazy.source()
        text = _of_groups(rows, touched, bound)
        states.append(Local(rows.types, frozenset()) if rows.empty else jobs.materialise(text, rows.types))
    _replace(aggregate, relations, states[0], states[1], jobs)


def _replace(aggregate: Aggregate, relations: Relations, before: Frame, after: Frame, jobs: Jobs) -> None:
    """A group whose result stays the same appears in neither change."""
    relations.found(aggregate.relation, Variant.DEL).put([jobs.minus(before, [after])])
    relations.found(aggregate.relation, Variant.INS).put([jobs.minus(after, [before])])


def _source(aggregate: Aggregate, relations: Relations, state: Variant, jobs: Jobs) -> Source:
    """The rows to fold. Where they are not kept, all of them are derived: by one query, if each has one derivation."""
    found = relations.state(aggregate.source, state)
    if isinstance(found, Source):
        return found
    if derived_once(relations.component(aggregate.source), relations.program):
        return _query(aggregate.source, relations, state, jobs)
    found.ask((), Local((), frozenset({()})))
    return found.source()


def _query(name: str, relations: Relations, state: Variant, jobs: Jobs) -> Source:
    (rule,) = relations.component(name).definitions
    assert isinstance(rule, Rule)
    there = Rule(rule.head, in_state(rule.body, state), rule.span)
    one = derivation(there, None, None, relations.of, jobs, relations.program.relations)
    types = relations.types(name)
    return viewed([one], types, jobs) if one is not None else Local(types, frozenset())


def _changes(aggregate: Aggregate, relations: Relations) -> list[tuple[Source, int]]:
    """The source's changed rows, and how often each counts."""
    found = ((relations.found(aggregate.source, v).source, times) for v, times in ((Variant.DEL, -1), (Variant.INS, 1)))
    return [(source, times) for source, times in found if not source.empty]


def _touched(aggregate: Aggregate, relations: Relations, jobs: Jobs) -> Frame:
    groups = ", ".join(f"{column(c)} AS {column(i)}" for i, c in enumerate(aggregate.group)) or "TRUE AS c0"
    texts = [f"SELECT {groups} FROM {source.text()}" for source, _ in _changes(aggregate, relations)]
    types = relations.types(aggregate.relation)[: len(aggregate.group)]
    return jobs.materialise(f"SELECT DISTINCT * FROM ({' UNION ALL '.join(texts)})", types)


def _of_groups(source: Source, groups: Frame, positions: range | tuple[int, ...]) -> str:
    """The rows of a source that belong to some groups; `positions` are the group's columns in it."""
    same = " AND ".join(f"s.{column(p)} <=> g.{column(i)}" for i, p in enumerate(positions)) or "TRUE"
    hint = "/*+ BROADCAST(g) */ " if groups.small else ""
    return f"SELECT {hint}s.* FROM {source.text()} s LEFT SEMI JOIN {groups.text()} g ON {same}"


def _again(aggregate: Aggregate, relations: Relations, touched: Frame, jobs: Jobs) -> Frame:
    """Fold the affected groups in the new state."""
    source = _source(aggregate, relations, Variant.NEW, jobs)
    if source.empty:
        return Local(relations.types(aggregate.relation), frozenset())
    return folded(aggregate, relations.program, _of_groups(source, touched, aggregate.group), jobs)


# Totals that are moved by the changed rows


def _moved_by_rows(aggregate: Aggregate, relations: Relations) -> bool:
    summable = aggregate.function in (Function.COUNT, Function.SUM)
    return summable and exactly_native(aggregate, value_type(aggregate, relations.program))


def _totals_types(types: Types) -> Types:
    return (*types[:-1], NUMBER, NUMBER, TOTAL)


def _totals(aggregate: Aggregate, rows: list[tuple[Source, int]], relations: Relations, jobs: Jobs, shared: Shared) -> Frame:
    """For each group of the rows: how many there are and have a value, and their sum; each row counted so many times.

    Aggregates of the same rows and groups are summed in one query, which the first of them runs.
    """
    alike = [
        other
        for other in relations.program.definitions
        if isinstance(other, Aggregate)
        and (other.source, other.group) == (aggregate.source, aggregate.group)
        and _moved_by_rows(other, relations)
    ]
    groups = relations.types(aggregate.relation)[:-1]
    place = aggregate.source, aggregate.group
    if place not in shared:
        types = (*groups, NUMBER, *(type for _ in alike for type in (NUMBER, TOTAL)))
        here = _summed_here(alike, rows, types, relations, jobs)
        shared[place] = here if here is not None else jobs.materialise(_summed(alike, rows), types)
    width = len(groups)
    own = width + 1 + 2 * alike.index(aggregate)
    return jobs.chosen(shared[place], [*range(width + 1), own, own + 1])


def _summed_here(
    alike: list[Aggregate], rows: list[tuple[Source, int]], types: Types, relations: Relations, jobs: Jobs
) -> Frame | None:
    """The same over tables in the driver, where all rows are there and their sums are of whole numbers."""
    summed = [a for a in alike if a.function is Function.SUM]
    plain = comparable(types[: len(alike[0].group)]) and all(value_type(a, relations.program) == NUMBER for a in summed)
    here = jobs.signed_at_hand(rows) if plain else None
    return jobs.tabled(totals(alike, here, types), types) if here is not None else None


def _summed(alike: list[Aggregate], rows: list[tuple[Source, int]]) -> str:
    """The groups of some aggregates, their number of rows, and for each aggregate the number of values and their sum."""
    group = alike[0].group
    parts = (f"SELECT *, {times}L AS times FROM {source.text()}" for source, times in rows)
    sums = ["sum(times)"]
    for aggregate in alike:
        value = column(aggregate.value) if aggregate.value is not None else None
        sums.append(f"sum(CASE WHEN {value} IS NULL THEN 0L ELSE times END)" if value else "sum(times)")
        summed = f"coalesce(sum(CAST({value or column(0)} AS {SUM}) * times), 0)"
        sums.append(f"CAST({summed if aggregate.function is Function.SUM else 0} AS {SUM})")
    chosen = (f"{term} AS {column(i)}" for i, term in enumerate((*(column(c) for c in group), *sums)))
    by = f"GROUP BY {', '.join(column(c) for c in group)}" if group else "HAVING count(*) > 0"
    return f"SELECT {', '.join(chosen)} FROM ({' UNION ALL '.join(parts)}) {by}"


def _results(aggregate: Aggregate, relations: Relations, totals: Frame, jobs: Jobs) -> str:
    """The view's rows from the totals of groups that have rows; a sum must fit its type."""
    number, known, total = (column(len(aggregate.group) + i) for i in range(3))
    groups = columns(totals.types)[:-3]
    if aggregate.function is Function.COUNT:
        return f"SELECT {', '.join([*groups, f'{known} AS {number}'])} FROM {totals.text()} WHERE {number} > 0"
    value = value_type(aggregate, relations.program)
    assert value is not None
    low, high = INTEGER_RANGES[value.kind]
    text = f"SELECT 1 FROM {totals.text()} WHERE {number} > 0 AND ({total} < {low} OR {total} > {high}) LIMIT 1"
    check_sums(aggregate, value, text, jobs)
    result = f"CASE WHEN {known} > 0 THEN CAST({total} AS {sql_type(value)}) END AS {number}"
    return f"SELECT {', '.join([*groups, result])} FROM {totals.text()} WHERE {number} > 0"


def _move(aggregate: Aggregate, relations: Relations, kept: Kept, jobs: Jobs, shared: Shared) -> dict[str, tuple[Source, Source]]:
    """Totals of the affected groups before and after, and the view's rows that follow from them."""
    name, types = aggregate.relation, relations.types(aggregate.relation)
    all_types = _totals_types(types)
    moved = _totals(aggregate, _changes(aggregate, relations), relations, jobs, shared)
    known_totals = kept.source(beside(name))
    if isinstance(moved, Local) and isinstance(known_totals, Local):
        return _move_here(aggregate, relations, known_totals, moved)
    width = len(aggregate.group)
    before = jobs.materialise(_of_groups(known_totals, moved, range(width)), all_types)
    groups = columns(types)[:-1]
    number, known, total = (column(width + i) for i in range(3))
    both = union_all(before, moved)
    by = f"GROUP BY {', '.join(groups)}" if groups else ""
    sums = [f"sum({number}) AS {number}", f"sum({known}) AS {known}", f"CAST(sum({total}) AS {SUM}) AS {total}"]
    chosen = ", ".join([*groups, *sums])
    after = jobs.materialise(f"SELECT * FROM (SELECT {chosen} FROM ({both}) {by}) WHERE {number} > 0", all_types)
    rows = [_rows(aggregate, relations, totals, jobs) for totals in (before, after)]
    _replace(aggregate, relations, rows[0], rows[1], jobs)
    return {beside(name): (before, after)}


def _move_here(aggregate: Aggregate, relations: Relations, totals: Local, moved: Local) -> dict[str, tuple[Source, Source]]:
    """The same where all of it is in the driver."""
    name, width = aggregate.relation, len(aggregate.group)
    known = {row[:width]: row for row in totals.rows}
    pairs = [(known.get(row[:width]), row) for row in moved.rows]
    before = frozenset(old for old, _ in pairs if old is not None)
    after = frozenset(row for old, change in pairs if (row := _added(old, change, width))[width])
    rows = [frozenset(_result(aggregate, relations, row) for row in side) for side in (before, after)]
    types = relations.types(name)
    relations.found(name, Variant.DEL).put([Local(types, rows[0] - rows[1])])
    relations.found(name, Variant.INS).put([Local(types, rows[1] - rows[0])])
    return {beside(name): (Local(totals.types, before), Local(totals.types, after))}


def _added(old: Row | None, change: Row, width: int) -> Row:
    if old is None:
        return change
    return (*change[:width], *(a + b for a, b in zip(old[width:], change[width:], strict=True)))  # type: ignore[operator]


def _result(aggregate: Aggregate, relations: Relations, total: Row) -> Row:
    """The view's row of a group's totals."""
    *group, _, known, found = total
    if aggregate.function is Function.COUNT:
        return (*group, known)
    value = value_type(aggregate, relations.program)
    assert value is not None
    low, high = INTEGER_RANGES[value.kind]
    units = int(found)  # type: ignore[arg-type]
    if not low <= units <= high:
        raise too_large(aggregate, value)
    return (*group, units if known else None)


def _rows(aggregate: Aggregate, relations: Relations, totals: Frame, jobs: Jobs) -> Frame:
    types = relations.types(aggregate.relation)
    return Local(types, frozenset()) if totals.empty else jobs.materialise(_results(aggregate, relations, totals, jobs), types)


def union_all(*frames: Frame) -> str:
    return " UNION ALL ".join(f"SELECT {listed(frame.types)} FROM {frame.text()}" for frame in frames)
