"""The active rules of a database, compiled over its program. The set is frozen: another rule or program makes another set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rederive.delta import BOTH, Sign
from rederive.errors import StillNeeded, StrategyError, UnknownName
from rederive.ir.rules import Column, Mode, Program, Relation
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import ActiveRule, CallAction
from rederive.maintain.plan import NERVOUS
from rederive.rules.activity import Activity

if TYPE_CHECKING:
    from rederive.lang.sql.dml import CompiledQuery, DataChange

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule over a program: its condition, the base relations that influence it, and its change of data if it has one.

    `in_program`: whether the text of the program states the rule; the others come from statements. `arguments`: the query of a
    call's arguments, if they are not columns.
    """

    rule: ActiveRule
    condition: Relation
    influents: frozenset[str]
    event: Relation | None
    write: DataChange | None
    activity: Activity
    in_program: bool
    arguments: CompiledQuery | None = None

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.rule.name

    @property
    def order(self) -> tuple[int, str]:
        """The key by which rules are sorted: the highest priority first, then by name."""
        return -self.rule.priority, self.rule.name

    @property
    def monitored_signs(self) -> frozenset[Sign]:
        """The signs of the condition's delta that must be known.

        An immediate rule compares two moments: a row that left and is back has entered, which only the minus side shows.
        """
        return BOTH if self.rule.immediate else self.rule.signs

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that a function is called with."""
        names = [column.name for column in self.condition.columns]
        action = self.rule.action
        if not isinstance(action, CallAction) or action.columns is None:
            return tuple(range(len(names)))
        return tuple(names.index(name.text) for name in action.columns)

    @property
    def recorded_relation(self) -> Relation:
        """The condition as a record of firings has it: names and types alone."""
        return Relation(self.condition.name, tuple(Column(column.name, column.type) for column in self.condition.columns))

    def project(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that a function is called with: its columns, each combination once."""
        return list(dict.fromkeys(tuple(row[i] for i in self.columns) for row in rows))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a database in the order in which they fire, and its program with their conditions.

    `active`: the rules that are active for some row. `conditions`: their conditions, each with the signs to monitor.
    """

    program: Program = field(default_factory=lambda: Program({}, ()))
    rules: tuple[CompiledRule, ...] = ()
    active: tuple[CompiledRule, ...] = field(init=False, compare=False)
    conditions: Mapping[str, frozenset[Sign]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once for each set, because every transaction reads them.
        active = tuple(one for one in self.rules if one.activity.is_active)
        object.__setattr__(self, "active", active)
        object.__setattr__(self, "conditions", {one.condition.name: one.monitored_signs for one in active})

    @classmethod
    def compile(
        cls,
        program: Program,
        of_program: Sequence[ActiveRule],
        of_statements: Sequence[ActiveRule],
        activity: Mapping[str, Activity],
    ) -> RuleSet:
        """Compile rules over a program. The compiler is imported only where there are rules."""
        if not of_program and not of_statements:
            return cls(program)
        from rederive.rules.compile import compile_rules

        extended, rules = compile_rules(program, of_program, of_statements, activity)
        return cls(extended, tuple(sorted(rules, key=lambda one: one.order)))

    def over(self, program: Program, of_program: Sequence[ActiveRule]) -> RuleSet:
        """The same rules over another program; refused where a rule does not fit it."""
        own = self.of_statements
        try:
            return RuleSet.compile(program, of_program, own, self.activity)
        except UnknownName as error:
            # The unknown name is in the text of a rule: the definition is refused, because the rule still needs what it drops.
            broken = next((rule for rule in own if rule.span.source is (error.span.source if error.span else None)), None)
            if broken is None:
                raise
            hint = f"drop or replace the rule first: DROP RULE {broken.name}"
            raise StillNeeded(f"the rule '{broken.name}' still needs this", error.span, hint=hint) from None

    def change(self, program: Program, of_statements: Sequence[ActiveRule], activity: Mapping[str, Activity]) -> RuleSet:
        """Other rules of statements, and the same of the program's text. `program` is without conditions."""
        of_program = [one.rule for one in self.rules if one.in_program]
        return RuleSet.compile(program, of_program, of_statements, activity)

    @property
    def of_statements(self) -> list[ActiveRule]:
        """The rules that the text of the program does not state."""
        return [one.rule for one in self.rules if not one.in_program]

    @property
    def activity(self) -> dict[str, Activity]:
        """For which rows each rule is active."""
        return {one.name: one.activity for one in self.rules}

    @property
    def precisions(self) -> dict[str, str]:
        """How exactly each condition is monitored. Immediate rules compare moments, and so are always monitored exactly."""
        loose = (one for one in self.active if not one.rule.strict and not one.rule.immediate)
        return dict.fromkeys(self.conditions, "exact") | {one.condition.name: NERVOUS for one in loose}

    def get(self, name: str) -> CompiledRule:
        """The rule of that name."""
        # Names of rules are SQL identifiers: case does not matter, and they are stored in lower case.
        found = next((one for one in self.rules if one.name == name.lower()), None)
        if found is None:
            raise UnknownName("rule", name, (one.name for one in self.rules))
        return found

    def with_rule(self, rule: ActiveRule, *, replaces: bool) -> list[ActiveRule]:
        """The rules of statements with one more, or with another one under its name."""
        return [*(other for other in self.of_statements if not replaces or other.name != rule.name), rule]


def check_functions(rules: Iterable[CompiledRule], known: Collection[str]) -> None:
    """Refuse rules that call a function which is not registered."""
    for one in rules:
        action = one.rule.action
        if isinstance(action, CallAction) and action.function not in known:
            error = UnknownName("function", action.function, known, action.span)
            error.hint = error.hint or "register it with db.rules.register, or name its file: rederive run --actions FILE"
            raise error


def check_precision(rules: RuleSet, precision: str) -> None:
    """Refuse what nervous precision cannot tell: whether a condition changes from false to true."""
    # Nervous deltas may report a row that is there already: "false to true" cannot be told from "true to true".
    strict = [f"the rule '{one.name}' is strict" for one in rules.rules if one.rule.strict]
    strict += [f"the constraint '{c.view}' rejects" for c in rules.program.constraints if c.mode is Mode.REJECT]
    if precision == NERVOUS and strict:
        raise StrategyError(f"{strict[0]}, and this database is nervous", hint="open it with precision 'exact'")
