"""What a database offers of active rules: functions, rules in Python, switching them on and off, and what fired."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rederive.boundary import guard, guard_class
from rederive.catalog import Catalog
from rederive.engines.protocol import Engine
from rederive.errors import IllTypedRow, InAction, NoStore, UnknownName
from rederive.ir.terms import Row, Value
from rederive.lang.rules.syntax import ActiveRule, AlterRule, CallAction, CreateRule, DropRule, RuleStatement, WebhookAction
from rederive.lifecycle import Lifecycle
from rederive.records import Firing
from rederive.rules.activity import Activity
from rederive.rules.outbox import OutboxSender
from rederive.rules.rule_set import CompiledRule, Function, RuleSet, check_functions
from rederive.rules.webhook import Webhooks
from rederive.store.journal.rules import Deliveries, StoredRule
from rederive.store.store import Store
from rederive.values import column_value, from_python

if TYPE_CHECKING:
    from rederive.commit.setup import Setup

NOWHERE = Webhooks("", ())
REMEMBERED = 1000  # firings of a database in memory

_F = TypeVar("_F", bound=Function)


@guard_class
class ActiveDatabase(Lifecycle):
    """The rules of a database.

    `most_firings`: how many one transaction may set off before it is rolled back. `checks_actions`: whether functions must be
    registered, and addresses allowed, when a rule is defined; where rules are only looked at, they need not be.
    """

    most_firings = 100
    checks_actions = True

    def __init__(self, engine: Engine, store: Store | None, webhooks: Webhooks | None = None) -> None:
        super().__init__(engine, store)
        self.gathering: Setup | None = None
        self.functions: dict[str, Function] = {}
        self.rule_base = RuleSet()
        self.webhooks = webhooks
        self._courier: OutboxSender | None = None
        self._outbox = Deliveries()  # as the journal had it last, where nothing is sent
        self._fired: deque[Firing] = deque(maxlen=REMEMBERED)
        self._acting: str | None = None

    @abstractmethod
    def _stand(self, rules: RuleSet, keep: Callable[[], None]) -> None:
        """Install these rules and keep them, or leave everything as it was."""

    @abstractmethod
    def _drop_stated(self, name: str) -> None:
        """Take a rule out of the program's text."""

    @property
    @abstractmethod
    def definitions(self) -> Catalog: ...

    # Functions and rules in Python

    def register(self, function: _F, name: str | None = None) -> _F:
        """Give rules a function to call, under its own name or another. Also a decorator.

        It is called inside the transaction, once for all rows of a firing; an error that it raises rolls the transaction back.
        """
        self.functions[name or function.__name__] = function
        return function

    def rule(
        self,
        view: str,
        *,
        name: str | None = None,
        on: str = "plus",
        mode: str = "deferred",
        precision: str = "strict",
        priority: int = 0,
        event: str | None = None,
    ) -> Callable[[_F], _F]:
        """Call a function with the rows that enter a view, or, `on="minus"`, leave it; with both lists for `on="both"`.

        `mode`: deferred or immediate. `precision`: strict or nervous. `event`: as "INSERT OF quantity".

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        >>> @db.rule("big")
        ... def tell(rows):
        ...     print(rows)
        >>> with db.transaction() as tx:
        ...     tx.insert("n", [(7,), (11,), (12,)])
        [(11,), (12,)]
        """

        @guard
        def added(function: _F) -> _F:
            called = name or function.__name__
            self.register(function, called)
            when = f"ON {event} WHEN TABLE {view}" if event is not None else f"WHEN TABLE {view}"
            options = f"{precision.upper()} {mode.upper()} ON {on.upper()} PRIORITY {priority}"
            text = f"CREATE OR REPLACE RULE {called} {when} DO CALL {called} {options}"
            self.run_rule_statement(_statement(text, called))
            return function

        return added

    # Statements

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The rules that stand, in the order in which they fire."""
        return self.rule_base.standing

    def run_rule_statement(self, statement: RuleStatement) -> None:
        self._check_idle("a change of the rules")
        if self.gathering is not None:
            self.gathering.add_rule(statement)
            return
        match statement:
            case CreateRule(rule, replaces):
                self._create_rule(rule, replaces)
            case AlterRule(name, active, values, span):
                try:
                    self._switch(name, active, values)
                except IllTypedRow as error:
                    raise error.at(str(span)) from None
            case DropRule(name, may_miss, span):
                if not (may_miss and all(one.name != name for one in self.rules)):
                    self._located(lambda: self.drop_rule(name), statement)

    def _located(self, step: Callable[[], None], statement: DropRule) -> None:
        try:
            step()
        except UnknownName as error:
            error.span = statement.span
            raise

    def _create_rule(self, rule: ActiveRule, replaces: bool) -> None:
        there = next((one for one in self.rules if one.name == rule.name), None)
        if replaces and there is not None and there.rule.text == rule.text:
            return
        base = self.rule_base
        activity = {name: kept for name, kept in base.activity.items() if name != rule.name}
        self._keep(base.changed(self.definitions.program, base.with_rule(rule, replaces=replaces), activity))

    def drop_rule(self, name: str) -> None:
        """Take a rule away. Webhooks of it that are not delivered yet are given up."""
        self._check_idle("a change of the rules")
        dropped = self.rule_base.named(name)
        if dropped.stated:
            self._drop_stated(dropped.name)
        kept = [one.rule for one in self.rules if not one.stated and one.name != dropped.name]
        self._keep(self.rule_base.changed(self.definitions.program, kept, self.rule_base.activity))

    def activate(self, name: str, *values: Value) -> None:
        """Switch a rule on: for all rows, or for those whose condition's first columns have these values."""
        self._switch(name, True, values or None)

    def deactivate(self, name: str, *values: Value) -> None:
        """Switch a rule off, likewise. While it is off for all rows, its condition is not looked at."""
        self._switch(name, False, values or None)

    def _switch(self, name: str, active: bool, values: Sequence[Value] | None) -> None:
        self._check_idle("a change of the rules")
        one = self.rule_base.named(name)
        typed = _typed(one, values) if values is not None else None
        activity = self.rule_base.activity | {one.name: one.activity.switched(active, typed)}
        kept = [other.rule for other in self.rules if not other.stated]
        self._keep(self.rule_base.changed(self.definitions.program, kept, activity))

    def _keep(self, rules: RuleSet) -> None:
        self._check_rules(self.rules, rules.standing)

        def keep() -> None:
            if self._store is not None:
                self._store.journal.write_rules(map(_kept, rules.standing))
                self._send(self._store)

        self._stand(rules, keep)

    def _check_rules(self, before: Sequence[CompiledRule], after: Sequence[CompiledRule]) -> None:
        """What only the running process can tell of rules that are new, or that do something else than before."""
        known = {(one.name, _target(one)) for one in before}
        for one in after if self.checks_actions else ():
            if (one.name, _target(one)) in known:
                continue
            check_functions([one], self.functions)
            if isinstance(action := one.rule.action, WebhookAction):
                if self._store is None:
                    raise NoStore("a webhook")
                (self.webhooks or NOWHERE).check(action.url, action.span)

    # What fired

    def firings(self, rule: str | None = None, since: int = 0) -> list[Firing]:
        """What fired after a version, in order, and what became of it, as far as it is kept.

        In memory the last thousand are remembered; a store keeps those of the versions that it keeps.
        """
        if self._store is not None:
            return self._store.journal.firings(rule, since)
        return [one for one in self._fired if one.version > since and rule in (None, one.rule)]

    def firings_after(self, number: int, rule: str | None = None, most: int = 1000) -> list[Firing]:
        """Of a store: the next firings after the one with this number, failed ones among them."""
        return self._durable("the number of a firing").journal.firings_after(number, rule, most)

    @property
    def last_firing(self) -> int:
        """The number of the last firing that is kept: whatever fires later has a higher one."""
        return self._durable("the number of a firing").journal.last_firing

    def note_failure(self, firing: Firing) -> None:
        if self._store is not None:
            self._store.journal.write_firing(firing)
        else:
            self._fired.append(firing)

    # Webhooks

    def _send(self, store: Store) -> None:
        """Have what is in the outbox sent, if the database may send at all."""
        if self._courier is not None and self._courier.is_alive:
            self._courier.wake()
            return
        self._outbox = store.journal.deliveries()
        if self.webhooks is not None and self._outbox.waiting:
            self._courier = OutboxSender(store.journal.folder, self.webhooks, self._outbox)

    @property
    def deliveries(self) -> Deliveries:
        """How many webhooks wait and since when, how many were given up, and what is in the way; from any thread."""
        if self._courier is not None:
            return self._courier.state
        found = self._outbox
        return replace(found, error="this process sends no webhooks") if found.waiting and self.webhooks is None else found

    def retry_webhooks(self, rule: str | None = None) -> int:
        """Send again what was given up, of one rule or of all; how many."""
        store = self._durable("a webhook")
        number = store.journal.retry_parked(rule.lower() if rule is not None else None)
        self._send(store)
        return number

    def close(self) -> None:
        """Let go of the store, if there is one. What is not delivered yet stays in it, and is sent when it is opened again."""
        if self._courier is not None:
            self._courier.close()
            self._courier = None
        super().close()

    # Transactions

    @contextmanager
    def acting(self, rule: str) -> Iterator[None]:
        """While this lasts, a function of a rule runs inside a transaction: no other one may begin."""
        self._acting = rule
        try:
            yield
        finally:
            self._acting = None

    def _check_idle(self, what: str) -> None:
        if self._acting is not None:
            hint = "let the rule DO INSERT, UPDATE or DELETE, or begin the transaction from a subscription"
            raise InAction(self._acting, f"{what} inside a function that a rule calls", hint=hint)

    # On paper

    def _recovered_rules(self, store: Store, stated: Sequence[ActiveRule]) -> RuleSet:
        """The rules that a store keeps, over its program."""
        kept = store.journal.rules
        rules = [_read(one) for one in kept if one.text]
        base = RuleSet.over(self.definitions.program, stated, rules, {})
        standing = {one.name: one.condition for one in base.standing}
        activity: Mapping[str, Activity] = {
            one.name: Activity.of(one.activity, standing[one.name]) for one in kept if one.name in standing
        }
        return RuleSet.over(self.definitions.program, stated, rules, activity)


def _target(one: CompiledRule) -> tuple[str, str]:
    """What the action of a rule needs outside of the database: a function, or an address."""
    match one.rule.action:
        case CallAction(function):
            return "call", function
        case WebhookAction(url):
            return "webhook", url
        case _:
            return "write", ""


def _kept(one: CompiledRule) -> StoredRule:
    return StoredRule(one.name, "" if one.stated else one.rule.text, one.activity.text())


def _statement(text: str, name: str) -> RuleStatement:
    from rederive.lang.rules.parser import parse_rule_statement
    from rederive.lang.sql.parser import parse

    return parse_rule_statement(parse(text, f"<rule {name}>")[0])


def _read(kept: StoredRule) -> ActiveRule:
    statement = _statement(kept.text, kept.name)
    assert isinstance(statement, CreateRule)
    return statement.rule


def _typed(one: CompiledRule, values: Sequence[Value]) -> Row:
    """Values as the first columns of the rule's condition have them."""
    columns = one.condition.columns
    if len(values) > len(columns):
        raise IllTypedRow(f"the condition of '{one.name}' has {len(columns)} columns, not {len(values)}")
    try:
        return tuple(column_value(value, column, from_python) for value, column in zip(values, columns, strict=False))
    except ValueError as error:
        raise IllTypedRow(f"the condition of '{one.name}': {error}") from None
