"""Files of programs, in Datalog or SQL, and the initial rows of their base relations."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rederive
from rederive.catalog import Catalog
from rederive.cli.output import show_progress
from rederive.database import Database
from rederive.errors import LateLoad, MalformedInput, MissingFile, UnknownOption
from rederive.ingest.input_file import check_keys, read_input, read_rows
from rederive.ir.rules import Input, Program
from rederive.ir.terms import Row
from rederive.lang.programs import SQL
from rederive.limits import Limits
from rederive.maintain.program import Strategy
from rederive.result import Result
from rederive.rows import base_relation
from rederive.store.journal.file import FILE
from rederive.store.journal.reader import JournalReader


@dataclass(frozen=True, slots=True)
class InitialRows:
    """Where initial rows come from: a folder of facts, and files for single relations.

    `inputs`: read the files of `.input` relations without a folder, too. Relations that the `store` has are not read again.
    """

    facts: Path | None
    base: tuple[str, ...]
    inputs: bool = True
    store: Path | None = None


def read_text(path: Path) -> str:
    """Read the text of a program."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedInput(f"the file is not UTF-8: {error.reason}").at(str(path)) from None
    except OSError as error:
        raise MissingFile(f"the program cannot be read: {error.strerror}").at(str(path)) from None


def load_functions(path: Path) -> dict[str, Callable[..., Any]]:
    """Return the functions that a Python file defines, by name, without those whose name starts with an underscore."""
    try:
        found = runpy.run_path(str(path), run_name=path.stem)
    except OSError as error:
        raise MissingFile(f"the actions cannot be read: {error.strerror}").at(str(path)) from None
    except Exception as error:  # whatever the file raises while it runs
        raise MalformedInput(f"the actions cannot be loaded: {type(error).__name__}: {error}").at(str(path)) from None
    own = {name: value for name, value in found.items() if inspect.isfunction(value) and value.__module__ == path.stem}
    return {name: function for name, function in own.items() if not name.startswith("_")}


def read_programs(paths: Sequence[Path]) -> Program:
    """Compile several files of Datalog to one program; a definition that several files have counts once."""
    found = Catalog()
    for path in paths:
        # Not `define`: files may share declarations, and the same definition twice is one.
        step = found.migrate(read_text(path), str(path), whole=False)
        found = step.after if step is not None else found
    return found.program


def define(db: Database, paths: Sequence[Path]) -> None:
    """Define the relations and views of files, one file after the other. Data changes of SQL are checked, and not made."""
    for path in paths:
        if path.suffix == SQL:
            from rederive.commit.sql_statements import SqlRun

            SqlRun(db.pipeline).define(read_text(path), str(path))
        else:
            db.define(read_text(path), str(path))


def migrate(db: Database, paths: Sequence[Path]) -> None:
    """Define what the database does not have of a Datalog program. One file must be the whole program of the database."""
    for path in paths:
        db.migrate(read_text(path), str(path), whole=len(paths) == 1)


class Loading:
    """The load of initial rows in a program with SQL: once, with the definitions before the first data change."""

    def __init__(self, db: Database, sources: InitialRows) -> None:
        self.db = db
        self.sources = sources
        self.loaded: frozenset[str] | None = None
        self.setup = db.setup()

    def __enter__(self) -> Self:
        self.setup.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # After an early load the setup has ended already; a later exception discards nothing of it.
        if self.loaded is None:
            self.setup.__exit__(kind, error, trace)

    def __call__(self) -> Result | None:
        """Load the rows of the tables that exist, and evaluate the views. Return the version that this makes."""
        if self.loaded is not None:
            return None
        program, names = (
            self.db.pipeline.state.catalog.program,
            {option: option.partition("=")[0] for option in self.sources.base},
        )
        # Tables that a later statement creates are refused by `check`, when all statements have run.
        ready = tuple(option for option, name in names.items() if name in program.tables)
        self.db.pipeline.load(initial_rows(program, replace(self.sources, base=ready)))
        self.loaded = frozenset(ready)
        self.setup.__exit__(None, None, None)
        return self.setup.result

    def check(self) -> None:
        """Refuse initial rows of tables that the program does not create, or creates after the first data change."""
        for option in self.sources.base:
            relation = base_relation(self.db.pipeline.state.program, option.partition("=")[0])
            # An unknown table is reported by `base_relation` above, with the names that exist.
            if option not in (self.loaded or ()):
                raise LateLoad(
                    f"'{relation.name}' is created after a data change, and initial rows are loaded before the first one",
                    hint="create the table earlier, or INSERT the rows",
                )


def run_files(db: Database, paths: Sequence[Path], load: Loading) -> Iterator[Result]:
    """Run files of both languages in order, and yield the versions. Definitions that the store has are skipped."""
    from rederive.commit.sql_statements import SqlRun

    if load.sources.facts is not None and all(path.suffix == SQL for path in paths):
        raise UnknownOption("option of a SQL program", "--facts", ["--base"])
    with load:
        for path in paths:
            text = read_text(path)
            if path.suffix == SQL:
                yield from SqlRun(db.pipeline, load, again=True).run(text, str(path))
            elif (result := db.migrate(text, str(path), whole=len(paths) == 1)) is not None:
                yield result
        if (result := load()) is not None:
            yield result
    load.check()


def initial_rows(program: Program, sources: InitialRows) -> dict[str, list[Row]]:
    """Read the rows of `--base` files and of all other `.input` relations. Several directives of a relation add up."""
    # A file of --base replaces the .input files of its relation.
    found: dict[str, list[Row]] = {}
    for option in sources.base:
        name, equals, file = option.partition("=")
        if not equals or not file:
            raise MalformedInput(f"--base needs REL=FILE, not '{option}'", hint="for example --base edge=edges.csv")
        # `.input` relations of a program have an auxiliary base relation, which holds the rows of the files.
        relation = program.relations.get(f"{name}.input") or base_relation(program, name)
        rows = read_rows(Path(file), relation)
        # Here and not by the engine: the error names the file.
        check_keys(relation, rows, file)
        found.setdefault(relation.name, []).extend(rows)
    from_options = frozenset(found)
    if sources.facts is not None and not sources.facts.is_dir():
        raise MissingFile("the folder does not exist").at(str(sources.facts))
    # With a folder of facts every directive is read, as Soufflé does; without one, only what the store lacks.
    for directive in program.inputs if sources.facts is not None else _unread(program, sources):
        if directive.relation not in from_options:
            relation, folders = program.relations[directive.relation], _folders(directive, sources)
            rows = found.setdefault(relation.name, [])
            rows += read_input(directive, relation, *folders)
            check_keys(relation, rows, " or ".join(map(str, folders)))
    return found


def _folders(directive: Input, sources: InitialRows) -> tuple[Path, ...]:
    """Return where a directive's file may be: the folder of facts, or else that of the program and the working directory."""
    if sources.facts is not None:
        return (sources.facts,)
    # The folder of the program first: a program and its data move together.
    program = [Path(directive.span.source.name).parent] if directive.span is not None else []
    return (*program, Path())


def _unread(program: Program, sources: InitialRows) -> Iterable[Input]:
    """Return the directives that are read without a folder of facts."""
    if not sources.inputs or not program.inputs:
        return ()
    known = _relations_in(sources.store)
    return [directive for directive in program.inputs if directive.relation not in known]


def _relations_in(store: Path | None) -> Collection[str]:
    if store is None or not (store / FILE).exists():
        return ()
    # A reader takes no lock, so that the store may be open in another process.
    with JournalReader.read(store) as journal:
        return Catalog.of(journal.catalog.texts).program.relations


def open_for_questions(program: Path, facts: Path | None, base: Sequence[str] | None, limits: Limits) -> Database:
    """Open a database in memory for one question about a program."""
    # On demand, the bindings of a question restrict every rule: nothing else is evaluated.
    db = rederive.open(strategy=Strategy.ON_DEMAND.value, limits=limits)
    db.pipeline.state.reports_outputs = False
    with show_progress(f"reading {program}"):
        list(run_files(db, [program], Loading(db, InitialRows(facts, tuple(base or ())))))
    return db
