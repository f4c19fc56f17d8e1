"""`rederive shell`: a prompt for statements, rules and queries in both languages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

import rederive
from rederive import opening
from rederive.boundary import is_debugging, to_public_error
from rederive.cli.named_rows import JSON_ROW, ground_row
from rederive.cli.options import EngineName, Lake, StoredStrategy, StoreFolder, Zone
from rederive.cli.place_kinds import PlaceKind, only
from rederive.cli.program_files import InitialRows, Loading, read_text, run_files
from rederive.cli.shell_input import (
    WORDS,
    completions,
    has_rules,
    is_command,
    is_complete,
    is_sql,
    missing_end,
    signed_atoms,
    without_comments,
)
from rederive.cli.tables import print_result, print_rows
from rederive.cli.why_command import explain_row
from rederive.database import Database
from rederive.errors import Internal, UnknownName
from rederive.ingest.input_file import read_rows
from rederive.ir.printing import show_relation
from rederive.ir.terms import Row
from rederive.lang.programs import SQL
from rederive.result import Result
from rederive.rows import base_relation

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

MOST_ROWS: Final = 40
PROMPT, CONTINUED = "rederive> ", "     ...> "


def shell(
    program: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files in Datalog (.dl) or SQL (.sql) to begin with.", show_default=False, callback=only(PlaceKind.PROGRAM)
        ),
    ] = None,
    store: StoreFolder = None,
    lake: Lake = None,
    strategy: StoredStrategy = None,
    engine: EngineName = None,
    zone: Zone = None,
) -> None:
    """Open a prompt for statements, rules and queries, in SQL and Datalog. Changes of views are shown as tables.

    Without a store the database is in memory. `.help` lists the commands. Input that is piped in is run line by line; the exit
    code is then 2 if anything was refused.

    Example: `rederive shell examples/closure.dl --store graph`
    """
    folder, _ = opening.places(store, None, lake)
    with rederive.open(store, strategy=strategy, engine=engine, lake=lake, zone=zone) as db:
        session = Session(db, Console(highlight=False))
        for result in run_files(db, program, Loading(db, InitialRows(None, (), store=folder))) if program else ():
            print_result(session.console, result, MOST_ROWS)
        interactive = sys.stdin.isatty()
        if interactive:
            session.console.print(f"rederive {rederive.__version__}, {folder or 'in memory'}, version {db.version}. .help helps.")
        for text in _typed_inputs(session) if interactive else _piped_inputs():
            if not session.run(text):
                break
        if session.errors and not interactive:
            raise typer.Exit(2)


@dataclass
class Session:
    """A database and where its answers go."""

    db: Database
    console: Console
    errors: int = 0

    def run(self, text: str) -> bool:
        """Run one input, and tell whether the session goes on. It does after an error, which is printed."""
        try:
            if is_command(bare := without_comments(text).strip(), COMMANDS):
                # Whoever comes from another prompt ends everything with a semicolon.
                return self._command(bare.removesuffix(";").rstrip())
            self._execute(text)
        except Exception as raised:
            error = to_public_error(raised)
            if isinstance(error, Internal) and is_debugging():  # a bug of ours: its traceback is wanted
                raise
            self.errors += 1
            self.console.print(Text(str(error), style="red"), soft_wrap=True)
        return True

    def _execute(self, text: str) -> None:
        if not without_comments(text).strip():
            return
        if is_sql(text):
            self._print(self.db.sql(text, "input"))
        elif text.rstrip().endswith("?"):
            self._ask(without_comments(text).strip().removesuffix("?"))
        elif (atoms := signed_atoms(text)) is not None:
            self._commit(atoms)
        elif has_rules(text):
            # A relation that an earlier input declared may get its rules here.
            self._print([self.db.definitions.add_rule(text)])
        else:
            self._print([self.db.define(text, "input")])

    def _print(self, results: Sequence[Result | None]) -> None:
        made = [result for result in results if result is not None]
        for result in made:
            print_result(self.console, result, MOST_ROWS)
        if not made:
            self.console.print("ok", style="dim")

    def _ask(self, atom: str) -> None:
        rows = self.db.query(atom)
        print_rows(self.console, rows.columns, rows, MOST_ROWS)

    def _commit(self, atoms: list[tuple[str, str]]) -> None:
        with self.db.transaction() as tx:
            for sign, text in atoms:
                relation, row = ground_row(text, self.db.pipeline.state.program)
                (tx.insert if sign == "+" else tx.delete)(relation, [row])
        self._print([tx.result])

    # Commands

    def _command(self, text: str) -> bool:
        word, _, rest = text.partition(" ")
        word = WORDS.get(text.lower(), word)
        command = COMMANDS.get(word)
        if command is None:
            raise UnknownName("command", word, COMMANDS, None)
        command.run(self, rest.strip())
        return word != ".quit"

    def help(self, _: str) -> None:
        """List the commands."""
        print_rows(self.console, ("input", "what it does"), HELP)

    def tables(self, _: str) -> None:
        """List relations and views."""
        program = self.db.pipeline.state.program
        rows: list[Row] = [
            ("base" if name in program.tables else "view", show_relation(relation).removeprefix(".decl "))
            for name, relation in program.relations.items()
            if not relation.is_auxiliary
        ]
        print_rows(self.console, ("kind", "relation"), rows)

    def rules(self, _: str) -> None:
        """List the active rules."""
        rows: list[Row] = [(one.name, one.rule.priority, one.activity.is_active) for one in self.db.rules]
        print_rows(self.console, ("rule", "priority", "active"), rows)

    def show(self, name: str) -> None:
        """Show the rows of a relation."""
        rows = self.db.rows(name)
        print_rows(self.console, rows.columns, rows, MOST_ROWS)

    def why(self, text: str) -> None:
        """Explain a row: `.why closure("a", "c")`, or `.why closure ["a", "c"]`."""
        atom = text.removesuffix("?").removesuffix(".").rstrip()
        named = JSON_ROW.match(text)
        found = explain_row(self.db, named[1], named[2], name="input") if named else explain_row(self.db, atom, None)
        self.console.print(Text(str(found)), soft_wrap=True)

    def explain(self, name: str) -> None:
        """Explain how a view is maintained."""
        self.console.print(Text(self.db.explain(name or None)), soft_wrap=True)

    def load(self, text: str) -> None:
        """Load a file into a base relation: `.load edge edges.csv`."""
        name, _, file = text.partition(" ")
        rows = read_rows(Path(file.strip()), base_relation(self.db.pipeline.state.program, name))
        self._print([self.db.load(name, rows)])

    def read(self, file: str) -> None:
        """Run a file."""
        text = read_text(Path(file))
        self._print(self.db.sql(text, file) if Path(file).suffix == SQL else [self.db.define(text, file)])

    def quit(self, _: str) -> None:
        """End the session."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the shell: what follows its name, what it does."""

    arguments: str
    text: str
    run: Callable[[Session, str], None]


COMMANDS: Final = {
    ".help": Command("", "this list", Session.help),
    ".tables": Command("", "relations and views", Session.tables),
    ".rules": Command("", "active rules", Session.rules),
    ".show": Command("VIEW", "the rows of a relation or view", Session.show),
    ".why": Command("VIEW(ROW)", 'why a row is there, or why not: .why closure("a", "c")', Session.why),
    ".explain": Command("VIEW", "how a view is maintained", Session.explain),
    ".load": Command("RELATION FILE", "the rows of a file: .facts, .csv, .jsonl or .parquet", Session.load),
    ".read": Command("FILE", "run a file of Datalog (.dl) or SQL (.sql)", Session.read),
    ".quit": Command("", "end; also Ctrl-D", Session.quit),
}
HELP: Final[list[Row]] = [
    ("SELECT ...;", "a query, or any other statement of SQL; it ends with a semicolon"),
    (".decl edge(x: symbol, y: symbol)", "a relation of Datalog"),
    ("path(x, y) :- edge(x, y).", "a rule of Datalog; it ends with a dot"),
    ('+edge("a", "b"), -edge("b", "c").', "a transaction of Datalog: insert and delete rows"),
    ('path("a", y)?', "a query of Datalog"),
    *((f"{name} {command.arguments}".strip(), command.text) for name, command in COMMANDS.items()),
]


# Input


def _piped_inputs() -> Iterator[str]:
    """The inputs on standard input, each when it is complete."""
    text = ""
    for line in sys.stdin:
        text += line
        if is_command(text.strip(), COMMANDS) or is_complete(text) or not without_comments(text).strip():
            yield text
            text = ""
    if text.strip():
        yield text


def _typed_inputs(session: Session) -> Iterator[str]:
    prompt = _prompt(session.db)
    while True:
        try:
            yield prompt.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _prompt(db: Database) -> PromptSession[str]:
    """A prompt with history and completion. Enter ends an input that is complete, and otherwise begins a line.

    As in psql, an empty line ends nothing: statements that are pasted have some. What lacks its end is said once in a session.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings

    class ProgramCompleter(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            word = document.get_word_before_cursor(WORD=True)
            word = word[max(word.rfind(mark) for mark in "(, ") + 1 :]
            at_start = document.text_before_cursor.strip() == word
            for one in completions(word, db.pipeline.state.program, COMMANDS, at_start=at_start) if word else ():
                yield Completion(one, -len(word))

    keys = KeyBindings()
    shown: set[str] = set()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if not text.strip() or is_command(text.strip(), COMMANDS) or is_complete(text):
            buffer.validate_and_handle()
        else:
            if (hint := missing_end(text)) is not None and hint not in shown:
                shown.add(hint)
                run_in_terminal(lambda: print(hint))
            buffer.insert_text("\n")

    return PromptSession(
        history=FileHistory(str(_history_file())),
        completer=ProgramCompleter(),
        complete_while_typing=False,
        multiline=True,
        key_bindings=keys,
        prompt_continuation=CONTINUED,
    )


def _history_file() -> Path:
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rederive"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "history"
