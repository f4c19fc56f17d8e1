"""What Prometheus may ask: read from the service when it does, and counted where it happens."""

from __future__ import annotations

from collections.abc import Iterable
from time import time

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rederive.service.hub import Hub
from rederive.service.writer import Writer
from rederive.warehouse.bridge import WarehouseBridge

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class _State(Collector):
    def __init__(self, hub: Hub, writer: Writer) -> None:
        self._hub = hub
        self._writer = writer

    def collect(self) -> Iterable[Metric]:
        clients, work = list(self._hub.clients.values()), self._writer.work
        hooks = self._writer.deliveries
        gauges = {
            "rederive_version": ("The last committed version", self._hub.version),
            "rederive_subscriptions": ("Subscriptions", len(clients)),
            "rederive_subscriptions_behind": ("Subscriptions whose changes are being added up", sum(c.late for c in clients)),
            "rederive_busy_seconds": ("For how long the writer has been at its present work", self._writer.busy),
            "rederive_waiting_jobs": ("Requests that wait for the writer", self._writer.waiting),
            "rederive_webhooks_waiting": ("Webhooks that are not delivered yet", hooks.waiting),
            "rederive_webhooks_parked": ("Webhooks that were given up", hooks.parked),
            "rederive_webhooks_lag_seconds": ("For how long the oldest of them has been waiting", hooks.lag(time())),
            "rederive_webhooks_delivering": ("1 while webhooks can be delivered", 0 if hooks.error else 1),
        }
        counters = {
            "rederive_commits": ("Committed transactions", work.commits),
            "rederive_commit_groups": ("Syncs of the journal for transactions", work.groups),
            "rederive_refused": ("Transactions that were refused", work.refused),
            "rederive_maintenance_seconds": ("Seconds spent on working out versions", work.seconds),
        }
        yield from (GaugeMetricFamily(name, text, value=value) for name, (text, value) in gauges.items())
        yield from (CounterMetricFamily(name, text, value=value) for name, (text, value) in counters.items())
        if (house := self._writer.house) is not None:
            yield from _warehouse(house)


def _warehouse(house: WarehouseBridge) -> Iterable[Metric]:
    tally = house.tally
    maintained = CounterMetricFamily(
        "rederive_warehouse_views", "Views of transactions, by how they were maintained", labels=("view", "how")
    )
    for (view, status), number in sorted(tally.maintained.items(), key=lambda item: (item[0][0], item[0][1].value)):
        maintained.add_metric((view, status.name.lower()), number)
    reads = CounterMetricFamily("rederive_warehouse_reads", "Reads of sources", labels=("relation",))
    for relation, number in sorted(tally.reads.items()):
        reads.add_metric((relation,), number)
    yield from (maintained, reads)
    yield CounterMetricFamily("rederive_warehouse_reads_avoided", "Reads of sources that were not needed", value=tally.avoided)
    yield GaugeMetricFamily("rederive_warehouse_waiting", "Views that wait for a source", value=len(house.waiting))


class Metrics:
    """Counters of one service."""

    def __init__(self, hub: Hub, writer: Writer) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_State(hub, writer))
        names = ("method", "route", "status")
        self.requests = Counter("rederive_requests", "Requests by route and status", names, registry=self._registry)
        self.seconds = Histogram(
            "rederive_transaction_seconds", "From a transaction's arrival to its sync", registry=self._registry, buckets=_SECONDS
        )

    def count(self, method: str, route: str, status: int) -> None:
        """One more answer."""
        self.requests.labels(method, route, status).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
