"""The propagate step of the pipeline for versions that install a program: other definitions, initial rows, parked definitions.

Version 0 is the empty database, and the rows of a view are the sum of its changes. So a change of definitions that changes a
monitored view, or that puts rows into a base relation, is a version, also the first one.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.bags import number_rows
from rederive.commit.monitoring import Monitoring
from rederive.commit.parked import ParkedDefinitions
from rederive.commit.pending import Net, PendingVersion
from rederive.commit.recount import newly_counted, recounted
from rederive.commit.state import DatabaseState
from rederive.delta import Delta
from rederive.engines.auto import counted
from rederive.engines.protocol import Engine, Propagation, Query
from rederive.errors import Endless, Redefined, Unsupported
from rederive.ir.rules import Program
from rederive.maintain.strategies.aggregates import WHOLE, not_incremental


def check_program(state: DatabaseState, program: Program) -> None:
    """Refuse rules for a base relation that has rows, and what a strict database does not maintain."""
    for base in (name for name in state.program.bases if program.is_view(name)):
        if state.engine.size(base):
            raise Redefined(f"'{base}' has rows of its own, and cannot have rules", program.relations[base].span)
    if state.settings.strict and (refused := not_incremental(program)) is not None:
        # An auxiliary relation is named after the view that it serves.
        owner = refused.relation.partition(".")[0]
        raise Unsupported(f"'{owner}' is {WHOLE}", refused.span, hint="partition it, or leave --strict out")


def install_rules(state: DatabaseState, pending: PendingVersion) -> None:
    """Prepare the program with the conditions of other rules: no view changes."""
    pending.propagation, pending.monitoring = state.install(pending.rules, {})


def install_definitions(state: DatabaseState, pending: PendingVersion) -> None:
    """Prepare a change of definitions with its initial rows, and find what it does to the monitored views.

    A recursion that does not end is parked, unless somebody gave rows to be evaluated with it.
    """
    change, engine = pending.change, state.engine
    assert change is not None
    before, after = state.program, pending.rules.program
    shared = before.shared_bases(after)
    rows = number_rows(after, {name: counted(given) for name, given in change.facts.items()}, engine, shared)
    pending.net = _dropped_base_rows(engine, before, after)
    # An engine forgets these rows when it switches to the new program.
    became_bags = newly_counted(before, change.after.program) if state.parked is None else []
    uncounted = {name: engine.rows(name, {}) for name in became_bags}
    try:
        found, pending.monitoring = state.install(pending.rules, rows, announce=True)
    except Endless as error:
        pending.parked = _park(state, pending, error)
        if pending.parked is None:
            raise
        pending.propagation, pending.monitoring = state.install_bases(pending.rules, rows)
        return
    if state.parked is None:
        found = replace(found, views=recounted(found.views, before, change.after.program, uncounted))
    pending.propagation = _since_parked(state.parked, found, after)


def _park(state: DatabaseState, pending: PendingVersion, error: Endless) -> ParkedDefinitions | None:
    """Park the definitions, where that is allowed. The rows that subscribers know are read while the engine has them."""
    change, before = pending.change, state.program
    assert change is not None
    if change.loads or change.after is state.catalog:
        return None
    if state.parked is not None:
        return state.parked.with_error(error)
    if not state.can_park:
        return None
    monitoring = state.monitor(pending.rules)
    return ParkedDefinitions.over(error, before, *_known_to_subscribers(before, monitoring), state.engine)


def _known_to_subscribers(before: Program, monitoring: Monitoring) -> tuple[list[str], list[Query]]:
    views = [name for name in dict.fromkeys((*before.monitored, *monitoring.signs)) if before.is_view(name)]
    return views, [part for part in monitoring.queries if before.is_view(part.view)]


def evaluate_parked(state: DatabaseState, pending: PendingVersion) -> None:
    """Apply a net effect to the base relations, then prepare the parked program over them.

    Active rules are not skipped: before the transaction their conditions are not known, so it is refused.
    """
    assert state.parked is not None
    if pending.rules.active or state.bridge is not None:
        raise state.parked.error
    # Applied ahead of the journal, because a program is evaluated over committed rows. The engine holds base relations alone
    # now, so the inverse of the net effect takes it back exactly (`discard`).
    bases = state.engine.propagate(pending.net).views
    state.engine.commit()
    pending.has_moved_bases = True
    found, pending.monitoring = state.install(pending.rules, {}, announce=True)
    pending.propagation = _since_parked(state.parked, replace(found, views={**found.views, **bases}), state.program)


def _since_parked(parked: ParkedDefinitions | None, found: Propagation, program: Program) -> Propagation:
    """The changes since the last notification."""
    if parked is None:
        return found
    return replace(found, views=parked.changes(found.views, program), bound=parked.part_changes(found.bound))


def is_version(pending: PendingVersion) -> bool:
    """Whether an installed program is a version: it changes something that is reported, or the catalog says so."""
    change, found = pending.change, pending.propagation
    assert found is not None
    if change is None:
        return False
    is_reported = any(name not in pending.rules.conditions for name in found.views)
    return bool(change.always or is_reported or found.bound or found.entered or pending.net)


def base_deltas(pending: PendingVersion) -> Net:
    """The deltas of base relations: initial rows enter, and those of relations that the new program lacks leave."""
    assert pending.propagation is not None
    entered = {name: Delta(rows) for name, rows in pending.propagation.entered.items()}
    found = {name: delta for name, delta in entered.items() if name not in pending.rules.program.in_place}
    # The rows of a table whose columns change leave as they were, and enter as they are then.
    left = own_net(pending).items()
    return found | {name: Delta(found[name].plus, delta.minus) if name in found else delta for name, delta in left}


def own_net(pending: PendingVersion) -> dict[str, Delta]:
    """The net effect without tables in place, of which the source itself has a record."""
    elsewhere = pending.rules.program.in_place
    return {name: delta for name, delta in pending.net.items() if name not in elsewhere}


def undo(engine: Engine, net: Net) -> None:
    """Take an applied net effect back. A delta and its inverse cancel."""
    engine.propagate({name: delta.invert() for name, delta in net.items()})
    engine.commit()


def _dropped_base_rows(engine: Engine, before: Program, after: Program) -> dict[str, Delta]:
    """The rows of the base relations that a new program lacks, or has with other columns: all of them leave."""
    shared = before.shared_bases(after)
    gone = [name for name in before.bases if name not in shared and name not in before.in_place]
    rows = {name: engine.extent(name) for name in gone}
    return {name: Delta(minus=gone) for name, gone in rows.items() if len(gone)}
