"""The commit pipeline: from requested changes to a durable version that subscribers are notified of.

Every version takes the same steps: a transaction, a change of definitions or of rules, initial rows, a transaction on parked
definitions; alone or in a group, in memory or in a store, with and without rules, lake and warehouse. A step that has nothing to
do for a version is skipped.

    open                a request becomes a pending version; a warehouse's requests become changes of its stored views
    compute_net_effect  requests that oppose each other or change nothing cancel
    propagate           the engine prepares the deltas of the monitored views; nothing is visible yet
    fire_rules          the changes of data that active rules make are added, and propagated again, until none is left
    make_result         the version gets its number and its changes
    check_constraints   rows that would enter a constraint refuse the version
    record              the version as the journal will hold it; the rows of a bulk version are staged in the lake
    call_functions      the functions of rules: what nobody can take back comes last of all that may refuse
    -- one sync for all versions of a group --
    journal             the group is durable, or none of it is committed
    apply               the engine and the state show the last version
    save                the state of the engine, when it is due, so that a later process need not evaluate the views
    settle              the lake follows, when it is due; a failure here takes no version back
    announce            subscribers are notified, version by version

Law: until `journal` a failure leaves everything as it was; what is on disk is written before it is applied. See
docs/decisions/0061-one-commit-pipeline.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final, cast

from rederive import failpoints
from rederive.bags import net_effect
from rederive.commit.execution import RuleExecution, calls_in_statements
from rederive.commit.group import Group, NeedsOwnSync, discard
from rederive.commit.pending import BatchOutcome, PendingVersion, TransactionRequest
from rederive.commit.program_changes import ProgramChanges
from rederive.commit.redefinition import (
    base_deltas,
    evaluate_parked,
    install_definitions,
    install_rules,
    is_version,
    own_net,
)
from rederive.commit.restart import MANY_CHANGES, save_if_due
from rederive.commit.source_rows import check_not_in_place
from rederive.commit.state import DatabaseState
from rederive.delta import Delta, first, from_counted, sort_rows
from rederive.engines.protocol import Bulk, Operation
from rederive.errors import Closed, NoLake, Unsupported, Violated
from rederive.ir.rules import Mode, Program, Relation
from rederive.records import SourceVersion
from rederive.result import Change, Result
from rederive.rules.api import rule_record
from rederive.rules.runtime import RuleRuntime
from rederive.store.codec import digest

SETTLED_AFTER: Final = 100
"""Versions that wait in the journal before the lake follows in the background."""
MOST_REFUSED: Final = 1_000
"""Rows that the refusal of a version names; of more, some."""


class Pipeline(ProgramChanges):
    """Commits versions to the state of a database."""

    def __init__(self, state: DatabaseState, runtime: RuleRuntime) -> None:
        super().__init__(state, runtime)
        self._execution = RuleExecution(state, runtime, self._compute_and_propagate)
        # One version at a time: each starts from the state that the one before it leaves.
        self._steps_to_a_result: tuple[Callable[[PendingVersion], None], ...] = (
            self._compute_net_effect,
            self._propagate,
            self._fire_rules,
            self._make_result,
            self._check_constraints,
        )
        self._steps = (*self._steps_to_a_result, self._record, self._call_functions)
        # Once for all versions of a group.
        # Law of the order: written before applied, applied before the lake follows, and all of it before anybody is notified.
        self._group_steps: tuple[Callable[[Group], None], ...] = (self._journal, self._apply, self._save, self._settle)

    # What enters the pipeline

    def begin(self, key: str | None = None) -> PendingVersion:
        """Begin a transaction. Its key tells whether all of it was committed before."""
        state = self.state
        if not state.is_open:
            raise Closed
        if self.runtime.running_rule is not None:
            self.runtime.check_idle("a transaction")
        if self.setup is not None:
            self.check_no_setup("a transaction")
        if state.rules.active:
            state.check_evaluated()
        # A replay fires no immediate rules: what they did is part of the version that is already committed.
        is_replay = key is not None and state.durable("an idempotency key").journal.find_key(key) is not None
        return PendingVersion(state.rules, state.monitoring, key, is_replay)

    def execute(self, pending: PendingVersion, operations: Sequence[Operation]) -> None:
        """Add one statement to a transaction. The immediate rules that it concerns are processed before this returns."""
        if pending.failure is not None:  # an error inside a transaction ends it, also where the caller continues
            raise pending.failure
        if pending.rules.program.in_place:
            check_not_in_place(pending.rules.program, (operation.relation for operation in operations))
        pending.requests += operations
        pending.operations += operations
        if self.state.rules.active:
            self._execution.run_statement(pending, operations)

    def commit(self, version: PendingVersion | TransactionRequest) -> Result:
        """Commit one transaction, and notify the subscribers."""
        result = self._commit_one(version).result
        assert result is not None
        return result

    def commit_operations(self, operations: Sequence[Operation], key: str | None = None) -> Result:
        """Commit operations as one transaction."""
        return self.commit(TransactionRequest(operations, key))

    def preview(self, request: TransactionRequest) -> Result:
        """The result that a transaction would have. Nothing is changed, recorded, called or announced."""
        state = self.state
        if calls_in_statements(state.rules.active):
            raise Unsupported(
                "an immediate rule calls a function in each statement, which a dry run must not", hint="deactivate the rule"
            )
        result = self._try(request).result
        assert result is not None
        return result

    def _try(self, version: PendingVersion | TransactionRequest) -> PendingVersion:
        """Take the steps to a result, and discard what they prepared."""
        pending: PendingVersion | None = None
        try:
            with self.state.budget():
                pending = self._open(version)
                for step in () if pending.result is not None else self._steps_to_a_result:
                    step(pending)
                if pending.result is not None:
                    # Read while the engine has them: what it prepared is discarded below.
                    changes = {view: change.in_order for view, change in pending.result.changes.items()}
                    pending.result = replace(pending.result, changes=changes)
                return pending
        finally:
            self._discard(pending)

    def commit_together(self, batches: Sequence[Sequence[TransactionRequest]]) -> list[BatchOutcome]:
        """Group commit: every transaction is a version of its own, and one sync of the journal makes all durable.

        A batch is a sequence of transactions; the first that is refused ends it, and no other batch. Subscribers are notified
        when everything is on disk. If the lake cannot follow, `state.unsettled` has the reason.

        >>> import rederive, tempfile
        >>> from rederive.engines.protocol import Action
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        ...     one, two = (TransactionRequest((Operation(Action.INSERT, "n", ((x,),)),)) for x in (1, 2))
        ...     [[result.version for result in outcome.results] for outcome in db.pipeline.commit_together([[one], [two]])]
        [[1], [2]]
        """
        self.state.unsettled = None
        group = Group(self.state.version)
        outcomes = []
        for batch in batches:
            outcomes.append(outcome := BatchOutcome())
            for version in batch:
                # Only the journal can tell whether a repeated key comes
                # with equal operations, so its first use must be on disk.
                if version.key in group.keys:
                    group = self._flush(group)
                if outcome.error is None:
                    group = self._add(group, outcome, version)
        self._flush(group)
        self._announce(result for outcome in outcomes for result in outcome.results)
        return outcomes

    def commit_sources(self, net: Mapping[str, Delta], sources: Sequence[SourceVersion]) -> Result:
        """Commit what commits of attached tables did, as one version that records them."""
        pending = self.begin()
        pending.from_sources, pending.sources = net, tuple(sources)
        return self.commit(pending)

    # Groups

    def _commit_one(self, version: PendingVersion | TransactionRequest) -> PendingVersion:
        """A group of one. What prevents its commit, or what keeps the lake from following, is raised."""
        self.state.unsettled = None
        group = Group(self.state.version)
        pending = self._prepare(group, version)
        for step in self._group_steps:
            step(group)
        unsettled = self.state.unsettled  # a callback may commit another version
        if pending.result is not None:
            self._announce([pending.result])
        if unsettled is not None:
            raise unsettled
        return pending

    def _add(self, group: Group, outcome: BatchOutcome, version: TransactionRequest) -> Group:
        """Prepare one more version of a group; the group that the next one joins."""
        # A version on parked definitions applies base rows before its
        # program is prepared, so it shares its sync with no other.
        if self.state.parked is not None:
            group = self._flush(group)
        try:
            pending = self._prepare(group, version)
        except NeedsOwnSync:
            # It is prepared a second time, in an empty group, where it cannot need
            # this again. `_record` raises before anything is staged or called.
            return self._add(self._flush(group), outcome, version)
        except Exception as error:  # what is wrong with this transaction is not wrong with the others
            outcome.error = error
            return group
        group.waiting.append((outcome, pending))
        return self._flush(group) if group.is_full else group

    def _flush(self, group: Group) -> Group:
        """Make a group durable and visible; an empty one that continues from there."""
        try:
            for step in self._group_steps:
                step(group)
        except Exception as error:
            # The sync is all or nothing, so its failure is the outcome of every version of the group.
            for outcome, _ in group.waiting:
                outcome.error = error
        else:
            for outcome, pending in group.waiting:
                if pending.result is not None:
                    outcome.results.append(pending.result)
        return Group(self.state.version)

    def _prepare(self, group: Group, version: PendingVersion | TransactionRequest) -> PendingVersion:
        """Take the steps of one version up to the sync. A refusal leaves the group as it was."""
        state = self.state
        if group.versions and calls_in_statements(state.rules.active):
            raise NeedsOwnSync
        pending: PendingVersion | None = None
        try:
            with state.engine.budget(state.limits) if state.limits is not None else nullcontext():
                # A version starts from the state that the one before it leaves, durable or not.
                self._apply_prepared(group)
                pending = self._open(version)
                pending.shares_sync = bool(group.versions)
                if pending.result is None:
                    for step in self._steps:
                        step(pending)
        except Exception:
            self._discard(pending)
            raise
        except BaseException:
            self._discard(pending) if not group.versions else self.close()  # the engine is ahead of the disk
            raise
        # A repeated key has prepared nothing. The number counts ahead of the disk; `_take_back` resets it.
        if pending.propagation is not None:
            group.versions.append(pending)
            if pending.key is not None:
                group.keys.add(pending.key)
            group.is_full = pending.has_called or pending.is_bulk or pending.has_moved_bases
            state.version += pending.result is not None
        return pending

    # The steps of one version

    def _open(self, version: PendingVersion | TransactionRequest) -> PendingVersion:
        """A repeated idempotency key has its result at once, and takes no further step."""
        state, store = self.state, self.state.store
        if isinstance(version, PendingVersion):
            pending = version
            if pending.failure is not None:
                raise pending.failure
            if pending.is_transaction:
                if state.bridge is not None:
                    raise Unsupported("a warehouse takes transactions as a whole", hint="use the service")
                # Definitions and subscriptions may have changed since it began.
                pending.rules, pending.monitoring = state.rules, state.monitoring
        else:
            operations = version.operations
            if state.bridge is not None:
                # A repetition is known by its requests as they were sent.
                # Translating them again would read sources that have changed since.
                if version.key is not None and store is not None and (known := store.find_result(version.key, operations)):
                    return PendingVersion(state.rules, state.monitoring, version.key, result=known)
                operations = state.bridge.translate(version)
            pending = self.begin(version.key)
            self.execute(pending, operations)
            pending.requests = list(version.operations)
        if pending.key is not None and store is not None:
            pending.result = store.find_result(pending.key, pending.requests)
            pending.is_committed = pending.result is not None
        return pending

    def _compute_net_effect(self, pending: PendingVersion) -> None:
        state, operations = self.state, pending.operations
        if not pending.is_transaction:
            return
        if state.bags and any(operation.relation in state.bags for operation in operations):
            # Requests on a bag name rows; the engine's set holds numbered copies of them (decision 0015).
            pending.net = net_effect(pending.rules.program, operations, state.engine)
        else:
            pending.net = state.engine.net_effect(operations) if operations or not pending.from_sources else {}
        # Disjoint: a transaction cannot change a table in place.
        pending.net = {**pending.net, **pending.from_sources}

    def _propagate(self, pending: PendingVersion) -> None:
        state = self.state
        if pending.is_transaction and state.parked is None:
            pending.propagation = state.engine.propagate(pending.net)
        elif pending.is_transaction:
            evaluate_parked(state, pending)
        elif pending.change is not None:
            install_definitions(state, pending)
        else:
            install_rules(state, pending)

    def _compute_and_propagate(self, pending: PendingVersion) -> None:
        self._compute_net_effect(pending)
        self._propagate(pending)

    def _fire_rules(self, pending: PendingVersion) -> None:
        if pending.rules.active and pending.is_transaction:
            self._execution.fire_rules(pending)

    def _make_result(self, pending: PendingVersion) -> None:
        state, found = self.state, pending.propagation
        assert found is not None
        if not (pending.is_transaction or is_version(pending)):
            return
        version, monitoring = state.version + 1, pending.monitoring
        changes = {}
        for name, delta in found.views.items():
            # Conditions of rules are monitored for firing alone: nobody can subscribe to them.
            if name not in pending.rules.conditions:
                # The old program knows the bags that are dropped.
                view = monitoring.views.get(name) or state.program.bags.get(name, name)
                signs = monitoring.signs.get(view, state.settings.signs)
                changed = (from_counted(delta) if view != name else delta).restrict(signs)
                if change := Change(version, view, changed, *_columns(view, pending.rules.program, state.program)):
                    changes[view] = change
        relations = state.program.relations
        bound = {query: Change(version, query.view, delta, relations[query.view]) for query, delta in found.bound.items()}
        pending.result = Result(
            version,
            changes,
            state.engine.name,
            state.settings.strategy,
            time.perf_counter() - pending.started,
            found.touched,
            found.derived,
            found.skipped,
            bound,
            found.estimated,
            found.recomputed,
            by_column=found.by_column,
            engine_reason=state.engine.reason,
            firings=tuple(pending.firings),
            jobs=found.jobs,
            net={name: (len(delta.plus), len(delta.minus)) for name, delta in pending.net.items() if not _is_bulk(delta)},
            timings=found.seconds,
        )

    def _check_constraints(self, pending: PendingVersion) -> None:
        """Definitions and initial rows are checked for what tables declare; other constraints may show what is violated."""
        if pending.result is None:
            return
        # Rows that enter refuse the version. Rows that were in the
        # constraint before do not: a version may leave or repair them.
        for constraint in pending.rules.program.constraints:
            change = pending.result.changes.get(constraint.view)
            checked = constraint.mode is Mode.REJECT and (pending.is_transaction or constraint.table is not None)
            if checked and change is not None and (entering := change.delta.plus):
                # Many rows are not read to be refused.
                rows = sort_rows(first(entering, MOST_REFUSED)) if len(entering) > MOST_REFUSED else change.plus
                raise Violated(constraint.view, rows, constraint.table, constraint.text, number=len(entering))

    def _record(self, pending: PendingVersion) -> None:
        state, store = self.state, self.state.store
        if pending.shares_sync and pending.calls:
            raise NeedsOwnSync
        if store is None or pending.result is None or not pending.is_transaction:
            return
        # A kill up to here leaves nothing on disk.
        failpoints.hit("commit:propagated")
        net = own_net(pending) if pending.from_sources else pending.net
        if pending.shares_sync and store.is_bulk(net, pending.result):
            raise NeedsOwnSync
        used_for = digest(pending.requests) if pending.key is not None else None
        entry = store.version_record(pending.rules.program, net, pending.result, state.settings.signs, pending.key, used_for)
        pending.entry = replace(entry, sources=pending.sources)
        pending.is_bulk = pending.entry.staged is not None

    def _call_functions(self, pending: PendingVersion) -> None:
        if pending.calls:
            self._execution.call_functions(pending)

    # The steps of a group

    def _journal(self, group: Group) -> None:
        state, store = self.state, self.state.store
        if store is None or not group.versions:
            return
        last = group.versions[-1]
        try:
            # Only transactions share a group, so the last version tells what kind all of them are.
            if last.is_transaction:
                store.append([version.entry for version in group.versions if version.entry is not None])
            elif last.change is None:
                store.journal.write_rules(map(rule_record, last.rules.rules))
            elif last.result is not None or last.change.after is not state.catalog:
                signs = state.settings.signs
                last.is_bulk = store.redefine(state.program, last.change, base_deltas(last), last.result, signs)
        except Exception:
            self._take_back(group)
            raise
        except BaseException:
            self.close()  # only opening the store again tells whether the interrupt came before or after the sync
            raise

    def _apply_prepared(self, group: Group) -> None:
        """Have the engine apply the version that it has prepared, if there is one."""
        if group.applied < len(group.versions):
            self.state.engine.commit()
            group.applied += 1

    def _apply(self, group: Group) -> None:
        """A kill between the journal and this loses nothing: the next start reads the disk."""
        state = self.state
        if not group.versions:
            return
        last = group.versions[-1]
        try:
            self._apply_prepared(group)
        except BaseException:
            if state.store is not None:
                self.close()  # the engine is behind the disk
            raise
        if not last.is_transaction or last.has_moved_bases:
            state.switch(last.rules, last.monitoring, last.parked)
        if last.change is not None:
            state.catalog = last.change.after
            last.sources = last.change.sources
            if last.result is not None:  # an engine measures its rows when they are committed
                last.result = replace(last.result, engine_reason=state.engine.reason)
        if state.store is not None:
            # A kill here leaves durable versions that nobody was notified
            # of. Subscribers find them when they resume from their position.
            failpoints.hit("commit:applied")
        for version in group.versions:
            version.is_committed = True
            state.sources.update({source.relation: source for source in version.sources})
            if version.firings:
                self.runtime.log(version.firings)
        if not last.is_transaction or any(version.firings for version in group.versions):
            self.runtime.send()

    def _save(self, group: Group) -> None:
        """Save the state of the engine where that is due, for the process that opens the store after a kill."""
        store = self.state.store
        if store is not None and store.unsaved_rows >= MANY_CHANGES:
            save_if_due(self.state)

    def _settle(self, group: Group) -> None:
        """The journal has what the lake lacks: a failure takes nothing back, and the next settling includes it."""
        store = self.state.store
        if store is None or store.lake is None or not group.versions:
            return
        try:
            # The journal refers to the rows of a bulk version and does not hold them. Its changes are read from the change
            # tables, so these take it before the next version.
            # Whoever chose a schema of Spark's catalog finds a view there once it is defined.
            last, is_listed = group.versions[-1], store.lake.lake.schema is not None
            if last.is_bulk or (is_listed and not last.is_transaction):
                started = time.perf_counter()
                self.settle()
                if last.result is not None:
                    took = time.perf_counter() - started
                    last.result = replace(last.result, seconds=last.result.seconds + took, settle_seconds=took)
            elif store.journal.version - store.journal.settled >= SETTLED_AFTER:
                self.settle(wait=False)
            self.state.unsettled = None
        except Exception as error:
            self.state.unsettled = error

    def _announce(self, results: Iterable[Result]) -> None:
        """Subscribers know of a repeated transaction already."""
        subscriptions = self.state.subscriptions
        for result in sorted((one for one in results if not one.repeated), key=lambda one: one.version):
            if subscriptions.listening:
                subscriptions.notify(result)

    # Failures and the end

    def _discard(self, pending: PendingVersion | None) -> None:
        """Take back what was prepared for a version that is refused."""
        if pending is None:
            return
        try:
            discard(pending, self.state.engine)
        except BaseException:
            self.close()
            raise

    def _take_back(self, group: Group) -> None:
        """Bring engine and state back to the version that the group starts from."""
        try:
            group.take_back(self.state.engine)
        except BaseException:
            self.close()  # the engine is ahead of the disk
            raise
        self.state.version = group.before

    def settle(self, *, wait: bool = True) -> int:
        """Bring the tables of the lake to the last version, in the background if not `wait`; the version they are at."""
        state, store = self.state, self.state.store
        if store is None or store.lake is None:
            raise NoLake("settling")
        if wait:
            return store.lake.settle(state.program, state.stored_views)
        store.lake.settle_later(state.program, state.stored_views)
        return store.journal.settled

    def close(self) -> None:
        """Stop sending webhooks, and let go of the engine and the store."""
        self.runtime.close()
        self.state.close()


def _columns(view: str, after: Program, before: Program) -> tuple[Relation, Relation | None]:
    """The declarations of a view: of the rows that enter it, and of those that leave it. A dropped view has the old one alone."""
    left = before.relations.get(view)
    return after.relations.get(view) or cast("Relation", left), left


class DryRun(Pipeline):
    """A pipeline that commits nothing: whatever enters it has its result, and leaves everything as it was.

    Several versions are each tried on the current state, not one after the other.
    """

    def _commit_one(self, version: PendingVersion | TransactionRequest) -> PendingVersion:
        if calls_in_statements(self.state.rules.active):
            raise Unsupported("a dry run where an immediate rule calls a function", hint="deactivate the rule")
        return self._try(version)


def _is_bulk(delta: Delta) -> bool:
    """Whether counting the rows would be a job of Spark."""
    return isinstance(delta.plus, Bulk) or isinstance(delta.minus, Bulk)
