"""Who is told what: subscriptions, the signs and bindings they ask for, and the order in which they are told."""

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
    """The signs that `only` asks for: plus, minus, or both where it is None.

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
    _subscribers: Subscriptions

    def cancel(self) -> None:
        """Call back no more, from this moment on."""
        if self in self._subscribers.subscriptions:
            self._subscribers.subscriptions.remove(self)

    @property
    def question(self) -> Query:
        return Query(self.view, tuple(sorted(self.bindings.items())))

    def part(self, result: Result) -> Change | None:
        """What of a version concerns this subscription."""
        change = result.bound.get(self.question) if self.bindings else result.changes.get(self.view)
        if change is None and self.bindings and (whole := result.changes.get(self.view)):
            change = whole.where(self.bindings)
        return (change.only(self.signs) or None) if change is not None else None


@dataclass(slots=True)
class Subscriptions:
    """All subscriptions of a database. Versions are told one after the other, each to all before the next."""

    subscriptions: list[Subscription] = field(default_factory=list)
    untold: deque[Result] = field(default_factory=deque)

    def tell(self, result: Result) -> None:
        """Tell the subscribers, version by version: a transaction inside a callback is told after the one that caused it.

        Every subscriber is told, also when another one's callback fails; the first failure is raised at the end.
        """
        self.untold.append(result)
        if len(self.untold) > 1:
            return
        failures: list[Exception] = []
        while self.untold:
            failures += self._failures(self.untold[0])
            self.untold.popleft()
        if failures:
            raise failures[0]

    def _failures(self, result: Result) -> Iterator[Exception]:
        for subscription in tuple(self.subscriptions):
            change = subscription.part(result)
            if change is not None and subscription in self.subscriptions:
                try:
                    subscription.callback(change)
                except Exception as error:  # the subscriber's own code may raise anything
                    yield mark_as_callers(error)
