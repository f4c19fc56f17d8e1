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

LEAST = 0.05  # seconds: no work is given up sooner, so that small transactions never look at the clock
SHARE = 0.2  # of the time of an evaluation from scratch: with the evaluation itself, which reads the change too, 1.6 times that
SLACK = 4.0  # an evaluation from scratch may take this many times what is known; times vary, and relations grow
MORE = 4.0  # times the time that was not enough
GUESSED = 4e-6  # seconds for a row that is read, measured on closures that are derived in two states
STEP = 64  # tuples between two looks at the clock, which takes half a microsecond


class Overrun(Exception):
    """Work has taken the time that it may take."""


@dataclass(slots=True)
class Patience:
    """`known`: seconds that an evaluation from scratch took, or that were not enough for it.

    `end`: when the present work must have ended, from the first look at the clock on.
    """

    known: float
    meter: Meter
    clock: Callable[[], float] = process_time
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
            self.end = self.clock() + self.seconds
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
