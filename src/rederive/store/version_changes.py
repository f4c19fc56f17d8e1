"""What a version did, between the commit and the journal: deltas as they are recorded, and changes as subscribers see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rederive.delta import Delta
from rederive.engines.protocol import Engine
from rederive.errors import StoreError
from rederive.ir.rules import Program, Relation
from rederive.records import RecordedDelta, VersionRecord
from rederive.result import Change


def changes_of(record: VersionRecord) -> list[Change]:
    """The changes of views at a version, as subscribers were notified of them. The record holds those of a small version."""
    if record.staged is not None:
        raise StoreError(f"version {record.number} is a bulk version: its changes are in the lake, at {record.staged}")
    views: dict[str, Delta] = {}
    for recorded in record.views:
        # A view whose columns changed is recorded twice: the rows that left have the old columns, those that entered the new.
        name, delta = recorded.relation.name, recorded.delta
        other = views.get(name, Delta())
        views[name] = Delta(delta.plus or other.plus, delta.minus or other.minus)
    return [Change(record.number, name, delta) for name, delta in views.items()]


def view_deltas(changes: Mapping[str, Change], before: Program, after: Program) -> Iterator[RecordedDelta]:
    """The changes of views with the columns of their rows. Rows that leave may have other columns than the view has now."""
    for view, change in changes.items():
        delta, old, new = change.ordered, before.relations.get(view), after.relations.get(view)
        if old is not None and new is not None and old.columns != new.columns:
            sides = (RecordedDelta(old, Delta(minus=delta.minus)), RecordedDelta(new, Delta(plus=delta.plus)))
            yield from (side for side in sides if side.delta)
        elif (relation := new or old) is not None:
            yield RecordedDelta(relation, delta)


def base_deltas(net: Mapping[str, Delta], before: Program, after: Program) -> Iterator[RecordedDelta]:
    """The net effect on base relations; a relation that the new program lacks has the columns of the old one."""
    for name, delta in net.items():
        relation = (after if name in after.bases else before).relations[name]
        yield RecordedDelta(relation, Delta(tuple(delta.plus), tuple(delta.minus)))


def dropped_base_rows(engine: Engine, before: Program, after: Program) -> dict[str, Delta]:
    """The rows of the base relations that a new program lacks: all of them leave."""
    rows = {name: tuple(engine.rows(name, {})) for name in before.bases if name not in after.bases}
    return {name: Delta(minus=gone) for name, gone in rows.items() if gone}


def has_columns_of(recorded: Relation, view: Relation) -> bool:
    """Whether the columns of a recorded delta have the names and types that the view has now."""
    return [(c.name, c.type) for c in recorded.columns] == [(c.name, c.type) for c in view.columns]
