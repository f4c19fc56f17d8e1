"""rederive: views maintained incrementally, and exactly which rows entered and left them.

>>> db = open()
>>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
>>> with db.transaction() as tx:
...     tx.insert("n", [(1,), (2,), (3,)])
>>> tx.result.changes["odd"].plus
[(1,), (3,)]
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rederive.boundary import guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rederive.client.asynchronous import AsyncConnection
    from rederive.client.blocking import Connection
    from rederive.commit.announce import Subscription
    from rederive.commit.transaction import Transaction
    from rederive.database import Database
    from rederive.errors import RederiveError
    from rederive.limits import Limits
    from rederive.opening import ENGINES as ENGINES
    from rederive.result import Change, Result
    from rederive.rules.webhook import Webhooks
    from rederive.warehouse.sources import Reading
    from rederive.warehouse.warehouse import Warehouse

__all__ = [
    "Change",
    "Database",
    "Limits",
    "Reading",
    "RederiveError",
    "Result",
    "Subscription",
    "Transaction",
    "Warehouse",
    "Webhooks",
    "backup",
    "connect",
    "connect_async",
    "open",
    "restore",
]
__version__ = "0.1.0"

# Imported when they are first used: `rederive --help` and a client of a service do not wait for the engine.
_MODULES: Final = {
    "Change": "rederive.result",
    "Database": "rederive.database",
    "ENGINES": "rederive.opening",
    "Limits": "rederive.limits",
    "Reading": "rederive.warehouse.sources",
    "RederiveError": "rederive.errors",
    "Result": "rederive.result",
    "Subscription": "rederive.commit.announce",
    "Transaction": "rederive.commit.transaction",
    "Warehouse": "rederive.warehouse.warehouse",
    "Webhooks": "rederive.rules.webhook",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rederive' has no attribute '{name}'")
    globals()[name] = getattr(import_module(_MODULES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


@guard
def open(
    path: str | Path | None = None,
    *,
    strategy: str | None = None,
    precision: str | None = None,
    only: str | None = None,
    engine: str | None = None,
    limits: Limits | None = None,
    retention: int | None = None,
    lake: str | Path | None = None,
    schema: str | None = None,
    store: str | Path | None = None,
    spark: SparkSession | None = None,
    strict: bool = False,
    webhooks: Webhooks | None = None,
    zone: str | None = None,
) -> Database:
    """Open a database: in memory or, with a `path`, stored in that folder, which is created if it does not exist.

    `strategy`: auto, recompute, counting, materialized, on_demand, filtration or differencing. `precision`: exact, or nervous
    with differencing. `only`: report plus or minus alone. `limits` stop a recursion that creates values without end, and whatever
    takes more time, rows or memory than its budget. `strict` refuses views that every change recomputes. A store remembers
    strategy, precision and only. `retention`: how many of its versions can be read later; all of them by default.

    `lake`: a folder, or any address that Spark can write, for base relations, views and changes as Delta tables. `store`: the
    same as `path`, for a database with a lake; by default a folder in the lake, where that is a local one. `engine`: resident,
    spark, or auto, which moves to Spark when memory is short; without a lake or a session it is resident. `spark`: the session
    on whose context to run; its configuration stays as it is.

    `schema`: a schema of Spark's catalog, which lists the tables of views as `schema.view` and `schema.view_changes`.

    `zone`: the time zone in which SQL reads and writes timestamps, as "Europe/Berlin"; by default that of the Spark session, or
    UTC where none runs. A store remembers it, and a session in another zone is refused.

    `webhooks`: where active rules may post to; without it nothing is sent.
    """
    from rederive.commit.announce import signs
    from rederive.database import Database
    from rederive.errors import NoLake, UnknownOption
    from rederive.ir.terms import UTC
    from rederive.lake.session import check_zone, session_zone
    from rederive.maintain.plan import AUTO, check_strategy
    from rederive.opening import ENGINES, attach_lake, lake_at, make_engine, places
    from rederive.store.recovery import StoreOptions, stored_zone
    from rederive.store.store import Store
    from rederive.time_zones import zone_name

    check_strategy(strategy or AUTO, precision or "exact")
    engine = engine or ("auto" if lake is not None or spark is not None else "resident")
    if engine not in ENGINES:
        raise UnknownOption("engine", engine, ENGINES)
    # Options are checked before a folder is created or Spark starts.
    signs(only)
    zone = zone_name(zone) if zone is not None else None
    folder, root = places(path, store, lake)
    if schema is not None and root is None:
        raise NoLake("a schema of Spark's catalog")
    # The zone of a store never changes. A new one takes the caller's, else the session's.
    used = (stored_zone(folder) if folder is not None else None) or zone or session_zone(spark) or UTC
    check_zone(spark, used)
    if folder is None:
        made = make_engine(engine, limits, spark, zone=used)
        db = Database(made, strategy or AUTO, precision or "exact", only, strict=strict, zone=used, spark=spark)
        db.pipeline.state.limits = limits
        return db
    tables = lake_at(root, spark, used, schema) if root is not None else None
    kept = Store.open(folder, StoreOptions(strategy or "", precision or "", only or "", zone or ""), retention, zone=used)
    try:
        if tables is not None:
            attach_lake(kept, tables)
        options = kept.options
        made = make_engine(engine, limits, spark, tables, options.zone)
        rest = (options.strategy, options.precision, options.only or None, kept)
        db = Database(made, *rest, strict=strict, webhooks=webhooks, zone=options.zone, spark=spark)
        db.pipeline.state.limits = limits  # what is stored already is evaluated without a budget
        return db
    except BaseException:
        kept.close()
        raise


@guard
def backup(store: str | Path, target: str | Path) -> None:
    """Copy a store at its last version into a folder that does not exist, also while a process writes it.

    >>> import rederive, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rederive.open(f"{folder}/store") as db:
    ...     rederive.backup(f"{folder}/store", f"{folder}/backup")
    >>> rederive.restore(f"{folder}/backup", f"{folder}/restored")
    >>> rederive.open(f"{folder}/backup")
    Traceback (most recent call last):
    ...
    rederive.errors.NotAStore: ...: error[not_a_store]: this is a backup of a store
      help: make a store from it: rederive restore BACKUP DIR
    """
    from rederive.locations import local_folder
    from rederive.store.backup import back_up

    back_up(local_folder(store, "a store"), local_folder(target, "a backup"))


@guard
def restore(backup: str | Path, store: str | Path, *, lake: str | None = None) -> None:
    """Make a store from a backup, in a folder that does not exist. `lake`: where its lake is now, if it has moved since."""
    from rederive.locations import local_folder
    from rederive.store.backup import restore

    restore(local_folder(backup, "a backup"), local_folder(store, "a store"), lake)


@guard
def connect(url: str, *, token: str | None = None, patience: float = 60.0) -> Connection:
    """Connect to a service: `apply` changes, read `rows`, `subscribe` to views.

    `token`: the secret that authenticates the client. `patience`: the seconds without an answer after which it gives up.

        with rederive.connect("http://127.0.0.1:8420") as db:
            db.apply(insert={"edge": [("a", "b")]})
            for change in db.subscribe("closure"):
                print(change.version, change.plus, change.minus)

    >>> connect("127.0.0.1")
    Traceback (most recent call last):
    rederive.errors.MalformedInput: error[malformed]: '127.0.0.1' is not the address of a service
      help: write http://127.0.0.1:8420, for example
    """
    from rederive.client.blocking import Connection

    return Connection(url, token, patience)


@guard
def connect_async(url: str, *, token: str | None = None, patience: float = 60.0) -> AsyncConnection:
    """Connect to a service, for code with `await` and `async for`.

    >>> import asyncio
    >>> asyncio.run(connect_async("http://127.0.0.1:8420").close())
    """
    from rederive.client.asynchronous import AsyncConnection

    return AsyncConnection(url, token, patience)
