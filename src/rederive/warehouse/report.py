"""The report of a transaction: how each view was maintained, or why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rederive.ir.terms import Row


class MaintenanceStatus(Enum):
    """How a transaction updated a view."""

    UNAFFECTED = "unaffected"
    STRICT = "maintained without a source"
    READ = "maintained with sources read"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """What a transaction did to one view.

    `read`: the remote relations that were read for it, also if it still waits. `why`: why the view waits.
    """

    status: MaintenanceStatus
    plus: tuple[Row, ...] = ()
    minus: tuple[Row, ...] = ()
    read: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.status.value}: {self.why or ', '.join(self.read)}" if self.why or self.read else self.status.value


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a transaction did to the warehouse.

    `reads`: the remote relations that were read. `avoided`: how many remote relations under the maintained views were neither
    read nor are waited for.
    """

    version: int
    views: Mapping[str, ViewOutcome]
    reads: tuple[str, ...]
    avoided: int

    @property
    def waiting(self) -> tuple[str, ...]:
        """The views that wait for a source."""
        return tuple(view for view, outcome in self.views.items() if outcome.status is MaintenanceStatus.WAITING)
