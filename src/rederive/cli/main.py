"""`rederive`: the entry of the command line and its commands."""

from __future__ import annotations

import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from rederive import ENGINES, Limits, __version__, opening
from rederive import open as open_database
from rederive.boundary import DEBUG, as_ours, is_debugging
from rederive.cli import commands, network
from rederive.cli.program_files import InitialRows
from rederive.errors import Internal, StrategyError, UnknownOption
from rederive.maintain.explain import FORMATS
from rederive.maintain.plan import AUTO, PRECISIONS, STRATEGIES, check_strategy
from rederive.store.store import stored_zone
from rederive.warehouse.selfmaint.advice import FORMATS as ADVICE_FORMATS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Views maintained incrementally: exactly which rows entered and left them.",
)

INTERNAL: Final = 70
"""The exit code of a bug of ours: EX_SOFTWARE of sysexits.h."""

Program = Annotated[Path, typer.Argument(help="A program in Datalog (.dl) or SQL (.sql).", show_default=False)]
Programs = Annotated[
    list[Path],
    typer.Argument(help="Files in Datalog (.dl) or SQL (.sql), in order.", show_default=False),
]
Facts = Annotated[Path | None, typer.Option("--facts", help="Folder with a file for each .input relation.", show_default=False)]
Base = Annotated[
    list[str] | None,
    typer.Option("--base", metavar="REL=FILE", help="Initial rows of a base relation: .facts, .csv, .jsonl or .parquet."),
]
StrategyOption = Annotated[str, typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.")]
Only = Annotated[str | None, typer.Option("--only", help="Report plus or minus alone.", show_default=False)]
LIMITS = Limits()
MEMORY = LIMITS.memory // 2**20  # MiB
MaxRounds = Annotated[int, typer.Option("--max-rounds", min=1, help="Stops recursions that make new values.")]
MaxTuples = Annotated[int, typer.Option("--max-tuples", min=1, help="Stops recursions that make new values.")]
Stats = Annotated[Path | None, typer.Option("--stats", help="Write times and counts as JSON.", show_default=False)]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        help="Where Delta tables of relations, views and changes are kept: a folder, or an address, which needs --store.",
        show_default=False,
    ),
]
Zone = Annotated[
    str | None,
    typer.Option("--zone", help="Time zone of timestamps in SQL, as Europe/Berlin.", show_default="UTC, or what the store has"),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help=f"What runs the rules: {', '.join(ENGINES)}.", show_default="resident; auto with a lake"),
]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    if debug:
        os.environ[DEBUG] = "1"
    if version:
        typer.echo(f"rederive {__version__}")
        raise typer.Exit


@app.command()
def check(program: Programs) -> None:
    """Print relations, strata and monitored views, or what is wrong with the program.

    Example: `rederive check examples/closure.dl`
    """
    commands.check(program)


@app.command()
def explain(
    program: Programs,
    view: Annotated[str | None, typer.Option("--view", help="Only this view and what it needs.", show_default=False)] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", help="Only the condition of this active rule.", show_default=False)
    ] = None,
    strategy: StrategyOption = AUTO,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "text",
    facts: Facts = None,
    base: Base = None,
) -> None:
    """Print how each view is maintained: the maintenance program and the propagation network.

    With base rows given, also what strategy auto expects a change to cost.

    Example: `rederive explain examples/closure.dl --strategy materialized --format dot | dot -Tsvg > network.svg`
    """
    commands.explain_program(program, view, rule, strategy, form, InitialRows(facts, tuple(base or ()), inputs=False))


@app.command()
def advise(
    program: Program,
    view: Annotated[str | None, typer.Option("--view", help="Only this stored view.", show_default=False)] = None,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(ADVICE_FORMATS)}.")] = "text",
) -> None:
    """Print, for each stored view and kind of update, whether it can be maintained without reading a source.

    Example: `rederive advise examples/warehouse.dl --view placed`
    """
    commands.advise_program(program, view, form)


@app.command()
def run(
    program: Programs,
    facts: Facts = None,
    base: Base = None,
    changes: Annotated[
        Path | None, typer.Option("--changes", help="JSON lines, a transaction each; - is standard input.", show_default=False)
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Folder that keeps the database; made where there is none.", show_default="in the lake"),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.", show_default=f"{AUTO}, or what the store has"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision", help=f"One of {', '.join(PRECISIONS)}; nervous with differencing alone.", show_default="exact"
        ),
    ] = None,
    only: Only = None,
    engine: Engine = None,
    lake: Lake = None,
    initial: Annotated[
        bool, typer.Option("--initial/--no-initial", help="Print the version that definitions and initial rows make.")
    ] = True,
    stats: Stats = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write each step of strategy filtration as JSON lines.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse views that a change evaluates as a whole.")] = False,
    max_rounds: MaxRounds = LIMITS.rounds,
    max_tuples: MaxTuples = LIMITS.tuples,
    memory: Annotated[
        int, typer.Option("--memory", min=1, help="MiB that relations and views may take in this process.")
    ] = MEMORY,
    zone: Zone = None,
) -> None:
    """Evaluate a program, apply transactions one by one, and print the exact change of every monitored view as JSON lines.

    With a store the versions go on from where it is; its Datalog program must be this one, or a part of it. Statements of SQL run
    in order; definitions that the store has already are passed over. A view may read what an earlier file defines, in either
    language.

    Example: `rederive run examples/closure.dl --base edge=examples/edges.csv --changes examples/changes.jsonl`
    """
    check_strategy(strategy or AUTO, precision or "exact")
    if engine is not None and engine not in ENGINES:
        raise UnknownOption("engine", engine, ENGINES)
    limits = Limits(max_rounds, max_tuples, memory * 2**20)
    if trace is not None and engine == "spark":
        raise StrategyError("--trace follows the resident engine's steps", hint="leave out --engine spark")
    chosen = partial(open_database, store, strategy=strategy, precision=precision, only=only, engine=engine, lake=lake)
    opened = partial(chosen, limits=limits, strict=strict, zone=zone)
    folder, _ = opening.places(store, None, lake)
    sources = InitialRows(facts, tuple(base or ()), store=folder)
    commands.run(opened, program, sources, changes, initial, stats, trace)


@app.command()
def stream(
    program: Program,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Folder that keeps the database; made where there is none.", show_default="in the lake"),
    ] = None,
    lake: Lake = None,
    changes: Annotated[
        str | None, typer.Option("--changes", help="Folder of JSON lines, as for run.", show_default=False)
    ] = None,
    csv: Annotated[str | None, typer.Option("--csv", help="Folder of CSV files with a column _op.", show_default=False)] = None,
    parquet: Annotated[
        str | None, typer.Option("--parquet", help="Folder of Parquet files with a column _op.", show_default=False)
    ] = None,
    delta: Annotated[
        str | None, typer.Option("--delta", help="Delta table whose change data feed is followed.", show_default=False)
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="SERVERS", help="Kafka with Debezium's envelopes.", show_default=False)
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC=REL", help="A topic, and the relation that it is for.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option("--relation", help="What --csv, --parquet and --delta are for.", show_default=False)
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Where Spark keeps how far it is.", show_default="in the store")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when what is there now is done.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="INTERVAL", help='At intervals, as "5 seconds".', show_default=False)
    ] = None,
    on_error: Annotated[str, typer.Option("--on-error", help="What cannot be read: fail or quarantine.")] = "fail",
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", help="Delta table of what could not be read.", show_default="in the store")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.", show_default=f"{AUTO}, or what the store has"),
    ] = None,
    engine: Engine = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master.", show_default="local[*]")] = None,
    zone: Zone = None,
) -> None:
    """Take a stream in, one transaction for each micro-batch, and print the exact changes of each version as JSON lines.

    Whatever ends it, the next start goes on where the store is, and applies nothing twice. Needs Spark and Java.

    Example: `rederive stream examples/closure.dl --store graph --changes incoming --on-error quarantine`
    """
    from rederive.cli import stream_command as streams

    places = streams.StreamPlaces(changes, csv, parquet, delta, kafka, tuple(topic or ()))
    folder, _ = opening.places(store, None, lake)
    of_store = stored_zone(folder) if folder is not None else None
    way = streams.StreamOptions(relation, checkpoint, once, every, on_error, quarantine, master, of_store or zone)
    opened = partial(open_database, store, strategy=strategy, engine=engine, lake=lake, zone=zone)
    streams.stream(program, places, way, opened)


@app.command()
def log(
    store: Annotated[Path, typer.Argument(help="The folder of a store.", show_default=False)],
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="Only versions after this one, or after a saved position.", show_default="all that are kept"
        ),
    ] = None,
    view: Annotated[str | None, typer.Option("--view", help="Only this view.", show_default=False)] = None,
) -> None:
    """Print the changes of a store's committed versions as JSON lines, also while another process writes it.

    Example: `rederive log graph --since 10 --view closure`
    """
    commands.log(store, since, view)


@app.command()
def backup(
    store: Annotated[Path, typer.Argument(help="The folder of a store; a process may have it open.", show_default=False)],
    target: Annotated[Path, typer.Argument(help="A folder that does not exist yet.", show_default=False)],
) -> None:
    """Copy a store as it is at its last committed version, also while another process writes it.

    The tables of a lake, and the checkpoints of streams, are not in it.

    Example: `rederive backup graph /backups/graph-1`
    """
    commands.back_up(store, target)


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="A backup.", show_default=False)],
    store: Annotated[Path, typer.Argument(help="A folder that does not exist yet.", show_default=False)],
    lake: Annotated[
        str | None, typer.Option("--lake", help="Where the lake is, if it is not where it was.", show_default=False)
    ] = None,
) -> None:
    """Make a store from a backup. It has a history of its own: positions of the lost one are reset, or refused.

    Example: `rederive restore /backups/graph-1 graph`
    """
    commands.restore(backup, store, lake)


@app.command()
def query(
    program: Program,
    atom: Annotated[str, typer.Argument(help="A relation with constants, variables or _, as in 'closure(\"a\", y)'.")],
    facts: Facts = None,
    base: Base = None,
    stats: Stats = None,
    max_rounds: MaxRounds = LIMITS.rounds,
    max_tuples: MaxTuples = LIMITS.tuples,
) -> None:
    """Print the rows of a view or base relation that match, one JSON array a line.

    Example: `rederive query examples/closure.dl 'closure("a", y)' --base edge=examples/edges.csv`
    """
    commands.query(program, atom, InitialRows(facts, tuple(base or ())), stats, Limits(max_rounds, max_tuples))


for command in (network.init, network.serve, network.watch, network.apply):
    app.command()(command)


def main() -> None:
    """Run a command; the user's mistakes end it with exit code 2, the error on standard error and nothing on standard output.

    A bug of ours ends it with exit code 70 (EX_SOFTWARE); with --debug or REDERIVE_DEBUG=1 its traceback is printed first.
    """
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as raised:
        error = as_ours(raised)
        if is_debugging():
            traceback.print_exception(raised)
        sys.stderr.write(f"{error}\n")
        sys.exit(INTERNAL if isinstance(error, Internal) else 2)


if __name__ == "__main__":
    main()
