"""How much memory of this process the rows take, and may take (decision 54)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rederive.engines.machine_memory import USABLE
from rederive.engines.resident.storage.memory import Memory

BYTES_PER_ROW: Final = (
    2_000  # bytes of a base row before the first measurement, with indexes and views; 600 to 2,900 were measured
)
FEW: Final = 100  # base rows; among fewer, the memory of empty tables counts too much
LARGE: Final = 10_000  # rows of a transaction from which on its work and its memory are estimated first


class Footprint:
    """The memory of base rows with all that depends on them: values, indexes, views and auxiliary state.

    A measurement takes time in proportion to the tables. It is repeated when the tuples touched since are a tenth of those there
    are, so it costs a constant for each of them. In between, new rows are assumed to be like the measured ones.
    """

    def __init__(self, memory: int, available: Callable[[], float]) -> None:
        self.is_resident = True
        self._memory = memory
        self._available = available
        self._usable = USABLE * available()
        self._measured = Memory()
        self._rows = 0
        self._touched = 0

    def record(self, rows: int, memory: Memory) -> None:
        """Record that so many base rows, with all that depends on them, take this memory."""
        self._rows, self._measured, self._touched = rows, memory, 0
        # What is used belongs to us already; of the rest, a part.
        self._usable = memory.total + USABLE * self._available()

    def is_old(self, touched: int) -> bool:
        """Whether to measure again, after a transaction that touched so many tuples."""
        self._touched += touched
        # Measuring costs time in proportion to the rows, so it is paid by a tenth as many touched tuples.
        return self.is_resident and self._touched > max(self._measured.rows, LARGE) / 10

    def need(self, rows: float) -> float:
        """The bytes that so many base rows take, or would take."""
        # Linear: new rows are assumed to be like the measured ones, with the same indexes and views.
        return rows * (BYTES_PER_ROW if self._rows < FEW else self._measured.total / self._rows)

    def has_room(self, rows: float) -> bool:
        """Whether so many base rows fit."""
        return self.need(rows) <= min(self._memory, self._usable)

    def describe(self, rows: int) -> str:
        """The sentence that explains why an engine runs."""
        take = "take" if self.is_resident else "would take"
        fit = "fit" if self.has_room(rows) else "do not fit"
        most = f"{_size(self._memory)} of memory that they may take"
        if self._usable < self._memory:
            most = f"{_size(self._usable)} of memory that this machine has for them"
        return f"{rows:,} base rows with their indexes and views {take} about {_size(self.need(rows))}, and {fit} the {most}"


def _size(number: float) -> str:
    """
    >>> _size(5 * 2**20), _size(700), _size(3 * 2**30)
    ('5.0 MiB', '0.7 KiB', '3.0 GiB')
    """
    unit, name = next(((2**power, name) for power, name in ((30, "GiB"), (20, "MiB")) if number >= 2**power), (2**10, "KiB"))
    return f"{number / unit:,.1f} {name}"
