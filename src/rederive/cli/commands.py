"""What the commands do. Output goes out only when a command has succeeded as a whole."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console

import rederive
from rederive.analysis.graph import strata
from rederive.cli.program_files import (
    InitialRows,
    Loading,
    define,
    initial_rows,
    migrate,
    read_program,
    read_programs,
    run_files,
)
from rederive.database import Database
from rederive.engines.protocol import FilterStep
from rederive.errors import MissingFile, RederiveError, StrategyError
from rederive.ingest.change_file import Transaction, read_change_file_whole
from rederive.ir.printing import show_relation
from rederive.ir.terms import Row
from rederive.lang.programs import SQL
from rederive.locations import local_folder, parse_location
from rederive.maintain.plan import AUTO
from rederive.maintain.program import Strategy
from rederive.store import backup
from rederive.store.journal.reader import JournalReader
from rederive.store.store import changes_of
from rederive.values import to_json
from rederive.warehouse.selfmaint.advice import advise, show


def check(paths: Sequence[Path]) -> None:
    db = rederive.open()
    db.checks_actions = False  # functions and addresses are those of the process that will run the program
    define(db, paths)
    program = db.program
    declared = {name: relation for name, relation in program.relations.items() if not relation.auxiliary}
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
    print("\n".join(lines))


def explain_program(
    paths: Sequence[Path], view: str | None, rule: str | None, strategy: str, form: str, sources: InitialRows
) -> None:
    db = rederive.open(strategy=strategy)
    db.checks_actions = False
    with db.setup():
        define(db, paths)
        db.load_typed(initial_rows(db.definitions.program, sources))
    print(db.explain_rule(rule, form) if rule is not None else db.explain(view, form))


def advise_program(path: Path, view: str | None, form: str) -> None:
    """SQL has no remote tables, so a program of SQL has nothing to advise on."""
    found = advise(read_program(path), view) if path.suffix != SQL else ()
    if not found:
        hint = "in Datalog, declare base relations .remote, and views over them .stored"
        raise StrategyError("the program has no stored view over a remote relation", hint=hint).at(str(path))
    print(show(found, form))


def run(
    opened: Callable[[], Database],
    paths: Sequence[Path],
    sources: InitialRows,
    changes: Path | None,
    initial: bool,
    stats: Path | None,
    trace: Path | None,
) -> None:
    """Everything is read before a database with a store is opened: what is refused there leaves it as it was, or none."""
    read = _read(paths, sources, changes) if not any(path.suffix == SQL for path in paths) else None
    calls: list[str] = []
    with opened() as db, _told_of_commits(db), _printed_at_the_end() as output:
        if trace is not None:
            db.trace(lambda call: calls.append(_trace_line(db.version + 1, call)))
        if read is not None:
            versions = list(_versions(db, paths, *read, initial, output))
        else:
            versions = list(_sql_versions(db, paths, sources, changes, initial, output))
        if db.parked is not None:
            raise db.parked.error
        settle(db)
        if stats is not None:
            _write(stats, json.dumps(_stats(db, versions), indent=2) + "\n")
        if trace is not None:
            _write(trace, "".join(calls))


@contextmanager
def _printed_at_the_end() -> Iterator[IO[bytes]]:
    """What is written goes to standard output when all went well."""
    with tempfile.SpooledTemporaryFile(max_size=2**26) as output:
        yield output
        output.seek(0)
        for block in iter(lambda: output.read(2**20), b""):
            sys.stdout.buffer.write(block)


@contextmanager
def _told_of_commits(db: Database) -> Iterator[None]:
    """A failure says which versions a store has gained before it."""
    start = db.version
    try:
        yield
    except RederiveError as error:
        if db.store is not None and db.version > start:
            here = Path.cwd()
            folder = db.store.relative_to(here) if db.store.is_relative_to(here) else db.store
            gained = f"versions {start + 1} to {db.version} are committed: rederive log {folder} --since {start}"
            error.hint = f"{error.hint}; {gained}" if error.hint else gained
        raise


def log(folder: Path, since: str | None, view: str | None) -> None:
    """The changes of committed versions, as `run` has printed them."""
    with JournalReader.read(local_folder(folder, "a store")) as journal, _printed_at_the_end() as output:
        start = journal.version_at(int(since) if since.isdecimal() else since) if since is not None else journal.reach(view)
        for entry in journal.since(start, view):
            for change in changes_of(entry):
                output.write(change_line(change.version, change.view, change.plus, change.minus, change.counts))


def back_up(store: Path, target: Path) -> None:
    """Copy a store, and print what the copy is of."""
    _print_copied(backup.back_up(local_folder(store, "a store"), local_folder(target, "a backup")))


def restore(source: Path, store: Path, lake: str | None) -> None:
    """Make a store from a backup, and print its version and its new epoch."""
    folders = local_folder(source, "a backup"), local_folder(store, "a store")
    _print_copied(backup.restore(*folders, str(parse_location(lake)) if lake is not None else None))


def _print_copied(copied: backup.Copied) -> None:
    said = {"version": copied.version, "epoch": copied.epoch}
    lake = {"lake": copied.lake, "settled": copied.settled} if copied.lake is not None else {}
    print(json.dumps(said | lake))


def _trace_line(version: int, call: FilterStep) -> str:
    sets = {name: getattr(call, name) for name in ("updates", "approximation", "disqualified", "actual")}
    fields = [f'"{name}": {_rows(rows)}' for name, rows in sets.items()]
    head = f'"version": {version}, "rule": {json.dumps(call.rule)}, "updated": {json.dumps(call.updated)}'
    return f'{{{head}, "view": {json.dumps(call.view)}, "sign": "{call.sign}", {", ".join(fields)}}}\n'


def _sql_versions(
    db: Database, paths: Sequence[Path], sources: InitialRows, changes: Path | None, initial: bool, output: IO[bytes]
) -> Iterator[dict[str, Any]]:
    """Run the statements, file by file, then the transactions."""
    load, started = Loading(db, sources), {"version": db.version, "seconds": 0.0, "touched": 0}
    with progress("running statements"):
        costs = [_written(db, r, output, initial or r is not load.setup.result) for r in run_files(db, paths, load)]
    yield from costs if load.setup.result is not None else [started, *costs]
    transactions = read_change_file_whole(changes, db.program) if changes else ()
    for transaction in transactions:
        yield _written(db, _commit(db, transaction), output)


def _read(
    paths: Sequence[Path], sources: InitialRows, changes: Path | None
) -> tuple[dict[str, list[Row]], Sequence[Transaction]]:
    """The initial rows and the transactions for a program in Datalog."""
    with progress(f"reading {', '.join(map(str, paths))}"):
        program = read_programs(paths)
        transactions = read_change_file_whole(changes, program) if changes else ()
        return initial_rows(program, sources), transactions


def _versions(
    db: Database,
    paths: Sequence[Path],
    rows: Mapping[str, list[Row]],
    transactions: Iterable[Transaction],
    initial: bool,
    output: IO[bytes],
) -> Iterator[dict[str, Any]]:
    """Define and load, apply every transaction, write the changes; what each version cost."""
    with progress("evaluating"):
        started = time.perf_counter()
        with db.setup() as setup:
            migrate(db, paths)
            db.load_typed(rows)
        cost = {"version": db.version, "seconds": time.perf_counter() - started, "touched": setup.touched}
        yield _written(db, setup.result, output, initial) if setup.result is not None else cost
    with progress("applying transactions"):
        for transaction in transactions:
            yield _written(db, _commit(db, transaction), output)


def _written(db: Database, result: rederive.Result, output: IO[bytes], shown: bool = True) -> dict[str, Any]:
    """Write the changes of one version, where they are to be shown; what it cost."""
    if shown:
        _write_changes(result, output)
    cost: dict[str, Any] = {"version": result.version, "seconds": result.seconds, "touched": result.touched}
    cost |= {"estimated": result.estimated, "recomputed": result.recomputed} if db.strategy == AUTO else {}
    cost |= {"derived": dict(result.derived), "skipped": result.skipped}
    cost |= {"fired": dict(Counter(firing.rule for firing in result.firings))} if db.rules else {}
    return cost | {"engine": result.engine, "engine_reason": result.engine_reason}


def _write_changes(result: rederive.Result, output: IO[bytes]) -> None:
    for view, change in result.changes.items():
        output.write(change_line(result.version, view, change.plus, change.minus, change.counts))


def _commit(db: Database, transaction: Transaction) -> rederive.Result:
    """Errors that arise only against the data, such as duplicate keys, name the line too."""
    try:
        return db.commit(transaction.operations)
    except RederiveError as error:
        raise error.at(transaction.place) from None


def _stats(db: Database, versions: list[dict[str, Any]]) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"engine": db.engine.name, "strategy": db.strategy, "versions": versions, "peak_memory_bytes": peak}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MissingFile(f"cannot write: {error.strerror}").at(str(path)) from None


def change_line(
    version: int, view: str, plus: Iterable[Row], minus: Iterable[Row], counts: Mapping[str, list[int]] | None = None
) -> bytes:
    """One line of the output contract. `counts`: how many copies of each row, where that is not always 1.

    >>> change_line(1, "closure", [("h", "d")], [])
    b'{"version": 1, "view": "closure", "plus": [["h","d"]], "minus": []}\\n'
    """
    copies = f', "counts": {json.dumps(counts)}' if counts is not None else ""
    change = f'"plus": {_rows(plus)}, "minus": {_rows(minus)}{copies}'
    return f'{{"version": {version}, "view": {json.dumps(view)}, {change}}}\n'.encode()


def _rows(rows: Iterable[Row]) -> str:
    return json.dumps([[to_json(value) for value in row] for row in rows], separators=(",", ":"), ensure_ascii=False)


def query(path: Path, atom: str, sources: InitialRows, stats: Path | None, limits: rederive.Limits) -> None:
    """Nothing is evaluated but what the question needs: its bindings go down through the rules."""
    db = rederive.open(strategy=Strategy.ON_DEMAND.value, limits=limits)
    db.monitors = False
    with progress(f"reading {path}"):
        list(run_files(db, [path], Loading(db, sources)))
    with progress("answering"):
        started = time.perf_counter()
        found = db.query(atom)
        seconds = time.perf_counter() - started
    if stats is not None:
        _write(stats, json.dumps({"rows": len(found), "seconds": seconds, "touched": db.engine.touched}, indent=2) + "\n")
    sys.stdout.buffer.writelines(f"{_rows([row])[1:-1]}\n".encode() for row in found)


def settle(db: rederive.Database) -> None:
    """Bring the tables of the lake to the last version, where there is a lake."""
    if db.lake is not None:
        with progress(f"settling into {db.lake}"):
            db.settle()


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say what is going on, on a terminal; standard output stays clean."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield
