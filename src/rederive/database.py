"""The database: programs, versions, transactions and subscriptions around one engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rederive.analysis.graph import needed
from rederive.bags import copies, told
from rederive.boundary import caller_function, guard_class
from rederive.catalog import Catalog, CatalogChange, check_view
from rederive.commit.announce import Callback, Subscription, Subscriptions, signs
from rederive.commit.execution import Course
from rederive.commit.group import Group, Outcome, Together, Write
from rederive.commit.parked import ParkedDefinitions, base_program
from rederive.commit.redefinition import Advance
from rederive.commit.setup import Setup
from rederive.commit.transaction import Given, Transaction, requested_rows
from rederive.delta import BOTH, Sign, from_counted
from rederive.engines.protocol import DoesNotFit, Engine, Operation, Propagation, Query, Trace
from rederive.errors import Endless, Mismatch, NoLake, Redefined, UnknownRelation, Unsupported
from rederive.ir.rules import Mode, Program, Relation
from rederive.ir.terms import UTC, Row, Value
from rederive.lang import compile_query
from rederive.lang.programs import is_query
from rederive.lang.sql.definition import SqlDefinition
from rederive.limits import Limits
from rederive.maintain.explain import explain
from rederive.maintain.plan import AUTO, plan
from rederive.maintain.program import DERIVED, MaintenanceProgram, Strategy
from rederive.maintain.strategies.aggregates import WHOLE, not_incremental
from rederive.queries import matching, positions
from rederive.records import Firing
from rederive.result import Change, Result
from rederive.rows import base_relation
from rederive.rules.api import ActiveDatabase
from rederive.rules.rule_set import RuleSet, check_precision
from rederive.rules.webhook import Webhooks
from rederive.store.position import Position
from rederive.store.store import Store
from rederive.store.time_travel import rows_at
from rederive.values import sort_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rederive.ingest.ingestion import Ingestion
    from rederive.ingest.stream_sources import StreamSource
    from rederive.warehouse.bridge import WarehouseBridge

CONSTRAINED = {Mode.REJECT: frozenset({Sign.PLUS}), Mode.MONITOR: frozenset[Sign]()}  # what must be known to reject
Confirm = Callable[[Propagation], None]
SETTLED_AFTER = 100  # versions that wait in the journal


_M = TypeVar("_M", bound=Callable[..., Any])


def within_budget(method: _M) -> _M:
    """A method of a database that is stopped, and changes nothing, where it takes more than `limits` allow."""

    @wraps(method)
    def call(self: Database, *args: Any, **options: Any) -> Any:
        with self.engine.budget(self.limits):
            return method(self, *args, **options)

    return cast(_M, call)


@guard_class
class Database(ActiveDatabase):
    """Base relations, views over them, and the exact change of every monitored view for every transaction.

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

    parks = True  # whether a definition that does not end waits for rows; where it would stop others, it is refused
    monitors = True  # whether changes of views are worked out; where questions alone are asked, they need not be

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
        super().__init__(engine, store, webhooks)
        self.spark = spark
        self.strategy = strategy
        self.precision = precision
        self.signs = signs(only)
        self.strict = strict
        self._definitions = Catalog.none(zone)
        self.program = self._definitions.program
        self.rule_base = RuleSet(self.program)
        self.version = 0
        self.unsettled: Exception | None = None
        self.parked: ParkedDefinitions | None = None
        self.house: WarehouseBridge | None = None
        self.limits: Limits | None = None
        self._subscribers = Subscriptions()
        self._unkept: frozenset[str] = frozenset()
        if store is not None:
            self._recover(store)

    def _recover(self, store: Store) -> None:
        """Go on where the store's last version left off; views are evaluated over its base rows."""
        self._definitions, self.version = store.catalog(), store.journal.version
        self.rule_base = self._recovered_rules(store, self._definitions.rules)
        self.program = self.rule_base.program
        rows = store.base_rows(self.program)
        try:
            self._install(rows)
        except Endless as error:
            self.install_parked(rows, ParkedDefinitions.recorded(error, self.program, store))
        self._send(store)

    @property
    def zone(self) -> str:
        """The time zone in which SQL reads and writes timestamps."""
        return self.program.zone

    # Definitions

    @property
    def definitions(self) -> Catalog:
        """The program that stands, without what rules add to it."""
        return self._definitions

    def define(self, text: str, name: str = "<text>") -> Result | None:
        """Add relations and rules, in Datalog. Views are evaluated over the rows there; a refused text changes nothing.

        What this does to monitored views, the first rows of new ones included, is a version, and so are facts that enter base
        relations; None where there is nothing of the kind. A recursion that does not end over the rows there is evaluated with
        the next change of rows.
        """
        return self._redefine(self._definitions.define(text, name))

    def migrate(self, text: str, name: str = "<text>", *, whole: bool = True) -> Result | None:
        """Define what of this text does not stand yet; refused where something stands that is not in it, unless not `whole`.

        A program that opens a store begins with it: the first time it defines, later it finds everything there. A text that
        begins with CREATE is SQL; what stands in the other language is left alone.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.migrate(".decl n(x: number)")
        >>> db.migrate(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> db.migrate(".decl n(x: number)")
        Traceback (most recent call last):
        ...
        rederive.errors.Mismatch: error[mismatch]: the database has a definition that is not in <text>: .decl odd(x: number)
          help: take it out of the database first (remove_rule, drop_view), or use another store
        """
        step = self._definitions.migrate(text, name, whole=whole)
        return self._redefine(step) if step is not None else None

    def add_rule(self, text: str) -> Result:
        """Add rules to views, or to relations without rows of their own: one version, with the exact change of every view above.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.define('''
        ...     .decl e(x: number)  .decl p(x: number)  .decl q(x: number)
        ...     e(1). e(2).  p(x) :- e(x), x > 1.  q(x) :- p(x).
        ... ''')
        >>> db.add_rule("p(x) :- e(x), x < 2.").changes["q"].plus
        [(1,)]
        >>> db.remove_rule("p(x) :- e(x), x > 1.").changes["q"].minus
        [(2,)]
        """
        return self._edited(self._definitions.add_rule(text))

    def remove_rule(self, text: str) -> Result:
        """Take rules out of views; they must be written as they were defined."""
        return self._edited(self._definitions.remove_rule(text))

    def replace_view(self, view: str, text: str) -> Result:
        """Give a view other rules."""
        return self._edited(self._definitions.replace_view(view, text))

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

        return list(SqlRun(self).run(text, name))

    def create(self, added: SqlDefinition) -> Result | None:
        """Add a table or view that SQL defines. Replacing a view yields the exact change of every monitored view above it."""
        step = self._definitions.create(added)
        return self._redefine(step) if step is not None else None

    def stands(self, definition: SqlDefinition) -> bool:
        """Whether this table or view of SQL is defined already, and as it is written there."""
        return self._definitions.has(definition)

    def drop_view(self, view: str) -> Result:
        """Remove a view; its rows leave. Refused while something else needs it."""
        return self._edited(self._definitions.drop_view(view))

    def drop(self, view: str) -> Result | None:
        """The same, also inside a setup."""
        return self._redefine(self._definitions.drop_view(view))

    def _edited(self, step: CatalogChange) -> Result:
        self._check_not_gathering("an edit")
        result = self._redefine(step)
        assert result is not None
        return result

    def setup(self) -> Setup:
        """What is defined and loaded inside the block is evaluated once, when it ends, and is one version.

        >>> import rederive
        >>> db = rederive.open()
        >>> with db.setup() as setup:
        ...     db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.  n(1).")
        ...     db.load("n", [(2,), (3,)])
        >>> setup.result.version, setup.result.changes["odd"].plus
        (1, [(1,), (3,)])
        """
        return Setup(self)

    def take_back(self, definitions: Catalog) -> None:
        """Leave out what was gathered on top of these definitions."""
        self._definitions = definitions

    def _redefine(self, step: CatalogChange) -> Result | None:
        if self.gathering is None:
            return self.advance(step)[0]
        self.gathering.add(step)
        self._definitions = step.after
        return None

    @within_budget
    def advance(self, step: CatalogChange) -> tuple[Result | None, int]:
        """Install a program with what enters its base relations and keep both, or leave everything as it was.

        The version that this makes, if it makes one, and the tuples touched.
        """
        self._check_idle("a definition")
        attempt, before, version, rules = Advance(self), self.program, self.version, self.rule_base
        after = self._ruled(step) if step.after is not self._definitions else rules
        self.program, self.rule_base = after.program, after
        try:
            attempt.take(step)
        except BaseException:
            self.program, self.version, self.rule_base = before, version, rules
            raise
        self._definitions = step.after
        if self._store is not None:
            self._settle_when_due(self._store, attempt.bulk)
        if attempt.result is not None:
            self.announce(attempt.result)
        return attempt.result, attempt.touched

    def _ruled(self, step: CatalogChange) -> RuleSet:
        """The rules over another program, both checked."""
        rules = self.rule_base
        after = rules.again(step.after.program, step.after.rules)
        self._check_rules(rules.standing, after.standing)
        check_precision(after, self.precision)
        self._check_ruled(step.after.program)
        self._check_strict(step.after.program)
        return after

    @within_budget
    def _stand(self, rules: RuleSet, keep: Callable[[], None]) -> None:
        self._check_evaluated()
        check_precision(rules, self.precision)
        before = self.program, self.rule_base
        self.program, self.rule_base = rules.program, rules
        try:
            self.install_and_write({}, lambda _: keep(), announce=False)
        except BaseException:
            self.program, self.rule_base = before
            raise

    def _drop_stated(self, name: str) -> None:
        self._redefine(self._definitions.drop_rule(name))

    def _check_ruled(self, program: Program) -> None:
        for base in (name for name in self.program.bases if name in program.views):
            if self.engine.size(base):
                raise Redefined(f"'{base}' has rows of its own, and cannot have rules", program.relations[base].span)

    def _check_strict(self, program: Program) -> None:
        if self.strict and (refused := not_incremental(program)) is not None:
            owner = refused.relation.partition(".")[0]
            raise Unsupported(f"'{owner}' is {WHOLE}", refused.span, hint="partition it, or leave --strict out")

    def install_and_write(self, rows: Mapping[str, Collection[Row]], write: Confirm, *, announce: bool = True) -> None:
        """Install the program with more rows; `write` is called with what that does, when nothing else can fail."""
        with self._writing(write) as confirm:
            self._install(rows, announce=announce, confirm=confirm)

    def install_parked(
        self, rows: Mapping[str, Collection[Row]], parked: ParkedDefinitions, write: Confirm = lambda found: None
    ) -> None:
        """Install the base relations alone; the views keep the rows that subscribers know."""
        bases = base_program(self.program)
        monitored = tuple(name for name in self._counted() if name in bases.relations)

        def of_bases(found: Propagation) -> None:
            write(replace(found, views={name: delta for name, delta in found.views.items() if name in monitored}))

        with self._writing(of_bases) as confirm:
            found = self.engine.install(plan(bases, monitored, self.strategy), monitored, rows, announce=True)
            self._finish(found, confirm)
        self.parked = parked

    @contextmanager
    def _writing(self, write: Confirm) -> Iterator[Confirm]:
        """An interrupt while something is written closes the database: only opening it again tells if it was committed."""
        writing = False

        def confirm(propagation: Propagation) -> None:
            nonlocal writing
            writing = self._store is not None
            write(propagation)

        try:
            yield confirm
        except (KeyboardInterrupt, SystemExit):
            if writing:
                self.close()
            raise

    def _install(
        self, rows: Mapping[str, Collection[Row]] | None = None, *, announce: bool = False, confirm: Confirm | None = None
    ) -> None:
        """Install the program; views that do not fit the memory there is are derived on demand."""
        asked, bound = tuple(self._counted()), self._questions()
        while True:
            try:
                found = self.engine.install(self.maintenance, asked, rows, bound=bound, announce=announce)
            except DoesNotFit as error:
                self._unkept = self._unkept.union(error.views)
            else:
                self._finish(found, confirm)
                self.parked = None
                return

    def _finish(self, found: Propagation, confirm: Confirm | None) -> None:
        try:
            if confirm is not None:
                confirm(found)
        except BaseException:
            self.engine.rollback()
            raise
        self.engine.commit()

    def _check_evaluated(self, view: str | None = None) -> None:
        """Refuse what only definitions that are parked can answer: base relations are there, views are not."""
        if self.parked is not None and (view is None or (self.program.is_view(view) and not self.program.copies_of(view))):
            raise self.parked.error

    def _check_not_gathering(self, what: str) -> None:
        if self.gathering is not None:
            raise Mismatch(f"{what} inside a setup, which definitions and loads belong in", hint="end its block first")

    @property
    def monitored(self) -> tuple[str, ...]:
        """The views whose changes are reported."""
        return tuple(self._wanted())

    def _counted(self) -> dict[str, frozenset[Sign]]:
        """What the engine must report: a bag is told by the change of its counts, of which both sides are needed."""
        wanted = self._wanted()
        views = {self.program.counted(n): s if self.program.counted(n) == n else BOTH for n, s in wanted.items()}
        return views | self.rule_base.wanted

    def followed(self, program: Program) -> list[str]:
        """The views of a program whose changes somebody is notified of."""
        return [name for name in dict.fromkeys((*program.monitored, *self._wanted())) if program.is_view(name)]

    def followed_parts(self, program: Program) -> list[Query]:
        """The parts of views, likewise."""
        return [question for question in self._questions() if program.is_view(question.view)]

    def _wanted(self) -> dict[str, frozenset[Sign]]:
        """The signs wanted of each view that is followed as a whole."""
        wanted = dict.fromkeys(self.program.monitored if self.monitors else (), self.signs)
        for subscription in self._subscribers.subscriptions:
            if subscription.view in self.program.views and not self._asked_apart(subscription):
                wanted[subscription.view] = wanted.get(subscription.view, frozenset()) | subscription.signs
        for constraint in self.program.constraints:
            wanted[constraint.view] = wanted.get(constraint.view, frozenset()) | CONSTRAINED[constraint.mode]
        return wanted

    def _asked_apart(self, subscription: Subscription) -> bool:
        """Whether a bound subscription is answered by questions of its own: its view is not kept, and nobody wants all of it."""
        unkept = self.strategy in (strategy.value for strategy in (*DERIVED, Strategy.RECOMPUTE))
        bag = self.program.counted(subscription.view) != subscription.view
        return bool(subscription.bindings) and unkept and not bag and subscription.view not in self.program.monitored

    def _questions(self) -> list[Query]:
        apart = (s for s in self._subscribers.subscriptions if self._asked_apart(s) and s.view in self.program.views)
        return list(dict.fromkeys(subscription.question for subscription in apart))

    @property
    def maintenance(self) -> MaintenanceProgram:
        """The maintenance program that serves the monitored views."""
        wanted = self._counted()
        return plan(self.program, wanted, self.strategy, self.precision, wanted, self._unkept, self.rule_base.precisions)

    def explain(self, view: str | None = None, form: str = "text") -> str:
        """How the monitored views, or one view, are maintained and why, with the estimates that strategy auto goes by.

        Without a view, what all rows take in memory, too.
        """
        if view is None:
            return self._explained(self._counted(), form, memory=self.engine.memory_use() if self._has_base_rows() else "")
        check_view(self.program, view)
        return self._explained({self.program.counted(view): self.signs}, form)

    def explain_rule(self, name: str, form: str = "text") -> str:
        """How the condition of an active rule is monitored: its partial differentials and its dependency network."""
        one = self.rule_base.named(name)
        wanted = self._counted() | {one.condition.name: one.monitored}
        return self._explained(wanted, form, one.condition.name)

    def _has_base_rows(self) -> bool:
        return any(map(self.engine.size, self.program.bases))

    def _explained(self, wanted: Mapping[str, frozenset[Sign]], form: str, only: str | None = None, memory: str = "") -> str:
        conditions = self.rule_base.precisions
        maintenance = plan(self.program, wanted, self.strategy, self.precision, wanted, self._unkept, conditions)
        if only is not None:
            read = needed(maintenance.program, [only])
            sections = tuple(s for s in maintenance.sections if read.intersection(s.component.relations))
            maintenance = replace(maintenance, sections=sections)
        estimates = self.engine.estimates() if self._has_base_rows() else {}
        return explain(maintenance, form, estimates, memory)

    # Data

    def load(self, relation: str, rows: Given) -> Result | None:
        """Add rows, or a data frame of them, to a base relation: one version, for which the views are evaluated from scratch.

        For many rows that is faster than a transaction. Active rules do not fire and constraints are not checked. None where
        all rows are there already.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> db.load("n", [(1,), (2,), (3,)]).changes["odd"].plus
        [(1,), (3,)]
        """
        return self.load_typed({relation: requested_rows(base_relation(self._definitions.program, relation), rows, self.zone)})

    def load_typed(self, initial: Mapping[str, Iterable[Row]]) -> Result | None:
        """`load` for several relations at once, of rows that readers have checked already."""
        return self._redefine(CatalogChange(self._definitions, initial, always=False, loads=True)) if initial else None

    def transaction(self, key: str | None = None) -> Transaction:
        """Changes that are applied together when the `with` block ends; an exception inside it discards them.

        With a store, a `key` makes a repetition harmless: the same changes under the same key are applied once.
        """
        self._check_open()
        return Transaction(self, key)

    def apply(
        self, relation: str, *, inserts: DataFrame | None = None, deletes: DataFrame | None = None, key: str | None = None
    ) -> Result:
        """One transaction of data frames of any size: the deletes, then the inserts. Columns go by name."""
        with self.transaction(key) as tx:
            for action, rows in ((tx.delete, deletes), (tx.insert, inserts)):
                if rows is not None:
                    action(relation, rows)
        return tx.result

    def ingest(self, source: StreamSource, **options: Any) -> Ingestion[Result]:
        """Take a stream into the database, a transaction for each micro-batch; see `rederive.ingest.ingestion.ingest`."""
        from rederive.ingest.ingestion import ingest

        return ingest(self, source, **options)

    def begin(self, key: str | None = None) -> Course:
        """A transaction in progress, which rules may add to. Its key tells whether all of it has happened already."""
        self._check_open()
        self._check_idle("a transaction")
        self._check_not_gathering("a transaction")
        if self.rule_base.active:
            self._check_evaluated()
        replayed = key is not None and self._durable("an idempotency key").journal.find_key(key) is not None
        return Course(self, replayed=replayed)

    def commit(self, operations: Sequence[Operation], key: str | None = None, course: Course | None = None) -> Result:
        """Apply the operations as one version, then tell the subscribers."""
        result = self.write(operations, key, course)
        self.announce(result)
        return result

    def commit_together(self, requests: Sequence[Sequence[Write]]) -> list[Outcome]:
        """Group commit: every transaction is a version of its own, and one sync of the journal keeps them all.

        A request is a sequence of transactions; the first that is refused ends it, and no other request. Subscriptions are told
        when everything is on disk. Where the lake cannot follow, `unsettled` says why.

        >>> import rederive, tempfile
        >>> from rederive.engines.protocol import Action
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        ...     one, two = (Write((Operation(Action.INSERT, "n", ((x,),)),)) for x in (1, 2))
        ...     [[result.version for result in outcome.results] for outcome in db.commit_together([[one], [two]])]
        [[1], [2]]
        """
        together = Together(self, self._durable("group commit"))
        outcomes, self.unsettled = together.run(requests), together.unsettled
        for result in sorted((r for outcome in outcomes for r in outcome.results), key=lambda result: result.version):
            self.announce(result)
        return outcomes

    def write(self, operations: Sequence[Operation], key: str | None = None, course: Course | None = None) -> Result:
        """Apply the operations, one more statement of a course or all there is, as one version: as a whole or not at all."""
        if self.parked is not None:
            return self.evaluate_with(Write(operations, key, course))
        if self._store is not None or key is not None:
            group = Group(self, self._durable("an idempotency key"))
            result = group.add(Write(operations, key, course))
            group.flush()
            group.settle()
            return result
        started = time.perf_counter()
        course = course or self.begin(key)
        with self.engine.budget(self.limits):
            if operations:
                course.statement(operations)
            _, propagation = course.settled()
        try:
            course.call_functions()
        except BaseException:
            self.engine.rollback()
            raise
        self.engine.commit()
        self._fired.extend(course.firings)
        return self._version(propagation, started, course.firings)

    @within_budget
    def evaluate_with(self, write: Write) -> Result:
        """A transaction with which definitions that are parked are evaluated."""
        self.begin()
        if write.key is not None:
            self._durable("an idempotency key")
        attempt = Advance(self)
        result = attempt.commit(write)
        if self._store is not None:
            self._settle_when_due(self._store, attempt.bulk)
        return result

    # The lake

    def settle(self, *, wait: bool = True) -> int:
        """Bring the tables of the store's lake to the last version; the version that they are at.

        Without `wait` this is done in the background.
        """
        store = self._durable("settling")
        if store.lake is None:
            raise NoLake("settling")
        if wait:
            return store.lake.settle(self.program, self._stored())
        store.lake.settle_later(self.program, self._stored())
        return store.journal.settled

    def _settle_when_due(self, store: Store, bulk: bool) -> None:
        """A bulk version at once; others when many wait, in the background, so that commits go on."""
        journal, lake = store.journal, store.lake
        if lake is None:
            return
        if bulk:
            lake.settle(self.program, self._stored())
        elif journal.version - journal.settled >= SETTLED_AFTER:
            lake.settle_later(self.program, self._stored())

    def _stored(self) -> dict[str, Callable[[], Collection[Row]]]:
        """The monitored views that the engine keeps, and how to have all their rows; of bags, each with its count behind it."""
        if self.signs != BOTH or self.parked is not None:
            return {}  # the record has one sign alone, which does not lead from one extent to the next
        sections = (section for section in self.maintenance.sections if section.strategy.stored)
        kept = {name for section in sections for name in section.component.relations}
        counted = ((name, self.program.counted(name)) for name in self.program.monitored)
        return {name: partial(self.engine.extent, source) for name, source in counted if source in kept}

    def _version(self, p: Propagation, started: float, firings: Sequence[Firing] = ()) -> Result:
        self.version += 1
        wanted = self._wanted() if p.views else {}
        views = {name: delta for name, delta in p.views.items() if name not in self.rule_base.wanted}
        deltas = {told(name): from_counted(delta) if told(name) != name else delta for name, delta in views.items()}
        changes = {
            view: Change(self.version, view, delta.restrict(wanted.get(view, self.signs))) for view, delta in deltas.items()
        }
        changes = {view: change for view, change in changes.items() if change}
        bound = {question: Change(self.version, question.view, delta) for question, delta in p.bound.items()}
        ran = (self.engine.name, self.strategy, time.perf_counter() - started)
        costs = (p.touched, p.derived, p.skipped)
        fired = tuple(firings)
        return Result(
            self.version, changes, *ran, *costs, bound, p.estimated, p.recomputed, engine_reason=self.engine.reason, firings=fired
        )

    def announce(self, result: Result) -> None:
        """Tell the subscribers of a version; a repetition has been told already."""
        if not result.repeated:
            self._subscribers.tell(result)

    def rows(
        self, relation: str, bindings: Mapping[str, Value] | None = None, /, *, as_of: int | None = None, **columns: Value
    ) -> list[Row]:
        """Return the rows of a base relation or view, in order. Bindings fix columns: `db.rows("closure", x="a")`.

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
        return self._rows(relation, bound) if as_of is None else self._rows_as_of(relation, as_of, bound)

    @within_budget
    def _rows(self, relation: str, bindings: Mapping[str, Value]) -> list[Row]:
        wanted = positions(self._declared(relation), bindings)
        self._check_evaluated(relation)
        return sorted(copies(self.program, relation, wanted, self.engine), key=sort_key)

    def _rows_as_of(self, view: str, version: int, bindings: Mapping[str, Value]) -> list[Row]:
        store, relation = self._durable("reading an earlier version"), self._declared(view)
        if self.signs != BOTH:
            raise Mismatch(f"the changes of '{view}' are recorded with one sign alone, which does not lead back")
        now = partial(self._rows, view, bindings)
        return sorted(rows_at(store, relation, version, positions(relation, bindings), now), key=sort_key)

    def _declared(self, name: str) -> Relation:
        if name not in self.program.relations:
            raise UnknownRelation(name, (n for n, r in self.program.relations.items() if not r.auxiliary))
        return self.program.relations[name]

    @within_budget
    def query(self, text: str) -> list[Row]:
        """The rows that match an atom, or that a query of SQL asks for, in order.

        >>> import rederive
        >>> db = rederive.open()
        >>> _ = db.define('.decl edge(x: symbol, y: symbol)  edge("a", "b"). edge("b", "b").')
        >>> db.query('edge("a", y)'), db.query("edge(x, x)")
        ([('a', 'b')], [('b', 'b')])
        >>> db.query("SELECT count(*), max(x) FROM edge")
        [(2, 'b')]
        """
        if is_query(text):
            from rederive.commit.sql_statements import asked_rows

            return asked_rows(self, text)
        self._check_evaluated(compile_query(text, self.program).relation)
        return sorted(matching(self.engine, self.program, text), key=sort_key)

    # Subscriptions

    def subscribe(self, view: str, callback: Callback, *, only: str | None = None, **bindings: Value) -> Subscription:
        """Call back with each `Change` of a view, after the transaction that made it is committed.

        `only="plus"` or `"minus"` leaves the other sign out, and what only it needs is not evaluated where nothing is kept.
        Bindings fix columns: `db.subscribe("closure", callback, x="a")`.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        >>> subscription = db.subscribe("big", lambda change: print(change.version, change.plus))
        >>> with db.transaction() as tx:
        ...     tx.insert("n", [(7,), (11,)])
        1 [(11,)]
        """
        check_view(self.program, view)
        bound = positions(self.program.relations[view], bindings)
        return self.follow(Query(view, tuple(sorted(bound.items()))), callback, only)

    @within_budget
    def follow(self, question: Query, callback: Callback, only: str | None = None) -> Subscription:
        """`subscribe`, with typed values by position."""
        self._check_open()
        check_view(self.program, question.view)
        self._check_evaluated(question.view)
        subscription = Subscription(question.view, callback, signs(only), dict(question.bindings), self._subscribers)
        before = (self._wanted(), self._questions())
        self._subscribers.subscriptions.append(subscription)
        if (self._wanted(), self._questions()) != before:
            try:
                self._install()
            except BaseException:
                subscription.cancel()
                raise
        return subscription

    def answers_apart(self, view: str) -> bool:
        """Whether a bound subscription to a view is computed by its binding alone; else it is a part of the view's change."""
        question = Subscription(view, lambda change: None, BOTH, {0: 0}, self._subscribers)
        return self._asked_apart(question)

    @property
    def position(self) -> str:
        """Where the database is: a point to go on from later, in this history alone."""
        return str(Position(self.version, self.epoch))

    def history(self, views: Sequence[str], since: int | str | Position) -> Iterator[tuple[int, dict[str, Change]]]:
        """The versions after one that changed some of these monitored views, in order, with the changes of each.

        Refused with `Expired` where some of them are no longer kept, or where a view had other columns.
        """
        store = self._durable("reading past changes")
        return store.history(self.program, views, store.journal.version_at(since))

    def trace(self, callback: Trace) -> Callable[[], None]:
        """Watch strategy `filtration` at work: call back with each of its steps. Returns a function that ends it."""
        traced = caller_function(callback)
        self.engine.traces.append(traced)
        return lambda: self.engine.traces.remove(traced)
