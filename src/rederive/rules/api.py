"""`db.rules`: register functions, define rules in Python, switch them on and off, and read what fired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rederive.boundary import guard, guard_class
from rederive.errors import IllTypedRow, UnknownName
from rederive.html_tables import html_table
from rederive.ir.rules import Program
from rederive.ir.terms import Row, Value
from rederive.lang.rules.syntax import ActiveRule, AlterRule, CreateRule, DropRule, RuleStatement
from rederive.records import Firing
from rederive.rules.activity import Activity
from rederive.rules.rule_set import CompiledRule, Function, RuleSet
from rederive.rules.runtime import RuleRuntime
from rederive.store.journal.rules import Deliveries, StoredRule
from rederive.store.store import Store
from rederive.values import column_value, from_python

if TYPE_CHECKING:
    from rederive.commit.pipeline import Pipeline

_F = TypeVar("_F", bound=Function)


@guard_class
class Rules:
    """The active rules of a database. Iterating yields them in the order in which they fire."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._runtime: RuleRuntime = pipeline.runtime

    def __iter__(self) -> Iterator[CompiledRule]:
        return iter(self._set.rules)

    def __len__(self) -> int:
        return len(self._set.rules)

    def __repr__(self) -> str:
        return f"Rules({', '.join(one.name for one in self)})"

    def _repr_html_(self) -> str:
        rows = [
            (
                one.name,
                ", ".join(column.name for column in one.condition.columns),
                type(one.rule.action).__name__.removesuffix("Action").lower(),
                "immediate" if one.rule.immediate else "deferred",
                one.rule.priority,
                one.activity.is_active,
            )
            for one in self
        ]
        return html_table(("rule", "columns of the condition", "action", "mode", "priority", "active"), rows)

    @property
    def _set(self) -> RuleSet:
        return self._pipeline.state.rules

    @property
    def most_firings(self) -> int:
        """How many firings one transaction may cause before it is rolled back."""
        return self._runtime.most_firings

    @most_firings.setter
    def most_firings(self, number: int) -> None:
        self._runtime.most_firings = number

    # Functions and rules in Python

    def register(self, function: _F, name: str | None = None) -> _F:
        """Register a function that rules can call, under its own name or another. Also a decorator.

        It is called inside the transaction, once for all rows of a firing; an error that it raises rolls the transaction back.
        If it has parameters `old` or `new`, it gets handles to read the states before and after the transaction.
        """
        # Registering a name again replaces the function: a store holds the rule, and each process brings its functions.
        self._runtime.functions[name or function.__name__] = function
        return function

    def on(
        self,
        view: str,
        *,
        name: str | None = None,
        on: str = "plus",
        mode: str = "deferred",
        precision: str = "strict",
        priority: int = 0,
        event: str | None = None,
        since: str = "transaction",
    ) -> Callable[[_F], _F]:
        """Decorate a function: call it with the rows that enter a view, leave it (`on="minus"`), or both (`on="both"`).

        `mode`: deferred or immediate. `precision`: strict or nervous. `event`: as "INSERT OF quantity".
        `since`: transaction, or check.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        >>> @db.rules.on("big")
        ... def show(rows):
        ...     print(rows)
        >>> with db.transaction() as tx:
        ...     tx.insert("n", [(7,), (11,), (12,)])
        [(11,), (12,)]
        """

        @guard
        def add(function: _F) -> _F:
            called = name or function.__name__
            self.register(function, called)
            # A rule of Python is the statement that defines it, so that a store can hold it as text.
            when = f"ON {event} WHEN TABLE {view}" if event is not None else f"WHEN TABLE {view}"
            options = f"{precision.upper()} {mode.upper()} ON {on.upper()} SINCE {since.upper()} PRIORITY {priority}"
            text = f"CREATE OR REPLACE RULE {called} {when} DO CALL {called} {options}"
            self.run(_parse(text, called))
            return function

        return add

    # Statements

    def run(self, statement: RuleStatement) -> None:
        """Run a statement about rules. Inside a setup it waits for the end of the block."""
        self._runtime.check_idle("a change of the rules")
        if self._pipeline.setup is not None:
            self._pipeline.setup.add_rule(statement)
            return
        match statement:
            case CreateRule(rule, replaces):
                self._create(rule, replaces)
            case AlterRule(name, active, values, span):
                try:
                    self._switch(name, active, values)
                except IllTypedRow as error:
                    raise error.at(str(span)) from None
            case DropRule(name, may_miss, span):
                if may_miss and all(one.name != name for one in self._set.rules):
                    return
                try:
                    self.drop(name)
                except UnknownName as error:
                    error.span = span
                    raise

    def _create(self, rule: ActiveRule, replaces: bool) -> None:
        present = next((one for one in self._set.rules if one.name == rule.name), None)
        # A script that runs again leaves the rule, and for which rows it is active, as they are.
        if replaces and present is not None and present.rule.text == rule.text:
            return
        activity = {name: one for name, one in self._set.activity.items() if name != rule.name}
        self._change(self._set.with_rule(rule, replaces=replaces), activity)

    def drop(self, name: str) -> None:
        """Remove a rule. Its webhooks that are not delivered yet are given up."""
        self._runtime.check_idle("a change of the rules")
        dropped = self._set.get(name)
        if dropped.in_program:
            self._pipeline.redefine(self._pipeline.state.catalog.drop_rule(dropped.name))
        self._change([rule for rule in self._set.of_statements if rule.name != dropped.name], self._set.activity)

    def activate(self, name: str, *values: Value) -> None:
        """Switch a rule on: for all rows, or for rows whose first columns have these values."""
        self._switch(name, True, values or None)

    def deactivate(self, name: str, *values: Value) -> None:
        """Switch a rule off, likewise. While it is off for all rows, its condition is not monitored."""
        self._switch(name, False, values or None)

    def _switch(self, name: str, active: bool, values: Sequence[Value] | None) -> None:
        self._runtime.check_idle("a change of the rules")
        one = self._set.get(name)
        # Typed as rows of the condition are, because they are compared with these.
        typed = _typed_values(one, values) if values is not None else None
        self._change(self._set.of_statements, self._set.activity | {one.name: one.activity.switch(active, typed)})

    def _change(self, of_statements: Sequence[ActiveRule], activity: dict[str, Activity]) -> None:
        self._pipeline.change_rules(self._set.change(self._pipeline.state.catalog.program, of_statements, activity))

    # Firings and webhooks

    def firings(self, rule: str | None = None, since: int = 0) -> list[Firing]:
        """The firings after a version, in order, with their outcomes.

        In memory the last thousand are remembered; a store keeps those of the versions that it retains.
        """
        return self._runtime.firings(rule, since)

    def explain(self, name: str, form: str = "text") -> str:
        """Explain how the condition of a rule is monitored: its partial differentials and its dependency network."""
        return self._pipeline.state.explain_rule(self._set.get(name), form)

    @property
    def deliveries(self) -> Deliveries:
        """The state of the outbox: how many webhooks wait and since when, and the last error. From any thread."""
        return self._runtime.deliveries

    def retry_webhooks(self, rule: str | None = None) -> int:
        """Send the webhooks that were given up again, of one rule or of all; returns how many."""
        store = self._pipeline.state.durable("a webhook")
        number = store.journal.retry_parked(rule.lower() if rule is not None else None)
        self._runtime.send()
        return number


def recover_rules(store: Store, program: Program, of_program: Sequence[ActiveRule]) -> RuleSet:
    """The rules that a store holds, compiled over its program."""
    kept = store.journal.rules
    rules = [_read_rule(one) for one in kept if one.text]
    found = RuleSet.compile(program, of_program, rules, {})
    # Compiled twice: the values of an activity are typed by the columns of the condition, which compiling finds.
    conditions = {one.name: one.condition for one in found.rules}
    activity = {one.name: Activity.from_text(one.activity, conditions[one.name]) for one in kept if one.name in conditions}
    return RuleSet.compile(program, of_program, rules, activity)


def rule_record(one: CompiledRule) -> StoredRule:
    """A rule as the journal holds it."""
    return StoredRule(one.name, "" if one.in_program else one.rule.text, one.activity.to_text())


def _parse(text: str, name: str) -> RuleStatement:
    from rederive.lang.rules.parser import parse_rule_statement
    from rederive.lang.sql.parser import parse

    return parse_rule_statement(parse(text, f"<rule {name}>")[0])


def _read_rule(kept: StoredRule) -> ActiveRule:
    statement = _parse(kept.text, kept.name)
    assert isinstance(statement, CreateRule)
    return statement.rule


def _typed_values(one: CompiledRule, values: Sequence[Value]) -> Row:
    """Values as the first columns of the rule's condition have them."""
    columns = one.condition.columns
    if len(values) > len(columns):
        raise IllTypedRow(f"the condition of '{one.name}' has {len(columns)} columns, not {len(values)}")
    try:
        return tuple(column_value(value, column, from_python) for value, column in zip(values, columns, strict=False))
    except ValueError as error:
        raise IllTypedRow(f"the condition of '{one.name}': {error}") from None
