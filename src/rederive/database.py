"""The database: what users of the package call. Everything it does is done by the parts that it owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rederive.boundary import guard_class
from rederive.catalog import Catalog, check_view
from rederive.commit import restart
from rederive.commit.announce import Callback, Subscription, signs
from rederive.commit.definitions import Definitions
from rederive.commit.monitoring import Settings
from rederive.commit.pipeline import Pipeline
from rederive.commit.setup import Setup
from rederive.commit.spark_tables import SparkTables
from rederive.commit.state import DatabaseState
from rederive.commit.transaction import GivenRows, Transaction, commit_rows, requested_rows
from rederive.engines.protocol import Engine, Query
from rederive.errors import WrongArgument
from rederive.ir.terms import UTC, Value
from rederive.lang.programs import is_query
from rederive.maintain.plan import AUTO
from rederive.queries import positions
from rederive.result import Change, Result
from rederive.row_list import RowList
from rederive.rows import base_relation
from rederive.rules.api import Rules
from rederive.rules.runtime import RuleRuntime
from rederive.rules.webhook import Webhooks
from rederive.store.cursor import Cursor
from rederive.store.store import Store
from rederive.why.changes import RowChange
from rederive.why.explanation import Absence, Explanation

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

    from rederive.ingest.ingestion import Ingestion
    from rederive.ingest.stream_sources import StreamSource


@guard_class
class Database:
    """Base relations, views over them, and the exact change of every monitored view for every transaction.

    `definitions`: edit rules and views. `rules`: the active rules. `tables`: tables in place, and the tables of views as data
    frames. `pipeline`: the parts of the database, for the other packages of rederive (service, command line, streams, warehouse)
    and for tests; it is not part of the API, and changes without notice.

    >>> import rederive
    >>> db = rederive.open()
    >>> db.define('''
    ...     .decl edge(x: symbol, y: symbol)
    ...     .decl closure(x: symbol, y: symbol)
    ...     closure(x, y) :- edge(x, y).
    ...     closure(x, y) :- edge(x, z), closure(z, y).
    ... ''')
    >>> with db.transaction() as tx:
    ...     tx.insert("edge", [("a", "b"), ("b", "c")])
    >>> tx.result.version, tx.result.changes["closure"].plus
    (1, [('a', 'b'), ('a', 'c'), ('b', 'c')])
    >>> with db.transaction() as tx:
    ...     tx.delete("edge", [("b", "c")])
    >>> tx.result.changes["closure"].minus
    [('a', 'c'), ('b', 'c')]
    >>> db.rows("closure", x="a")
    [('a', 'b')]
    """

    def __init__(
        self,
        engine: Engine,
        strategy: str = AUTO,
        precision: str = "exact",
        only: str | None = None,
        store: Store | None = None,
        *,
        strict: bool = False,
        webhooks: Webhooks | None = None,
        zone: str = UTC,
        spark: SparkSession | None = None,
    ) -> None:
        settings = Settings(strategy, precision, signs(only), strict)
        catalog = store.catalog() if store is not None else Catalog.none(zone)
        self._state = DatabaseState(engine, settings, catalog, store, spark)
        runtime = RuleRuntime(store, webhooks)
        self.pipeline = Pipeline(self._state, runtime)
        self.definitions = Definitions(self.pipeline)
        self.rules = Rules(self.pipeline)
        self.tables = SparkTables(self.pipeline)
        if store is not None:
            restart.recover(self._state, store)
            # Webhooks that the last process left in the outbox.
            runtime.send()

    @property
    def version(self) -> int:
        """The number of committed versions; version 0 is the empty database."""
        return self._state.version

    @property
    def position(self) -> str:
        """The current version of this history: a point to resume from later, which other histories refuse."""
        return self._state.position

    # Definitions

    def define(self, text: str, name: str = "<text>") -> Result | None:
        """Add relations and rules, in Datalog. Views are evaluated over the current rows; a refused text changes nothing.

        What this does to monitored views, the first rows of new ones included, is a version, and so are facts that enter base
        relations; None where nothing of the kind happens. A recursion that does not end over the current rows is evaluated with
        the next change of rows.
        """
        return self.pipeline.define(self._state.catalog.define(text, name))

    def migrate(self, text: str, name: str = "<text>", *, whole: bool = True) -> Result | None:
        """Define what of this text is not defined yet. A definition that is not in the text is refused, unless not `whole`.

        A program that opens a store begins with it: the first time it defines, later it finds everything defined. A text that
        begins with CREATE is SQL; definitions in the other language are left alone.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.migrate(".decl n(x: number)")
        >>> db.migrate(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> db.migrate(".decl n(x: number)")
        Traceback (most recent call last):
        ...
        rederive.errors.Mismatch: error[mismatch]: the database has a definition that is not in <text>: .decl odd(x: number)
          help: take it out of the database first (db.definitions.remove_rule, drop_view), or use another store
        """
        change = self._state.catalog.migrate(text, name, whole=whole)
        return self.pipeline.define(change) if change is not None else None

    def sql(self, text: str, name: str = "<text>") -> list[Result]:
        """Run statements of Spark SQL in order; the versions that they made.

        CREATE TABLE and CREATE VIEW define, DROP VIEW removes; INSERT, UPDATE and DELETE are a transaction each, or together
        between BEGIN and COMMIT.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.sql('''
        ...     CREATE TABLE stock (item STRING PRIMARY KEY, n INT NOT NULL);
        ...     CREATE VIEW low AS SELECT item FROM stock WHERE n < 3;
        ... ''')
        >>> (result,) = db.sql("INSERT INTO stock VALUES ('bolt', 2), ('nut', 7)")
        >>> result.changes["low"].plus
        [('bolt',)]
        """
        from rederive.commit.sql_statements import SqlRun

        return list(SqlRun(self.pipeline).run(text, name))

    def setup(self) -> Setup:
        """Collect what is defined and loaded inside the block; it is evaluated once, when the block ends, as one version.

        >>> import rederive
        >>> db = rederive.open()
        >>> with db.setup() as setup:
        ...     db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.  n(1).")
        ...     db.load("n", [(2,), (3,)])
        >>> setup.result.version, setup.result.changes["odd"].plus
        (1, [(1,), (3,)])
        """
        return Setup(self.pipeline)

    def explain(self, view: str | None = None, form: str = "text", *, passes: bool = False) -> str:
        """Explain how the monitored views, or one view, are maintained and why, with the estimates of strategy auto.

        Without a view, also how much memory all rows take. With `passes`, also the program after each pass.
        """
        return self._state.explain(view, form, passes=passes)

    # Tables in place

    def attach(self, name: str, table: str, *, key: Sequence[str] = ()) -> Result | None:
        """Make a Delta table that others write a base relation, without a copy: `db.attach("sale", "shop.sale", key=["id"])`.

        `table`: a name of the catalog, or a path. `key`: the columns that identify a row; a table without them is a bag, which
        costs more. The first rows of the table are a version. A table that is attached already takes the columns that it has now;
        None where it has no others. `refresh` follows it.
        """
        return self.tables.attach(name, table, key)

    def refresh(self, versions: Mapping[str, int] | None = None) -> Result | None:
        """Follow the tables in place to their last commits, or to the given ones: one version, with the change of every view.

        None where no row of them changed.
        """
        return self.tables.refresh(versions)

    # Changes of data

    def load(self, relation: str, rows: GivenRows) -> Result | None:
        """Add rows, or a data frame of them, to a base relation: one version, for which the views are evaluated from scratch.

        For many rows that is faster than a transaction. Active rules do not fire and constraints are not checked. None where
        all rows exist already.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> db.load("n", [(1,), (2,), (3,)]).changes["odd"].plus
        [(1,), (3,)]
        """
        program = self._state.catalog.program
        # Rows to load are many, and the engine stores them as it reads them.
        given = requested_rows(base_relation(program, relation), rows, program.zone, is_held=False)
        return self.pipeline.load({relation: given})

    def transaction(self, key: str | None = None) -> Transaction:
        """Collect changes that are committed together when the `with` block ends; an exception inside it discards them.

        With a store, a `key` makes a repetition harmless: the same changes under the same key are applied once.
        """
        return Transaction(self.pipeline, key)

    def apply(
        self,
        relation: str,
        *,
        inserts: GivenRows | None = None,
        deletes: GivenRows | None = None,
        upserts: GivenRows | None = None,
        key: str | None = None,
        extra: str = "refuse",
    ) -> Result:
        """Commit one transaction of data frames of any size, of Spark or pandas: the deletes, the inserts, then the upserts.

        Columns go by name. A frame of deletes may have the columns of the key alone. `extra="ignore"` leaves out columns that the
        relation does not have. `key`: as of a transaction; `foreachBatch` gives it the number of the micro-batch.

        >>> import pandas, rederive
        >>> db = rederive.open()
        >>> _ = db.sql("CREATE TABLE stock (item STRING PRIMARY KEY, n INT)")
        >>> _ = db.sql("CREATE VIEW low AS SELECT item FROM stock WHERE n < 3")
        >>> _ = db.apply("stock", inserts=pandas.DataFrame({"item": ["bolt", "nut"], "n": [2, 7]}))
        >>> gone, changed = pandas.DataFrame({"item": ["bolt"]}), pandas.DataFrame({"item": ["nut"], "n": [1]})
        >>> db.apply("stock", deletes=gone, upserts=changed).changes["low"]
        Change(version=2, view='low', +1, -1)
        """
        return commit_rows(self.pipeline, relation, deletes=deletes, inserts=inserts, upserts=upserts, key=key, extra=extra)

    def advance(self, to: datetime) -> Result:
        """Advance the time that `now()` and `current_date` mean in views; rows enter and leave as the time passes them.

        The time never goes back. Without a zone, it is in UTC. Before the first call no row passes a filter on the time.

        >>> import rederive
        >>> from datetime import datetime
        >>> db = rederive.open()
        >>> _ = db.sql('''CREATE TABLE e (k INT PRIMARY KEY, at TIMESTAMP);
        ...     CREATE VIEW recent AS SELECT k FROM e WHERE at > now() - INTERVAL 1 HOUR;
        ...     INSERT INTO e VALUES (1, '2026-01-01 10:00:00'), (2, '2026-01-01 10:40:00')''')
        >>> [db.advance(datetime(2026, 1, 1, hour, 30)).changes["recent"].plus for hour in (10,)]
        [[(1,), (2,)]]
        >>> db.advance(datetime(2026, 1, 1, 11)).changes["recent"].minus
        [(1,)]
        """
        from rederive.commit.clock import advance_clock

        return advance_clock(self.pipeline, to)

    def ingest(self, source: StreamSource, **options: Any) -> Ingestion:
        """Ingest a stream, one transaction for each micro-batch; see `rederive.ingest.ingestion.ingest`."""
        from rederive.ingest.ingestion import ingest

        return ingest(self.pipeline, source, **options)

    # Reading

    def rows(
        self, relation: str, bindings: Mapping[str, Value] | None = None, /, *, as_of: int | None = None, **columns: Value
    ) -> RowList:
        """Return the rows of a base relation or view, in order. Bindings fix columns: `db.rows("closure", x="a")`.

        They are a list of tuples, which also has `to_pandas`, `to_arrow` and `to_polars`.

        `as_of`: the rows of a monitored view at an earlier version. Raises `Expired` where neither the journal nor the lake
        goes back that far. A column that has the name of a parameter is bound by `db.rows("v", {"as_of": 3})`.

        >>> import rederive, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.migrate(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        ...     for x in (11, 12):
        ...         with db.transaction() as tx:
        ...             tx.insert("n", [(x,)])
        ...     print([db.rows("big", as_of=version) for version in range(3)])
        [[], [(11,)], [(11,), (12,)]]
        """
        bound = {**(bindings or {}), **columns}
        return self._state.rows(relation, bound) if as_of is None else self._state.rows_as_of(relation, as_of, bound)

    def query(self, text: str) -> RowList:
        """Return the rows that match an atom, or the answers of a SQL query, in order.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.define('.decl edge(x: symbol, y: symbol)  edge("a", "b"). edge("b", "b").')
        >>> db.query('edge("a", y)'), db.query("edge(x, x)")
        ([('a', 'b')], [('b', 'b')])
        >>> db.query("SELECT count(*), max(x) FROM edge")
        [(2, 'b')]
        """
        if not is_query(text):
            return self._state.match(text)
        from rederive.commit.sql_changes import select_rows

        with self._state.budget():
            return select_rows(self._state, text)

    def why(self, relation: str, row: Sequence[Value], *, depth: int = 10, width: int = 3) -> Explanation:
        """Explain why a row is in a view: up to `width` derivations, each as a proof down to base rows, or `depth` levels.

        The derivations are searched for from the row backwards, on any strategy. Of an aggregate, `width` rows are shown.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.define('''
        ...     .decl edge(x: symbol, y: symbol)  .decl closure(x: symbol, y: symbol)
        ...     closure(x, y) :- edge(x, y).  closure(x, y) :- edge(x, z), closure(z, y).
        ...     edge("a", "b"). edge("b", "c").
        ... ''')
        >>> print(db.why("closure", ("a", "c")))
        closure("a", "c")
          by closure(x, y) :- edge(x, z), closure(z, y).
            edge("a", "b")
            closure("b", "c")
              by closure(x, y) :- edge(x, y).
                edge("b", "c")
        """
        return self._state.why(relation, row, depth, width)

    def why_not(self, relation: str, row: Sequence[Value]) -> Absence:
        """Explain why a row is not in a view: for each rule, what holds and what fails first.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.  n(4).")
        >>> print(db.why_not("odd", (4,)))
        odd(4) is not there
          odd(x) :- n(x), x % 2 = 1.
            holds: n(4)
            fails: 4 % 2 = 1
        """
        return self._state.why_not(relation, row)

    def why_change(self, relation: str, row: Sequence[Value], version: int, *, depth: int = 10, width: int = 3) -> RowChange:
        """Explain why a row entered or left a view at a version: which changed rows made or broke which derivation.

        >>> import rederive, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.migrate(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        ...     with db.transaction() as tx:
        ...         tx.insert("n", [(1,), (2,)])
        ...     with db.transaction() as tx:
        ...         tx.delete("n", [(1,)])
        ...     print(db.why_change("odd", (1,), 2))
        odd(1) left
          broken: odd(x) :- n(x), x % 2 = 1.
            n(1) left  (deleted)
        """
        return self._state.why_change(relation, row, version, depth, width)

    def preview(self, transaction: Transaction) -> Result:
        """The result that an open transaction would have if it were committed now; nothing is changed.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> tx = db.transaction()
        >>> tx.insert("n", [(1,), (2,)])
        >>> db.preview(tx).changes["odd"].plus, db.rows("n")
        ([(1,)], [])
        """
        if not isinstance(transaction, Transaction):
            raise WrongArgument(f"not a transaction: {type(transaction).__name__}", hint="pass what db.transaction() returned")
        return transaction.preview()

    def subscribe(self, view: str, callback: Callback, *, only: str | None = None, **bindings: Value) -> Subscription:
        """Call back with each `Change` of a view, after the transaction that made it is committed.

        `only="plus"` or `"minus"` leaves the other sign out; what only that sign needs is not evaluated where nothing is stored.
        Bindings fix columns: `db.subscribe("closure", callback, x="a")`.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        >>> subscription = db.subscribe("big", lambda change: print(change.version, change.plus))
        >>> with db.transaction() as tx:
        ...     tx.insert("n", [(7,), (11,)])
        1 [(11,)]
        """
        check_view(self._state.program, view)
        bound = positions(self._state.program.relations[view], bindings)
        return self._state.subscribe(Query(view, tuple(sorted(bound.items()))), callback, signs(only))

    # The store

    def changes(self, view: str, since: int | str) -> Iterator[Change]:
        """Yield the changes of a monitored view after a version, in order, from the journal: what a subscriber missed.

        Raises `Expired` where some of them are no longer retained. `since`: a version, or better a saved `position`, which is
        refused with `Mismatch` where the store has been restored since.

        >>> import rederive, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.migrate(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        ...     for x in (7, 11, 12):
        ...         with db.transaction() as tx:
        ...             tx.insert("n", [(x,)])
        ...     print([(change.version, change.plus) for change in db.changes("big", since=1)])
        [(2, [(11,)]), (3, [(12,)])]
        """
        store = self._state.durable("reading past changes")
        return store.changes(view, store.journal.version_at(since))

    def cursor(self, name: str) -> Cursor:
        """Return the cursor of a named subscriber: up to which version it has acknowledged everything."""
        return Cursor(self._state.durable("a named cursor"), name)

    def settle(self, *, wait: bool = True) -> int:
        """Bring the tables of the lake to the last version; returns the version that they are at.

        Without `wait` this is done in the background.
        """
        return self.tables.settle(wait=wait)

    def __repr__(self) -> str:
        program = self._state.catalog.program
        views = sum(not program.relations[name].is_auxiliary for name in program.views if name not in program.tables)
        return f"Database(version={self.version}, base relations={len(program.tables)}, views={views})"

    def _repr_html_(self) -> str:
        return f"<p>version {self.version}</p>{self.definitions._repr_html_()}"

    def close(self) -> None:
        """Close the database. Every later call is refused. Webhooks that are not delivered are sent when it is opened again."""
        # Not where the pipeline closes itself after a failure: its engine may be ahead of the disk.
        restart.save(self._state)
        self.pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
