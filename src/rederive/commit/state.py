"""The state of a database: its engine, definitions, rules and version, and what can be read from them.

The commit pipeline alone changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from rederive.analysis.graph import needed
from rederive.bags import read_rows
from rederive.boundary import caller_function
from rederive.catalog import Catalog, check_view
from rederive.commit.announce import Callback, Subscription, Subscriptions
from rederive.commit.monitoring import Monitoring, Settings
from rederive.commit.parked import ParkedDefinitions, base_program
from rederive.delta import BOTH, Sign, sort_rows
from rederive.engines.protocol import DoesNotFit, Engine, Propagation, Query, Trace
from rederive.errors import AbsentRow, Closed, Mismatch, NoStore, PresentRow, UnchangedRow, UnknownRelation
from rederive.ir.rules import Program, Relation, Role
from rederive.ir.terms import Row, Value
from rederive.lang import compile_query
from rederive.limits import Limits
from rederive.maintain.explain import explain
from rederive.maintain.extend_plan import Planned, PlanRequest
from rederive.maintain.plan import plan
from rederive.maintain.program import MaintenanceProgram
from rederive.queries import matching, positions
from rederive.row_list import RowList
from rederive.rows import typed_row
from rederive.rules.rule_set import CompiledRule, RuleSet
from rederive.store.position import Position, new_epoch
from rederive.store.store import Store
from rederive.store.time_travel import rows_at
from rederive.why.changes import ChangeExplainer, RowChange
from rederive.why.explainer import Explainer
from rederive.why.explanation import Absence, Explanation, show_fact
from rederive.why.instances import GroundAtom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rederive.ingest.ingestion import Ingestion
    from rederive.warehouse.bridge import WarehouseBridge


class _ClosedEngine:
    """Refuses everything: a database need not check at every call whether it is open."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed


class DatabaseState:
    """What a database is at its current version.

    `catalog`: the definitions, inside a setup also those that are not evaluated yet. `rules`: the active rules over `program`,
    which is what is evaluated, with the conditions of the rules. `parked`: set while that program waits for other rows.
    `can_park`: whether a definition that does not end may wait; where it would stop the views of others, it is refused.
    `reports_outputs`: whether the changes of the program's monitored views are computed; a database that only answers queries
    needs none. `not_stored`: views that did not fit in memory. `unsettled`: why the lake did not follow. `streams`:
    those that this process started, by the names of their cursors. `sources`: the commit of
    each attached table that the current version follows, by base relation.
    """

    def __init__(
        self, engine: Engine, settings: Settings, catalog: Catalog, store: Store | None, spark: SparkSession | None
    ) -> None:
        self.engine = engine
        self.is_open = True
        self.settings = settings
        self.store = store
        self.spark = spark
        self.epoch = store.journal.epoch if store is not None else new_epoch()
        self.version = store.journal.version if store is not None else 0
        self.sources = store.journal.sources() if store is not None else {}
        self.catalog = catalog
        self.rules = RuleSet(catalog.program)
        self.program: Program = self.rules.program
        self.monitoring = Monitoring()
        self.parked: ParkedDefinitions | None = None
        self.subscriptions = Subscriptions()
        self.bridge: WarehouseBridge | None = None
        self.limits: Limits | None = None
        self.can_park = True
        self.reports_outputs = True
        self.unsettled: Exception | None = None
        self.streams: dict[str, Ingestion] = {}
        # What every transaction looks up, computed once for each program.
        self.tables: Mapping[str, Relation] = {}
        self.bags: frozenset[str] = frozenset()
        self.stored_views: Mapping[str, Callable[[], Collection[Row]]] = {}
        self.not_stored: frozenset[str] = frozenset()
        self._planned: tuple[RuleSet, object, Planned] | None = None
        self._standing: Planned | None = None  # the plan that the engine runs

    @property
    def folder(self) -> Path | None:
        """The folder of the store, if there is one."""
        return self.store.journal.folder if self.store is not None else None

    @property
    def lake(self) -> str | None:
        """The address of the lake, if there is one."""
        return self.store.journal.lake if self.store is not None and self.store.lake is not None else None

    @property
    def position(self) -> str:
        """The current version of this history, as text."""
        return str(Position(self.version, self.epoch))

    def cursor(self, name: str) -> int | None:
        """The version up to which a named subscriber has acknowledged everything."""
        return self.durable("a named cursor").journal.cursor(name)

    def acknowledge(self, name: str, version: int) -> None:
        """Record that a named subscriber has everything up to this version."""
        self.durable("a named cursor").acknowledge(name, version)

    # Checks

    def durable(self, what: str) -> Store:
        """The store; refused where there is none."""
        if self.store is None:
            raise NoStore(what)
        return self.store

    def check_evaluated(self, view: str | None = None) -> None:
        """Refuse what needs views while the definitions are parked: base relations have rows, views have none."""
        if self.parked is not None and (view is None or (self.program.is_view(view) and not self.program.numbered_copies(view))):
            raise self.parked.error

    def close(self) -> None:
        """Let go of the engine and the store."""
        # The engine goes first: whatever closing the store raises, nobody reads or commits any more.
        self.engine, self.is_open = cast(Engine, _ClosedEngine()), False
        if self.store is not None:
            self.store.close()

    def budget(self) -> AbstractContextManager[None]:
        """Stop what runs inside where it exceeds the limits of the database."""
        return self.engine.budget(self.limits)

    # Programs

    def monitor(self, rules: RuleSet) -> Monitoring:
        """What is to be monitored under these rules."""
        return Monitoring.of(rules, self.settings, self.subscriptions.active, self.reports_outputs)

    def install(
        self, rules: RuleSet, rows: Mapping[str, Collection[Row]] | None = None, *, announce: bool = False
    ) -> tuple[Propagation, Monitoring]:
        """Have the engine prepare a program with initial rows. Views that do not fit in memory are derived on demand."""
        monitoring = self.monitor(rules)
        monitored = tuple(monitoring.relations)
        while True:
            # Ends, because every attempt stores fewer views than the one before.
            maintenance = self._plan(rules, monitoring.relations)
            try:
                found = self.engine.install(maintenance, monitored, rows, bound=monitoring.queries, announce=announce)
                return found, monitoring
            except DoesNotFit as error:
                self.not_stored = self.not_stored.union(error.views)

    def plan_without(self, rules: RuleSet, not_stored: Iterable[str]) -> tuple[MaintenanceProgram, Monitoring]:
        """The plan under which a checkpoint was made: these views did not fit in memory."""
        self.not_stored, monitoring = frozenset(not_stored), self.monitor(rules)
        return self._plan(rules, monitoring.relations), monitoring

    @property
    def installed_plan(self) -> MaintenanceProgram:
        """The maintenance program that the engine runs."""
        return self._plan(self.rules, self.monitoring.relations)

    def install_bases(self, rules: RuleSet, rows: Mapping[str, Collection[Row]]) -> tuple[Propagation, Monitoring]:
        """Have the engine prepare the base relations alone, while the definitions are parked."""
        bases, monitoring = base_program(rules.program), self.monitor(rules)
        monitored = tuple(name for name in monitoring.relations if name in bases.relations)
        found = self.engine.install(plan(bases, monitored, self.settings.strategy), monitored, rows, announce=True)
        return replace(found, views={name: delta for name, delta in found.views.items() if name in monitored}), monitoring

    def switch(self, rules: RuleSet, monitoring: Monitoring, parked: ParkedDefinitions | None) -> None:
        """The engine has committed a program: it is the current one."""
        self._standing = self._planned[2] if self._planned is not None and self._planned[0] is rules else None
        if rules is not self.rules:
            self.rules, self.program = rules, rules.program
            self.tables = {name: rules.program.relations[name] for name in rules.program.tables}
            self.bags = frozenset(name for name, table in self.tables.items() if table.role is Role.BAG)
        self.monitoring, self.parked = monitoring, parked
        self.stored_views = self._find_stored_views()

    def _plan(self, rules: RuleSet, monitored: Mapping[str, frozenset[Sign]]) -> MaintenanceProgram:
        # The last plan: what the lake and `explain` ask for is the program that was installed.
        asked = (dict(monitored), self.not_stored)
        if self._planned is None or self._planned[0] is not rules or self._planned[1] != asked:
            settings = self.settings
            request = PlanRequest(
                rules.program, asked[0], settings.strategy, settings.precision, self.not_stored, rules.precisions
            )
            extended = self._standing.extend(request) if self._standing is not None else None
            self._planned = (rules, asked, extended or Planned.whole(request))
        return self._planned[2].maintenance

    @property
    def monitored(self) -> tuple[str, ...]:
        """The views whose changes are reported."""
        return tuple(self.monitor(self.rules).signs)

    @property
    def maintenance(self) -> MaintenanceProgram:
        """The maintenance program that serves everything that is monitored."""
        return self._plan(self.rules, self.monitor(self.rules).relations)

    def _find_stored_views(self) -> dict[str, Callable[[], Collection[Row]]]:
        """The monitored views that the engine stores, and how to have all rows; of bags, each with its multiplicity."""
        # A record of one sign does not lead from one extent to the next.
        if self.settings.signs != BOTH or self.parked is not None:
            return {}
        # By the program that the engine runs, which a cancelled subscription does not change.
        stored = self.installed_plan.stored_views
        sources = ((name, self.program.counting_relation(name)) for name in self.program.monitored)
        return {name: partial(self.engine.extent, source) for name, source in sources if source in stored}

    def subscribe(self, query: Query, callback: Callback | None, signs: frozenset[Sign]) -> Subscription:
        """Add a subscription to a part of a view; the program is installed again where it needs more than before."""
        if not self.is_open:
            raise Closed
        check_view(self.program, query.view)
        self.check_evaluated(query.view)
        before = self.monitor(self.rules)
        # Added before the program is planned, because the plan covers what active subscriptions need.
        subscription = self.subscriptions.add(query, callback, signs)
        if self.monitor(self.rules) != before:
            try:
                with self.budget():
                    _, monitoring = self.install(self.rules)
                    self.engine.commit()
            except BaseException:
                subscription.cancel()
                raise
            self.switch(self.rules, monitoring, self.parked)
        return subscription

    def trace(self, callback: Trace) -> Callable[[], None]:
        """Call back with each step of strategy `filtration`. Returns a function that ends it."""
        traced = caller_function(callback)
        self.engine.traces.append(traced)
        return lambda: self.engine.traces.remove(traced)

    # Reading

    def relation(self, name: str) -> Relation:
        """The declaration of a relation."""
        if name not in self.program.relations:
            raise UnknownRelation(name, (n for n, r in self.program.relations.items() if not r.is_auxiliary))
        return self.program.relations[name]

    def rows(self, name: str, bindings: Mapping[str, Value] | None = None) -> RowList:
        """The rows of a relation, in order."""
        with self.budget():
            relation = self.relation(name)
            bound = positions(relation, bindings or {})
            self.check_evaluated(name)
            return RowList(sort_rows(read_rows(self.program, name, bound, self.engine)), relation.columns)

    def rows_as_of(self, view: str, version: int, bindings: Mapping[str, Value]) -> RowList:
        """The rows of a view at an earlier version, in order."""
        store, relation = self.durable("reading an earlier version"), self.relation(view)
        if self.settings.signs != BOTH:
            raise Mismatch(
                f"the changes of '{view}' are recorded with one sign, and its earlier rows do not follow from them",
                hint="use a store that was made without only=",
            )
        now = partial(self.rows, view, bindings)
        return RowList(sort_rows(rows_at(store, relation, version, positions(relation, bindings), now)), relation.columns)

    def match(self, atom: str) -> RowList:
        """The rows that match an atom, in order."""
        with self.budget():
            name = compile_query(atom, self.program).relation
            self.check_evaluated(name)
            return RowList(sort_rows(matching(self.engine, self.program, atom)), self.program.relations[name].columns)

    def why(self, name: str, row: Sequence[Value], depth: int, width: int) -> Explanation:
        """How a row is derived."""
        fact, explainer = self._fact_to_explain(name, row)
        with self.budget():
            found = explainer.why(fact, depth, width)
        if found is None:
            raise AbsentRow(show_fact(fact.relation, fact.row))
        return found

    def why_not(self, name: str, row: Sequence[Value]) -> Absence:
        """Why a row is not there."""
        fact, explainer = self._fact_to_explain(name, row)
        with self.budget():
            found = explainer.why_not(fact)
        if found is None:
            raise PresentRow(show_fact(fact.relation, fact.row))
        return found

    def why_change(self, name: str, row: Sequence[Value], version: int, depth: int, width: int) -> RowChange:
        """Why a row entered or left at a version."""
        from rederive.commit.past import PastReader  # which imports this module

        fact = GroundAtom(name, typed_row(self.relation(name), row))
        with PastReader(self) as past:
            past.check(version)
            states = [Explainer(self.program, past.read(at), self.catalog.queries) for at in (version - 1, version)]
            found = ChangeExplainer(*states).why(fact, depth, width)
        if found is None:
            raise UnchangedRow(show_fact(fact.relation, fact.row), version)
        return found

    def _fact_to_explain(self, name: str, row: Sequence[Value]) -> tuple[GroundAtom, Explainer]:
        self.check_evaluated(name)
        fact = GroundAtom(name, typed_row(self.relation(name), row))
        return fact, Explainer(self.program, self.engine.rows, self.catalog.queries)

    def explain(self, view: str | None, form: str, *, passes: bool = False) -> str:
        """Explain how a view, or everything that is monitored, is maintained."""
        if passes:
            self._planned = self._standing = None  # the plan of the whole program has the result of each pass
        if view is None:
            memory = self.engine.memory_use() if self._has_rows() else ""
            return self._explain(self._plan(self.rules, self.monitor(self.rules).relations), form, memory, passes=passes)
        check_view(self.program, view)
        planned = self._plan(self.rules, {self.program.counting_relation(view): self.settings.signs})
        return self._explain(planned, form, passes=passes)

    def explain_rule(self, rule: CompiledRule, form: str) -> str:
        """Explain how the condition of an active rule is monitored."""
        monitored = {**self.monitor(self.rules).relations, rule.condition.name: rule.monitored_signs}
        maintenance = self._plan(self.rules, monitored)
        read = needed(maintenance.program, [rule.condition.name])
        sections = tuple(s for s in maintenance.sections if read.intersection(s.component.relations))
        return self._explain(replace(maintenance, sections=sections), form)

    def _explain(self, maintenance: MaintenanceProgram, form: str, memory: str = "", *, passes: bool = False) -> str:
        return explain(maintenance, form, self.engine.estimates() if self._has_rows() else {}, memory, passes=passes)

    def _has_rows(self) -> bool:
        return any(map(self.engine.size, self.program.bases))
