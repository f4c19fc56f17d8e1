"""The database: programs, versions, transactions and subscriptions around one engine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rederive.engines.base import Engine, Operation
from rederive.errors import IllTypedRow, UnknownColumn, UnknownRelation
from rederive.ir.rules import Program
from rederive.ir.terms import Constant, Row, Value, Variable
from rederive.lang import compile_program, compile_query
from rederive.lang.values import from_python, sort_key
from rederive.maintain.choose import AUTO, plan
from rederive.maintain.program import MaintenanceProgram
from rederive.monitor.changes import Change, Result
from rederive.monitor.transaction import Transaction, base_relation, typed_row

Callback = Callable[[Change], None]


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """Calls back with every change of a view from now on, until it is cancelled."""

    view: str
    callback: Callback
    _database: Database

    def cancel(self) -> None:
        """Call back no more, from this moment on."""
        if self in self._database._subscriptions:
            self._database._subscriptions.remove(self)


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

    def __init__(self, engine: Engine, strategy: str = AUTO, precision: str = "exact") -> None:
        self.engine = engine
        self.strategy = strategy
        self.precision = precision
        self.program = Program({}, ())
        self.version = 0
        self._followed: tuple[str, ...] = ()
        self._subscriptions: list[Subscription] = []
        self._untold: deque[Result] = deque()

    # Definitions

    def define(self, text: str, name: str = "<text>") -> None:
        """Add relations and rules, in Datalog. Views are evaluated over the rows there; a refused text changes nothing."""
        program = compile_program(text, name, self.program)
        new = program.facts[len(self.program.facts) :]
        facts: dict[str, list[Row]] = {}
        for fact in new:
            facts.setdefault(fact.relation, []).append(fact.row)
        self._install(program, self._followed, facts)

    def _install(self, program: Program, followed: tuple[str, ...], initial: Mapping[str, Iterable[Row]] | None = None) -> None:
        monitored = tuple(dict.fromkeys((*program.monitored, *followed)))
        self.engine.install(plan(program, monitored, self.strategy, self.precision), monitored, initial)
        self.program, self._followed = program, followed

    @property
    def monitored(self) -> tuple[str, ...]:
        """The views whose changes are reported."""
        return tuple(dict.fromkeys((*self.program.monitored, *self._followed)))

    @property
    def maintenance(self) -> MaintenanceProgram:
        """The maintenance program that serves the monitored views."""
        return plan(self.program, self.monitored, self.strategy, self.precision)

    # Data

    def load(self, relation: str, rows: Iterable[Sequence[Value] | Mapping[str, Value]]) -> None:
        """Add initial rows to a base relation without a version of their own and without changes."""
        declared = base_relation(self.program, relation)
        self.load_typed({relation: [typed_row(declared, row) for row in rows]})

    def load_typed(self, initial: Mapping[str, Iterable[Row]]) -> int:
        """`load` for several relations at once, of rows that readers have checked already. Returns the tuples touched."""
        return self.engine.load(initial)

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
        net = self.engine.net(operations)
        p = self.engine.propagate(net)
        self.engine.commit()
        self.version += 1
        changes = {view: Change(self.version, view, delta) for view, delta in p.views.items()}
        seconds = time.perf_counter() - started
        return Result(self.version, changes, self.engine.name, self.strategy, seconds, p.touched, p.derived, p.skipped)

    def rows(self, relation: str, /, **bindings: Value) -> list[Row]:
        """The rows of a base relation or view now, in order; bindings fix columns: `db.rows("closure", x="a")`."""
        if relation not in self.program.relations:
            raise UnknownRelation(relation, (n for n, r in self.program.relations.items() if not r.auxiliary))
        columns = {column.name: (i, column.type) for i, column in enumerate(self.program.relations[relation].columns)}
        wanted = {}
        for name, value in bindings.items():
            if name not in columns:
                raise UnknownColumn(relation, name, columns)
            position, type_ = columns[name]
            try:
                wanted[position] = from_python(value, type_)
            except ValueError as error:
                raise IllTypedRow(f"relation '{relation}', column '{name}': {error}") from None
        return sorted(self.engine.rows(relation, wanted), key=sort_key)

    def query(self, text: str) -> list[Row]:
        """The rows that match an atom, in order.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define('.decl edge(x: symbol, y: symbol)  edge("a", "b"). edge("b", "b").')
        >>> db.query('edge("a", y)'), db.query("edge(x, x)")
        ([('a', 'b')], [('b', 'b')])
        """
        atom = compile_query(text, self.program)
        constants = {i: term.value for i, term in enumerate(atom.terms) if isinstance(term, Constant)}
        positions: dict[str, list[int]] = {}
        for i, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                positions.setdefault(term.name, []).append(i)
        found = self.engine.rows(atom.relation, constants)
        same = [where for where in positions.values() if len(where) > 1]
        return sorted((row for row in found if all(len({row[i] for i in where}) == 1 for where in same)), key=sort_key)

    # Subscriptions

    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call back with each `Change` of a view, after the transaction that made it is committed.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        >>> subscription = db.subscribe("big", lambda change: print(change.version, change.plus))
        >>> with db.transaction() as tx:
        ...     tx.insert("n", [(7,), (11,)])
        1 [(11,)]
        """
        if view not in self.program.views:
            raise UnknownRelation(view, (name for name in self.program.views if "." not in name))
        if view not in self._followed:
            followed = (*self._followed, view)
            if view not in self.monitored:
                self._install(self.program, followed)
            self._followed = followed
        subscription = Subscription(view, callback, self)
        self._subscriptions.append(subscription)
        return subscription

    def announce(self, result: Result) -> None:
        """Tell the subscribers, version by version: a transaction inside a callback is told after the one that caused it.

        Every subscriber is told, also when another one's callback fails; the first failure is raised at the end.
        """
        self._untold.append(result)
        if len(self._untold) > 1:
            return
        failures: list[Exception] = []
        while self._untold:
            failures += self._tell(self._untold[0])
            self._untold.popleft()
        if failures:
            raise failures[0]

    def _tell(self, result: Result) -> Iterator[Exception]:
        for subscription in tuple(self._subscriptions):
            change = result.changes.get(subscription.view)
            if change is not None and subscription in self._subscriptions:
                try:
                    subscription.callback(change)
                except Exception as error:  # the subscriber's own code may raise anything
                    yield error
