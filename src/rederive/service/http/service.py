"""A running service: what all endpoints share, its metrics, and its timers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rederive.commit.clock import clock_operations
from rederive.commit.pending import TransactionRequest
from rederive.database import Database
from rederive.errors import Busy, UnknownTime
from rederive.service.access import Access
from rederive.service.hub import Hub
from rederive.service.notifier import Notifier
from rederive.service.row_pages import RowPages
from rederive.service.settings import Project
from rederive.service.writer import Writer
from rederive.warehouse.bridge import RetryWaitingViews, WarehouseBridge

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
SQL: Final = "application/sql"
TIMER_SECONDS: Final = 0.05  # how exactly intervals end; the shortest interval is as long
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds of a transaction


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    project: Project
    writer: Writer
    hub: Hub
    firings: Notifier
    access: Access
    metrics: Metrics
    pages: RowPages = field(default_factory=RowPages)

    @classmethod
    def start(cls, project: Project, database: Database) -> Service:
        """Start a service in the running event loop. From now on the database belongs to the writer's thread."""
        bounds = project.bounds
        hub = Hub(
            bounds,
            database.version,
            epoch=database.pipeline.state.epoch,
            nervous=database.pipeline.state.settings.precision == "nervous",
        )
        firings = Notifier(bounds.subscriptions)
        writer = Writer(database, hub.publish, firings.notify, bounds.waiting)
        access = Access(project.tokens, bounds.rate, bounds.burst)
        return cls(project, writer, hub, firings, access, Metrics(hub, writer))

    async def run_timers(self) -> None:
        """End the intervals of subscribers, and send heartbeats, until cancelled."""
        clock = asyncio.get_running_loop().time
        heartbeat = clock() + self.project.bounds.heartbeat
        while True:
            await asyncio.sleep(TIMER_SECONDS)
            now = clock()
            self.hub.end_intervals(now)
            if now >= heartbeat:
                self.hub.send_heartbeat()
                heartbeat = now + self.project.bounds.heartbeat

    async def retry_waiting_views(self) -> None:
        """Try again and again to update the warehouse views that wait for a source, until cancelled."""
        while (bridge := self.writer.warehouse) is not None and self.project.warehouse is not None:
            await asyncio.sleep(self.project.warehouse.retry)
            if bridge.waiting:
                with suppress(Busy):
                    await self.writer.commit(lambda _: [RetryWaitingViews(())])

    async def advance_time(self) -> None:
        """Advance the time that views read to that of the machine, every `tick` seconds, until cancelled."""
        while self.project.tick is not None:
            await asyncio.sleep(self.project.tick)
            # Without a view that reads the time there is nothing to advance; a clock that was set back waits.
            with suppress(Busy, UnknownTime):
                await self.writer.commit(lambda db: [TransactionRequest(clock_operations(db.pipeline, datetime.now(UTC)))])

    def end_streams(self) -> None:
        """End all streams; their clients can resume when the service is back."""
        self.hub.close()
        self.firings.close()

    async def close(self) -> None:
        """End all streams, finish the jobs of the writer, and close the database."""
        self.end_streams()
        await self.writer.close()


# Metrics. Values that the service has anyway are read when Prometheus asks; others are counted when they happen.


class Metrics:
    """The metrics of one service."""

    media_type: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, hub: Hub, writer: Writer) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_ServiceState(hub, writer))
        labels = ("method", "route", "status")
        self.requests = Counter("rederive_requests", "Requests, by route and status", labels, registry=self._registry)
        self.seconds = Histogram(
            "rederive_transaction_seconds",
            "Seconds from the arrival of a transaction until it is durable",
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _ServiceState(Collector):
    """Metrics that are read from the hub and the writer."""

    def __init__(self, hub: Hub, writer: Writer) -> None:
        self._hub = hub
        self._writer = writer

    def collect(self) -> Iterable[Metric]:
        subscribers, counts = list(self._hub.subscribers.values()), self._writer.counts
        hooks = self._writer.deliveries
        gauges = {
            "rederive_version": ("The last committed version", self._hub.version),
            "rederive_subscriptions": ("Subscriptions", len(subscribers)),
            "rederive_subscriptions_behind": ("Subscriptions that are behind", sum(one.is_behind for one in subscribers)),
            "rederive_busy_seconds": ("Seconds that the writer has spent on its present job", self._writer.busy_seconds),
            "rederive_waiting_jobs": ("Requests that wait for the writer", self._writer.waiting),
            "rederive_webhooks_waiting": ("Webhooks that are not delivered yet", hooks.waiting),
            "rederive_webhooks_parked": ("Webhooks whose delivery was given up", hooks.parked),
            "rederive_webhooks_lag_seconds": ("Seconds that the oldest undelivered webhook has waited", hooks.lag(time())),
            "rederive_webhooks_delivering": ("1 while webhooks can be delivered", 0 if hooks.error else 1),
        }
        counters = {
            "rederive_commits": ("Committed transactions", counts.commits),
            "rederive_commit_groups": ("Syncs of the journal for transactions", counts.groups),
            "rederive_refused": ("Refused transactions", counts.refused),
            "rederive_maintenance_seconds": ("Seconds spent on view maintenance", counts.seconds),
        }
        yield from (GaugeMetricFamily(name, text, value=value) for name, (text, value) in gauges.items())
        yield from (CounterMetricFamily(name, text, value=value) for name, (text, value) in counters.items())
        if (bridge := self._writer.warehouse) is not None:
            yield from _warehouse_metrics(bridge)


def _warehouse_metrics(bridge: WarehouseBridge) -> Iterable[Metric]:
    counts = bridge.counts
    maintained = CounterMetricFamily(
        "rederive_warehouse_views", "Views that transactions updated, by how they were maintained", labels=("view", "how")
    )
    for (view, status), number in sorted(counts.maintained.items(), key=lambda item: (item[0][0], item[0][1].value)):
        maintained.add_metric((view, status.name.lower()), number)
    reads = CounterMetricFamily("rederive_warehouse_reads", "Reads of sources", labels=("relation",))
    for relation, number in sorted(counts.reads.items()):
        reads.add_metric((relation,), number)
    yield from (maintained, reads)
    yield CounterMetricFamily("rederive_warehouse_reads_avoided", "Reads of sources that were not needed", value=counts.avoided)
    yield GaugeMetricFamily("rederive_warehouse_waiting", "Views that wait for a source", value=len(bridge.waiting))
