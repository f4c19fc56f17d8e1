"""Stops work that takes too long or too much memory, where it loops: nothing is interrupted in the middle of a step.

Compiled rules ask in each loop whether the list `late` is empty, which costs a few nanoseconds. One thread for all engines of the
process looks at the clock and at the memory, and puts the reason into that list when a budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from os import sysconf
from pathlib import Path
from threading import Lock, Thread, local
from time import monotonic, sleep
from typing import Final, NoReturn, Protocol

from rederive.errors import Endless, LimitExceeded
from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule, read_by

POLL: Final = 0.05  # seconds between two looks
_STATUS: Final = Path("/proc/self/statm")
_PAGE: Final = sysconf("SC_PAGE_SIZE")
# Guards `_ACTIVE` and the fields of a watch against the watcher's thread; the working threads only read `late`.
_GUARD: Final = Lock()
_ACTIVE: Final[dict[int, Watch]] = {}
_THREAD: Final = local()  # its `watch` is that of what the thread works on
_watcher: Thread | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """`rounds` and `tuples` stop a recursion that invents values, such as n(x + 1) :- n(x). Other recursions end by themselves.

    `memory`: the bytes that relations, stored views and what belongs to them may take in this process, where the machine and
    the container have them. A view of strategy auto that does not fit is derived on demand; engine auto moves to Spark.

    Budgets of one definition, transaction or query, which is refused whole beyond them: `seconds`; `rows` that it looks at as
    possible changes or answers; `growth`, the bytes by which the process may grow. By default there are none.
    """

    rounds: int = 100_000
    tuples: int = 5_000_000
    memory: int = 8 * 2**30
    seconds: float = inf
    rows: float = inf
    growth: float = inf


def endless_recursion(rule: Rule, after: str) -> Endless:
    """The error of a recursion that exceeds `rounds` or `tuples`; `after` says which."""
    return (
        Endless(
            f"the recursion was stopped after {after}: {rule.span.text if rule.span else show_rule(rule)}",
            hint="bound it by a comparison in the rule, or raise the limit",
        )
        .of(read_by(rule))
        .at(str(rule.span or "<rule>"))
    )


class Budget(Protocol):
    """`seconds` that one operation may take, and bytes of `growth` that it may add to the process."""

    @property
    def seconds(self) -> float:
        """The seconds that the operation may take."""

    @property
    def growth(self) -> float:
        """The bytes by which the process may grow."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a budget."""

    seconds: float
    growth: float


class Watch:
    """What stops the work of one engine. It has a budget while `within` lasts."""

    def __init__(self) -> None:
        # Always the same list: compiled rules hold it. Only its truth is tested where work loops.
        self.late: list[str] = []
        self._running = False
        self._seconds = inf
        self._due = inf
        self._growth = inf
        self._before: int | None = None

    @contextmanager
    def within(self, budget: Budget | None) -> Iterator[None]:
        """Stop what runs inside when it exceeds the budget; inside another budget, that one counts."""
        # Budgets do not nest: a transaction inside a transaction spends the outer one's.
        if self._running or budget is None or (budget.seconds == inf and budget.growth == inf):
            yield
            return
        _begin(self, budget)
        outer, _THREAD.watch = _current(), self
        try:
            yield
        finally:
            _THREAD.watch = outer
            _end(self)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs inside counts neither its time nor its memory."""
        if not self._running:
            yield
            return
        # The time left goes on from here; the growth starts over, because what ran in between may have taken memory.
        budget = Left(self.seconds_left, self._growth)
        seconds, outer = self._seconds, _current()
        _end(self)
        _THREAD.watch = None
        try:
            yield
        finally:
            _THREAD.watch = outer
            _begin(self, budget)
            self._seconds = seconds

    @property
    def seconds_left(self) -> float:
        """The seconds until the budget is spent; negative where it is overdrawn."""
        return self._due - monotonic()

    def check(self) -> None:
        """Stop where a budget is spent."""
        if self.late:
            self.stop()

    def stop(self) -> NoReturn:
        """Raise the error that names the part of the budget that is spent."""
        raise LimitExceeded(f"the work was stopped after {self.late[0]}", hint=HINT).of(())

    def look(self, now: float, memory: int | None) -> None:
        """Find out whether the budget is spent."""
        if self.late:
            return
        if now > self._due:
            self.late.append(f"{self._seconds:g} s")
        elif memory is not None:
            # The first look within a budget is the base line: up to POLL seconds after the start.
            self._before = memory if self._before is None else self._before
            if memory - self._before > self._growth:
                self.late.append(f"{self._growth / 2**20:g} MiB of memory")

    def begin(self, budget: Budget) -> None:
        """Start to count time and memory towards a budget."""
        self.late.clear()
        self._running, self._before = True, None
        self._seconds, self._growth = budget.seconds, budget.growth
        self._due = monotonic() + budget.seconds

    def end(self) -> None:
        """Stop counting, and forget that a budget was spent."""
        self._running = False
        self.late.clear()


def seconds_left() -> float:
    """What is left of the time of what this thread works on.

    >>> seconds_left()
    inf
    """
    watch = _current()
    # Not below a millisecond: callers hand it to waits, for which zero or less means something else.
    return inf if watch is None else max(watch.seconds_left, 0.001)


def _current() -> Watch | None:
    return getattr(_THREAD, "watch", None)


HINT: Final = "nothing was changed; ask for less, or raise the budget: budgets in rederive.toml, Limits(...) in Python"


def _begin(watch: Watch, budget: Budget) -> None:
    global _watcher
    with _GUARD:
        watch.begin(budget)
        _ACTIVE[id(watch)] = watch
        if _watcher is None or not _watcher.is_alive():  # a forked process has no threads but its own
            _watcher = Thread(target=_look_on, name="rederive-budgets", daemon=True)
            _watcher.start()


def _end(watch: Watch) -> None:
    with _GUARD:
        _ACTIVE.pop(id(watch), None)
        watch.end()


def _look_on() -> None:
    while True:
        sleep(POLL)
        if _ACTIVE:
            # One reading for all engines: memory is the process's, whoever takes it.
            memory = _memory()
            with _GUARD:
                for watch in _ACTIVE.values():
                    watch.look(monotonic(), memory)


def _memory() -> int | None:
    """The bytes that the process holds; None where the system does not say."""
    try:
        # /proc/self/statm: the second number is the resident set, in pages.
        return int(_STATUS.read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
