"""How long a section may work on a transaction before it is evaluated from scratch instead (decision 75).

The time of an evaluation from scratch is known from the last one, or guessed. Incremental work that takes a share of it is given
up. Where an evaluation from scratch turns out to take longer than was known, it is given up in turn, and both are tried with more
time: the total stays within a constant factor of the cheaper one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import process_time

from rederive.engines.resident.run.fixpoint import Meter

LEAST = 0.01  # seconds: no work is given up sooner; evaluations from scratch that are faster are too fast to measure
SHARE = 0.1  # of the time of an evaluation from scratch; with that itself, which reads the change too, about 1.5 times
WITHOUT_LOSSES = 5.0  # times as long where rows only enter: each new row is joined once, as from scratch
SLACK = 4.0  # an evaluation from scratch may take this many times what is known; times vary, and relations grow
MORE = 4.0  # times the time that was not enough
GUESSED = 4e-6  # seconds for a row that is read, measured on closures that are derived in two states
FIRST = 64  # tuples before the first look at the clock: most transactions touch fewer
STEP = 16  # tuples between two looks at the clock, which takes half a microsecond; a tuple that is proved takes up to 0.3 ms


class Overrun(Exception):
    """Work has taken the time that it may take."""


@dataclass(slots=True)
class Patience:
    """`known`: seconds that an evaluation from scratch took, or that were not enough for it.

    `start`: when the present work began. `loses_rows`: whether rows leave in it. `end`: when it must have ended, from the first
    look at the clock on.
    """

    known: float
    meter: Meter
    clock: Callable[[], float] = process_time
    start: float = 0.0
    loses_rows: bool = True
    end: float | None = None

    @property
    def seconds(self) -> float:
        """How long incremental work may take."""
        return max(LEAST, SHARE * self.known)

    @property
    def seconds_from_scratch(self) -> float:
        """How long an evaluation from scratch may take."""
        return max(LEAST, SLACK * self.known)

    def check(self) -> float:
        """Raise `Overrun` where the work has taken too long, else return when to look at the clock next, as tuples touched."""
        if self.end is None:
            self.end = self.start + self.seconds * (1.0 if self.loses_rows else WITHOUT_LOSSES)
        if self.clock() > self.end:
            raise Overrun
        return self.meter.touched + STEP

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Run an evaluation from scratch within its time, and know how long it took."""
        start = self.clock()
        self.end = start + self.seconds_from_scratch
        self.meter.most, self.meter.check = self.meter.touched + STEP, self.check
        try:
            yield
        except Overrun:
            self.known = MORE * self.seconds_from_scratch
            raise
        finally:
            self.meter.most = inf
        self.known = self.clock() - start
