"""Who waits for news that are read from the journal: they are told that there are some, not what they are."""

from __future__ import annotations

from collections.abc import Callable

from rederive.errors import Closed, TooMany


class Notifier:
    """Listeners, each called when something is new, and once when it is all over."""

    def __init__(self, most: int) -> None:
        self.closed = False
        self._most = most
        self._listeners: dict[Callable[[], None], None] = {}

    def listen(self, listener: Callable[[], None]) -> None:
        if self.closed:
            raise Closed
        if len(self._listeners) >= self._most:
            raise TooMany(f"{len(self._listeners)} clients follow the firings already", hint="raise bounds.subscriptions")
        self._listeners[listener] = None

    def leave(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    def tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    def close(self) -> None:
        self.closed = True
        self.tell()
