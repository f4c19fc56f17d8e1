"""rederive: views maintained incrementally, and exactly which rows entered and left them.

>>> db = open()
>>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
>>> with db.transaction() as tx:
...     tx.insert("n", [(1,), (2,), (3,)])
>>> tx.result.changes["odd"].plus
[(1,), (3,)]
"""

from pathlib import Path

from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.fixpoint import Limits
from rederive.errors import RederiveError, UnknownOption
from rederive.maintain.choose import AUTO, check_strategy
from rederive.monitor.changes import Change, Result
from rederive.monitor.database import Database
from rederive.monitor.store import Options, Store
from rederive.monitor.subscriptions import Subscription, signs
from rederive.monitor.transaction import Transaction

__all__ = ["Change", "Database", "Limits", "RederiveError", "Result", "Subscription", "Transaction", "open"]
__version__ = "0.1.0"

ENGINES = ("resident",)


def open(
    path: str | Path | None = None,
    *,
    strategy: str | None = None,
    precision: str | None = None,
    only: str | None = None,
    engine: str = "resident",
    limits: Limits | None = None,
    retention: int | None = None,
) -> Database:
    """A database in this process's memory; with a `path`, kept in that folder, which is made where there is none.

    `strategy`: auto, recompute, counting, materialized, on_demand, filtration or differencing. `precision`: exact, or nervous
    with differencing. `only`: report plus or minus alone. `limits` stop a recursion that invents values without end. A store
    remembers strategy, precision and only. `retention`: how many versions of it can be read again; all of them by default.
    """
    check_strategy(strategy or AUTO, precision or "exact")
    if engine not in ENGINES:
        raise UnknownOption("engine", engine, ENGINES)
    if path is None:
        return Database(ResidentEngine(limits), strategy or AUTO, precision or "exact", only)
    signs(only)
    store = Store.open(Path(path), Options(strategy or "", precision or "", only or ""), retention)
    try:
        options = store.options
        return Database(ResidentEngine(limits), options.strategy, options.precision, options.only or None, store)
    except BaseException:
        store.close()
        raise
