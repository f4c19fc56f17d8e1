"""A program as the Spark engine runs it: its relations, its sections, and what it takes over from the program before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rederive.analysis.graph import Component
from rederive.analysis.relevance import Pattern, Patterns, base_patterns
from rederive.engines.protocol import Query
from rederive.engines.spark.plan.sources import Frame, Local, Source, listed
from rederive.engines.spark.run import derivation_counts as counts
from rederive.engines.spark.run.aggregates import by_group as groups
from rederive.engines.spark.run.demand import answers
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import check_keys, identity
from rederive.engines.spark.run.relations import Lazy, Relations
from rederive.engines.spark.run.sections import Sections
from rederive.engines.spark.run.storage import Kept
from rederive.engines.spark.session.types import column, literal
from rederive.ir.rules import Relation, Variant
from rederive.ir.terms import Row
from rederive.limits import Limits
from rederive.maintain.maintenance_rule import State
from rederive.maintain.program import MaintenanceProgram


@dataclass(frozen=True, slots=True)
class BoundView:
    """A part of a view that somebody follows, and what of the base relations can matter to it."""

    question: Query
    patterns: Patterns


class Installed:
    """One program over what is kept. Built beside its predecessor."""

    def __init__(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        bound: Sequence[Query],
        kept: Kept,
        jobs: Jobs,
        limits: Limits,
    ) -> None:
        self.maintenance = maintenance
        self.program = maintenance.program
        self.monitored = tuple(monitored)
        self.bound = tuple(BoundView(q, base_patterns(self.program, q.view, q.bindings)) for q in bound)
        self.kept = kept
        self.jobs = jobs
        self.limits = limits
        self.stored = maintenance.stored_views
        read = [base_patterns(self.program, name) for name in (*self.monitored, *self.stored)]
        self.patterns = {base: frozenset[Pattern]().union(*(p.get(base, ()) for p in read)) for base in self.program.bases}
        self.relations = self._relations(maintenance.derived_views, maintenance.states)
        self.queries = self._relations(set(self.program.views).difference(self.stored), {})
        self.sections = Sections(self.relations, kept, jobs, limits)

    def _relations(self, on_demand: Collection[str], states: Mapping[str, State]) -> Relations:
        def derive(component: Component, state: Variant) -> Mapping[str, Lazy]:
            return answers(component, self.maintenance, lambda name: relations.state(name, state), self.jobs, self.limits)

        relations = Relations(self.program, states, on_demand, self.kept.source, derive)
        return relations

    # Building

    def successor(
        self, maintenance: MaintenanceProgram, monitored: Sequence[str], bound: Sequence[Query], affected: Collection[str]
    ) -> Installed:
        """Another program, which takes over the base relations and the views that are not affected."""
        strategies = {n: s.strategy for s in self.maintenance.sections for n in s.component.relations}
        sections = maintenance.sections
        same = {n for s in sections for n in s.component.relations if strategies.get(n) is s.strategy and s.strategy.is_stored}
        reused = same.difference(affected)
        names = [*maintenance.program.bases, *(n for name in reused for n in (name, counts.beside(name), groups.beside(name)))]
        return Installed(maintenance, monitored, bound, self.kept.fork(names), self.jobs, self.limits)

    def build(self, initial: Mapping[str, Frame]) -> dict[str, Frame]:
        """Take in the initial rows, then fill the views bottom up; the initial rows that were not there."""
        entered = {}
        for name in self.program.bases:
            relation = self.program.relations[name]
            if name not in self.kept:
                self.kept.write(name, Local(relation.types, frozenset()), _by(relation))
            if name in initial:
                entered[name] = self._load(relation, initial[name])
        for section in self.maintenance.sections:
            if any(name not in self.kept for name in section.component.relations):
                self.sections.fill(section)
        self.sections.forget()
        return entered

    def _load(self, relation: Relation, rows: Frame) -> Frame:
        there = self.kept.source(relation.name)
        came = self.jobs.minus(rows, [there])
        if there.empty:
            self.kept.write(relation.name, came, _by(relation))
        else:
            self.kept.apply({relation.name: (Local(relation.types, frozenset()), came)})
        check_keys(relation, self.kept.source(relation.name), came, self.jobs)
        return came

    # A transaction

    def run(self) -> None:
        """Propagate what the base relations' changes do to the views, lowest first."""
        for section in self.maintenance.sections:
            if self.sections.affected(section):
                self.sections.run(section)

    def settle(self) -> None:
        """The new state becomes the old one."""
        moved = {}
        for name in (*self.program.bases, *self.stored):
            gone, came = self.relations.found(name, Variant.DEL), self.relations.found(name, Variant.INS)
            if gone or came:
                moved[name] = (gone.source, came.source)
        self.kept.apply({**moved, **self.sections.beside})

    def forget(self) -> None:
        self.sections.forget()
        self.queries.forget()

    # Questions

    def extent(self, name: str) -> Source | None:
        """All rows of a relation, derived for this question alone where they are not kept; None where there is no such one."""
        if name not in self.program.relations:
            return None
        return self._complete(self.queries, name, Variant.OLD, (), Local((), frozenset({()})))

    def matching(self, question: Query) -> Source:
        """The rows that a question asks for."""
        if question.view not in self.program.relations:
            return Local((), frozenset())
        return self._matching(self.queries, question, Variant.OLD)

    def both_states(self, question: Query) -> tuple[Source, Source]:
        """The answer to a question before and after the transaction at hand."""
        return self._matching(self.relations, question, Variant.OLD), self._matching(self.relations, question, Variant.NEW)

    def questions(self, changed: Iterable[str]) -> list[Query]:
        """The parts that the change of these base relations can matter to."""
        names = set(changed)
        return [view.question for view in self.bound if names.intersection(view.patterns)]

    def _matching(self, relations: Relations, question: Query, state: Variant) -> Source:
        types = self.program.relations[question.view].types
        bound = tuple(i for i, _ in question.bindings)
        row: Row = tuple(value for _, value in question.bindings)
        keys = Local(tuple(types[i] for i in bound), frozenset({row}))
        source = self._complete(relations, question.view, state, bound, keys)
        if isinstance(source, Local):
            return Local(types, frozenset(r for r in source.rows if all(r[i] == v for i, v in question.bindings)))
        if not bound or source.empty:
            return source
        tests = (f"{column(i)} <=> {literal(value, types[i])}" for i, value in question.bindings)
        return self.jobs.materialise(f"SELECT {listed(types)} FROM {source.text()} WHERE {' AND '.join(tests)}", types)

    @staticmethod
    def _complete(relations: Relations, name: str, state: Variant, bound: tuple[int, ...], keys: Frame) -> Source:
        found = relations.state(name, state)
        if isinstance(found, Source):
            return found
        found.ask(bound, keys)
        return found.source()

    def derived_sizes(self) -> dict[str, int]:
        """How many rows of each view were derived, in both states together."""
        return self.relations.derived_sizes()


def _by(relation: Relation) -> int | None:
    """The column that rows of a base relation are ordered by: the first of those that identify one."""
    return identity(relation)[0] if relation.arity else None
