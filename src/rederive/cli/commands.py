"""What the commands do. Output goes out only when a command has succeeded as a whole."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rich.console import Console

import rederive
from rederive.analysis.graph import strata
from rederive.engines.base import Call
from rederive.errors import MalformedInput, MissingFile, RederiveError, StrategyError
from rederive.ir.rules import Program
from rederive.ir.terms import Row
from rederive.ir.text import show_relation
from rederive.lang import compile_program
from rederive.lang.values import to_json
from rederive.maintain.choose import AUTO
from rederive.maintain.program import Strategy
from rederive.monitor.database import Database
from rederive.monitor.journal_reader import JournalReader
from rederive.monitor.store import changes_of
from rederive.monitor.transaction import base_relation
from rederive.pipeline.changes import Transaction, read_all_changes
from rederive.pipeline.files import check_keys, read_input, read_rows
from rederive.selfmaint.strategy import advise, show


def check(path: Path) -> None:
    program = read_program(path)
    declared = {name: relation for name, relation in program.relations.items() if not relation.auxiliary}
    levels = {name: level for name, level in strata(program.definitions).items() if name in declared}
    lines = ["relations"]
    for name, relation in declared.items():
        lines.append(f"  {'view' if name in program.views else 'base'}  {show_relation(relation)}")
    lines.append("strata")
    for level in sorted(set(levels.values())):
        lines.append(f"  S{level} = {{{', '.join(sorted(n for n in levels if levels[n] == level))}}}")
    lines += ["monitored", *(f"  {name}" for name in program.monitored)]
    print("\n".join(lines))


def explain_program(path: Path, view: str | None, strategy: str, form: str, sources: Sources) -> None:
    db = rederive.open(strategy=strategy)
    db.define(read_text(path), str(path))
    if rows := initial_rows(db.program, sources):
        db.load_typed(rows)
    print(db.explain(view, form))


def advise_program(path: Path, view: str | None, form: str) -> None:
    program = read_program(path)
    found = advise(program, view)
    if not found:
        hint = "declare base relations .remote, and views over them .stored"
        raise StrategyError("the program has no stored view over a remote relation", hint=hint).at(str(path))
    print(show(found, form))


@dataclass(frozen=True, slots=True)
class Sources:
    """Where initial rows come from: a folder of facts, and files for single relations."""

    facts: Path | None
    base: tuple[str, ...]


def run(
    opened: Callable[[], Database],
    path: Path,
    sources: Sources,
    changes: Path | None,
    initial: bool,
    stats: Path | None,
    trace: Path | None,
) -> None:
    """Everything is read before the database is opened: what is refused there leaves a store as it was, or none."""
    with progress(f"reading {path}"):
        program = read_program(path)
        rows = initial_rows(program, sources)
        transactions = read_all_changes(changes, program) if changes else ()
    calls: list[str] = []
    with opened() as db, _told_of_commits(db), _printed_at_the_end() as output:
        if (extended := db.ensure(read_text(path), str(path))) is not None:
            _write_changes(extended, output)
        if trace is not None:
            db.trace(lambda call: calls.append(_trace_line(db.version + 1, call)))
        versions = list(_versions(db, rows, transactions, initial, output))
        if db.lake is not None:
            with progress(f"settling into {db.lake}"):
                db.settle()
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
            gained = f"versions {start + 1} to {db.version} are committed: rederive log {db.store} --since {start}"
            error.hint = f"{error.hint}; {gained}" if error.hint else gained
        raise


def log(folder: Path, since: int | None, view: str | None) -> None:
    """The changes of committed versions, as `run` has printed them."""
    with JournalReader.read(folder) as journal, _printed_at_the_end() as output:
        for entry in journal.since(journal.reach(view) if since is None else since, view):
            for change in changes_of(entry):
                output.write(change_line(change.version, change.view, change.plus, change.minus))


def _trace_line(version: int, call: Call) -> str:
    sets = {name: getattr(call, name) for name in ("updates", "approximation", "disqualified", "actual")}
    fields = [f'"{name}": {_rows(rows)}' for name, rows in sets.items()]
    head = f'"version": {version}, "rule": {json.dumps(call.rule)}, "updated": {json.dumps(call.updated)}'
    return f'{{{head}, "view": {json.dumps(call.view)}, "sign": "{call.sign}", {", ".join(fields)}}}\n'


def _versions(
    db: Database, rows: Mapping[str, list[Row]], transactions: Iterable[Transaction], initial: bool, output: IO[bytes]
) -> Iterator[dict[str, Any]]:
    """Load, apply every transaction, write the changes; what each version cost."""
    with progress("evaluating"):
        started = time.perf_counter()
        touched = db.load_typed(rows)
        yield {"version": db.version, "seconds": time.perf_counter() - started, "touched": touched}
    if initial:
        for view in db.monitored:
            if answer := db.rows(view):
                output.write(change_line(db.version, view, answer, []))
    with progress("applying transactions"):
        for transaction in transactions:
            result = _commit(db, transaction)
            _write_changes(result, output)
            cost: dict[str, Any] = {"version": result.version, "seconds": result.seconds, "touched": result.touched}
            cost |= {"estimated": result.estimated, "anew": result.anew} if db.strategy == AUTO else {}
            cost |= {"derived": dict(result.derived), "skipped": result.skipped}
            yield cost | {"engine": result.engine, "why": result.why}


def _write_changes(result: rederive.Result, output: IO[bytes]) -> None:
    for view, change in result.changes.items():
        output.write(change_line(result.version, view, change.plus, change.minus))


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


def change_line(version: int, view: str, plus: Iterable[Row], minus: Iterable[Row]) -> bytes:
    """One line of the output contract.

    >>> change_line(1, "closure", [("h", "d")], [])
    b'{"version": 1, "view": "closure", "plus": [["h","d"]], "minus": []}\\n'
    """
    return f'{{"version": {version}, "view": {json.dumps(view)}, "plus": {_rows(plus)}, "minus": {_rows(minus)}}}\n'.encode()


def _rows(rows: Iterable[Row]) -> str:
    return json.dumps([[to_json(value) for value in row] for row in rows], separators=(",", ":"), ensure_ascii=False)


def query(path: Path, atom: str, sources: Sources, stats: Path | None) -> None:
    """Nothing is evaluated but what the question needs: its bindings go down through the rules."""
    db = rederive.open(strategy=Strategy.ON_DEMAND.value)
    with progress(f"reading {path}"):
        db.define(read_text(path), str(path))
        db.load_typed(initial_rows(db.program, sources))
    with progress("answering"):
        started = time.perf_counter()
        found = db.query(atom)
        seconds = time.perf_counter() - started
    if stats is not None:
        _write(stats, json.dumps({"rows": len(found), "seconds": seconds, "touched": db.engine.touched}, indent=2) + "\n")
    sys.stdout.buffer.writelines(f"{_rows([row])[1:-1]}\n".encode() for row in found)


def read_program(path: Path) -> Program:
    return compile_program(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a program."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedInput(f"not UTF-8: {error.reason}").at(str(path)) from None
    except OSError as error:
        raise MissingFile(f"cannot read the program: {error.strerror}").at(str(path)) from None


def initial_rows(program: Program, sources: Sources) -> dict[str, list[Row]]:
    """The rows of `--base` files and, with `--facts`, of every other `.input` relation."""
    found: dict[str, list[Row]] = {}
    facts = sources.facts
    for option in sources.base:
        name, equals, file = option.partition("=")
        if not equals or not file:
            raise MalformedInput(f"--base needs REL=FILE, not '{option}'", hint="for example --base edge=edges.csv")
        name = f"{name}.input" if f"{name}.input" in program.relations else name
        rows = read_rows(Path(file), base_relation(program, name))
        check_keys(program.relations[name], rows, file)
        found.setdefault(name, []).extend(rows)
    if facts is not None:
        if not facts.is_dir():
            raise MissingFile("no such folder").at(str(facts))
        for directive in program.inputs:
            if directive.relation not in found:
                relation = program.relations[directive.relation]
                found[directive.relation] = read_input(directive, relation, facts)
                check_keys(relation, found[directive.relation], str(facts))
    return found


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say what is going on, on a terminal; standard output stays clean."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield
