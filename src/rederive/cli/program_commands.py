"""The commands on a program without a store: `check`, `explain`, `advise`."""

from __future__ import annotations

from typing import Annotated

import typer

import rederive
from rederive.analysis.graph import strata
from rederive.cli.options import Base, Facts, Program, Programs
from rederive.cli.program_files import InitialRows, define, initial_rows, read_text
from rederive.errors import StrategyError, UnknownOption
from rederive.ir.printing import show_relation
from rederive.maintain.explain import FORMATS
from rederive.maintain.plan import AUTO, STRATEGIES
from rederive.warehouse.selfmaint.advice import FORMATS as ADVICE_FORMATS
from rederive.warehouse.selfmaint.advice import advise as advise_views
from rederive.warehouse.selfmaint.advice import show
from rederive.warehouse.warehouse import warehouse_program


def check(program: Programs) -> None:
    """Check a program. Print its relations, strata and monitored views.

    Example: `rederive check examples/closure.dl`
    """
    db = rederive.open()
    db.pipeline.runtime.checks_actions = (
        False  # the functions and hosts that actions need are those of the process that runs the program
    )
    define(db, program)
    print("\n".join(_summary(db)))


def _summary(db: rederive.Database) -> list[str]:
    program = db.pipeline.state.program
    declared = {name: relation for name, relation in program.relations.items() if not relation.is_auxiliary}
    # The table of a bag is a view over its numbered copies for the engine, and a table for the user.
    shown = set(declared).difference(n for n in program.tables if n in program.views)
    levels = {name: level for name, level in strata(program.definitions).items() if name in shown}
    lines = ["relations"]
    for name, relation in declared.items():
        lines.append(f"  {'base' if name in program.tables else 'view'}  {show_relation(relation)}")
    lines.append("strata")
    for level in sorted(set(levels.values())):
        lines.append(f"  S{level} = {{{', '.join(sorted(n for n in levels if levels[n] == level))}}}")
    lines += ["monitored", *(f"  {name}" for name in program.monitored)]
    lines += ["constraints", *(f"  {one.view} ({one.mode.value})" for one in program.constraints)] if program.constraints else []
    lines += ["rules, in the order in which they fire", *(f"  {one.name}" for one in db.rules)] if db.rules else []
    return lines


def explain(
    program: Programs,
    view: Annotated[str | None, typer.Option("--view", help="Only this view and what it reads.", show_default=False)] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", help="Only the condition of this active rule.", show_default=False)
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.")] = AUTO,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "text",
    passes: Annotated[bool, typer.Option("--passes", help="Also print the program after each pass.")] = False,
    facts: Facts = None,
    base: Base = None,
) -> None:
    """Print how each view is maintained: the maintenance program and the propagation network.

    With base rows, also print the cost of a change that strategy auto expects.

    Example: `rederive explain examples/closure.dl --strategy materialized --format dot | dot -Tsvg > network.svg`
    """
    db = rederive.open(strategy=strategy)
    db.pipeline.runtime.checks_actions = False
    with db.setup():
        define(db, program)
        db.pipeline.load(initial_rows(db.pipeline.state.catalog.program, InitialRows(facts, tuple(base or ()), inputs=False)))
    print(db.rules.explain(rule, form) if rule is not None else db.explain(view, form, passes=passes))


def advise(
    program: Program,
    view: Annotated[str | None, typer.Option("--view", help="Only this stored view.", show_default=False)] = None,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(ADVICE_FORMATS)}.")] = "text",
    update: Annotated[
        str | None, typer.Option("--update", help="Only this kind of update, for example 'insert r'.", show_default=False)
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Also print the tests as Spark SQL.")] = False,
    net: Annotated[bool, typer.Option("--net", help="The sources report net changes only.")] = False,
) -> None:
    """Print, for each stored view and kind of update, whether it can be maintained without reading a source.

    Example: `rederive advise examples/warehouse.dl --view placed`
    """
    found = advise_views(warehouse_program([(read_text(program), str(program))]), view, net=net)
    if not found:
        hint = "declare base relations .remote, or tables USING remote, and views over them"
        raise StrategyError("the program has no stored view over a remote relation", hint=hint).at(str(program))
    kinds = {line.update for line in found}
    if update is not None and update not in kinds:
        raise UnknownOption("update", update, sorted(kinds))
    print(show([line for line in found if update in (None, line.update)], form, sql=sql))
