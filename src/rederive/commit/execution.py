"""A transaction in progress, and the rules that fire in it. The law is in docs/decisions/0025-when-a-rule-fires.md.

The engine stays at the state before the transaction. At each moment the net effect of all operations so far is propagated, which
gives the change of every condition since the beginning; the change since an earlier moment is the difference of two of these.

Functions come last, in the order of their firings: when the changes of data that rules make have come to rest, and, at the
commit, when no constraint is violated. Whatever the database itself refuses is refused before the first function is called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from rederive.bags import on_copies
from rederive.delta import Delta, Rows, from_counted
from rederive.engines.protocol import Action, Bulk, Operation, Propagation
from rederive.errors import ActionFailed, CascadeLimit, RederiveError, RuleError, UnknownFunction, Violated
from rederive.ir.rules import Mode
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import FIRING, CallAction, WebhookAction, WriteAction
from rederive.records import DONE, FAILED, WAITING, Firing
from rederive.rules.rule_set import CompiledRule, Function, projected, touched_bases
from rederive.rules.triggers import FiredRows, has_happened
from rederive.values import sort_key

if TYPE_CHECKING:
    from rederive.database import Database

Net: TypeAlias = Mapping[str, Delta]
UNCHANGED = Delta()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A function to call with the rows that its rule fired for."""

    standing: CompiledRule
    function: Function
    delta: Delta


class Course:
    """What a transaction has done so far.

    `given`: the operations that were asked for. `operations`: these and what actions added, in order. `replayed`: the transaction
    was committed before under its key, so that nothing of it is to happen again.
    """

    def __init__(self, database: Database, *, replayed: bool = False) -> None:
        self.given: list[Operation] = []
        self.operations: list[Operation] = []
        self.firings: list[Firing] = []
        self._database = database
        self._replayed = replayed
        self._failure: Exception | None = None
        self._calls: list[PendingCall] = []
        self._reached: dict[str, Delta] = {}  # the change of each immediate rule's condition, and of its event, at its last round

    # Statements and the commit

    def statement(self, operations: Sequence[Operation]) -> None:
        """One more statement; the immediate rules that it may concern are processed, and their functions called, at once."""
        self._check()
        self.given += operations
        self.operations += operations
        rules = self._concerned(operations)
        if rules and not self._replayed:
            try:
                net, propagation = self._round(rules)
                for one in rules:
                    self._reached[one.name] = _decoded(propagation.views.get(one.condition.name))
                    self._reached[f"{one.name} event"] = self._event_change(one, net)
                self.call_functions()
            except Exception as error:
                self._failure = error
                raise
            finally:
                self._database.engine.rollback()

    def settled(self) -> tuple[Net, Propagation]:
        """Process all rules until they are quiet: the net effect of everything, propagated and not yet committed.

        No constraint is violated then. What is left to do before the commit is `call_functions`.
        """
        self._check()
        net, propagation = self._round(self._database.rule_base.active)
        try:
            self._check_constraints(propagation)
        except Violated:
            self._database.engine.rollback()
            raise
        # another transaction may have been committed since an immediate rule fired
        self.firings = [replace(firing, version=self._version) for firing in self.firings]
        return net, propagation

    @property
    def _version(self) -> int:
        """The version that the transaction is to make."""
        return self._database.version + 1

    @property
    def has_calls(self) -> bool:
        """Whether functions are to be called."""
        return bool(self._calls)

    def call_functions(self) -> None:
        """Call the functions of the rules that fired, in that order. The first that raises refuses the transaction."""
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                self._call(call)
            except BaseException as error:
                self._failed(call.standing, call.delta, error)
                raise

    def _check(self) -> None:
        """An error inside a transaction ends it, also where the caller went on."""
        if self._failure is not None:
            raise self._failure

    def _concerned(self, operations: Sequence[Operation]) -> list[CompiledRule]:
        rules = [one for one in self._database.rule_base.active if one.rule.immediate]
        if not rules:
            return []
        changed = touched_bases(self._database.program, (operation.relation for operation in operations))
        return rules if any(changed & (one.influents | {one.event.name if one.event else ""}) for one in rules) else []

    # One round: the rules in their order, until none has anything left to fire for

    def _round(self, rules: Collection[CompiledRule]) -> tuple[Net, Propagation]:
        fired: dict[str, FiredRows] = {}
        net, propagation = self._propagated()
        while (chosen := self._chosen(rules, fired, net, propagation)) is not None:
            one, delta = chosen
            fired.setdefault(one.name, FiredRows()).add(delta)
            try:
                added = self._acted(one, delta, net)
                if added:
                    self._database.engine.rollback()
                    self.operations += added
                    net, propagation = self._propagated()
            except BaseException as error:
                self._database.engine.rollback()
                self._failed(one, delta, error)
                raise
        return net, propagation

    def _propagated(self) -> tuple[Net, Propagation]:
        engine, program = self._database.engine, self._database.program
        operations: Sequence[Operation] = self.operations
        if any(program.copies_of(operation.relation) for operation in operations):
            operations = on_copies(program, operations, engine)
        with engine.budget(self._database.limits):
            net = engine.net(operations)
            return net, engine.propagate(net)

    def _chosen(
        self, rules: Collection[CompiledRule], fired: Mapping[str, FiredRows], net: Net, propagation: Propagation
    ) -> tuple[CompiledRule, Delta] | None:
        """The first rule that has rows to fire for: immediate ones first, then by priority and name."""
        for one in sorted(rules, key=lambda one: (not one.rule.immediate, *one.order)):
            change = _decoded(propagation.views.get(one.condition.name))
            delta = self._wanted(one, _since(change, self._reached.get(one.name)))
            if one.name in fired:
                delta = fired[one.name].unseen(delta)
            if delta and self._has_happened(one, net):
                return one, delta
        return None

    @staticmethod
    def _wanted(one: CompiledRule, delta: Delta) -> Delta:
        wanted = delta.restrict(one.rule.signs)
        return Delta(one.activity.among(wanted.plus), one.activity.among(wanted.minus))

    def _has_happened(self, one: CompiledRule, net: Net) -> bool:
        if one.event is None or one.rule.event is None:
            return True
        delta = _since(self._event_change(one, net), self._reached.get(f"{one.name} event"))
        return has_happened(one.rule.event.kind, one.event, delta)

    @staticmethod
    def _event_change(one: CompiledRule, net: Net) -> Delta:
        return _decoded(net.get(one.event.name)) if one.event is not None else UNCHANGED

    # Actions

    def _acted(self, one: CompiledRule, delta: Delta, net: Net) -> list[Operation]:
        """Do what the rule says; the operations that this adds to the transaction."""
        if len(self.firings) >= (most := self._database.most_firings):
            hint = "make its condition false for the rows that its action adds, or fire it in another transaction"
            raise CascadeLimit(one.name, f"the transaction set off more than {most} firings", hint=hint)
        plus, minus = (sorted(rows, key=sort_key) for rows in (delta.plus, delta.minus))
        version = self._version
        match one.rule.action:
            case CallAction(function):
                called = self._database.functions.get(function)
                if called is None:
                    raise UnknownFunction(one.name, function)
                self.firings.append(Firing(version, one.name, "call", tuple(plus), tuple(minus), DONE, "", one.recorded))
                self._calls.append(PendingCall(one, called, delta))
                return []
            case WebhookAction(url):
                waiting = Firing(version, one.name, "webhook", tuple(plus), tuple(minus), WAITING, "", one.recorded, url)
                self._post(waiting)
                return []
            case WriteAction(parsed):
                self.firings.append(Firing(version, one.name, "write", tuple(plus), tuple(minus), DONE, "", one.recorded))
                assert one.write is not None
                from rederive.commit.sql_statements import SqlRun

                run = SqlRun(self._database, given={FIRING: plus or minus})
                run.pending = self._pending(net)
                return run.operations(one.write, parsed)

    def _call(self, call: PendingCall) -> None:
        one, delta = call.standing, call.delta
        sides = [projected(one, sorted(rows, key=sort_key)) for rows in (delta.plus, delta.minus)]
        with self._database.acting(one.name), self._database.engine.pause_budget():
            if len(one.rule.signs) > 1:
                call.function(*sides)
            else:
                call.function(sides[0] or sides[1])

    def _post(self, waiting: Firing) -> None:
        """A rule posts once for a version: the rows of later firings join those of the first."""
        for i, firing in enumerate(self.firings):
            if firing.rule == waiting.rule:
                plus, minus = (*firing.plus, *waiting.plus), (*firing.minus, *waiting.minus)
                self.firings[i] = replace(firing, plus=plus, minus=minus)
                return
        self.firings.append(waiting)

    def _pending(self, net: Net) -> list[Operation]:
        """The transaction so far as plain inserts and deletes, bags as they were asked for."""
        program = self._database.program
        found = [operation for operation in self.operations if program.copies_of(operation.relation)]
        copies = {program.copies_of(operation.relation) for operation in found}
        for name, delta in net.items():
            if name not in copies:
                found += [Operation(Action.DELETE, name, _given(delta.minus)), Operation(Action.INSERT, name, _given(delta.plus))]
        return found

    def _failed(self, one: CompiledRule, delta: Delta, error: BaseException) -> None:
        """Note what stopped the transaction, and say which rule it was."""
        if not isinstance(error, Exception):
            return
        kind = {CallAction: "call", WebhookAction: "webhook", WriteAction: "write"}[type(one.rule.action)]
        plus, minus = (tuple(sorted(rows, key=sort_key)) for rows in (delta.plus, delta.minus))
        detail = error.message if isinstance(error, RederiveError) else f"{type(error).__name__}: {error}"
        self._database.note_failure(Firing(self._version, one.name, kind, plus, minus, FAILED, detail, one.recorded))
        if not isinstance(error, RuleError):
            raise ActionFailed(one.name, f"its action failed: {detail}", hint="the transaction is rolled back") from error

    # Constraints

    def _check_constraints(self, propagation: Propagation) -> None:
        program = self._database.program
        for constraint in program.constraints:
            counted = program.counted(constraint.view)
            if constraint.mode is not Mode.REJECT or counted not in propagation.views:
                continue
            delta = propagation.views[counted]
            rows = (from_counted(delta) if counted != constraint.view else delta).plus
            if len(rows):
                violating: list[Row] = sorted(rows, key=sort_key)
                raise Violated(constraint.view, violating)


def _decoded(delta: Delta | None) -> Delta:
    """A delta that stays as it is when the engine rolls back."""
    return Delta(frozenset(delta.plus), frozenset(delta.minus)) if delta is not None else UNCHANGED


def _since(delta: Delta, earlier: Delta | None) -> Delta:
    """What changed after `earlier`, both being deltas since one beginning: a row that had left and is back has entered."""
    return delta.union(earlier.invert()) if earlier is not None else delta


def _given(rows: Rows) -> tuple[Row, ...] | Bulk:
    return rows if isinstance(rows, Bulk) else tuple(rows)
