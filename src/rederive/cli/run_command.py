"""`rederive run`: evaluate a program, apply transactions, print the changes of every version.

Output is printed when the whole command has succeeded: an error leaves standard output empty.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import typer

import rederive
from rederive import ENGINES, opening
from rederive.cli.options import (
    DEFAULT_LIMITS,
    Base,
    Changes,
    EngineName,
    Facts,
    Lake,
    MaxRounds,
    MaxTuples,
    Programs,
    Stats,
    StoredStrategy,
    StoreFolder,
    Zone,
)
from rederive.cli.output import (
    answer_line,
    change_line,
    firing_line,
    print_on_success,
    rows_text,
    settle_lake,
    show_progress,
    write_file,
)
from rederive.cli.program_files import InitialRows, Loading, initial_rows, load_functions, migrate, read_programs, run_files
from rederive.database import Database
from rederive.engines.protocol import FilterStep
from rederive.errors import RederiveError, StrategyError, UnknownOption
from rederive.ingest.change_file import RequestedChanges, read_change_file
from rederive.ir.terms import Row
from rederive.lang.programs import SQL
from rederive.maintain.plan import AUTO, PRECISIONS, check_strategy

_MEBIBYTE = 2**20


def run(
    program: Programs,
    facts: Facts = None,
    base: Base = None,
    changes: Changes = None,
    store: StoreFolder = None,
    strategy: StoredStrategy = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision", help=f"One of {', '.join(PRECISIONS)}; nervous needs strategy differencing.", show_default="exact"
        ),
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="Report only plus, or only minus.", show_default=False)] = None,
    engine: EngineName = None,
    lake: Lake = None,
    initial: Annotated[
        bool, typer.Option("--initial/--no-initial", help="Print the version of the definitions and the initial rows.")
    ] = True,
    stats: Stats = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write each step of strategy filtration as JSON lines.", show_default=False)
    ] = None,
    actions: Annotated[
        Path | None,
        typer.Option("--actions", help="A Python file with the functions that rules call.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse views that every change recomputes.")] = False,
    max_rounds: MaxRounds = DEFAULT_LIMITS.rounds,
    max_tuples: MaxTuples = DEFAULT_LIMITS.tuples,
    memory: Annotated[
        int, typer.Option("--memory", min=1, help="MiB that relations and views may take in this process.")
    ] = DEFAULT_LIMITS.memory // _MEBIBYTE,
    zone: Zone = None,
) -> None:
    """Evaluate a program, apply transactions one by one, and print the exact change of every monitored view as JSON lines.

    A rule that fires is a line of its own. `--actions module.py` is a Python file: its functions are those that `DO CALL` names.

    With a store, versions continue from its last one. Its Datalog program must be this one, or a part of it. SQL statements run
    in order; definitions that the store has are skipped. A view may read what an earlier file defines, in either language.

    Example: `rederive run examples/closure.dl --base edge=examples/edges.csv --changes examples/changes.jsonl`
    """
    check_strategy(strategy or AUTO, precision or "exact")
    if engine is not None and engine not in ENGINES:
        raise UnknownOption("engine", engine, ENGINES)
    if trace is not None and engine == "spark":
        raise StrategyError("--trace needs the resident engine", hint="leave out --engine spark")
    # On the command line in MiB, in the API in bytes.
    limits = rederive.Limits(max_rounds, max_tuples, memory * _MEBIBYTE)
    chosen = partial(rederive.open, store, strategy=strategy, precision=precision, only=only, engine=engine, lake=lake)
    open_database = partial(chosen, limits=limits, strict=strict, zone=zone)
    folder, _ = opening.places(store, None, lake)
    functions = load_functions(actions) if actions is not None else {}
    rows = InitialRows(facts, tuple(base or ()), store=folder)
    _run(open_database, program, rows, changes, initial, stats, trace, functions)


def _run(
    open_database: Callable[[], Database],
    paths: Sequence[Path],
    rows: InitialRows,
    changes: Path | None,
    initial: bool,
    stats: Path | None,
    trace: Path | None,
    functions: Mapping[str, Callable[..., Any]],
) -> None:
    # All files are read before a store is opened or created: malformed input leaves the store as it was.
    # SQL statements decide which tables exist while they run, so their files cannot be typed in advance.
    read = _read(paths, rows, changes) if not any(path.suffix == SQL for path in paths) else None
    steps: list[str] = []
    with open_database() as db, _mention_commits(db), print_on_success() as output:
        for name, function in functions.items():
            db.rules.register(function, name)
        if trace is not None:
            db.pipeline.state.trace(lambda step: steps.append(_trace_line(db.version + 1, step)))
        if read is not None:
            costs = list(_run_datalog(db, paths, *read, initial, output))
        else:
            costs = list(_run_sql(db, paths, rows, changes, initial, output))
        if db.pipeline.state.parked is not None:
            # Parked definitions wait for other rows, and this command brings no more.
            raise db.pipeline.state.parked.error
        settle_lake(db)
        if stats is not None:
            write_file(stats, json.dumps(_statistics(db, costs), indent=2) + "\n")
        if trace is not None:
            write_file(trace, "".join(steps))


@contextmanager
def _mention_commits(db: Database) -> Iterator[None]:
    """Add to an error which versions the store has gained before it: their changes are not printed."""
    # The store may have versions of earlier runs, which were printed then.
    start = db.version
    try:
        yield
    except RederiveError as error:
        if db.pipeline.state.folder is not None and db.version > start:
            current = Path.cwd()
            folder = (
                db.pipeline.state.folder.relative_to(current)
                if db.pipeline.state.folder.is_relative_to(current)
                else db.pipeline.state.folder
            )
            # The store keeps them, and the command printed nothing: the hint says how to read them.
            gained = f"versions {start + 1} to {db.version} are committed: rederive log {folder} --since {start}"
            error.hint = f"{error.hint}; {gained}" if error.hint else gained
        raise


def _read(
    paths: Sequence[Path], rows: InitialRows, changes: Path | None
) -> tuple[dict[str, list[Row]], Sequence[RequestedChanges]]:
    """Return the initial rows and the transactions of a Datalog program."""
    with show_progress(f"reading {', '.join(map(str, paths))}"):
        program = read_programs(paths)
        transactions = read_change_file(changes, program) if changes else ()
        return initial_rows(program, rows), transactions


def _run_datalog(
    db: Database,
    paths: Sequence[Path],
    rows: Mapping[str, list[Row]],
    transactions: Iterable[RequestedChanges],
    initial: bool,
    output: IO[bytes],
) -> Iterator[dict[str, Any]]:
    """Define the program, load the rows, and apply every transaction. Yield the cost of each version."""
    with show_progress("evaluating"):
        started = time.perf_counter()
        with db.setup() as setup:
            migrate(db, paths)
            db.pipeline.load(rows)
        # A program whose views stay empty makes no version; its evaluation is reported all the same.
        cost = {"version": db.version, "seconds": time.perf_counter() - started, "touched": setup.touched}
        yield _write_version(db, setup.result, output, initial) if setup.result is not None else cost
    with show_progress("applying transactions"):
        for transaction in transactions:
            yield _write_version(db, _commit(db, transaction), output)


def _run_sql(
    db: Database, paths: Sequence[Path], rows: InitialRows, changes: Path | None, initial: bool, output: IO[bytes]
) -> Iterator[dict[str, Any]]:
    """Run the statements file by file, then the transactions. Yield the cost of each version."""
    load, started = Loading(db, rows), {"version": db.version, "seconds": 0.0, "touched": 0}
    with show_progress("running statements"):
        costs = [_write_version(db, r, output, initial or r is not load.setup.result) for r in run_files(db, paths, load)]
    yield from costs if load.setup.result is not None else [started, *costs]
    # The statements decide the tables, so the transactions are typed after them.
    for transaction in read_change_file(changes, db.pipeline.state.program) if changes else ():
        yield _write_version(db, _commit(db, transaction), output)


def _commit(db: Database, transaction: RequestedChanges) -> rederive.Result:
    """Commit a transaction. An error against the data, such as a duplicate key, names the line of the changes file."""
    try:
        return db.pipeline.commit_operations(transaction.operations)
    except RederiveError as error:
        raise error.at(transaction.place) from None


def _write_version(db: Database, result: rederive.Result, output: IO[bytes], shown: bool = True) -> dict[str, Any]:
    """Write the changes of one version, if they are shown, or the answer to a query. Return its cost."""
    if result.answer is not None:
        output.write(answer_line(result.answer))
    for view, change in result.changes.items() if shown else ():
        output.write(change_line(result.version, view, change.plus, change.minus, change.counts))
    for firing in result.firings:
        output.write(firing_line(firing))
    cost: dict[str, Any] = {"version": result.version, "seconds": result.seconds, "touched": result.touched}
    cost |= (
        {"estimated": result.estimated, "recomputed": result.recomputed} if db.pipeline.state.settings.strategy == AUTO else {}
    )
    # Rows of views that are not stored, and rules that path analysis left out: zero under other strategies.
    cost |= {"derived": dict(result.derived), "skipped": result.skipped}
    cost |= {"jobs": result.jobs} if result.engine == "spark" else {}
    cost |= {"settle_seconds": round(result.settle_seconds, 6)} if result.settle_seconds else {}
    cost |= {"fired": dict(Counter(firing.rule for firing in result.firings))} if db.rules else {}
    return cost | {"engine": result.engine, "engine_reason": result.engine_reason}


def _statistics(db: Database, versions: list[dict[str, Any]]) -> dict[str, Any]:
    # Linux gives KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "engine": db.pipeline.state.engine.name,
        "strategy": db.pipeline.state.settings.strategy,
        "versions": versions,
        "peak_memory_bytes": peak,
    }


def _trace_line(version: int, step: FilterStep) -> str:
    sets = {name: getattr(step, name) for name in ("updates", "approximation", "disqualified", "actual")}
    # HD94, Figure 3: actual = approximation - disqualified.
    fields = [f'"{name}": {rows_text(rows)}' for name, rows in sets.items()]
    head = f'"version": {version}, "rule": {json.dumps(step.rule)}, "updated": {json.dumps(step.updated)}'
    return f'{{{head}, "view": {json.dumps(step.view)}, "sign": "{step.sign}", {", ".join(fields)}}}\n'
