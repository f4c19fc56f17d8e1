"""Views that are not stored: rows derived for requested bindings, a set of bindings at a time.

A request adds its bindings to the magic relation of its pattern and runs the query rules of the component to their fixpoint
(`maintain.passes.magic_sets`), from the new bindings alone. The derived rows stay for the length of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rederive.analysis.graph import Component, inventing_rule
from rederive.engines.spark.plan.expressions import renumbered
from rederive.engines.spark.plan.nodes import Distinct, Projection
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types
from rederive.engines.spark.run.aggregates.by_group import rows_of_groups
from rederive.engines.spark.run.aggregates.from_scratch import aggregate_rows
from rederive.engines.spark.run.fixpoint import DeltaRule, Fixpoint, Target
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Bound, FoundRows, OnDemand
from rederive.ir.rules import Aggregate, Atom, Program, Relation
from rederive.limits import Limits
from rederive.maintain.passes.magic_sets import REQUEST_LABEL, BindingPattern, magic_relation
from rederive.maintain.program import MaintenanceProgram

ReadLower = Callable[[str], Source | OnDemand]


@dataclass(frozen=True, slots=True)
class Demand:
    """One view of a component that is derived on demand."""

    component: DerivedComponent
    name: str

    def request(self, bound: Bound, keys: Frame) -> None:
        """Make the rows complete for these values of the bound columns."""
        self.component.request(BindingPattern(self.name, bound), keys)

    def source(self) -> Source:
        """The rows derived so far."""
        return self.component.tables[self.name].source

    @property
    def derived(self) -> int:
        """The number of rows derived so far."""
        return len(self.component.tables[self.name])


class DerivedComponent:
    """The views of a component: one fixpoint over magic relations and views, which continues when more is requested."""

    def __init__(
        self, component: Component, maintenance: MaintenanceProgram, lower: ReadLower, jobs: Jobs, limits: Limits
    ) -> None:
        program = maintenance.program
        self.maintenance = maintenance
        self.program = program
        self.lower = lower
        self.relations = dict(program.relations)
        self.tables: dict[str, FoundRows] = {}
        self.planned: set[BindingPattern] = set()
        what = f"{', '.join(component.relations)}: derived on demand"
        self.fixpoint = Fixpoint(what, {}, self._find, jobs, self.relations, limits, inventing_rule(component))
        for name in component.relations:
            self._target(program.relations[name])

    def request(self, pattern: BindingPattern, keys: Frame) -> None:
        """Derive the rows that have these values in the columns of a binding pattern."""
        # The keys are seeds of the magic relation; the fixpoint subtracts those that were requested before.
        if not keys.empty:
            self.fixpoint.run({self._magic_target(pattern).name: keys})

    def _target(self, relation: Relation) -> Target:
        name = relation.name
        if name not in self.fixpoint.targets:
            self.relations[name] = relation
            self.tables[name] = FoundRows(relation.types)
            self.fixpoint.targets[name] = Target(name, self.tables[name])
        return self.fixpoint.targets[name]

    def _magic_target(self, pattern: BindingPattern) -> Target:
        """The magic relation of a binding pattern; its rules, and those of the patterns that they request, are added once."""
        target = self._target(magic_relation(pattern, self.program.relations[pattern.relation]))
        if pattern not in self.planned:
            # Before its rules are added: a pattern may request itself.
            self.planned.add(pattern)
            found = self.maintenance.query_rules(pattern)
            for requested in found.requests:
                self._target(magic_relation(requested, self.program.relations[requested.relation]))
            for m in found.rules:
                for driver in m.drivers:
                    atom = m.rule.body[driver or 0]
                    assert isinstance(atom, Atom)
                    head = self.fixpoint.targets[m.rule.head.relation]
                    # Semi-naive: a rule starts from its magic relation, and from each relation of its own component.
                    head.rules.append(DeltaRule(m.rule, driver or 0, atom.relation, m.label == REQUEST_LABEL))
            for requested in found.requests:
                self._magic_target(requested)
        return target

    def _find(self, atom: Atom) -> Source | OnDemand:
        # Own views as derived so far, which the rounds complete; a lower view is completed for each request.
        return self.tables[atom.relation].source if atom.relation in self.tables else self.lower(atom.relation)


class DerivedAggregate:
    """An aggregate: requested groups are evaluated from their source rows."""

    def __init__(self, aggregate: Aggregate, program: Program, lower: ReadLower, jobs: Jobs) -> None:
        self.aggregate = aggregate
        self.program = program
        self.lower = lower
        self.jobs = jobs
        self.view = program.relations[aggregate.relation]
        self.table = FoundRows(self.view.types)
        self.requested: dict[Bound, FoundRows] = {}

    def request(self, bound: Bound, keys: Frame) -> None:
        """Evaluate the groups that have these values in their bound columns. A bound result does not narrow what is evaluated."""
        # Columns of the view behind the group hold results, or the rest of numbered rows.
        positions = [i for i in bound if i < len(self.aggregate.group)]
        columns = tuple(self.aggregate.group[i] for i in positions)
        types = tuple(self.view.columns[i].type for i in positions)
        groups = self._groups(keys, [bound.index(i) for i in positions], types)
        requested = self.requested.setdefault(columns, FoundRows(types))
        # A group is folded once: the state that it belongs to is fixed for the whole transaction.
        new = self.jobs.sets.minus(groups, requested.known)
        if not new.empty:
            requested.add(new)
            self._evaluate(columns, new)

    def source(self) -> Source:
        """The rows of all groups evaluated so far."""
        return self.table.source

    @property
    def derived(self) -> int:
        """The number of groups evaluated so far."""
        return len(self.table)

    def _groups(self, keys: Frame, positions: list[int], types: Types) -> Frame:
        """The distinct values at some positions."""
        if isinstance(keys, Local):
            return Local(types, frozenset(tuple(row[i] for i in positions) for row in keys.rows))
        plan = Distinct(Projection(self.jobs.queries.scan(keys), renumbered(positions)))
        return self.jobs.queries.materialize(plan, types)

    def _evaluate(self, columns: Bound, groups: Frame) -> None:
        source = self.lower(self.aggregate.source)
        if not isinstance(source, Source):
            # Binding patterns name columns in ascending order.
            order = sorted(range(len(columns)), key=lambda i: columns[i])
            bound = tuple(columns[i] for i in order)
            ordered = self._groups(groups, order, tuple(groups.types[i] for i in order))
            source.request(bound, ordered)
            source = source.source()
        if source.empty:
            return
        rows = self.jobs.queries.select(source)
        if columns:
            rows = rows_of_groups(self.jobs.queries.scan(source), self.jobs.queries.scan(groups), columns)
        found = aggregate_rows(self.aggregate, self.program, rows, self.jobs)
        # Different binding patterns may have requested the same group before.
        self.table.add(self.jobs.sets.minus(found, self.table.known))


def derive_on_demand(
    component: Component, maintenance: MaintenanceProgram, lower: ReadLower, jobs: Jobs, limits: Limits
) -> Mapping[str, Demand | DerivedAggregate]:
    """The views of a component, derived on demand; their rules read lower relations through `lower`."""
    for definition in component.definitions:
        if isinstance(definition, Aggregate):
            return {definition.relation: DerivedAggregate(definition, maintenance.program, lower, jobs)}
    found = DerivedComponent(component, maintenance, lower, jobs, limits)
    return {name: Demand(found, name) for name in component.relations}
