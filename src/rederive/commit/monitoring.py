"""Which relations the engine monitors: for `.output` views, subscriptions, constraints and the conditions of rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rederive.commit.announce import Subscription
from rederive.delta import BOTH, Sign
from rederive.engines.protocol import Query
from rederive.ir.rules import Mode, Program
from rederive.maintain.plan import AUTO
from rederive.maintain.program import Strategy
from rederive.rules.rule_set import RuleSet

# A transaction that adds rows to a rejecting constraint is refused: the plus side must be known.
_CONSTRAINT_SIGNS: Final = {Mode.REJECT: frozenset({Sign.PLUS}), Mode.MONITOR: frozenset[Sign]()}
_NOT_STORED: Final = frozenset(strategy.value for strategy in Strategy if not strategy.is_stored)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a database maintains its views. `signs`: the signs that it reports. `strict`: refuse views that are recomputed."""

    strategy: str = AUTO
    precision: str = "exact"
    signs: frozenset[Sign] = BOTH
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What is monitored under one program.

    `signs`: the views that are reported, and which signs of each. `relations`: what the engine monitors for them; the delta of a
    bag is that of the relation that counts its rows, of which both signs are needed. `views`: from the latter to the former.
    `queries`: parts of views whose deltas are computed for themselves.
    """

    signs: Mapping[str, frozenset[Sign]] = field(default_factory=dict)
    relations: Mapping[str, frozenset[Sign]] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[Query, ...] = ()

    @classmethod
    def of(cls, rules: RuleSet, settings: Settings, subscriptions: Iterable[Subscription], outputs: bool = True) -> Monitoring:
        """What to monitor for these rules and subscriptions. `outputs`: whether the program's own monitored views count."""
        program = rules.program
        signs = dict.fromkeys(program.monitored if outputs else (), settings.signs)
        queries: dict[Query, None] = {}
        for one in subscriptions:
            # A subscription outlives its view: after a drop it is silent until a view of that name is defined.
            view = one.query.view
            if not program.is_view(view):
                continue
            if one.query.bindings and is_bound_alone(program, settings, view):
                queries[one.query] = None
            else:
                signs[view] = signs.get(view, frozenset()) | one.signs
        for constraint in program.constraints:
            signs[constraint.view] = signs.get(constraint.view, frozenset()) | _CONSTRAINT_SIGNS[constraint.mode]
        views = {program.counting_relation(name): name for name in signs}
        # A count that changes from 2 to 3 leaves with 2 and enters with 3: the copies that enter need both signs.
        relations = {source: signs[name] if source == name else BOTH for source, name in views.items()}
        return cls(signs, {**relations, **rules.conditions}, views, tuple(queries))


def is_bound_alone(program: Program, settings: Settings, view: str) -> bool:
    """Whether a bound subscription to this view is computed from its bindings alone.

    It is where the view is not stored and nobody follows all of it; otherwise it is a part of the view's own change.
    """
    is_bag = program.counting_relation(view) != view
    return settings.strategy in _NOT_STORED and not is_bag and view not in program.monitored
