"""A project is a folder with a `rederive.toml`: create one, read it, and open the database that it describes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from math import inf
from os import environ
from pathlib import Path
from typing import Final

import rederive
from rederive.database import Database
from rederive.errors import DataError, MalformedInput, MissingFile, ProjectError
from rederive.locations import local_folder
from rederive.queries import positions
from rederive.service.project_file import TomlTable, project_from
from rederive.service.settings import Project
from rederive.service.subscription_request import declared
from rederive.warehouse.bridge import WarehouseBridge, bridge_program_text
from rederive.warehouse.warehouse import warehouse_program

FILE: Final = "rederive.toml"
APPLIED: Final = "programs.sha256"
"""The file of a store that says which programs were applied to it last."""


def read_project(folder: Path, environment: Mapping[str, str] = environ) -> Project:
    """Read the project of a folder. Paths are relative to the folder; secrets come from the environment.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     init(Path(folder))
    ...     project = read_project(Path(folder))
    ...     str(project.address), [program.name for program in project.programs]
    ('127.0.0.1:8420', ['views.dl'])
    """
    folder = local_folder(folder, "a project")
    file = folder / FILE
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"the file is not TOML: {error}").at(str(file)) from None
    except OSError as error:
        raise ProjectError(f"the file cannot be read: {error.strerror}", hint="create one with: rederive init DIR").at(
            str(file)
        ) from None
    try:
        project = project_from(folder, TomlTable(read), environment)
        check_address(project)
    except ProjectError as error:
        raise error.at(f"{file}: {error.place}" if error.place else str(file)) from None
    return project


def check_address(project: Project) -> None:
    """Refuse to serve without tokens where other machines can connect."""
    if not project.tokens and not is_loopback(project.address.host):
        raise ProjectError(
            f"other machines can reach '{project.address.host}', and the project has no token",
            hint='add a [[token]], or listen on "127.0.0.1"',
        ).at("address")


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.5"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def open_project(project: Project) -> Database:
    """Open the project's database and apply its programs.

    The programs are applied to a new store, and again when their texts change. In between, the definitions of the store
    count: clients may have defined, replaced and dropped views.
    """
    texts = written = [(program, _text(program)) for program in project.programs]
    # A warehouse stores its views as tables (decision 0036): the program over these replaces the one that is written.
    warehouse = None
    if project.warehouse is not None:
        warehouse = warehouse_program((text, str(program)) for program, text in written)
        # Its text is Datalog, whatever the languages of the project are.
        texts = [(written[0][0].with_suffix(".dl"), bridge_program_text(warehouse))]
    # Opening reads everything that is stored, so the budgets of one operation begin afterwards.
    db = rederive.open(
        project.store,
        strategy=project.strategy,
        precision=project.precision,
        engine=project.engine,
        limits=replace(project.budgets, seconds=inf, rows=inf, growth=inf),
        retention=project.retention,
        lake=project.lake,
        webhooks=project.webhooks,
        zone=project.zone,
    )
    try:
        _apply(db, texts, project.store / APPLIED)
        if project.warehouse is not None and warehouse is not None:
            db.pipeline.state.bridge = WarehouseBridge(db.pipeline, warehouse, net=project.warehouse.net)
        _check_tokens(project, db)
        db.pipeline.state.limits = project.budgets
        db.pipeline.state.can_park = (
            False  # a definition whose evaluation does not end is refused: it must not block the views of others
        )
    except BaseException:
        db.close()
        raise
    return db


def _concatenate(texts: list[tuple[Path, str]]) -> tuple[str, str]:
    """Return the text of several files, and the name that errors use for it."""
    return "\n".join(text for _, text in texts), ", ".join(str(program) for program, _ in texts)


def _apply(db: Database, texts: list[tuple[Path, str]], applied: Path) -> None:
    # While the digest is equal, the definitions in the store count: they include what clients did over HTTP.
    digest = sha256(repr([(program.name, text) for program, text in texts]).encode()).hexdigest()
    if db.pipeline.state.program.relations and applied.is_file() and applied.read_text() == digest:
        return
    if db.pipeline.state.program.relations:
        for suffix in dict.fromkeys(program.suffix for program, _ in texts):
            _migrate(db, [(program, text) for program, text in texts if program.suffix == suffix])
    else:
        for program, text in texts:
            define = db.sql if program.suffix == ".sql" else db.define
            define(text, str(program))
    # Written after the definitions are durable. A kill in between applies the same texts again, which changes nothing.
    applied.write_text(digest)


def _migrate(db: Database, texts: list[tuple[Path, str]]) -> None:
    """Make the definitions of one language those of these files; what no file has is dropped."""
    db.migrate(*_concatenate(texts))


def _check_tokens(project: Project, db: Database) -> None:
    """Refuse a token that restricts unknown relations or columns: the restriction would have no effect."""
    for number, token in enumerate(project.tokens):
        for name, values in token.rows.items():
            try:
                positions(declared(db.pipeline.state.program, name), values)
            except DataError as error:
                raise ProjectError(error.message, hint=error.hint).at(f"{FILE}: token[{number}].rows.{name}") from None


def _text(program: Path) -> str:
    try:
        return program.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedInput(f"the file is not UTF-8: {error.reason}").at(str(program)) from None
    except OSError as error:
        raise MissingFile(f"the program cannot be read: {error.strerror}", hint=f"check 'programs' in {FILE}").at(
            str(program)
        ) from None


# A new project


def init(folder: Path) -> None:
    """Write a first project into a folder; an existing project is not changed."""
    folder = local_folder(folder, "a project")
    files = {FILE: _PROJECT, "views.dl": _PROGRAM}
    for name in files:
        if (folder / name).exists():
            raise ProjectError("the file exists", hint="choose another folder").at(str(folder / name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProjectError(f"the folder cannot be written: {error.strerror}").at(str(folder)) from None


_PROGRAM: Final = """\
// Which pairs of nodes are connected. Base relations have no rules; transactions change them.
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)

closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).

.output closure
"""

_PROJECT: Final = """\
# A project of rederive. Start it with `rederive serve FOLDER`. Paths are relative to this folder.

programs = ["views.dl"]        # Datalog (.dl) and SQL (.sql), in order
store = "store"                # base rows, versions and changes
# lake = "lake"                # Delta tables of relations, views and changes: a folder or s3a://...; needs Spark
# engine = "resident"          # resident, spark or auto
# strategy = "auto"
# zone = "Europe/Berlin"       # time zone of timestamps in SQL; UTC by default, and cannot change once the store exists
# tick = 1.0                   # seconds after which now() in SQL views advances to the time of the machine, as a version
retention = 100000             # versions from which a subscriber can resume
address = "127.0.0.1:8420"     # an address that other machines can reach needs a [[token]]
# origins = ["https://example.org"]   # web pages of other hosts that may send requests

# [budgets]
# memory = 8192                # MiB that relations and views may take
# rounds = 100000              # of one recursion, which may not end if it creates values
# tuples = 5000000
# seconds = 10                 # that one definition, transaction or query may take
# rows = 100000000             # that it may look at
# growth = 2048                # MiB by which it may grow the process

# [bounds]
# body = 8388608               # bytes of a request
# rate = 2000                  # requests in a second, for each token
# subscriptions = 10000
# queue = 256                  # events that wait for a client before they are coalesced
# heartbeat = 15               # seconds without an event before a progress event is sent

# [warehouse]                  # .remote relations stay in their sources; .stored views are stored here
# net = false                  # true: the sources report net changes only
# retry = 10                   # seconds between two attempts to update views that wait for a source

# [webhooks]
# hosts = ["hooks.example.com"]   # hosts that rules may post to
# secret = "WEBHOOK_SECRET"    # the environment variable with the secret that signs them
# private = false              # true: also http, this machine and private networks

# [[token]]
# name = "dashboard"
# secret = "DASHBOARD_TOKEN"   # the environment variable with the secret, of 16 characters or more
# read = ["closure"]           # views and relations; "*" for all
# write = ["edge"]             # base relations; "*" for all
# define = false               # define, replace and drop views
# admin = false                # subscriptions, metrics, rules and their firings
# rows = { closure = { x = "a" } }   # only rows with these values
"""
