"""The commands on a program without a store: `check`, `explain`, `advise`, `why`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import rederive
from rederive.analysis.graph import strata
from rederive.cli.options import DEFAULT_LIMITS, Base, Facts, Program, Programs
from rederive.cli.program_files import InitialRows, define, initial_rows, open_for_questions, read_text
from rederive.errors import AbsentRow, MalformedInput, StrategyError, UnknownOption
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.printing import show_relation
from rederive.maintain.explain import FORMATS
from rederive.maintain.plan import AUTO, STRATEGIES
from rederive.rows import typed_json_rows
from rederive.warehouse.selfmaint.advice import FORMATS as ADVICE_FORMATS
from rederive.warehouse.selfmaint.advice import advise as advise_views
from rederive.warehouse.selfmaint.advice import show
from rederive.warehouse.warehouse import warehouse_program
from rederive.why.explainer import MOST_DEPTH
from rederive.why.explanation import Absence, Explanation


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


def why(
    program: Program,
    view: Annotated[str, typer.Argument(help="A view or base relation.", show_default=False)],
    row: Annotated[str, typer.Argument(help='A row as a JSON array, for example \'["a", "c"]\'.', show_default=False)],
    depth: Annotated[int, typer.Option("--depth", min=1, max=MOST_DEPTH, help="Levels of the tree.")] = 10,
    width: Annotated[int, typer.Option("--width", min=1, help="Derivations of the row, and rows of a group.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tree as JSON.")] = False,
    facts: Facts = None,
    base: Base = None,
) -> None:
    """Explain why a row is in a view, or why it is not.

    Example: `rederive why examples/closure.dl closure '["a", "c"]' --base edge=examples/edges.csv`
    """
    db = open_for_questions(program, facts, base, DEFAULT_LIMITS)
    (typed,) = typed_json_rows([_row(row)], db.pipeline.state.relation(view), lambda _: "row")
    try:
        found: Explanation | Absence = db.why(view, typed, depth=depth, width=width)
    # Both questions are answered at one version: nobody else has this database.
    except AbsentRow:
        found = db.why_not(view, typed)
    print(json.dumps(found.to_json(), indent=2, ensure_ascii=False) if as_json else found)


def _row(text: str) -> Json:
    try:
        return parse_line(text, "row", 1)
    except MalformedInput as error:
        error.hint = error.hint or """write the row as a JSON array in quotes: '["ann", 7]'"""
        raise
