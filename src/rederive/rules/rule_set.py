"""The rules that stand over a program: frozen, and made anew when a rule or the program changes."""

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
    from rederive.lang.sql.dml import DataChange

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule over a program: its condition, the relations that influence it, and its change of data where it has one.

    `stated`: whether the program's own text states it.
    """

    rule: ActiveRule
    condition: Relation
    influents: frozenset[str]
    event: Relation | None
    write: DataChange | None
    activity: Activity
    stated: bool

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def order(self) -> tuple[int, str]:
        """The highest priority first, then by name."""
        return -self.rule.priority, self.rule.name

    @property
    def monitored(self) -> frozenset[Sign]:
        """What must be known of the condition: a row that is back is told by the side that it had left by."""
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
    def recorded(self) -> Relation:
        """The condition as a record of firings has it: names and types alone."""
        return Relation(self.condition.name, tuple(Column(column.name, column.type) for column in self.condition.columns))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a database, and its program with their conditions."""

    program: Program = field(default_factory=lambda: Program({}, ()))
    standing: tuple[CompiledRule, ...] = ()

    @classmethod
    def over(
        cls, program: Program, stated: Sequence[ActiveRule], kept: Sequence[ActiveRule], activity: Mapping[str, Activity]
    ) -> RuleSet:
        """These rules over a program. `stated` are those of its own text. What compiles them is imported when there are some."""
        if not stated and not kept:
            return cls(program)
        from rederive.rules.compile import compiled

        extended, standing = compiled(program, stated, kept, activity)
        return cls(extended, tuple(sorted(standing, key=lambda one: one.order)))

    def again(self, program: Program, stated: Sequence[ActiveRule]) -> RuleSet:
        """The same rules over another program; refused where a rule does not fit it."""
        kept = [one.rule for one in self.standing if not one.stated]
        try:
            return RuleSet.over(program, stated, kept, self.activity)
        except UnknownName as error:
            broken = next((rule for rule in kept if rule.span.source is (error.span.source if error.span else None)), None)
            if broken is None:
                raise
            hint = f"drop or replace the rule first: DROP RULE {broken.name}"
            raise StillNeeded(f"the rule '{broken.name}' still needs this", error.span, hint=hint) from None

    def changed(self, program: Program, kept: Sequence[ActiveRule], activity: Mapping[str, Activity]) -> RuleSet:
        """Other rules beside those that the program's text states; `program` is without conditions."""
        return RuleSet.over(program, [one.rule for one in self.standing if one.stated], kept, activity)

    # What is asked of it

    @property
    def activity(self) -> dict[str, Activity]:
        return {one.name: one.activity for one in self.standing}

    @property
    def active(self) -> tuple[CompiledRule, ...]:
        return tuple(one for one in self.standing if one.activity.anywhere)

    @property
    def wanted(self) -> dict[str, frozenset[Sign]]:
        """The conditions to monitor, and what of them."""
        return {one.condition.name: one.monitored for one in self.active}

    @property
    def precisions(self) -> dict[str, str]:
        """Immediate rules compare moments of a transaction, and so are monitored exactly whatever they ask for."""
        loose = (one for one in self.active if not one.rule.strict and not one.rule.immediate)
        return dict.fromkeys(self.wanted, "exact") | {one.condition.name: NERVOUS for one in loose}

    def named(self, name: str) -> CompiledRule:
        found = next((one for one in self.standing if one.name == name.lower()), None)
        if found is None:
            raise UnknownName("rule", name, (one.name for one in self.standing))
        return found

    def with_rule(self, rule: ActiveRule, *, replaces: bool) -> list[ActiveRule]:
        """The kept rules with one more, or with another one under its name."""
        kept = [one.rule for one in self.standing if not one.stated]
        if replaces:
            kept = [other for other in kept if other.name != rule.name]
        return [*kept, rule]


def touched_bases(program: Program, names: Iterable[str]) -> frozenset[str]:
    """The base relations that operations on these tables change."""
    return frozenset(program.copies_of(name) or name for name in names)


def check_functions(rules: Iterable[CompiledRule], known: Collection[str]) -> None:
    """Refuse rules that call a function which nobody registered."""
    for one in rules:
        action = one.rule.action
        if isinstance(action, CallAction) and action.function not in known:
            raise UnknownName("function", action.function, known, action.span)


def check_precision(rules: RuleSet, precision: str) -> None:
    """Refuse what a database that is nervous throughout cannot tell: a change from false to true."""
    strict = [f"the rule '{one.name}' is strict" for one in rules.standing if one.rule.strict]
    strict += [f"the constraint '{c.view}' rejects" for c in rules.program.constraints if c.mode is Mode.REJECT]
    if precision == NERVOUS and strict:
        raise StrategyError(f"{strict[0]}, and this database is nervous", hint="open it with precision 'exact'")


def projected(standing: CompiledRule, rows: Iterable[Row]) -> list[Row]:
    """The rows that a function is called with: the wanted columns, each combination once."""
    return list(dict.fromkeys(tuple(row[i] for i in standing.columns) for row in rows))
