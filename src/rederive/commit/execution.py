"""The execution of active rules inside a transaction. The law is in docs/decisions/0025-when-a-rule-fires.md.

The engine stays at the state before the transaction. At each moment the net effect of all operations so far is propagated, which
gives the delta of every condition since the beginning. The delta since an earlier moment is the difference of two of these.

Functions come last, in the order of their firings: after all changes of data that rules make, and at the commit after the
constraints. So whatever the database itself refuses is refused before the first function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from rederive.commit.pending import Net, PendingCall, PendingVersion
from rederive.commit.state import DatabaseState
from rederive.commit.state_handles import call_states
from rederive.delta import Delta, Rows, sort_rows
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.errors import ActionFailed, CascadeLimit, RederiveError, RuleError, UnknownFunction
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import FIRING, CallAction, WebhookAction, WriteAction
from rederive.records import DONE, FAILED, WAITING, Firing
from rederive.rules.rule_set import CompiledRule
from rederive.rules.runtime import RuleRuntime
from rederive.rules.triggers import CheckedRows, FiredRows, has_happened

_UNCHANGED = Delta()


class RuleExecution:
    """Fires the rules of pending versions. `propagate` computes the net effect of a pending version and propagates it."""

    def __init__(self, state: DatabaseState, runtime: RuleRuntime, propagate: Callable[[PendingVersion], None]) -> None:
        self._state = state
        self._runtime = runtime
        self._propagate = propagate

    def run_statement(self, pending: PendingVersion, operations: Sequence[Operation]) -> None:
        """Process the immediate rules that a statement may concern, and call their functions at once."""
        rules = self._immediate_rules(operations)
        if not rules or pending.is_replay:
            return
        try:
            with self._state.budget():
                self._propagate(pending)
                self._run_round(pending, rules)
            assert pending.propagation is not None
            # The reference of an immediate rule moves to the state at the end of its
            # round. That of a deferred rule stays at the state before the transaction.
            for one in rules:
                pending.processed[one.name] = _copy(pending.propagation.views.get(one.condition.name))
                pending.processed[f"{one.name} event"] = self._event_delta(one, pending.net)
            self.call_functions(pending)
        except Exception as error:
            pending.failure = error
            raise
        finally:
            # The engine goes back to the state before the transaction, so
            # that readers see nothing of a statement before the commit.
            self._state.engine.rollback()
            pending.propagation = None

    def fire_rules(self, pending: PendingVersion) -> None:
        """Process all rules of a propagated version until none has rows left to fire for."""
        self._run_round(pending, pending.rules.active)
        # Another transaction may have been committed since an immediate rule fired.
        pending.firings = [replace(firing, version=self._version) for firing in pending.firings]

    def call_functions(self, pending: PendingVersion) -> None:
        """Call the functions of the rules that fired, in that order. The first that raises refuses the transaction."""
        calls, pending.calls, pending.has_called = pending.calls, [], True
        for call in calls:
            try:
                self._call(pending, call)
            except BaseException as error:
                self._fail(call.rule, call.delta, error)
                raise

    @property
    def _version(self) -> int:
        """The version that the transaction will be."""
        return self._state.version + 1

    def _immediate_rules(self, operations: Sequence[Operation]) -> list[CompiledRule]:
        rules = [one for one in self._state.rules.active if one.rule.immediate]
        if not rules:
            return []
        program = self._state.program
        # A bag changes through the relation that numbers its copies, and conditions are lowered to read that one.
        changed = {program.numbered_copies(operation.relation) or operation.relation for operation in operations}
        # All immediate rules take part as soon as one is concerned: the action of that one may concern the others.
        return rules if any(changed & (one.influents | {one.event.name if one.event else ""}) for one in rules) else []

    # One round: the rules in their order, until none has rows left to fire for

    def _run_round(self, pending: PendingVersion, rules: Collection[CompiledRule]) -> None:
        fired: dict[str, FiredRows] = {}
        while (chosen := self._choose(pending, rules, fired)) is not None:
            one, delta = chosen
            # A rule fires at most once for a row in a round. So a round over a finite set
            # of rows ends; only rules that invent rows can exceed the limit on firings.
            if one.rule.since_check:
                pending.checked[one.name].fire()
            else:
                fired.setdefault(one.name, FiredRows()).add(delta)
            try:
                # What an action changes counts before the next rule is chosen. The longer list of operations is propagated
                # from the state before the transaction, because deltas since one beginning can be subtracted.
                if added := self._act(pending, one, delta):
                    self._state.engine.rollback()
                    pending.propagation = None
                    pending.operations += added
                    self._propagate(pending)
            except BaseException as error:
                self._fail(one, delta, error)
                raise

    def _choose(
        self, pending: PendingVersion, rules: Collection[CompiledRule], fired: Mapping[str, FiredRows]
    ) -> tuple[CompiledRule, Delta] | None:
        """The first rule that has rows to fire for: immediate ones first, then by priority and name."""
        assert pending.propagation is not None
        for one in sorted(rules, key=lambda one: (not one.rule.immediate, *one.order)):
            change = _copy(pending.propagation.views.get(one.condition.name))
            if one.rule.since_check:
                since = pending.checked.setdefault(one.name, CheckedRows(one.rule.signs)).check(change)
            else:
                since = _since(change, pending.processed.get(one.name))
            delta = _fires_for(one, since)
            if one.name in fired:
                delta = fired[one.name].unseen(delta)
            if delta and self._has_event(pending, one):
                return one, delta
        return None

    def _has_event(self, pending: PendingVersion, one: CompiledRule) -> bool:
        if one.event is None or one.rule.event is None:
            return True
        delta = _since(self._event_delta(one, pending.net), pending.processed.get(f"{one.name} event"))
        return has_happened(one.rule.event.kind, one.event, delta)

    @staticmethod
    def _event_delta(one: CompiledRule, net: Net) -> Delta:
        return _copy(net.get(one.event.name)) if one.event is not None else _UNCHANGED

    # Actions

    def _act(self, pending: PendingVersion, one: CompiledRule, delta: Delta) -> list[Operation]:
        """Run the action of a rule; the operations that it adds to the transaction."""
        # Whether a cascade ends is undecidable. RECURSIVE admits a cycle of rules, and this limit stops it.
        if len(pending.firings) >= (most := self._runtime.most_firings):
            hint = "make its condition false for the rows that its action adds, or fire it in another transaction"
            raise CascadeLimit(one.name, f"the transaction set off more than {most} firings", hint=hint)
        plus, minus = (tuple(sort_rows(rows)) for rows in (delta.plus, delta.minus))
        done = Firing(self._version, one.name, "call", plus, minus, DONE, "", one.recorded_relation)
        match one.rule.action:
            case CallAction(name):
                function = self._runtime.functions.get(name)
                if function is None:
                    raise UnknownFunction(one.name, name)
                pending.firings.append(done)
                sides = self._rows_to_pass(one, plus), self._rows_to_pass(one, minus)
                pending.calls.append(PendingCall(one, function, delta, sides))
                return []
            case WebhookAction(url):
                _add_webhook(pending.firings, replace(done, action="webhook", outcome=WAITING, address=url))
                return []
            case WriteAction(parsed):
                from rederive.commit.sql_changes import ChangeEvaluator

                pending.firings.append(replace(done, action="write"))
                assert one.write is not None
                evaluator = ChangeEvaluator(self._state, self._inserts_and_deletes(pending), {FIRING: plus or minus})
                return evaluator.operations(one.write, parsed)

    def _rows_to_pass(self, one: CompiledRule, rows: Sequence[Row]) -> list[Row]:
        """What a function is called with for these rows: its columns or expressions, each combination once, in order."""
        if one.arguments is None or not rows:
            return one.project(rows)
        from rederive.commit.sql_changes import answers

        width = one.condition.arity
        found = {row[:width]: row[width:] for row in answers(self._state, one.arguments, (), {FIRING: rows})}
        return list(dict.fromkeys(found[row] for row in rows))

    def _call(self, pending: PendingVersion, call: PendingCall) -> None:
        one = call.rule
        states = call_states(call.function, self._state, lambda: self._inserts_and_deletes(pending))
        with self._runtime.running(one.name), self._state.engine.pause_budget():
            if len(one.rule.signs) > 1:
                call.function(*call.sides, **states)
            else:
                call.function(call.sides[0] or call.sides[1], **states)

    def _inserts_and_deletes(self, pending: PendingVersion) -> list[Operation]:
        """The transaction so far as plain inserts and deletes; operations on bags as they were requested."""
        program = self._state.program
        found = [operation for operation in pending.operations if program.numbered_copies(operation.relation)]
        bags = {program.numbered_copies(operation.relation) for operation in found}
        for name, delta in pending.net.items():
            if name not in bags:
                found += [Operation(Action.DELETE, name, _rows(delta.minus)), Operation(Action.INSERT, name, _rows(delta.plus))]
        return found

    def _fail(self, one: CompiledRule, delta: Delta, error: BaseException) -> None:
        """Record what stopped the transaction, and raise an error that names the rule."""
        # An interrupt is not a failure of the rule: it passes unchanged.
        if not isinstance(error, Exception):
            return
        kind = {CallAction: "call", WebhookAction: "webhook", WriteAction: "write"}[type(one.rule.action)]
        plus, minus = (tuple(sort_rows(rows)) for rows in (delta.plus, delta.minus))
        detail = error.message if isinstance(error, RederiveError) else f"{type(error).__name__}: {error}"
        failed = Firing(self._version, one.name, kind, plus, minus, FAILED, detail, one.recorded_relation)
        self._runtime.log_failure(failed)
        if not isinstance(error, RuleError):
            raise ActionFailed(one.name, f"its action failed: {detail}", hint="the transaction is rolled back") from error


def calls_in_statements(rules: Collection[CompiledRule]) -> bool:
    """Whether a statement may call functions before its commit. Such a transaction must not be prepared twice."""
    return any(one.rule.immediate and isinstance(one.rule.action, CallAction) for one in rules)


def _fires_for(one: CompiledRule, delta: Delta) -> Delta:
    """The part of a delta that a rule fires for: its signs, and the rows that it is active for."""
    part = delta.restrict(one.rule.signs)
    return Delta(one.activity.active_rows(part.plus), one.activity.active_rows(part.minus))


def _copy(delta: Delta | None) -> Delta:
    """A delta that stays as it is when the engine rolls back."""
    return Delta(frozenset(delta.plus), frozenset(delta.minus)) if delta is not None else _UNCHANGED


def _since(delta: Delta, earlier: Delta | None) -> Delta:
    """What changed after `earlier`, both being deltas since one beginning: a row that had left and is back has entered."""
    return delta.union(earlier.invert()) if earlier is not None else delta


def _rows(rows: Rows) -> tuple[Row, ...] | Bulk:
    return rows if isinstance(rows, Bulk) else tuple(rows)


def _add_webhook(firings: list[Firing], waiting: Firing) -> None:
    """A rule posts once for a version: the rows of later firings join those of the first."""
    for i, firing in enumerate(firings):
        if firing.rule == waiting.rule:
            plus, minus = (*firing.plus, *waiting.plus), (*firing.minus, *waiting.minus)
            firings[i] = replace(firing, plus=plus, minus=minus)
            return
    firings.append(waiting)
