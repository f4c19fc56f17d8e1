"""The database: programs, versions, transactions and subscriptions around one engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from rederive.analysis.polarity import BOTH, Sign
from rederive.engines.base import DoesNotFit, Engine, Operation, Propagation, Question, Trace
from rederive.errors import IllTypedRow, Redefined, UnknownColumn, UnknownRelation, Unsupported
from rederive.ir.rules import Program
from rederive.ir.terms import Constant, Row, Value, Variable
from rederive.lang import compile_query
from rederive.lang.datalog import extended, parse_statements
from rederive.lang.edit import Statements, parse_rules, with_rules, without_definition, without_facts, without_rules, without_view
from rederive.lang.project import compile_statements, replaced, without_sql_view
from rederive.lang.sql.statements import Definition, extended_by
from rederive.lang.values import from_python, sort_key
from rederive.maintain.aggregates import WHOLE, not_incremental
from rederive.maintain.choose import AUTO, plan
from rederive.maintain.explain import explain
from rederive.maintain.program import DERIVED, MaintenanceProgram, Strategy
from rederive.monitor.bags import copies, numbered, on_copies, told
from rederive.monitor.changes import Change, Result, of_bag
from rederive.monitor.sql import SqlRun, asked_rows
from rederive.monitor.subscriptions import Callback, Subscribers, Subscription, signs
from rederive.monitor.transaction import Transaction, base_relation, typed_row


class Database:
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

    def __init__(
        self, engine: Engine, strategy: str = AUTO, precision: str = "exact", only: str | None = None, strict: bool = False
    ) -> None:
        self.engine = engine
        self.strategy = strategy
        self.precision = precision
        self.signs = signs(only)
        self.strict = strict
        self.program = Program({}, ())
        self.version = 0
        self._statements: Statements = ()
        self._subscribers = Subscribers()
        self._unkept: frozenset[str] = frozenset()
        self._bags: frozenset[str] = frozenset()

    # Definitions

    def define(self, text: str, name: str = "<text>") -> Result | None:
        """Add relations and rules, in Datalog. Views are evaluated over the rows there; a refused text changes nothing.

        On a database that has versions, what this does to monitored views, the first rows of new ones included, is a version too.
        """
        added = parse_statements(text, name)
        program = extended(self.program, added)
        facts: dict[str, list[Row]] = {}
        for fact in program.facts[len(self.program.facts) :]:
            facts.setdefault(fact.relation, []).append(fact.row)
        return self._redefine((*self._statements, *added), program, facts, always=False)

    def add_rule(self, text: str) -> Result:
        """Add rules to views, or to relations without rows of their own: one version, with the exact change of every view above.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define('''
        ...     .decl e(x: number)  .decl p(x: number)  .decl q(x: number)
        ...     e(1). e(2).  p(x) :- e(x), x > 1.  q(x) :- p(x).
        ... ''')
        >>> db.add_rule("p(x) :- e(x), x < 2.").changes["q"].plus
        [(1,)]
        >>> db.remove_rule("p(x) :- e(x), x > 1.").changes["q"].minus
        [(2,)]
        """
        return self._edit(with_rules(self._statements, parse_rules(text)))

    def remove_rule(self, text: str) -> Result:
        """Take rules out of views; they must be written as they were defined."""
        return self._edit(without_rules(self._statements, parse_rules(text)))

    def replace_view(self, view: str, text: str) -> Result:
        """Give a view other rules."""
        self._check_view(view)
        return self._edit(with_rules(without_definition(self._statements, view), parse_rules(text)))

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
        return list(SqlRun(self).run(text, name))

    def drop_view(self, view: str) -> Result:
        """Remove a view; its rows leave. Refused while something else needs it."""
        self._check_view(view)
        sql = any(isinstance(statement, Definition) and statement.name == view for statement in self._statements)
        return self._edit((without_sql_view if sql else without_view)(self._statements, view))

    def _check_view(self, name: str) -> None:
        views = [v for v in self.program.views if not self.program.relations[v].auxiliary and v not in self._bags]
        if name not in views:
            raise UnknownRelation(name, views)

    def _edit(self, statements: Statements) -> Result:
        """Compile the statements as a whole. A base relation without rows may become a view, and a view a base relation."""
        program = compile_statements(statements)
        ruled = [name for name in self.program.bases if name in program.views]
        for base in ruled:
            if base not in self._bags and self.engine.size(base):
                raise Redefined(f"'{base}' has rows of its own, and cannot have rules", program.relations[base].span)
        if ruled:  # facts that transactions took out of a base relation are not facts of the view
            statements = without_facts(statements, ruled)
            program = compile_statements(statements)
        left = [fact for fact in program.facts if fact.relation in self.program.views]
        facts = {name: [fact.row for fact in left if fact.relation == name] for name in {fact.relation for fact in left}}
        result = self._redefine(statements, program, facts, always=True)
        assert result is not None
        return result

    def _redefine(
        self, statements: Statements, program: Program, facts: Mapping[str, list[Row]], *, always: bool
    ) -> Result | None:
        started = time.perf_counter()
        if self.strict and (refused := not_incremental(program)) is not None:
            owner = refused.relation.partition(".")[0]
            raise Unsupported(f"'{owner}' is {WHOLE}", refused.span, hint="partition it, or leave --strict out")
        before = self.program
        self.program = program
        try:
            propagation = self._install(facts, announce=always or self.version > 0)
        except BaseException:
            self.program = before
            raise
        self._statements = statements
        self._bags = frozenset(name for name in program.relations if program.copies_of(name))
        if not always and not propagation.views:
            return None
        return self._announced(propagation, started)

    def _install(self, initial: Mapping[str, Iterable[Row]] | None = None, *, announce: bool = False) -> Propagation:
        """Install the program; views that do not fit the memory there is are derived on demand."""
        rows = numbered(self.program, {name: list(given) for name, given in (initial or {}).items()}, self.engine)
        while True:
            try:
                monitored = tuple(self._counted())
                return self.engine.install(self.maintenance, monitored, rows, bound=self._questions(), announce=announce)
            except DoesNotFit as error:
                self._unkept = self._unkept.union(error.views)

    @property
    def monitored(self) -> tuple[str, ...]:
        """The views whose changes are reported."""
        return tuple(self._wanted())

    def _counted(self) -> dict[str, frozenset[Sign]]:
        """What the engine must report: a bag is told by the change of its counts, of which both sides are needed."""
        wanted = self._wanted()
        return {self.program.counted(n): s if self.program.counted(n) == n else BOTH for n, s in wanted.items()}

    def _wanted(self) -> dict[str, frozenset[Sign]]:
        """The signs wanted of each view that is followed as a whole."""
        wanted = dict.fromkeys(self.program.monitored, self.signs)
        for subscription in self._subscribers.subscriptions:
            if subscription.view in self.program.views and not self._asked_apart(subscription):
                wanted[subscription.view] = wanted.get(subscription.view, frozenset()) | subscription.signs
        return wanted

    def _asked_apart(self, subscription: Subscription) -> bool:
        """Whether a bound subscription is answered by questions of its own: its view is not kept, and nobody wants all of it."""
        unkept = self.strategy in (strategy.value for strategy in (*DERIVED, Strategy.RECOMPUTE))
        bag = self.program.counted(subscription.view) != subscription.view
        return bool(subscription.bindings) and unkept and not bag and subscription.view not in self.program.monitored

    def _questions(self) -> list[Question]:
        apart = (s for s in self._subscribers.subscriptions if self._asked_apart(s) and s.view in self.program.views)
        return list(dict.fromkeys(subscription.question for subscription in apart))

    @property
    def maintenance(self) -> MaintenanceProgram:
        """The maintenance program that serves the monitored views."""
        wanted = self._counted()
        return plan(self.program, wanted, self.strategy, self.precision, wanted, self._unkept)

    def explain(self, view: str | None = None, form: str = "text") -> str:
        """How the monitored views, or one view, are maintained and why, with the estimates that strategy auto goes by."""
        if view is not None:
            self._check_view(view)
        wanted = {self.program.counted(view): self.signs} if view is not None else self._counted()
        maintenance = plan(self.program, wanted, self.strategy, self.precision, wanted, self._unkept)
        estimates = self.engine.estimates() if any(map(self.engine.size, self.program.bases)) else {}
        return explain(maintenance, form, estimates)

    def create(self, added: Definition) -> Result | None:
        """Add a table or view that SQL defines. Replacing a view yields the exact change of every monitored view above it."""
        there = [name for name in self.program.relations if name.lower() == added.name]
        if there and added.unless_there:
            return None
        if there and added.replaces and added.view:
            return self._edit(replaced(self._statements, added))
        return self._redefine((*self._statements, added), extended_by(self.program, added), {}, always=False)

    # Data

    def load(self, relation: str, rows: Iterable[Sequence[Value] | Mapping[str, Value]]) -> None:
        """Add initial rows to a base relation without a version of their own and without changes."""
        declared = base_relation(self.program, relation)
        self.load_typed({relation: [typed_row(declared, row) for row in rows]})

    def load_typed(self, initial: Mapping[str, Iterable[Row]]) -> int:
        """`load` for several relations at once, of rows that readers have checked already. Returns the tuples touched."""
        return self._install(initial).touched

    def transaction(self) -> Transaction:
        """Changes that are applied together when the `with` block ends; an exception inside it discards them."""
        return Transaction(self)

    def commit(self, operations: Sequence[Operation]) -> Result:
        """Apply the operations as one version, then tell the subscribers."""
        result = self.apply(operations)
        self.announce(result)
        return result

    def apply(self, operations: Sequence[Operation]) -> Result:
        """Apply the operations as one version, as a whole or, where it fails, not at all."""
        started = time.perf_counter()
        if any(operation.relation in self._bags for operation in operations):
            operations = on_copies(self.program, operations, self.engine)
        propagation = self.engine.propagate(self.engine.net(operations))
        self.engine.commit()
        return self._version(propagation, started)

    def _version(self, p: Propagation, started: float) -> Result:
        self.version += 1
        wanted = self._wanted()
        deltas = {told(name): of_bag(delta) if told(name) != name else delta for name, delta in p.views.items()}
        changes = {view: Change(self.version, view, delta, wanted.get(view, self.signs)) for view, delta in deltas.items()}
        changes = {view: change for view, change in changes.items() if change}
        bound = {question: Change(self.version, question.view, delta) for question, delta in p.bound.items()}
        seconds = time.perf_counter() - started
        engine, costs = self.engine.name, (p.touched, p.derived, p.skipped)
        return Result(self.version, changes, engine, self.strategy, seconds, *costs, bound, p.estimated, p.anew)

    def _announced(self, propagation: Propagation, started: float) -> Result:
        result = self._version(propagation, started)
        self.announce(result)
        return result

    def announce(self, result: Result) -> None:
        """Tell the subscribers of a version."""
        self._subscribers.tell(result)

    def rows(self, relation: str, /, **bindings: Value) -> list[Row]:
        """The rows of a base relation or view now, in order; bindings fix columns: `db.rows("closure", x="a")`."""
        if relation not in self.program.relations:
            raise UnknownRelation(relation, (n for n, r in self.program.relations.items() if not r.auxiliary))
        wanted = self._positions(relation, bindings)
        return sorted(copies(self.program, relation, wanted, self.engine), key=sort_key)

    def _positions(self, relation: str, bindings: Mapping[str, Value]) -> dict[int, Value]:
        """Bindings by column name as typed values by position."""
        columns = {column.name: (i, column.type) for i, column in enumerate(self.program.relations[relation].columns)}
        found = {}
        for name, value in bindings.items():
            if name not in columns:
                raise UnknownColumn(relation, name, columns)
            position, type_ = columns[name]
            try:
                found[position] = from_python(value, type_)
            except ValueError as error:
                raise IllTypedRow(f"relation '{relation}', column '{name}': {error}") from None
        return found

    def query(self, text: str) -> list[Row]:
        """The rows that match an atom, or that a query of SQL asks for, in order.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define('.decl edge(x: symbol, y: symbol)  edge("a", "b"). edge("b", "b").')
        >>> db.query('edge("a", y)'), db.query("edge(x, x)")
        ([('a', 'b')], [('b', 'b')])
        >>> db.query("SELECT count(*), max(x) FROM edge")
        [(2, 'b')]
        """
        if text.lstrip(" (\n\t").lower().startswith(("select ", "select\n", "with ", "with\n", "values ", "values(")):
            return asked_rows(self, text)
        atom = compile_query(text, self.program)
        constants = {i: term.value for i, term in enumerate(atom.terms) if isinstance(term, Constant)}
        positions: dict[str, list[int]] = {}
        for i, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                positions.setdefault(term.name, []).append(i)
        found = copies(self.program, atom.relation, constants, self.engine)
        same = [where for where in positions.values() if len(where) > 1]
        return sorted((row for row in found if all(len({row[i] for i in where}) == 1 for where in same)), key=sort_key)

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
        self._check_view(view)
        subscription = Subscription(view, callback, signs(only), self._positions(view, bindings), self._subscribers)
        before = (self._wanted(), self._questions())
        self._subscribers.subscriptions.append(subscription)
        if (self._wanted(), self._questions()) != before:
            try:
                self._install()
            except BaseException:
                subscription.cancel()
                raise
        return subscription

    def trace(self, callback: Trace) -> Callable[[], None]:
        """Watch strategy `filtration` at work: call back with each of its steps. Returns a function that ends it."""
        self.engine.traces.append(callback)
        return lambda: self.engine.traces.remove(callback)
