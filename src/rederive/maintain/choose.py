"""From a program and the views somebody asked for to the maintenance program that serves them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from rederive.analysis.graph import Component, components, needed
from rederive.errors import StrategyError, nearest
from rederive.ir.rules import Aggregate, Program
from rederive.maintain.aggregates import by_group
from rederive.maintain.counting import counting
from rederive.maintain.materialized import materialized
from rederive.maintain.program import MaintenanceProgram, Section, State, Strategy
from rederive.maintain.recompute import recompute

AUTO = "auto"
STRATEGIES = (AUTO, *(strategy.value for strategy in Strategy))


def plan(program: Program, targets: Iterable[str], strategy: str = AUTO) -> MaintenanceProgram:
    """The sections for the targets and for all that they need, lowest first. A view that nobody needs has none."""
    if strategy not in STRATEGIES:
        raise StrategyError(f"unknown strategy '{strategy}'", hint=nearest(strategy, STRATEGIES))
    wanted = needed(program, targets)
    sections = tuple(_section(c, program, strategy) for c in components(program) if wanted.intersection(c.relations))
    return MaintenanceProgram(program, sections, tuple(State(name) for name in program.bases))


def _section(component: Component, program: Program, strategy: str) -> Section:
    chosen = Strategy.MATERIALIZED if strategy == AUTO else Strategy(strategy)
    aggregate = any(isinstance(definition, Aggregate) for definition in component.definitions)
    match chosen:
        case Strategy.RECOMPUTE:
            return recompute(component, program)
        case Strategy.COUNTING:
            return by_group(component, chosen) if aggregate else counting(component)
        case Strategy.MATERIALIZED:
            return by_group(component, chosen) if aggregate else materialized(component, program)
        case _:
            assert_never(chosen)
