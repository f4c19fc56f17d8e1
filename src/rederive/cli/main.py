"""`rederive`: the entry of the command line and its commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rederive import Limits, __version__
from rederive import open as open_database
from rederive.cli import commands
from rederive.errors import RederiveError
from rederive.maintain.choose import AUTO, PRECISIONS, STRATEGIES
from rederive.maintain.explain import FORMATS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Views maintained incrementally: exactly which rows entered and left them.",
)

Program = Annotated[Path, typer.Argument(help="A program in Datalog (.dl) or SQL (.sql).", show_default=False)]
Facts = Annotated[
    Path | None, typer.Option("--facts", help="Folder with a .facts file for each .input relation.", show_default=False)
]
Base = Annotated[
    list[str] | None,
    typer.Option("--base", metavar="REL=FILE", help="Initial rows of a base relation: .facts, .csv, .jsonl or .parquet."),
]
StrategyOption = Annotated[str, typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.")]
Precision = Annotated[str, typer.Option("--precision", help=f"One of {', '.join(PRECISIONS)}; nervous with differencing alone.")]
Only = Annotated[str | None, typer.Option("--only", help="Report plus or minus alone.", show_default=False)]
Stats = Annotated[Path | None, typer.Option("--stats", help="Write times and counts as JSON.", show_default=False)]
Engine = Annotated[str, typer.Option("--engine", help="What runs the rules: resident.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"rederive {__version__}")
        raise typer.Exit


@app.command()
def check(program: Program) -> None:
    """Print relations, strata and monitored views, or what is wrong with the program.

    Example: `rederive check examples/closure.dl`
    """
    commands.check(program)


@app.command()
def explain(
    program: Program,
    view: Annotated[str | None, typer.Option("--view", help="Only this view and what it needs.", show_default=False)] = None,
    strategy: StrategyOption = AUTO,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "text",
    facts: Facts = None,
    base: Base = None,
) -> None:
    """Print how each view is maintained: the maintenance program and the propagation network.

    With base rows given, also what strategy auto expects a change to cost.

    Example: `rederive explain examples/closure.dl --strategy materialized --format dot | dot -Tsvg > network.svg`
    """
    commands.explain_program(program, view, strategy, form, commands.Sources(facts, tuple(base or ())))


@app.command()
def run(
    program: Program,
    facts: Facts = None,
    base: Base = None,
    changes: Annotated[
        Path | None, typer.Option("--changes", help="JSON lines, a transaction each; - is standard input.", show_default=False)
    ] = None,
    strategy: StrategyOption = AUTO,
    precision: Precision = "exact",
    only: Only = None,
    engine: Engine = "resident",
    initial: Annotated[bool, typer.Option("--initial", help="Print the initial answers as version 0.")] = False,
    stats: Stats = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write each step of strategy filtration as JSON lines.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse views that a change evaluates as a whole.")] = False,
    max_rounds: Annotated[
        int, typer.Option("--max-rounds", min=1, help="Stops recursions that make new values.")
    ] = Limits().rounds,
    max_tuples: Annotated[
        int, typer.Option("--max-tuples", min=1, help="Stops recursions that make new values.")
    ] = Limits().tuples,
    memory: Annotated[
        int, typer.Option("--memory", min=1, help="MiB that views kept by strategy auto may take.")
    ] = Limits().memory // 2**20,
) -> None:
    """Evaluate a program, apply transactions one by one, and print the exact change of every monitored view as JSON lines.

    Example: `rederive run examples/closure.dl --base edge=examples/edges.csv --changes examples/changes.jsonl`
    """
    limits = Limits(max_rounds, max_tuples, memory * 2**20)
    db = open_database(strategy=strategy, precision=precision, only=only, engine=engine, limits=limits, strict=strict)
    commands.run(db, program, commands.Sources(facts, tuple(base or ())), changes, initial, stats, trace)


@app.command()
def query(
    program: Program,
    atom: Annotated[str, typer.Argument(help="A relation with constants, variables or _, as in 'closure(\"a\", y)'.")],
    facts: Facts = None,
    base: Base = None,
    stats: Stats = None,
) -> None:
    """Print the rows of a view or base relation that match, one JSON array a line.

    Example: `rederive query examples/closure.dl 'closure("a", y)' --base edge=examples/edges.csv`
    """
    commands.query(program, atom, commands.Sources(facts, tuple(base or ())), stats)


def main() -> None:
    """Run a command; the user's mistakes end it with exit code 2, the error on standard error and nothing on standard output."""
    try:
        app()
    except RederiveError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
