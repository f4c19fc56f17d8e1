"""What rules need while a database runs: functions to call, the record of firings, and the outbox of webhooks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from rederive.errors import InAction, NoStore
from rederive.lang.rules.syntax import CallAction, WebhookAction
from rederive.records import Firing
from rederive.rules.outbox import OutboxSender
from rederive.rules.rule_set import CompiledRule, Function, check_functions
from rederive.rules.webhook import Webhooks
from rederive.store.journal.rules import Deliveries
from rederive.store.store import Store

MOST_FIRINGS: Final = 100
"""Firings that one transaction may cause before it is rolled back: a cascade that never ends is stopped."""
LOGGED_FIRINGS: Final = 1000
"""Firings that a database in memory remembers."""
_NOWHERE: Final = Webhooks("", ())


class RuleRuntime:
    """The functions, firings and webhooks of one database.

    `checks_actions`: whether functions must be registered, and addresses allowed, when a rule is defined. A program that is only
    inspected needs neither. `running_rule`: the rule whose function runs, if one does.
    """

    def __init__(self, store: Store | None, webhooks: Webhooks | None) -> None:
        self.functions: dict[str, Function] = {}
        self.most_firings = MOST_FIRINGS
        self.checks_actions = True
        self._store = store
        self._webhooks = webhooks
        self._sender: OutboxSender | None = None
        self._deliveries = Deliveries()  # as the journal had them last, where this process sends nothing
        self._log: deque[Firing] = deque(maxlen=LOGGED_FIRINGS)
        self.running_rule: str | None = None

    # Functions

    @contextmanager
    def running(self, rule: str) -> Iterator[None]:
        """Mark that a function of a rule runs inside a transaction: no other transaction may begin meanwhile."""
        self.running_rule = rule
        try:
            yield
        finally:
            self.running_rule = None

    def check_idle(self, what: str) -> None:
        """Refuse what a function of a rule may not do."""
        if self.running_rule is not None:
            hint = "let the rule DO INSERT, UPDATE or DELETE, or begin the transaction from a subscription"
            raise InAction(self.running_rule, f"{what} inside a function that a rule calls", hint=hint)

    def check_actions(self, before: Sequence[CompiledRule], after: Sequence[CompiledRule]) -> None:
        """Refuse a new or changed action whose function is not registered, or whose address is not allowed."""
        known = {(one.name, _target(one)) for one in before}
        for one in after if self.checks_actions else ():
            # A rule that did not change is not checked: a store opens before its functions are registered (decision 0027).
            if (one.name, _target(one)) in known:
                continue
            check_functions([one], self.functions)
            if isinstance(action := one.rule.action, WebhookAction):
                if self._store is None:
                    raise NoStore("a webhook")
                (self._webhooks or _NOWHERE).check(action.url, action.span)

    # Firings

    def log(self, firings: Iterable[Firing]) -> None:
        """Remember the firings of a version; a store has them in the record of the version."""
        if self._store is None:
            self._log.extend(firings)

    def log_failure(self, firing: Firing) -> None:
        """Record a firing whose transaction was rolled back."""
        if self._store is not None:
            # A transaction of its own, because the one in which the rule fired is rolled back.
            self._store.journal.write_firing(firing)
        else:
            self._log.append(firing)

    def firings(self, rule: str | None, since: int) -> list[Firing]:
        """The recorded firings after a version."""
        if self._store is not None:
            return self._store.journal.firings(rule, since)
        # In memory only the last ones are left; `since` may ask for more than there is.
        return [one for one in self._log if one.version > since and rule in (None, one.rule)]

    # Webhooks

    def send(self) -> None:
        """Start or wake the sender if the outbox has messages and this process may send them."""
        if self._store is None:
            return
        # At most one sender for a store: it owns the order of attempts.
        if self._sender is not None and self._sender.is_alive:
            self._sender.wake()
            return
        # Counted once at the start; while a sender runs, it knows the numbers.
        self._deliveries = self._store.journal.deliveries()
        if self._webhooks is not None and self._deliveries.waiting:
            self._sender = OutboxSender(self._store.journal.folder, self._webhooks, self._deliveries)

    @property
    def deliveries(self) -> Deliveries:
        """The state of the outbox; may be read from any thread."""
        if self._sender is not None:
            return self._sender.state
        found = self._deliveries
        return replace(found, error="this process sends no webhooks") if found.waiting and self._webhooks is None else found

    def close(self) -> None:
        """Stop sending. Messages that are not delivered stay in the outbox."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None


def _target(one: CompiledRule) -> tuple[str, str]:
    """What the action of a rule needs outside of the database: a function, or an address."""
    match one.rule.action:
        case CallAction(function):
            return "call", function
        case WebhookAction(url):
            return "webhook", url
        case _:
            return "write", ""
