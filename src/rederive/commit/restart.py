"""A database continues from its store: from a checkpoint of the engine's state, or by evaluating the views.

Law: both lead to the same state. A checkpoint is used if it is of a version of this journal and of the program that is to run;
the changes that the journal has recorded since are propagated as one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import cache
from hashlib import sha256

from rederive.commit.monitoring import Monitoring
from rederive.commit.parked import ParkedDefinitions
from rederive.commit.source_rows import recorded_rows
from rederive.commit.state import DatabaseState
from rederive.delta import Delta, DeltaSum
from rederive.engines.protocol import Unrestorable
from rederive.errors import Endless, Expired
from rederive.ir.rules import Program
from rederive.ir.terms import Row
from rederive.maintain.program import MaintenanceProgram
from rederive.rules.api import recover_rules
from rederive.rules.rule_set import RuleSet
from rederive.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rederive.store.store import Store

_LOG = logging.getLogger("rederive")
WORTH_SAVING = 10_000  # rows: fewer are evaluated in the time that a file takes

MANY_CHANGES = 1_000_000  # rows that changed since the last checkpoint; propagating them takes some seconds


def recover(state: DatabaseState, store: Store) -> None:
    """Continue from the last version of a store."""
    rules = recover_rules(store, state.catalog.program, state.catalog.rules)

    @cache
    def bases() -> Mapping[str, Collection[Row]]:
        return {**store.base_rows(rules.program), **recorded_rows(state, rules.program)}

    if store.lake is not None:
        bases()  # the lake catches up with the journal in any case
    parked = None
    try:
        # No change is reported: the journal has the changes that led to these rows.
        monitoring = _restore(state, store, rules, bases) or state.install(rules, bases())[1]
    except Endless as error:
        parked = ParkedDefinitions.recorded(error, rules.program, store)
        _, monitoring = state.install_bases(rules, bases())
    state.engine.commit()
    state.switch(rules, monitoring, parked)


def _restore(
    state: DatabaseState, store: Store, rules: RuleSet, bases: Callable[[], Mapping[str, Collection[Row]]]
) -> Monitoring | None:
    """Have the engine prepare the last version from a checkpoint; None if there is none that fits."""
    found = read_checkpoint(store.journal.folder)
    journal = store.journal
    if found is None or found.epoch != journal.epoch or journal.committed_at(found.version) != found.at:
        return None
    net = _changes_since(store, rules.program, found.version)
    if net is None:
        return None
    maintenance, monitoring = state.plan_without(rules, found.not_stored)
    if found.program != _digest(state, maintenance):
        return None
    monitored, at_version = tuple(monitoring.relations), bases if not net else None
    try:
        state.engine.restore(maintenance, monitored, found.data, at_version, bound=monitoring.queries)
    except Unrestorable:
        return None
    store.saved = found.version
    if net:
        state.engine.commit()
        state.engine.propagate(net)
    return monitoring


def _changes_since(store: Store, program: Program, version: int) -> dict[str, Delta] | None:
    """What the versions after this one did to base relations; None if the journal alone does not tell."""
    if version == store.journal.version:
        return {}
    # The rows of bulk versions are in the lake, and those of tables in place with their writers.
    if program.in_place:
        return None
    sums: dict[str, DeltaSum] = {}
    try:
        for record in store.journal.since(version):
            if record.staged is not None:
                return None
            for recorded in record.base:
                name = recorded.relation.name
                if name not in program.bases or program.relations[name].columns != recorded.relation.columns:
                    return None
                sums.setdefault(name, DeltaSum()).add(recorded.delta)
    except Expired:
        return None
    return {name: delta for name, found in sums.items() if (delta := found.delta())}


def save(state: DatabaseState) -> None:
    """Write a checkpoint, where it is worth a file and there is none of this version. Failing costs time alone, and is logged."""
    store = state.store
    if store is None or store.journal.closed or state.parked is not None or store.saved == state.version:
        return
    if _base_rows(state) < WORTH_SAVING:
        return
    at = store.journal.committed_at(state.version)
    try:
        data = state.engine.dump()
        if data is None or at is None:
            return
        digest = _digest(state, state.installed_plan)
        found = Checkpoint(state.epoch, state.version, at, digest, tuple(state.not_stored), data)
        write_checkpoint(store.journal.folder, found)
    except Exception as error:  # of the disk, or of Spark: the journal has everything, and the database is closed all the same
        _LOG.warning("no checkpoint of version %s could be written, and opening will take longer: %s", state.version, error)
    store.saved, store.unsaved_rows = state.version, 0


def save_if_due(state: DatabaseState) -> None:
    """Write a checkpoint where so much has changed that a process that opens the store after a kill would take long.

    As many rows have changed as there are, so that a row costs a constant share of the file.
    """
    assert state.store is not None
    if state.store.unsaved_rows >= max(MANY_CHANGES, _base_rows(state)):
        save(state)


def _base_rows(state: DatabaseState) -> int:
    return sum(map(state.engine.size, state.program.bases))


def _digest(state: DatabaseState, maintenance: MaintenanceProgram) -> str:
    """A text that programs share only if what an engine stores for them means the same."""
    program, settings = maintenance.program, state.settings
    # In an order of its own: a plan that was extended by definitions has sections, and views of a section, in another one.
    strategies = sorted((sorted(section.component.relations), section.strategy.value) for section in maintenance.sections)
    definitions = sorted(map(repr, program.definitions))
    parts = (sorted(program.relations.items()), definitions, program.zone, strategies, settings.precision)
    return sha256(repr(parts).encode()).hexdigest()
