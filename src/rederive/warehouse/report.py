"""What a warehouse reports of a transaction: how each view was brought up to date, or what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rederive.ir.terms import Row


class MaintenanceStatus(Enum):
    UNAFFECTED = "unaffected"
    STRICT = "maintained without a source"
    READ = "maintained with sources read"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """What a transaction meant for one view. `read`: the remote relations that it took. `why`: what a waiting view waits for."""

    status: MaintenanceStatus
    plus: tuple[Row, ...] = ()
    minus: tuple[Row, ...] = ()
    read: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.status.value}: {self.why or ', '.join(self.read)}" if self.why or self.read else self.status.value


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """A version of the warehouse. `reads`: the remote relations that were read for it. `avoided`: how many of those under the
    views that it brought up to date were not, and are not waited for either."""

    version: int
    views: Mapping[str, ViewOutcome]
    reads: tuple[str, ...]
    avoided: int

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(view for view, outcome in self.views.items() if outcome.status is MaintenanceStatus.WAITING)
