"""Subscriptions: who is notified of which changes, and in which order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rederive.boundary import guard_class, mark_as_callers
from rederive.delta import BOTH, Sign
from rederive.engines.protocol import Query
from rederive.errors import UnknownOption
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
    """Calls back with every change of a part of a view from now on, until it is cancelled.

    Without a callback the changes are computed, and whoever commits reads them from the results.
    """

    query: Query
    callback: Callback | None
    signs: frozenset[Sign]
    _subscriptions: Subscriptions

    def cancel(self) -> None:
        """End the subscription: the callback is not called again."""
        for subscriptions in (self._subscriptions.active, self._subscriptions.listening):
            if self in subscriptions:
                subscriptions.remove(self)

    @property
    def view(self) -> str:
        """The view that the subscription is about."""
        return self.query.view


@dataclass(slots=True)
class Subscriptions:
    """All subscriptions of a database. `listening`: those that have a callback.

    `queue`: committed versions whose notification is not complete.
    """

    active: list[Subscription] = field(default_factory=list)
    listening: list[Subscription] = field(default_factory=list)
    queue: deque[Result] = field(default_factory=deque)

    def add(self, query: Query, callback: Callback | None, signs: frozenset[Sign]) -> Subscription:
        """Add a subscription."""
        subscription = Subscription(query, callback, signs, self)
        self.active.append(subscription)
        if callback is not None:
            self.listening.append(subscription)
        return subscription

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
        for subscription in tuple(self.listening):
            change, callback = _part(subscription, result), subscription.callback
            # An earlier callback of this version may have cancelled this subscription.
            if change is not None and callback is not None and subscription in self.listening:
                try:
                    callback(change)
                except Exception as error:  # the subscriber's own code may raise anything
                    yield mark_as_callers(error)


def _part(subscription: Subscription, result: Result) -> Change | None:
    """The part of a version that a subscription is notified of; None where there is none."""
    query = subscription.query
    # A part that the engine computes for itself is in `bound`; any
    # other part is selected from the change of the whole view.
    change = result.bound.get(query) if query.bindings else result.changes.get(query.view)
    if change is None and query.bindings and (whole := result.changes.get(query.view)):
        change = whole.where(dict(query.bindings))
    # An empty part is not a notification: a subscriber is called for versions that change its rows, and for no others.
    return (change.only(subscription.signs) or None) if change is not None else None
