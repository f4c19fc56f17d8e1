"""The settings of a project, as data: what `rederive.toml` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rederive.ir.terms import Value
from rederive.limits import Limits
from rederive.rules.webhook import Webhooks

ALL = "*"
"""In `read` and `write` of a token: every relation."""
DEFAULT_BUDGETS = Limits(seconds=10.0, rows=100_000_000, growth=2 * 2**30)
"""The budgets of one operation. A service has one writer: while it works for one client, the other clients wait."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """How much of the service clients may use (`[bounds]`). Sizes are in bytes, times in seconds.

    `body`, `headers`: the largest body, and the largest request line with headers. `header_seconds`, `body_seconds`: how long
    they may take to arrive. `connections`, `subscriptions`: how many at one time. `rate`, `burst`: requests of one token in a
    second, and at once. `queue`, `queue_bytes`: events that wait for one subscriber before they are coalesced. `waiting`:
    requests that wait for the writer. `heartbeat`: seconds without an event after which a progress event is sent.
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
    """What the holder of a secret may do.

    `rows` restricts a relation to the rows with these values, for reading and for writing.
    """

    name: str
    secret: str = field(repr=False)
    read: frozenset[str] = frozenset()
    write: frozenset[str] = frozenset()
    define: bool = False
    admin: bool = False
    rows: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """The host and the port on which a service listens."""

    host: str = "127.0.0.1"
    port: int = 8420

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WarehouseSettings:
    """`net`: the sources report net changes only. `retry`: seconds between two attempts to update the views that wait."""

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
    budgets: Limits = DEFAULT_BUDGETS
    address: Address = field(default_factory=Address)
    origins: tuple[str, ...] = ()
    bounds: ServiceLimits = field(default_factory=ServiceLimits)
    tokens: tuple[Token, ...] = ()
    warehouse: WarehouseSettings | None = None
    webhooks: Webhooks | None = None
    zone: str | None = None
    tick: float | None = None  # seconds after which the time that views read advances
