"""A program as the Spark engine runs it: its relations, its sections, and what it takes over from the program before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rederive.analysis.graph import Component
from rederive.analysis.relevance import Patterns, base_patterns
from rederive.delta import Pattern
from rederive.engines.protocol import Query
from rederive.engines.spark.plan.expressions import TypedValue, equal, ref, refs
from rederive.engines.spark.plan.nodes import Filter, Projection
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source
from rederive.engines.spark.run.aggregates.by_group import totals_name
from rederive.engines.spark.run.aggregates.first_rows import first_rows_name
from rederive.engines.spark.run.demand import derive_on_demand
from rederive.engines.spark.run.derivation_counts import counts_name
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import OnDemand, Relations
from rederive.engines.spark.run.sections import SectionFacts, Sections
from rederive.engines.spark.run.storage import Storage, check_keys, identity
from rederive.engines.spark.session.sessions import run_in_parallel
from rederive.ir.rules import Relation, Variant
from rederive.ir.terms import Row
from rederive.limits import Limits
from rederive.maintain.maintenance_rule import State
from rederive.maintain.program import MaintenanceProgram, Section


@dataclass(frozen=True, slots=True)
class BoundView:
    """A monitored query, and the rows of base relations that can matter to it."""

    query: Query
    patterns: Patterns


class Installed:
    """One program over stored relations. Its successor is built while it stays as it is."""

    def __init__(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        bound: Sequence[Query],
        storage: Storage,
        jobs: Jobs,
        limits: Limits,
    ) -> None:
        self.maintenance = maintenance
        self.program = maintenance.program
        self.monitored = tuple(monitored)
        self.bound = tuple(BoundView(q, base_patterns(self.program, q.view, q.bindings)) for q in bound)
        self.storage = storage
        self.jobs = jobs
        self.limits = limits
        self.stored = maintenance.stored_views
        # A transaction none of whose rows fits a pattern changes nothing that is stored or monitored.
        read = [base_patterns(self.program, name) for name in (*self.monitored, *self.stored)]
        self.patterns = {base: frozenset[Pattern]().union(*(p.get(base, ()) for p in read)) for base in self.program.bases}
        self.relations = self._relations(maintenance.derived_views, maintenance.states)
        # Readers see the committed state: no overlay, and nothing that a transaction derived.
        self.queries = self._relations(set(self.program.views).difference(self.stored), {})
        self.sections = Sections(self.relations, storage, jobs, limits)
        self.chains = independent_chains(maintenance.sections)

    def _relations(self, on_demand: Collection[str], states: Mapping[str, State]) -> Relations:
        def derive(component: Component, state: Variant) -> Mapping[str, OnDemand]:
            lower = partial(relations.state, variant=state)
            return derive_on_demand(component, self.maintenance, lower, self.jobs, self.limits)

        relations = Relations(self.program, states, on_demand, self.storage.source, derive)
        return relations

    # Building

    def successor(
        self, maintenance: MaintenanceProgram, monitored: Sequence[str], bound: Sequence[Query], affected: Collection[str]
    ) -> Installed:
        """Another program, which takes over the base relations and the views that are not affected."""
        strategies = {n: s.strategy for s in self.maintenance.sections for n in s.component.relations}
        sections = maintenance.sections
        # Auxiliary state belongs to a strategy, so a view is taken over under the same one only.
        same = {n for s in sections for n in s.component.relations if strategies.get(n) is s.strategy and s.is_stored}
        reused = same.difference(affected)
        shared = self.program.shared_bases(maintenance.program)
        names = [
            *shared,
            *(n for name in reused for n in (name, counts_name(name), totals_name(name), first_rows_name(name))),
        ]
        return Installed(maintenance, monitored, bound, self.storage.fork(names), self.jobs, self.limits)

    def build(self, initial: Mapping[str, Frame]) -> dict[str, Frame]:
        """Add the initial rows, then evaluate the views bottom up; returns the initial rows that were not there."""
        entered = {}
        for name in self.program.bases:
            relation = self.program.relations[name]
            if name not in self.storage:
                self.storage.write(name, Local(relation.types, frozenset()), _order_column(relation))
            if name in initial:
                entered[name] = self._load(relation, initial[name])
        # Bottom up: a section reads complete views.
        for section in self.maintenance.sections:
            if any(name not in self.storage for name in section.component.relations):
                self.sections.fill(section)
        self.sections.clear()
        return entered

    def _load(self, relation: Relation, rows: Frame) -> Frame:
        if isinstance(rows, Distributed) and rows.is_in_place:
            self.write_in_place(relation, rows)
            return rows
        stored = self.storage.source(relation.name)
        # Sets: rows that are there already do not enter again.
        plus = self.jobs.sets.minus(rows, [stored])
        if stored.empty:
            self.storage.write(relation.name, plus, _order_column(relation))
        else:
            self.storage.apply({relation.name: (Local(relation.types, frozenset()), plus)})
        check_keys(relation, self.storage.source(relation.name), plus, self.jobs)
        return plus

    def write_in_place(self, relation: Relation, rows: Distributed) -> None:
        """Take the rows of a Delta table as all of a relation. They were checked when they came into the table."""
        if relation.name in self.program.in_place:
            self.storage.write(relation.name, rows)
            return
        # A table of the lake, which only we change. Few rows are read now; many are read where they are, and are copied to
        # files of the engine when many of them have changed.
        found: Frame = rows
        if len(rows) <= self.jobs.tuning.arrow_rows:
            found = self.jobs.queries.materialize_data(rows.data, relation.types)
        self.storage.write(relation.name, found, _order_column(relation))

    # A transaction

    def run(self) -> None:
        """Propagate what the base relations' changes do to the views: those that have nothing in common at the same time."""
        # By base relations alone: a chain that reads none that changed has nothing to do, unless it is recomputed.
        affected = [chain for chain in self.chains if any(map(self.sections.is_affected, chain))]
        steps = [partial(self._run_chain, chain) for chain in affected]
        run_in_parallel(self.jobs.session, steps, self.jobs.tuning.parallel_views)

    def _run_chain(self, sections: Sequence[Section]) -> None:
        # In the order of components: the deltas of all that a section reads are exact when it runs.
        for section in sections:
            if self.sections.is_affected(section):
                self.sections.run(section)

    def apply(self) -> None:
        """Make the new state the old one."""
        deltas = {}
        for name in (*self.program.bases, *self.stored):
            minus, plus = self.relations.found(name, Variant.DEL), self.relations.found(name, Variant.INS)
            if minus or plus:
                deltas[name] = (minus.source, plus.source)
        # In one step with the auxiliary state, so that counts and totals never disagree with the rows.
        self.storage.apply({**deltas, **self.sections.auxiliary})

    def clear(self) -> None:
        """Drop all that a transaction or a query found."""
        self.sections.clear()
        self.queries.clear()

    # Queries

    def extent(self, name: str) -> Source | None:
        """All rows of a relation, derived for this call alone where they are not stored; None for an unknown relation."""
        if name not in self.program.relations:
            return None
        return self._complete(self.queries, name, Variant.OLD, (), Local((), frozenset({()})))

    def answer(self, query: Query) -> Source:
        """The rows that a query selects."""
        if query.view not in self.program.relations:
            return Local((), frozenset())
        return self._answer(self.queries, query, Variant.OLD)

    def answers_in_both_states(self, query: Query) -> tuple[Source, Source]:
        """The rows that a query selects before and after the transaction."""
        return self._answer(self.relations, query, Variant.OLD), self._answer(self.relations, query, Variant.NEW)

    def affected_queries(self, changed: Iterable[str]) -> list[Query]:
        """The monitored queries that a change of these base relations can matter to."""
        names = set(changed)
        return [view.query for view in self.bound if names.intersection(view.patterns)]

    def _answer(self, relations: Relations, query: Query, state: Variant) -> Source:
        types = self.program.relations[query.view].types
        bound = tuple(i for i, _ in query.bindings)
        row: Row = tuple(value for _, value in query.bindings)
        keys = Local(tuple(types[i] for i in bound), frozenset({row}))
        # Complete for the binding; rows of other bindings may be there as well, and are filtered out.
        source = self._complete(relations, query.view, state, bound, keys)
        if isinstance(source, Local):
            return Local(types, frozenset(r for r in source.rows if all(r[i] == v for i, v in query.bindings)))
        if not bound or source.empty:
            return source
        tests = tuple(equal(ref(i), TypedValue(value, types[i])) for i, value in query.bindings)
        return self.jobs.queries.materialize(Projection(Filter(self.jobs.queries.scan(source), tests), refs(types)), types)

    @staticmethod
    def _complete(relations: Relations, name: str, state: Variant, bound: tuple[int, ...], keys: Frame) -> Source:
        found = relations.state(name, state)
        if isinstance(found, Source):
            return found
        found.request(bound, keys)
        return found.source()

    def derived_sizes(self) -> dict[str, int]:
        """How many rows of each view were derived, in both states together."""
        return self.relations.derived_sizes()


def _order_column(relation: Relation) -> int | None:
    """The column that the files of a base relation are ordered by: the first of those that identify a row."""
    return identity(relation)[0] if relation.arity else None


def independent_chains(sections: Sequence[Section]) -> list[tuple[Section, ...]]:
    """The sections in groups that share no view, each in order. Base relations are read alone, and may be shared."""
    chains: list[tuple[set[str], list[Section]]] = []
    for section in sections:
        names = {*section.component.relations, *SectionFacts.of(section.component).reads}
        joined = [chain for chain in chains if not chain[0].isdisjoint(names)]
        views = set(section.component.relations).union(*(chain[0] for chain in joined))
        # A view that several chains read makes them one: its delta, and what is derived of it on demand, have one owner.
        merged = (views, [one for chain in joined for one in chain[1]] + [section])
        chains = [chain for chain in chains if chain not in joined] + [merged]
    place = {id(section): i for i, section in enumerate(sections)}
    return [tuple(sorted(found, key=lambda section: place[id(section)])) for _, found in chains]
