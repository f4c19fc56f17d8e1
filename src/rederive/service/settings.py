"""What a project's `rederive.toml` may say, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rederive.ir.terms import Value
from rederive.limits import Limits as Budgets
from rederive.rules.webhook import Webhooks

ALL = "*"
BUDGETS = Budgets(seconds=10.0, rows=100_000_000, growth=2 * 2**30)
"""Of a service, where one client's work keeps the others waiting."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What clients may take of the service.

    `body`: bytes of a request. `headers`: bytes of its request line and headers. `header_seconds`, `body_seconds`: in which they
    must arrive. `connections`: at one time, those of subscribers included. `rate`: requests in a second, for each token;
    `burst` of them at once. `subscriptions`: at one time. `queue`: events that wait for one client before they are coalesced, and
    `queue_bytes` how large they may be together. `waiting`: requests that wait for the writer. `heartbeat`: seconds without an
    event after which a progress mark is sent.
    """

    body: int = 8 * 2**20
    headers: int = 64 * 2**10
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    connections: int = 12_000
    rate: float = 2000.0
    burst: int = 2000
    subscriptions: int = 10_000
    queue: int = 256
    queue_bytes: int = 2**20
    waiting: int = 10_000
    heartbeat: float = 15.0


@dataclass(frozen=True, slots=True)
class Token:
    """Who may do what. `rows`: the values that rows of a view or relation must have for this token to see or write them."""

    name: str
    secret: str = field(repr=False)
    read: frozenset[str] = frozenset()
    write: frozenset[str] = frozenset()
    define: bool = False
    admin: bool = False
    rows: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    host: str = "127.0.0.1"
    port: int = 8420

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WarehouseSettings:
    """`net`: the sources report net changes only. `retry`: seconds between tries to bring up to date the views that wait."""

    net: bool = False
    retry: float = 10.0


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a `rederive.toml`: its programs in order, where its data is, and how it is served."""

    folder: Path
    programs: tuple[Path, ...]
    store: Path
    lake: str | None = None
    engine: str | None = None
    strategy: str | None = None
    precision: str | None = None
    retention: int | None = None
    budgets: Budgets = BUDGETS
    address: Address = field(default_factory=Address)
    origins: tuple[str, ...] = ()
    bounds: ServiceLimits = field(default_factory=ServiceLimits)
    tokens: tuple[Token, ...] = ()
    warehouse: WarehouseSettings | None = None
    webhooks: Webhooks | None = None
    zone: str | None = None
