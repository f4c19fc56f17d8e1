"""Compile rules over a program: their conditions become views of it, their changes of data are checked against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.analysis.graph import needed
from rederive.errors import Redefined
from rederive.ir.rules import Program
from rederive.lang.rules.lower import add_condition, compile_arguments, compile_write
from rederive.lang.rules.syntax import ActiveRule, WriteAction, condition_name, event_table
from rederive.rules.activity import Activity
from rederive.rules.cycles import check_cycles
from rederive.rules.rule_set import CompiledRule


def compile_rules(
    program: Program, of_program: Sequence[ActiveRule], of_statements: Sequence[ActiveRule], activity: Mapping[str, Activity]
) -> tuple[Program, list[CompiledRule]]:
    """The program with the conditions of these rules, and the rules over it; refused where one does not fit."""
    extended = program
    for i, rule in enumerate(rules := (*of_program, *of_statements)):
        if any(other.name == rule.name for other in rules[:i]):
            raise Redefined(f"there is a rule '{rule.name}' already", rule.span, hint="CREATE OR REPLACE RULE replaces it")
        # A condition is a view like any other, so every strategy can monitor it.
        extended = add_condition(extended, rule)
    active = [activity.get(rule.name, Activity()) for rule in rules]
    compiled = [_compile_rule(rule, extended, active[i], i < len(of_program)) for i, rule in enumerate(rules)]
    check_cycles(extended, [(one.rule, one.write) for one in compiled])
    return extended, compiled


def _compile_rule(rule: ActiveRule, program: Program, activity: Activity, in_program: bool) -> CompiledRule:
    condition = program.relations[condition_name(rule.name)]
    write = compile_write(program, rule) if isinstance(rule.action, WriteAction) else None
    event = program.relations[event_table(rule.event, program)] if rule.event is not None else None
    influents = needed(program, [condition.name]).intersection(program.bases)
    arguments = compile_arguments(program, rule)
    return CompiledRule(rule, condition, influents, event, write, activity, in_program, arguments)
