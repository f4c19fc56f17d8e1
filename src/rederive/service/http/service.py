"""What all endpoints share: the project, the writer, the subscriptions, who may do what, and what is counted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rederive.database import Database
from rederive.errors import Busy
from rederive.service.access import Access
from rederive.service.http.metrics import Metrics
from rederive.service.hub import Hub
from rederive.service.notifier import Notifier
from rederive.service.settings import Project
from rederive.service.writer import Writer
from rederive.warehouse.bridge import RetryWaitingViews

TICK: Final = 0.05


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    project: Project
    writer: Writer
    hub: Hub
    firings: Notifier
    access: Access
    metrics: Metrics

    @classmethod
    def start(cls, project: Project, database: Database) -> Service:
        """In a running loop: the database belongs to the writer from now on."""
        bounds = project.bounds
        hub = Hub(bounds, database.version, epoch=database.epoch, nervous=database.precision == "nervous")
        firings = Notifier(bounds.subscriptions)
        writer = Writer(database, hub.publish, firings.tell, bounds.waiting)
        access = Access(project.tokens, bounds.rate, bounds.burst)
        return cls(project, writer, hub, firings, access, Metrics(hub, writer))

    async def keep_time(self) -> None:
        """Ends of intervals, and progress marks."""
        clock = asyncio.get_running_loop().time
        beat = clock() + self.project.bounds.heartbeat
        while True:
            await asyncio.sleep(TICK)
            now = clock()
            self.hub.tick(now)
            if now >= beat:
                self.hub.beat()
                beat = now + self.project.bounds.heartbeat

    async def keep_trying(self) -> None:
        """Bring up to date, when their sources are back, the views of a warehouse that wait."""
        while (house := self.writer.house) is not None and self.project.warehouse is not None:
            await asyncio.sleep(self.project.warehouse.retry)
            if house.waiting:
                with suppress(Busy):
                    await self.writer.commit(lambda _: [RetryWaitingViews(())])

    def end(self) -> None:
        """End all streams; they can resume when the service is back."""
        self.hub.close()
        self.firings.close()

    async def close(self) -> None:
        self.end()
        await self.writer.close()
