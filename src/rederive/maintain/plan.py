"""From a program and the views somebody asked for to the maintenance program that serves them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from rederive.analysis.derivations import derived_once
from rederive.analysis.graph import Component, components, edges, needed
from rederive.analysis.polarity import wanted_signs
from rederive.delta import BOTH, Sign
from rederive.errors import StrategyError, UnknownOption
from rederive.ir.rules import Aggregate, Definition, Function, Program, Rule, Variant
from rederive.ir.terms import Variable
from rederive.maintain.passes.linearize import linearised
from rederive.maintain.passes.push_constants import push_constants
from rederive.maintain.passes.unfold import unfolded
from rederive.maintain.program import MaintenanceProgram, Section, State, Strategy
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
NO_ROOM = "the view does not fit the memory it may take, so it is derived on demand"
NOTHING_BOUND = "whether any row is left is told by counting them"
_VARIANTS = {Sign.PLUS: Variant.INS, Sign.MINUS: Variant.DEL}


def check_strategy(strategy: str, precision: str = "exact") -> None:
    """Refuse names that are not known, and a precision that the strategy does not have."""
    if strategy not in STRATEGIES:
        raise UnknownOption("strategy", strategy, STRATEGIES)
    if precision not in PRECISIONS:
        raise UnknownOption("precision", precision, PRECISIONS)
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
    unkept: Collection[str] = (),
    conditions: Mapping[str, str] | None = None,
) -> MaintenanceProgram:
    """The sections for the targets and for all that they need, lowest first. A view that nobody needs has none.

    `only`: the signs wanted of a target, where not both are. `unkept`: views that strategy auto has no room to keep.
    `conditions`: the targets that are conditions of active rules, with their precision.
    """
    check_strategy(strategy, precision)
    names = tuple(targets)
    program = push_constants(linearised(program), names)  # constants pass through linear rules only
    if strategy == Strategy.ON_DEMAND.value:
        program = unfolded(program, names)
    wanted = needed(program, names)
    signs = wanted_signs(program, {name: (only or {}).get(name, BOTH) for name in names})
    found = [component for component in components(program) if wanted.intersection(component.relations)]
    differenced = _differenced(program, names, conditions or {}, found) if strategy == AUTO else {}
    passing = _passed_on(program, names) if strategy in (AUTO, Strategy.MATERIALIZED.value) else frozenset[str]()

    def section(component: Component) -> Section:
        asked = frozenset[Sign]().union(*(signs.get(name, BOTH) for name in component.relations))
        if passing.issuperset(component.relations):
            return differencing_once(component)
        if strategy == AUTO and set(unkept).intersection(component.relations):
            return replace(_section(component, program, Strategy.ON_DEMAND.value, precision, BOTH), reason=NO_ROOM)
        if component.relations in differenced:
            if _unbound(component):
                return replace(counting(component), reason=NOTHING_BOUND)
            way, whole = differenced[component.relations]
            return _section(component, program, Strategy.DIFFERENCING.value, way, BOTH if whole else asked)
        return _section(component, program, strategy, precision, asked)

    return MaintenanceProgram(program, tuple(map(section, found)), tuple(State(name) for name in program.bases))


def _passed_on(program: Program, targets: Collection[str]) -> frozenset[str]:
    """Views that need not be kept: they only pass their changes on to totals, and each of their rows has one derivation."""
    readers: dict[str, list[Definition]] = {}
    for definition in program.definitions:
        for edge in edges(definition):
            readers.setdefault(edge.source, []).append(definition)
    passing = (name for name, found in readers.items() if name not in targets and all(map(_totals, found)))
    relations = frozenset(name for name in passing if program.relations[name].is_auxiliary)
    once = (component for component in components(program) if relations.issuperset(component.relations))
    return frozenset(name for component in once if derived_once(component, program) for name in component.relations)


def _totals(definition: Definition) -> bool:
    """Whether a definition moves with the rows that change, and never looks at the others."""
    return isinstance(definition, Aggregate) and definition.function in (Function.COUNT, Function.SUM, Function.MEAN)


def _unbound(component: Component) -> bool:
    """Whether a rule's head binds nothing in its body: to ask if it still holds would be to search all of it."""
    rules = [d for d in component.definitions if isinstance(d, Rule)]
    return any(rule.body and not any(isinstance(term, Variable) for term in rule.head.terms) for rule in rules)


def _differenced(
    program: Program, names: Collection[str], conditions: Mapping[str, str], found: Collection[Component]
) -> dict[tuple[str, ...], tuple[str, bool]]:
    """The components that only conditions of active rules need, where partial differencing fits: their precision, and whether
    both signs are needed whatever is asked for.

    Recursion and aggregates are kept, as strategy auto keeps them: what they read must be exact, and have both signs.
    """
    others = needed(program, [name for name in names if name not in conditions])
    strict = [name for name in names if conditions.get(name) != NERVOUS]
    kept = [component for component in found if not _fits(component) or _unbound(component)]
    below = needed(program, [name for component in kept for name in component.relations])
    exact = needed(program, strict) | below
    return {
        component.relations: (
            "exact" if exact.intersection(component.relations) else NERVOUS,
            bool(below.intersection(component.relations)),
        )
        for component in found
        if _fits(component) and not others.intersection(component.relations)
    }


def _fits(component: Component) -> bool:
    """Whether partial differencing is for it: no recursion, no aggregate."""
    return not component.recursive and not any(isinstance(d, Aggregate) for d in component.definitions)


def _section(component: Component, program: Program, strategy: str, precision: str, signs: frozenset[Sign]) -> Section:
    chosen = Strategy.MATERIALIZED if strategy == AUTO else Strategy(strategy)
    aggregate = next((definition for definition in component.definitions if isinstance(definition, Aggregate)), None)
    wanted = frozenset(_VARIANTS[sign] for sign in signs) or ALL
    match chosen:
        case Strategy.RECOMPUTE:
            return recompute(component, program)
        case _ if aggregate is not None:
            return by_group(component, program, aggregate, chosen)
        case Strategy.COUNTING:
            return counting(component)
        case Strategy.MATERIALIZED:
            return replace(materialized(component, program), adaptive=strategy == AUTO)
        case Strategy.ON_DEMAND:
            return on_demand(component, program)
        case Strategy.FILTRATION:
            return filtration(component, wanted)
        case Strategy.DIFFERENCING:
            return differencing(component, wanted, nervous=precision == NERVOUS)
        case _:
            assert_never(chosen)
