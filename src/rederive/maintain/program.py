"""What every strategy produces: rules in phases, component by component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Comparison, Literal, Negation, Program, Relation, Rule, Variant
from rederive.ir.terms import Variable


class Strategy(Enum):
    RECOMPUTE = "recompute"
    COUNTING = "counting"
    MATERIALIZED = "materialized"
    ON_DEMAND = "on_demand"
    FILTRATION = "filtration"
    DIFFERENCING = "differencing"

    @property
    def keeps(self) -> str:
        """What stays in memory between transactions."""
        return {
            Strategy.COUNTING: "the view and its derivation counts",
            Strategy.MATERIALIZED: "the view",
        }.get(self, "nothing")

    @property
    def stored(self) -> bool:
        return self in (Strategy.COUNTING, Strategy.MATERIALIZED)


DERIVED = (Strategy.ON_DEMAND, Strategy.FILTRATION, Strategy.DIFFERENCING)  # no state of the view is ever stored


@dataclass(frozen=True, slots=True)
class State:
    """`relation^new = (relation - relation^gone) + relation^came...`: an access path, printed as the rules N."""

    relation: str
    gone: Variant = Variant.DEL
    came: tuple[Variant, ...] = (Variant.INS,)


@dataclass(frozen=True, slots=True)
class MaintenanceRule:
    """A rule with its name in the papers and the body positions to start joining from; None leaves the order free.

    `origin` is the view's own rule that it was made from.
    """

    label: str
    rule: Rule
    drivers: tuple[int | None, ...]
    origin: Rule | None = None


class Semantics(Enum):
    """How a phase runs its rules."""

    SET = "to a fixpoint, as sets"
    FILTERED = "to a fixpoint, each update filtered as it is found"
    BAG = "once, counting derivations"
    GROUPS = "once for each affected group"
    NET = "the net effect"
    DIFF = "the difference of the two states"


@dataclass(frozen=True, slots=True)
class Phase:
    """Rules that run together, after the phases before them; `fold` is the aggregate that they use."""

    name: str
    semantics: Semantics
    rules: tuple[MaintenanceRule, ...] = ()
    fold: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """How one component is maintained. Afterwards p^del and p^ins hold the exact minus and plus of each p in it.

    `rewritten`: the same in magic form, where the engine is to derive what is not kept. `skipped_paths`: how many rules path
    analysis left out. `adaptive`: for each transaction the engine may evaluate the view anew instead, where that costs less.
    `once`: each row has one derivation at most, so a derived insertion was not there before, but for a deletion to be cancelled.
    """

    component: Component
    strategy: Strategy
    reason: str
    phases: tuple[Phase, ...]
    states: tuple[State, ...]
    rewritten: tuple[MaintenanceRule, ...] = ()
    skipped_paths: int = 0
    adaptive: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class MaintenanceProgram:
    """The sections in the order they run, and the states of the base relations under them."""

    program: Program
    sections: tuple[Section, ...]
    bases: tuple[State, ...]

    @property
    def states(self) -> Mapping[str, State]:
        return {state.relation: state for state in (*self.bases, *(s for section in self.sections for s in section.states))}


def canonical(relation: Relation, variant: Variant = Variant.OLD) -> Atom:
    """The relation's atom with a variable for each column, named after it."""
    return Atom(relation.name, tuple(Variable(column.name) for column in relation.columns), variant)


def state_rules(state: State, relation: Relation) -> tuple[MaintenanceRule, ...]:
    """(N1) p^new :- p, !p^del.  (N2), (N3) p^new :- p^red.  p^new :- p^ins."""
    new = canonical(relation, Variant.NEW)
    kept = Rule(new, (canonical(relation), Negation(canonical(relation, state.gone))))
    came = (Rule(new, (canonical(relation, variant),)) for variant in state.came)
    return tuple(MaintenanceRule(f"N{i}", rule, (0,)) for i, rule in enumerate((kept, *came), 1))


def in_state(literals: Iterable[Literal], state: Variant) -> tuple[Literal, ...]:
    """The same literals over one state of their relations; signs and tests stay."""
    return tuple(_in_state(literal, state) for literal in literals)


def _in_state(literal: Literal, state: Variant) -> Literal:
    match literal:
        case Atom():
            return literal.as_variant(state)
        case Negation(atom):
            return Negation(atom.as_variant(state))
        case Comparison():
            return literal


def positions_in(component: Component, body: Sequence[Literal]) -> tuple[int, ...]:
    """Where a body asks for relations of its own component: a recursive rule starts from each tuple that these gain."""
    return tuple(i for i, literal in enumerate(body) if isinstance(literal, Atom) and literal.relation in component.relations)
