"""Wakes the streams of firings: it says that there are new firings, which each stream then reads from the journal."""

from __future__ import annotations

from collections.abc import Callable

from rederive.errors import Closed, TooMany


class Notifier:
    """Listeners that are called when there are new firings, and once more when the service ends."""

    def __init__(self, max_listeners: int) -> None:
        self.is_closed = False
        self._max_listeners = max_listeners
        self._listeners: dict[Callable[[], None], None] = {}

    def add(self, listener: Callable[[], None]) -> None:
        """Add a listener."""
        if self.is_closed:
            raise Closed
        if len(self._listeners) >= self._max_listeners:
            raise TooMany(f"{len(self._listeners)} clients already follow firings", hint="raise bounds.subscriptions")
        self._listeners[listener] = None

    def remove(self, listener: Callable[[], None]) -> None:
        """Remove a listener; removing it twice has no further effect."""
        self._listeners.pop(listener, None)

    def notify(self) -> None:
        """Call every listener."""
        for listener in list(self._listeners):
            listener()

    def close(self) -> None:
        """Call every listener a last time, and accept no new ones."""
        self.is_closed = True
        self.notify()
