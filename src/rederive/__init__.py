"""rederive: views maintained incrementally, and exactly which rows entered and left them.

>>> db = open()
>>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
>>> with db.transaction() as tx:
...     tx.insert("n", [(1,), (2,), (3,)])
>>> tx.result.changes["odd"].plus
[(1,), (3,)]
"""

from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.fixpoint import Limits
from rederive.errors import RederiveError, UnknownOption
from rederive.maintain.choose import AUTO, check_strategy
from rederive.monitor.changes import Change, Result
from rederive.monitor.database import Database
from rederive.monitor.subscriptions import Subscription
from rederive.monitor.transaction import Transaction

__all__ = ["Change", "Database", "Limits", "RederiveError", "Result", "Subscription", "Transaction", "open"]
__version__ = "0.1.0"

ENGINES = ("resident",)


def open(
    *,
    strategy: str = AUTO,
    precision: str = "exact",
    only: str | None = None,
    engine: str = "resident",
    limits: Limits | None = None,
    strict: bool = False,
) -> Database:
    """A database in this process's memory.

    `strategy`: auto, recompute, counting, materialized, on_demand, filtration or differencing. `precision`: exact, or nervous
    with differencing. `only`: report plus or minus alone. `limits` stop a recursion that invents values without end. `strict`
    refuses views that a change evaluates as a whole.
    """
    check_strategy(strategy, precision)
    if engine not in ENGINES:
        raise UnknownOption("engine", engine, ENGINES)
    return Database(ResidentEngine(limits), strategy, precision, only, strict)
