"""Derivation counts: a row enters when its count leaves zero, and leaves when it comes back to it."""

from __future__ import annotations

from collections.abc import Callable

from rederive.analysis.graph import Component
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, listed, same, shown
from rederive.engines.spark.run.derivation import derivation
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.run.round import Derivation, gather
from rederive.engines.spark.run.storage import Kept
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Variant
from rederive.ir.terms import NUMBER
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import Phase

Strict = Callable[[Component, tuple[MaintenanceRule, ...]], None]


def beside(name: str) -> str:
    """The counts of a view's rows."""
    return f"{name}.counts"


def fill(component: Component, rules: tuple[MaintenanceRule, ...], relations: Relations, kept: Kept, jobs: Jobs) -> None:
    """Every derivation once."""
    (name,) = component.relations
    types = relations.types(name)
    found = [derivation(m.rule, None, None, relations.of, jobs, relations.program.relations, here=False) for m in rules]
    there = [(one, 1) for one in found if one is not None]
    gather([one for one, _ in there if one.fails], types, jobs)  # raises their errors
    counted = _counted(there, types, jobs)
    kept.write(beside(name), counted)
    kept.write(name, _rows(counted, types, jobs))


def change(
    component: Component, phase: Phase, relations: Relations, kept: Kept, jobs: Jobs, strict: Strict
) -> dict[str, tuple[Source, Source]]:
    """The view's exact change, and that of the counts."""
    (name,) = component.relations
    types = relations.types(name)
    found = []
    for m in phase.rules:
        (driver,) = m.drivers
        one = derivation(m.rule, driver, None, relations.of, jobs, relations.program.relations, here=False)
        if one is not None:
            found.append((one, 1 if m.rule.head.variant is Variant.ADD else -1))
    if any(one.fails for one, _ in found):
        # A failure counts if its binding holds in the new state: then a strict rule fails too, and raises the error.
        strict(component, phase.strict)
    moved = _counted(found, types, jobs)
    if moved.empty:
        return {}
    before, after = _before_and_after(kept.source(beside(name)), moved, types, jobs)
    rows = [_rows(frame, types, jobs) for frame in (before, after)]
    relations.found(name, Variant.DEL).put([jobs.minus(rows[0], [rows[1]])])
    relations.found(name, Variant.INS).put([jobs.minus(rows[1], [rows[0]])])
    return {beside(name): (before, after)}


def _counted(found: list[tuple[Derivation, int]], types: Types, jobs: Jobs) -> Frame:
    """How often each row is derived, in sum; rows whose derivations cancel are left out."""
    if not found:
        return Local(_with_number(types), frozenset())
    columns, number = listed(types), column(max(len(types), 1))
    parts = (
        f"SELECT {columns}, {times}L AS times FROM ({one.text})" + (" WHERE e IS NULL" if one.fails else "")
        for one, times in found
    )
    text = f"SELECT {columns}, sum(times) AS {number} FROM ({' UNION ALL '.join(parts)}) GROUP BY {columns}"
    return jobs.materialise(f"SELECT * FROM ({text}) WHERE {number} != 0", _with_number(types))


def _with_number(types: Types) -> Types:
    return (*shown(types), NUMBER)


def _before_and_after(counts: Source, moved: Frame, types: Types, jobs: Jobs) -> tuple[Frame, Frame]:
    """The counts of the rows that moved; those without any are not there."""
    columns, number, all_types = listed(types), column(max(len(types), 1)), _with_number(types)
    hint = "/*+ BROADCAST(m) */ " if moved.small else ""
    known = f"SELECT {hint}k.* FROM {counts.text()} k LEFT SEMI JOIN {moved.text()} m ON {same(types, 'k', 'm')}"
    before = Local(all_types, frozenset()) if counts.empty else jobs.materialise(known, all_types)
    both = " UNION ALL ".join(f"SELECT {columns}, {number} FROM {frame.text()}" for frame in (before, moved))
    summed = f"SELECT {columns}, sum({number}) AS {number} FROM ({both}) GROUP BY {columns}"
    return before, jobs.materialise(f"SELECT * FROM ({summed}) WHERE {number} != 0", all_types)


def _rows(counted: Frame, types: Types, jobs: Jobs) -> Frame:
    """The rows without their counts."""
    if isinstance(counted, Local):
        return Local(types, frozenset(row[: len(types)] for row in counted.rows))
    return jobs.materialise(f"SELECT {listed(types)} FROM {counted.text()}", types)
