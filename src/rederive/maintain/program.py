"""What every strategy produces: a maintenance program, which is rules in sections and phases.

Engines run these rules and never rewrite them. `explain` prints the same rules, so what it prints is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from rederive.analysis.graph import Component, components
from rederive.delta import Sign
from rederive.ir.rules import Aggregate, Program
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule, State
from rederive.maintain.passes.magic_sets import BindingPattern, QueryRules, query_rules


class Strategy(Enum):
    """How the delta of a view is computed."""

    RECOMPUTE = "recompute"
    COUNTING = "counting"
    MATERIALIZED = "materialized"
    ON_DEMAND = "on_demand"
    FILTRATION = "filtration"
    DIFFERENCING = "differencing"

    @property
    def stored_state(self) -> str:
        """What is stored between transactions, in words."""
        return {
            Strategy.COUNTING: "the view and its derivation counts",
            Strategy.MATERIALIZED: "the view",
        }.get(self, "nothing")

    @property
    def is_stored(self) -> bool:
        """Whether the rows of the view are stored between transactions."""
        # The others derive both states on demand, or evaluate them for each transaction.
        return self in (Strategy.COUNTING, Strategy.MATERIALIZED)

    @property
    def is_derived_on_demand(self) -> bool:
        """Whether both states of the view are derived where a rule reads them."""
        return self in (Strategy.ON_DEMAND, Strategy.FILTRATION, Strategy.DIFFERENCING)


class Semantics(Enum):
    """How a phase runs its rules."""

    SET = "to a fixpoint, as sets"
    FILTERED = "to a fixpoint; each update is filtered when it is found"
    BAG = "once, counting derivations"
    GROUPS = "once for each affected group"
    FOLD = "once over all groups"
    NET = "the net effect, which replaces del and ins"
    DIFF = "the difference of the two states, which becomes del and ins"


class ProofOrder(Enum):
    """In which order rows are proved, so that no proof can rest on the row that it is for."""

    COMPONENTS = "strongly connected components of the steps, the last ones first"
    AGES = "the rows that were derived first come first"

    @property
    def is_exact(self) -> bool:
        """Whether a row without a proof has left for certain, so that nothing has to be put back."""
        # A row may also follow from younger ones: the rederivations find that.
        return self is ProofOrder.COMPONENTS


@dataclass(frozen=True, slots=True)
class Proof:
    """How an engine that looks rows up one by one proves a row before it deletes it: p^kept is not deleted and spreads nothing.

    `rules` read p^earlier: the rows of p^new that come before the row in question. Without proofs the deletions are a larger
    overestimate, and the rederivations put back more; the delta is the same.
    """

    order: ProofOrder
    rules: tuple[MaintenanceRule, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """Rules that run together, after the phases before them; `fold` is the aggregate that they use.

    `strict`: rules that run for their errors alone, where a functor fails for a binding of `rules`. Rules that count derivations
    join both states, so such a binding may hold in neither; if it holds in one, a strict rule fails too.
    `proof`: how the rows that a phase of deletions finds are proved before they are deleted.
    """

    name: str
    semantics: Semantics
    # A set: the order of rules within a phase has no meaning, strata decide.
    rules: tuple[MaintenanceRule, ...] = ()
    fold: Fold | None = None
    strict: tuple[MaintenanceRule, ...] = ()
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class PartitionProgram:
    """How a recursion is evaluated by partitions of a column: `seeds` derive `seed`, and `inside` runs within each partition.

    The other base relations of `inside` are read whole by every partition.
    """

    column: int
    seeds: tuple[MaintenanceRule, ...]
    seed: str
    inside: MaintenanceProgram

    @property
    def others(self) -> tuple[str, ...]:
        """The relations that every partition reads whole."""
        return tuple(name for name in self.inside.program.bases if name != self.seed)


@dataclass(frozen=True)
class Section:
    """How one component is maintained. After `phases`, p^del and p^ins hold the exact minus and plus of each p in it.

    `initial` fills views that are stored. `from_scratch` evaluates them over the new state, and over the old one where they are
    not stored, and compares: it runs instead of `phases` for a transaction where these cost too much. `is_adaptive`: it also
    runs at once where it is estimated to cost less, under strategy auto. `by_partition` does the same as
    `initial` where rows are in partitions.
    `skipped_paths`: how many rules path analysis left out.
    `has_one_derivation`: each row has one derivation at most, so a derived insertion was not there before, except where a
    deletion cancels it.
    """

    component: Component
    strategy: Strategy
    reason: str
    # Phases run in order, each to its end: a later phase reads what an earlier one completed.
    phases: tuple[Phase, ...]
    states: tuple[State, ...] = ()
    initial: tuple[Phase, ...] = ()
    from_scratch: tuple[Phase, ...] = ()
    is_adaptive: bool = False
    by_partition: PartitionProgram | None = None
    skipped_paths: int = 0
    has_one_derivation: bool = False

    @cached_property
    def is_stored(self) -> bool:
        """Whether the rows of the section's views are stored between transactions."""
        return self.strategy.is_stored

    @cached_property
    def aggregate(self) -> Aggregate | None:
        """The aggregate that defines the section's view, where one does."""
        return next((d for d in self.component.definitions if isinstance(d, Aggregate)), None)


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass made of the program, or of its sections."""

    name: str
    reason: str
    program: Program
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanExtension:
    """What a maintenance program adds to the one with this `token`: an engine that runs that one can keep all the rest.

    `replaced`: sections of views that were there, whose rows stay as they are, but which others read now in another way.
    `added`: sections that were not there. `relations`: the relations that were not there. `gone`: those that are no longer there,
    or that are there again as others of the same name.
    """

    token: object
    replaced: tuple[Section, ...]
    added: tuple[Section, ...]
    relations: tuple[str, ...]
    gone: frozenset[str] = frozenset()

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections that the program before lacks."""
        return (*self.replaced, *self.added)


# Without slots: what follows from the fields is computed once, at its first use, and stays in `__dict__`.
@dataclass(frozen=True)
class MaintenanceProgram:
    """The sections in the order they run, and the states of the base relations under them.

    `history` has the result of each pass. `signs`: of which relations a section passes on which signs. `extends`: the program
    that it was made from, where it was made by adding to one. Query rules are made for a binding pattern when an engine or
    `explain` first requests it, and are the same from then on.
    """

    program: Program
    sections: tuple[Section, ...]
    bases: tuple[State, ...]
    history: tuple[PassResult, ...] = field(default=(), compare=False, repr=False)
    signs: Mapping[str, frozenset[Sign]] = field(default_factory=dict, compare=False, repr=False)
    extends: PlanExtension | None = field(default=None, compare=False, repr=False)
    # Identifies this program to those that extend it; a reference to it would keep all its predecessors in memory.
    token: object = field(default_factory=object, init=False, compare=False, repr=False)
    # Caches of functions of the fields above; they do not count in comparisons.
    _queries: dict[BindingPattern, QueryRules] = field(default_factory=dict, init=False, compare=False, repr=False)
    _components: dict[str, Component] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def states(self) -> Mapping[str, State]:
        """The law of each new state that is read through one."""
        # A relation without a law has no overlay: its new state is derived or evaluated.
        return {state.relation: state for state in (*self.bases, *(s for section in self.sections for s in section.states))}

    @cached_property
    def section_of(self) -> Mapping[str, Section]:
        """The section that maintains each view that has one."""
        return {name: section for section in self.sections for name in section.component.relations}

    @cached_property
    def derived_views(self) -> tuple[str, ...]:
        """The views whose states are derived on demand: by their strategy, or because no section maintains them."""
        # Views under recompute are neither stored nor derived on demand: both states are evaluated as tables.
        maintained = {name: section.strategy for name, section in self.section_of.items()}
        return tuple(n for n in self.program.views if maintained.get(n, Strategy.ON_DEMAND).is_derived_on_demand)

    @cached_property
    def stored_views(self) -> tuple[str, ...]:
        """The views whose rows are stored between transactions, in the order of their sections."""
        return tuple(n for section in self.sections if section.is_stored for n in section.component.relations)

    @property
    def components(self) -> dict[str, Component]:
        """The component of every view. Those without a section have one as well: queries derive them."""
        if not self._components:
            self._components.update({name: c for c in components(self.program) for name in c.relations})
        return self._components

    def component(self, view: str) -> Component:
        """The component that a view belongs to."""
        return self.components[view]

    def query_rules(self, pattern: BindingPattern) -> QueryRules:
        """The rules that derive the rows of a view for the bindings of one pattern."""
        # One object for each pattern, so that what explain prints is what an engine compiled.
        if pattern not in self._queries:
            self._queries[pattern] = query_rules(pattern, self.component(pattern.relation), self.program.relations)
        return self._queries[pattern]

    def inherit(self, before: MaintenanceProgram, changed: Mapping[str, Component]) -> None:
        """Take over what a program that this one extends has found out, but for the components that changed."""
        extension = self.extends
        assert extension is not None
        gone = extension.gone
        self._components.update({**{name: found for name, found in before.components.items() if name not in gone}, **changed})
        lost = gone.union(changed)
        self._queries.update({pattern: rules for pattern, rules in before._queries.items() if pattern.relation not in lost})
        new, old = self.__dict__, before
        own = {name: section for section in extension.added for name in section.component.relations}
        # A section of a relation that was there before takes it out of what is derived on demand.
        if extension.replaced or not own.keys() <= set(extension.relations):
            return
        bases = self.bases[len(before.bases) - sum(state.relation in gone for state in before.bases) :]
        states = (*bases, *(state for section in extension.added for state in section.states))
        new["section_of"] = {name: section for name, section in old.section_of.items() if name not in gone} | own
        new["states"] = {n: state for n, state in old.states.items() if n not in gone} | {s.relation: s for s in states}
        views = [name for name in extension.relations if self.program.is_view(name)]
        derived, stored = ([n for n in names if n not in gone] for names in (old.derived_views, old.stored_views))
        new["derived_views"] = (*derived, *(n for n in views if n not in own or own[n].strategy.is_derived_on_demand))
        new["stored_views"] = (*stored, *(n for n in own if own[n].is_stored))
