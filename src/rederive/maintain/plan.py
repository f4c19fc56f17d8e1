"""From a program and its monitored views to the maintenance program that serves them.

All rewriting of rules happens here, as passes in a fixed order; `rederive explain --passes` prints the program after each.
Program passes rewrite the user's rules before a strategy is chosen for each component. Section passes rewrite the maintenance
rules that the strategies made. Query rules are made by `passes.magic_sets` when a binding pattern is first requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from rederive.analysis.derivations import derived_once
from rederive.analysis.graph import Component, components, edges, needed
from rederive.analysis.polarity import needed_signs
from rederive.delta import BOTH, Sign
from rederive.errors import StrategyError, UnknownOption
from rederive.ir.rules import TOTALS, Aggregate, Definition, Program, Rule, Variant
from rederive.ir.terms import Variable
from rederive.maintain.maintenance_rule import State
from rederive.maintain.passes.bound_windows import bound_windows
from rederive.maintain.passes.decompose_recursion import decompose_recursion
from rederive.maintain.passes.derive_whole_source import derive_whole_source
from rederive.maintain.passes.drop_copies import drop_copies
from rederive.maintain.passes.linearize import linearize
from rederive.maintain.passes.offer_from_scratch import offer_fallback, offer_from_scratch
from rederive.maintain.passes.push_constants import push_constants
from rederive.maintain.passes.start_from_new_pairs import start_from_new_pairs
from rederive.maintain.passes.unfold import unfold
from rederive.maintain.program import MaintenanceProgram, PassResult, Section, Strategy
from rederive.maintain.strategies.aggregates import by_group
from rederive.maintain.strategies.counting import counting
from rederive.maintain.strategies.differencing import differencing, differencing_once
from rederive.maintain.strategies.filtration import ALL, filtration
from rederive.maintain.strategies.materialized import materialized
from rederive.maintain.strategies.on_demand import on_demand
from rederive.maintain.strategies.recompute import recompute

AUTO = "auto"
NERVOUS = "nervous"
STRATEGIES = (AUTO, *(strategy.value for strategy in Strategy))
PRECISIONS = ("exact", NERVOUS)
# Reasons that `explain` prints for a strategy that the user did not choose.
NO_ROOM = "the view does not fit the memory it may take, so it is derived on demand"
NOTHING_BOUND = "no column is bound, so derivations are counted"
_VARIANTS = {Sign.PLUS: Variant.INS, Sign.MINUS: Variant.DEL}


@dataclass(frozen=True, slots=True)
class ProgramPass:
    """A pure rewriting of a program for its targets. `reason`: why it is where it is in the order. `strategies`: when it runs."""

    name: str
    rewrite: Callable[[Program, Collection[str]], Program]
    reason: str
    strategies: Collection[str] = STRATEGIES


@dataclass(frozen=True, slots=True)
class SectionPass:
    """A pure rewriting of one section of a program; the names are those of the views that are derived on demand."""

    name: str
    rewrite: Callable[[Section, Program, Collection[str]], Section]
    reason: str
    strategies: Collection[str] = STRATEGIES


PASSES = (
    ProgramPass(
        "linearize",
        lambda program, _: linearize(program),
        "first: constants pass through linear rules only",
    ),
    ProgramPass(
        "push_constants",
        push_constants,
        "before unfold: a view that is read through a constant is specialized, and its rules can then be unfolded",
    ),
    ProgramPass(
        "drop_copies",
        drop_copies,
        "after push_constants, whose versions are auxiliary views as well",
    ),
    ProgramPass(
        "bound_windows",
        bound_windows,
        "after drop_copies, which brings the test of a row number to the window",
    ),
    ProgramPass(
        "unfold",
        unfold,
        "last: it duplicates rules, which the other passes would then rewrite several times; a stored view is not unfolded",
        (Strategy.ON_DEMAND.value,),
    ),
)

SECTION_PASSES = (
    SectionPass(
        "start_from_new_pairs",
        lambda section, *_: start_from_new_pairs(section),
        "first: it changes insertion rules, which only the strategies make",
    ),
    SectionPass(
        "decompose_recursion",
        lambda section, program, _: decompose_recursion(section, program),
        "after the strategies: it reads the rules of the initial evaluation, which no other pass rewrites",
    ),
    SectionPass(
        "derive_whole_source",
        derive_whole_source,
        "after the strategies: they decide which views are not stored",
    ),
    SectionPass(
        "offer_from_scratch",
        lambda section, program, _: offer_from_scratch(section, program),
        "last: it reads the section's strategy, and adds rules that no other pass rewrites",
        (AUTO,),
    ),
    SectionPass(
        "offer_fallback",
        lambda section, program, _: offer_fallback(section, program),
        "last, as offer_from_scratch: for the strategies that do not choose",
        tuple(s.value for s in Strategy if s is not Strategy.RECOMPUTE),
    ),
)


def check_strategy(strategy: str, precision: str = "exact") -> None:
    """Refuse names that are not known, and a precision that the strategy does not have."""
    if strategy not in STRATEGIES:
        raise UnknownOption("strategy", strategy, STRATEGIES)
    if precision not in PRECISIONS:
        raise UnknownOption("precision", precision, PRECISIONS)
    # Only differencing has a filter that can be left out; all others are exact by construction.
    if precision == NERVOUS and strategy != Strategy.DIFFERENCING.value:
        raise StrategyError(
            f"strategy '{strategy}' is always exact", hint="precision 'nervous' goes with strategy 'differencing'"
        )


def plan(
    program: Program,
    targets: Iterable[str],
    strategy: str = AUTO,
    precision: str = "exact",
    only: Mapping[str, frozenset[Sign]] | None = None,
    not_stored: Collection[str] = (),
    conditions: Mapping[str, str] | None = None,
) -> MaintenanceProgram:
    """The sections for the targets and for all that they need, lowest first. A view that no target needs has none.

    `only`: the signs that are monitored of a target, where not both are. `not_stored`: views that strategy auto has no room to
    store. `conditions`: the targets that are conditions of active rules, with their precision.
    """
    check_strategy(strategy, precision)
    names = tuple(targets)
    program, history = _rewrite_program(program, names, strategy)
    # Path analysis (HD94, section 4): rules of a sign that nobody monitors are not made.
    signs = needed_signs(program, {name: (only or {}).get(name, BOTH) for name in names})
    chosen = _sections(program, names, strategy, precision, signs, not_stored, conditions or {})
    history += (PassResult("strategies", "each component gets the rules of its strategy", program, chosen),)
    sections, rewritten = _rewrite_sections(chosen, program, strategy)
    # r^new = (r - r^del) + r^ins for every base relation: transactions fill r^del and r^ins with the net effect.
    bases = tuple(State(name) for name in program.bases)
    return MaintenanceProgram(program, sections, bases, history + rewritten, signs)


def _rewrite_program(program: Program, targets: Collection[str], strategy: str) -> tuple[Program, tuple[PassResult, ...]]:
    results = [PassResult("source", "the program as it is defined", program)]
    # A pass that does not run for this strategy leaves no trace in the history.
    for one in PASSES:
        if strategy in one.strategies:
            program = one.rewrite(program, targets)
            results.append(PassResult(one.name, one.reason, program))
    return program, tuple(results)


def _rewrite_sections(
    sections: tuple[Section, ...], program: Program, strategy: str
) -> tuple[tuple[Section, ...], tuple[PassResult, ...]]:
    results = []
    # No pass changes the strategy of a section.
    derived = MaintenanceProgram(program, sections, ()).derived_views
    for one in SECTION_PASSES:
        if strategy in one.strategies:
            sections = tuple(one.rewrite(section, program, derived) for section in sections)
            results.append(PassResult(one.name, one.reason, program, sections))
    return sections, tuple(results)


def _sections(
    program: Program,
    targets: Collection[str],
    strategy: str,
    precision: str,
    signs: Mapping[str, frozenset[Sign]],
    not_stored: Collection[str],
    conditions: Mapping[str, str],
) -> tuple[Section, ...]:
    """The rules of a strategy for each component that the targets need."""
    # A view that no target needs has no section: it is derived when somebody queries it.
    read = needed(program, targets)
    found = [component for component in components(program) if read.intersection(component.relations)]
    differenced = _differenced(program, targets, conditions, found) if strategy == AUTO else {}
    passing = _passed_on(program, targets) if strategy in (AUTO, Strategy.MATERIALIZED.value) else frozenset[str]()

    def section(component: Component) -> Section:
        monitored = frozenset[Sign]().union(*(signs.get(name, BOTH) for name in component.relations))
        # In this order: what is only summed needs no state at all; what has no room cannot be stored; conditions are
        # differenced; everything else follows the strategy.
        if passing.issuperset(component.relations):
            return differencing_once(component)
        if strategy == AUTO and set(not_stored).intersection(component.relations):
            return replace(_section(component, program, Strategy.ON_DEMAND.value, precision, BOTH), reason=NO_ROOM)
        if component.relations in differenced:
            if _is_unbound(component):
                return replace(counting(component), reason=NOTHING_BOUND)
            way, whole = differenced[component.relations]
            return _section(component, program, Strategy.DIFFERENCING.value, way, BOTH if whole else monitored)
        return _section(component, program, strategy, precision, monitored)

    return tuple(map(section, found))


def _passed_on(program: Program, targets: Collection[str]) -> frozenset[str]:
    """Views that need not be stored: only totals read their deltas, and each of their rows has one derivation."""
    readers: dict[str, list[Definition]] = {}
    for definition in program.definitions:
        for edge in edges(definition):
            readers.setdefault(edge.source, []).append(definition)
    passing = (name for name, found in readers.items() if name not in targets and all(map(_is_total, found)))
    # Auxiliary relations only: a declared view may be queried, and is stored where its strategy says so.
    relations = frozenset(name for name in passing if program.relations[name].is_auxiliary)
    once = (component for component in components(program) if relations.issuperset(component.relations))
    return frozenset(name for component in once if derived_once(component, program) for name in component.relations)


def _is_total(definition: Definition) -> bool:
    """Whether a definition changes by the rows that change, and never reads the others."""
    return isinstance(definition, Aggregate) and definition.function in TOTALS and not definition.is_window


def _is_unbound(component: Component) -> bool:
    """Whether a rule's head binds nothing in its body: a test whether it still holds would search all of it."""
    rules = [d for d in component.definitions if isinstance(d, Rule)]
    # alarm() :- r(x), s(x).  To filter a deletion of it, the other state would be searched for any x.
    return any(rule.body and not any(isinstance(term, Variable) for term in rule.head.terms) for rule in rules)


def _differenced(
    program: Program, names: Collection[str], conditions: Mapping[str, str], found: Collection[Component]
) -> dict[tuple[str, ...], tuple[str, bool]]:
    """The components that only conditions of active rules need, where partial differencing is possible: their precision, and
    whether both signs are needed whatever is monitored.

    Recursion and aggregates are stored, as strategy auto stores them: what they read must be exact, and have both signs.
    """
    # A view that something else needs is maintained by the strategy of that, exactly and once.
    others = needed(program, [name for name in names if name not in conditions])
    strict = [name for name in names if conditions.get(name) != NERVOUS]
    stored = [component for component in found if not _can_difference(component) or _is_unbound(component)]
    # What a stored view reads must be exact and have both signs: an error in its delta would stay in the view.
    below = needed(program, [name for component in stored for name in component.relations])
    exact = needed(program, strict) | below
    return {
        component.relations: (
            "exact" if exact.intersection(component.relations) else NERVOUS,
            bool(below.intersection(component.relations)),
        )
        for component in found
        if _can_difference(component) and not others.intersection(component.relations)
    }


def _can_difference(component: Component) -> bool:
    """Whether partial differencing is possible: no recursion, no aggregate."""
    return not component.recursive and not any(isinstance(d, Aggregate) for d in component.definitions)


def _section(component: Component, program: Program, strategy: str, precision: str, signs: frozenset[Sign]) -> Section:
    chosen = Strategy.MATERIALIZED if strategy == AUTO else Strategy(strategy)
    aggregate = next((definition for definition in component.definitions if isinstance(definition, Aggregate)), None)
    variants = frozenset(_VARIANTS[sign] for sign in signs) or ALL
    match chosen:
        case Strategy.RECOMPUTE:
            return recompute(component, program)
        # Every strategy but recompute maintains an aggregate by affected group.
        case _ if aggregate is not None:
            return by_group(component, program, aggregate, chosen)
        case Strategy.COUNTING:
            return counting(component)
        case Strategy.MATERIALIZED:
            return materialized(component, program)
        case Strategy.ON_DEMAND:
            return on_demand(component, program)
        case Strategy.FILTRATION:
            return filtration(component, variants)
        case Strategy.DIFFERENCING:
            return differencing(component, variants, nervous=precision == NERVOUS)
        case _:
            assert_never(chosen)
