"""Subscriptions: who is notified of which changes, and in which order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rederive.boundary import guard_class, mark_as_callers
from rederive.delta import BOTH, Sign
from rederive.engines.protocol import Query
from rederive.errors import UnknownOption
from rederive.ir.terms import Value
from rederive.result import Change, Result

Callback = Callable[[Change], None]


def signs(only: str | None) -> frozenset[Sign]:
    """The signs that `only` selects: plus, minus, or both where it is None.

    >>> [sign.value for sign in signs("plus")]
    ['plus']
    """
    if only is None:
        return BOTH
    try:
        return frozenset({Sign(only)})
    except ValueError:
        raise UnknownOption("only", only, [sign.value for sign in Sign]) from None


@guard_class
@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """Calls back with every change of a view from now on, until it is cancelled."""

    view: str
    callback: Callback
    signs: frozenset[Sign]
    bindings: Mapping[int, Value]
    _subscriptions: Subscriptions

    def cancel(self) -> None:
        """End the subscription: the callback is not called again."""
        if self in self._subscriptions.active:
            self._subscriptions.active.remove(self)

    @property
    def query(self) -> Query:
        """The part of the view that the subscription is about."""
        return Query(self.view, tuple(sorted(self.bindings.items())))

    def part(self, result: Result) -> Change | None:
        """The part of a version that the subscription is notified of; None where there is none."""
        # A part that the engine computes for itself is in `bound`; any
        # other part is selected from the change of the whole view.
        change = result.bound.get(self.query) if self.bindings else result.changes.get(self.view)
        if change is None and self.bindings and (whole := result.changes.get(self.view)):
            change = whole.where(self.bindings)
        # An empty part is not a notification: a subscriber is called for versions that change its rows, and for no others.
        return (change.only(self.signs) or None) if change is not None else None


@dataclass(slots=True)
class Subscriptions:
    """All subscriptions of a database. `queue`: committed versions whose notification is not complete."""

    active: list[Subscription] = field(default_factory=list)
    queue: deque[Result] = field(default_factory=deque)

    def notify(self, result: Result) -> None:
        """Notify all subscribers of a version before any of the next.

        A callback may commit a transaction: its version waits in the queue, and all are notified of it after this one. Every
        subscriber is notified, also when another one's callback fails; the first failure is raised at the end.
        """
        self.queue.append(result)
        if len(self.queue) > 1:
            return
        failures: list[Exception] = []
        while self.queue:
            # The version stays at the head while its callbacks run: that is
            # how a nested commit knows to queue its own version and return.
            failures += self._call_back(self.queue[0])
            self.queue.popleft()
        if failures:
            raise failures[0]

    def _call_back(self, result: Result) -> Iterator[Exception]:
        """Call all callbacks; yield what they raise."""
        # A copy, because callbacks subscribe and cancel. Who subscribes during this version is notified from the next one on.
        for subscription in tuple(self.active):
            change = subscription.part(result)
            # An earlier callback of this version may have cancelled this subscription.
            if change is not None and subscription in self.active:
                try:
                    subscription.callback(change)
                except Exception as error:  # the subscriber's own code may raise anything
                    yield mark_as_callers(error)
