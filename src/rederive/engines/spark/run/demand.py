"""Views that are not kept: rows derived for the bindings that rules ask with, a set of bindings at a time.

A question adds its bindings to the magic relation of its pattern and runs the query rules of the component (`maintain.magic`) to
their fixpoint, from the new bindings alone. Answers are kept for the length of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rederive.analysis.graph import Component, inventing_rule
from rederive.engines.spark.plan.sources import Frame, Local, Source, listed
from rederive.engines.spark.run.aggregates.from_scratch import folded
from rederive.engines.spark.run.fixpoint import Fixpoint, Target, Variant
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Bound, Growing, Lazy
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Aggregate, Atom, Program, Relation
from rederive.limits import Limits
from rederive.maintain.passes.magic_sets import REQUEST_LABEL, BindingPattern, magic_relation
from rederive.maintain.program import MaintenanceProgram

Lower = Callable[[str], Source | Lazy]


@dataclass(frozen=True, slots=True)
class Demand:
    """One view, answered by its component."""

    answers: RuleAnswers
    name: str

    def ask(self, bound: Bound, keys: Frame) -> None:
        self.answers.ask(BindingPattern(self.name, bound), keys)

    def source(self) -> Source:
        return self.answers.tables[self.name].source

    @property
    def derived(self) -> int:
        return len(self.answers.tables[self.name])


class RuleAnswers:
    """Answers by rules: one fixpoint over magic relations and views, which goes on where it stopped when more is asked."""

    def __init__(self, component: Component, maintenance: MaintenanceProgram, lower: Lower, jobs: Jobs, limits: Limits) -> None:
        program = maintenance.program
        self.maintenance = maintenance
        self.program = program
        self.lower = lower
        self.relations = dict(program.relations)
        self.tables: dict[str, Growing] = {}
        self.planned: set[BindingPattern] = set()
        what = f"{', '.join(component.relations)}: derived on demand"
        self.fixpoint = Fixpoint(what, {}, self._find, jobs, self.relations, limits, inventing_rule(component))
        for name in component.relations:
            self._target(program.relations[name])

    def ask(self, pattern: BindingPattern, keys: Frame) -> None:
        if not keys.empty:
            self.fixpoint.run({self._magic_target(pattern).name: keys})

    def _target(self, relation: Relation) -> Target:
        name = relation.name
        if name not in self.fixpoint.targets:
            self.relations[name] = relation
            self.tables[name] = Growing(relation.types)
            self.fixpoint.targets[name] = Target(name, self.tables[name])
        return self.fixpoint.targets[name]

    def _magic_target(self, pattern: BindingPattern) -> Target:
        """The magic relation of a pattern; its rules, and those of the patterns they request, are added at the first request."""
        target = self._target(magic_relation(pattern, self.program.relations[pattern.relation]))
        if pattern not in self.planned:
            self.planned.add(pattern)
            found = self.maintenance.query_rules(pattern)
            for requested in found.requests:
                self._target(magic_relation(requested, self.program.relations[requested.relation]))
            for m in found.rules:
                for driver in m.drivers:
                    atom = m.rule.body[driver or 0]
                    assert isinstance(atom, Atom)
                    head = self.fixpoint.targets[m.rule.head.relation]
                    head.variants.append(Variant(m.rule, driver or 0, atom.relation, m.label == REQUEST_LABEL))
            for requested in found.requests:
                self._magic_target(requested)
        return target

    def _find(self, atom: Atom) -> Source | Lazy:
        return self.tables[atom.relation].source if atom.relation in self.tables else self.lower(atom.relation)


class GroupAnswers:
    """Answers of an aggregate: the groups asked for are folded from their source rows."""

    def __init__(self, aggregate: Aggregate, program: Program, lower: Lower, jobs: Jobs) -> None:
        self.aggregate = aggregate
        self.program = program
        self.lower = lower
        self.jobs = jobs
        self.view = program.relations[aggregate.relation]
        self.table = Growing(self.view.types)
        self.asked: dict[Bound, Growing] = {}

    def ask(self, bound: Bound, keys: Frame) -> None:
        """Ask the source for the bound group columns; a bound result only picks among the answers."""
        positions = [i for i in bound if i < len(self.aggregate.group)]
        columns = tuple(self.aggregate.group[i] for i in positions)
        types = tuple(self.view.columns[i].type for i in positions)
        groups = self._groups(keys, [bound.index(i) for i in positions], types)
        asked = self.asked.setdefault(columns, Growing(types))
        new = self.jobs.minus(groups, asked.known)
        if not new.empty:
            asked.add(new)
            self._fold(columns, new)

    def source(self) -> Source:
        return self.table.source

    @property
    def derived(self) -> int:
        return len(self.table)

    def _groups(self, keys: Frame, positions: list[int], types: tuple[object, ...]) -> Frame:
        if isinstance(keys, Local):
            return Local(types, frozenset(tuple(row[i] for i in positions) for row in keys.rows))  # type: ignore[arg-type]
        chosen = ", ".join(f"{column(p)} AS {column(i)}" for i, p in enumerate(positions)) or "TRUE AS c0"
        return self.jobs.materialise(f"SELECT DISTINCT {chosen} FROM {keys.text()}", types)  # type: ignore[arg-type]

    def _fold(self, columns: Bound, groups: Frame) -> None:
        source = self.lower(self.aggregate.source)
        if not isinstance(source, Source):
            order = sorted(range(len(columns)), key=lambda i: columns[i])
            bound = tuple(columns[i] for i in order)
            ordered = self._groups(groups, order, tuple(groups.types[i] for i in order))
            source.ask(bound, ordered)
            source = source.source()
        if source.empty:
            return
        rows = f"SELECT {listed(source.types)} FROM {source.text()} s"
        if columns:
            same = " AND ".join(f"s.{column(c)} <=> g.{column(i)}" for i, c in enumerate(columns))
            rows += f" LEFT SEMI JOIN {groups.text()} g ON {same}"
        found = folded(self.aggregate, self.program, rows, self.jobs)
        self.table.add(self.jobs.minus(found, self.table.known))


def answers(
    component: Component, maintenance: MaintenanceProgram, lower: Lower, jobs: Jobs, limits: Limits
) -> Mapping[str, Demand | GroupAnswers]:
    """What answers questions about the views of a component, whose rules read lower relations through `lower`."""
    for definition in component.definitions:
        if isinstance(definition, Aggregate):
            return {definition.relation: GroupAnswers(definition, maintenance.program, lower, jobs)}
    found = RuleAnswers(component, maintenance, lower, jobs, limits)
    return {name: Demand(found, name) for name in component.relations}
