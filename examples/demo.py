"""`make demo`: who is affected? Services on top of Debian's dependency graph, advisories, and who must be paged.

    python examples/demo.py             in memory, then in a lake with a stream and a page to look at; then it ends
    python examples/demo.py --memory    the first part alone: no Spark
    python examples/demo.py --keep      leaves the service and the stream running until Ctrl-C

Ends with an independent check: DuckDB computes every view from scratch, from the tables of the lake, and every row must be the
same. The dependency graph, the advisories and their scores are real; the services and teams are invented.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from os import close, dup, dup2
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

import rederive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
DATA = HERE / "data" / "debian_bookworm_depends.csv.gz"
PROGRAMS = (HERE / "affected.dl", HERE / "affected_report.sql")
VIEWS = ("depends_on", "affected", "exposure", "mixed")

# A service, its team, and the packages of Debian that it runs.
SERVICES = {
    "shop": ("web", ["nginx", "php8.2-fpm"]),
    "search": ("web", ["nodejs", "redis-server"]),
    "checkout": ("payments", ["openjdk-17-jre-headless", "postgresql-15"]),
    "ledger": ("payments", ["postgresql-15", "python3-django"]),
    "wiki": ("office", ["apache2", "mariadb-server"]),
    "mail": ("office", ["exim4-daemon-light"]),
    "files": ("office", ["samba"]),
    "dns": ("platform", ["bind9"]),
    "gateway": ("platform", ["haproxy"]),
    "queue": ("platform", ["rabbitmq-server"]),
    "build": ("platform", ["git", "docker.io"]),
    "bastion": ("platform", ["openssh-server"]),
}
TLS = [(package, "TLS") for package in ("libgnutls30", "libnss3", "libssl3")]
EXPAT = ("CVE-2024-45492", "libexpat1", 98)  # an integer overflow in the parser of XML that nearly everybody uses
XZ = ("CVE-2024-3094", "liblzma5", 100)
NGHTTP2 = ("CVE-2023-44487", "libnghttp2-14", 75)


@dataclass(frozen=True)
class Step:
    """One transaction of the story, and what it means."""

    says: str
    insert: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    delete: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)

    def line(self) -> str:
        """The transaction as a line of a change file."""
        return json.dumps({"says": self.says, "delete": self.delete, "insert": self.insert})


STORY = [
    Step("CVE-2024-45492 is published: libexpat1", {"advisory": [EXPAT]}),
    Step("git is rebuilt without libexpat1", delete={"depends": [("git", "libexpat1")]}),
    Step("checkout parses no XML from outside: mitigated", {"mitigated": [("checkout", EXPAT[0])]}),
    Step("CVE-2024-3094 is published: the backdoor of xz", {"advisory": [XZ]}),
    Step(
        "libsystemd0 stops linking liblzma5; nobody is safe, as dpkg still needs it",
        delete={"depends": [("libsystemd0", "liblzma5")]},
    ),
    Step("a new service, reports, runs Django", {"runs": [("reports", "python3-django")], "owner": [("reports", "data")]}),
    Step(
        "python3 moves from python3.11 to python3.13",
        {"depends": [("python3", "python3.13"), ("python3.13", "libc6")]},
        {"depends": [("python3", "python3.11")]},
    ),
    Step("CVE-2023-44487 is published: HTTP/2 rapid reset", {"advisory": [NGHTTP2]}),
    Step("CVE-2024-3094 is withdrawn: this release never had it", delete={"advisory": [XZ]}),
    Step("git loses libcurl3-gnutls, and with it its second TLS library", delete={"depends": [("git", "libcurl3-gnutls")]}),
]
ROUTINE = 15  # further transactions, each of which takes a dependency away, or puts it back

RULES = (
    "depends_on(p, q) :- depends(p, r), depends_on(r, q).",
    "affected(s, p, a) :- uses(s, p), advisory(a, p, _), !mitigated(s, a).",
)

console = Console(highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None, data: Path = DATA) -> int:
    options = argparse.ArgumentParser(description="Who is affected?")
    options.add_argument("--memory", action="store_true", help="the first part alone: no Spark")
    options.add_argument("--keep", action="store_true", help="leave the service and the stream running")
    options.add_argument("--port", type=int, default=8420, help="where the page is; 0 takes any free port")
    given = options.parse_args(arguments)
    in_memory(data)
    if given.memory:
        return 0
    with TemporaryDirectory(prefix="rederive-demo-") as folder:
        return 0 if in_a_lake(Path(folder), data, given.port, keep=given.keep) else 1


# 1. In memory


def in_memory(data: Path) -> None:
    """The whole program over the whole graph in this process."""
    title("1. In memory: Debian 12, twelve services, and an advisory")
    db = rederive.open()
    db.rules.register(page)
    depends = read_depends(data)
    loaded = 0
    with step(
        f"deriving what packages need: {depends.num_rows:,} dependencies",
        lambda: Count(loaded + db.pipeline.state.engine.touched, None, "rows looked at"),
    ) as done:
        with db.setup() as setup:
            define(db)
            for part in depends.to_batches(max_chunksize=20_000):
                db.load("depends", part)
                loaded += part.num_rows
            for relation, rows in invented_rows().items():
                db.load(relation, rows)
        assert setup.result is not None
        pairs = len(setup.result.changes["depends_on"].delta.plus)
        done(f"{pairs:,} pairs of depends_on from {depends.num_rows:,} dependencies of Debian 12")
    say("The views are rules over base relations (examples/affected.dl, affected_report.sql). Two of them:")
    for rule in RULES:
        say(f"  {rule}", "cyan")
    say("One transaction puts an advisory about libexpat1 in. These rows enter the views, and no others:")
    with db.transaction() as tx:
        tx.insert("advisory", [EXPAT])
    show(tx.result, "affected", "exposure")
    say("Why queue? It runs rabbitmq-server, which parses no XML. The derivation, down to rows of Debian:")
    say(str(db.why("affected", ("queue", "libexpat1", EXPAT[0]), width=1, depth=20)), "cyan")
    say("python3.11-minimal is rebuilt without libexpat1. ledger and queue leave; files stays, as libpython3.11 needs it, too:")
    with db.transaction() as tx:
        tx.delete("depends", [("python3.11-minimal", "libexpat1")])
    show(tx.result, "affected", "exposure")
    mixed = db.rows("mixed")
    say("An integrity view reports what should not be, and refuses nothing. Services with two TLS libraries:")
    say("  " + ", ".join(f"{service}: {one} and {other}" for service, _, one, other in (map(str, row) for row in mixed[:3])))
    say(f"  {len(mixed)} pairs in all")


def define(db: rederive.Database) -> None:
    """Define the program, in both languages."""
    for path in PROGRAMS:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".sql":
            db.sql(text, path.name)
        else:
            db.migrate(text, path.name, whole=False)


def invented_rows() -> dict[str, list[tuple[str, str]]]:
    """The services and teams, by relation."""
    return {
        "runs": [(service, package) for service, (_, packages) in SERVICES.items() for package in packages],
        "owner": [(service, team) for service, (team, _) in SERVICES.items()],
        "implements": TLS,
    }


def read_depends(data: Path) -> pa.Table:
    return pyarrow.csv.read_csv(data).rename_columns(["package", "on"])


def page(rows: Sequence[tuple[str]]) -> None:
    """The action of the rule page_team: a real one would call the pager."""
    for (team,) in rows:
        say(f"        pager: team {team} is paged, once", "bold yellow")


# 2. In a lake, with a stream and a page


def in_a_lake(folder: Path, data: Path, port: int, *, keep: bool) -> bool:
    """Spark loads the graph into Delta tables, a service shows it, and a stream changes it."""
    title("2. In a lake: Spark loads Delta tables, a service shows them, and a stream changes them")
    with ExitStack() as running:
        with step("starting Spark", lambda: lines_of(folder / "spark.log")) as done:
            spark = start_spark(folder / "spark.log")
            running.callback(spark.stop)
            done(f"Spark {spark.version} is running; its log is {folder / 'spark.log'}")
        db = rederive.open(lake=folder / "lake", spark=spark)
        db.rules.register(page)
        with step("loading the graph into Delta tables", spark_tasks(spark)) as done:
            define(db)
            db.load("depends", spark.read.option("header", True).csv(str(data)).toDF("package", "on").distinct())
            with db.transaction() as tx:  # a load would evaluate every view from scratch
                for relation, rows in invented_rows().items():
                    tx.insert(relation, rows)
            pairs = db.pipeline.state.engine.size("depends_on")
            done(f"{db.pipeline.state.engine.size('depends'):,} dependencies, {pairs:,} pairs of depends_on in {folder / 'lake'}")
        depends = db.rows("depends")
        url, end = serve(db, folder, port)
        say("")
        say(f"The page is open at {url}   <- look at it while the stream runs", "bold green")
        say("")
        steps = story(depends)
        stream = Stream(spark, url, folder / "changes", steps)
        try:
            stream.run(keep)
        finally:
            end()
        with step("settling into the lake", spark_tasks(spark)) as done:
            with rederive.open(lake=folder / "lake", spark=spark) as again:
                version = again.settle()
                tables = read_lake(folder / "lake", again)
            done(f"the lake is at version {version}")
        return check(tables)


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Send what this process and its children write to standard error into a file. A child that starts inside keeps it."""
    sys.stderr.flush()
    before = dup(2)
    with log.open("ab") as file:
        dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        dup2(before, 2)
        close(before)


def lines_of(log: Path) -> Count:
    return Count(log.read_bytes().count(b"\n") if log.exists() else 0, None, "lines in its log")


def start_spark(log: Path) -> SparkSession:
    from rederive.lake.session import spark_session

    # The JVM keeps the standard error that it starts with: its log goes to the file for good.
    with errors_to(log):
        return spark_session(options={"spark.driver.memory": "3g", "spark.ui.showConsoleProgress": "false"})


def spark_tasks(spark: SparkSession) -> Counted:
    """What counts the tasks of Spark from now on: how many are done, and how many are known. A stage that is over is done."""
    tracker, stages = spark.sparkContext.statusTracker(), dict[int, tuple[int, int]]()

    def counted() -> Count:
        active = {stage: found for stage in tracker.getActiveStageIds() if (found := tracker.getStageInfo(stage)) is not None}
        stages.update({stage: (total, total) for stage, (_, total) in stages.items() if stage not in active})
        stages.update({stage: (found.numCompletedTasks, found.numTasks) for stage, found in active.items()})
        return Count(sum(done for done, _ in stages.values()), sum(total for _, total in stages.values()), "tasks")

    return counted


def serve(db: rederive.Database, folder: Path, port: int) -> tuple[str, Callable[[], None]]:
    """Serve the database from another thread; its address, and what ends it."""
    from rederive.service.http.server import listen, make_server
    from rederive.service.settings import Address, Project

    project = Project(folder, (), folder / "lake" / "_store", str(folder / "lake"))
    try:
        listening = listen(Address("127.0.0.1", port))
    except rederive.RederiveError:
        listening = listen(Address("127.0.0.1", 0))  # the port is taken: another one
    server = make_server(project, db)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()

    def end() -> None:
        server.end()
        thread.join()

    return f"http://127.0.0.1:{listening.getsockname()[1]}/", end


def story(depends: Sequence[tuple[Any, ...]]) -> list[Step]:
    """The scripted transactions, and routine ones after them."""
    chosen = random.Random(7).sample(sorted(depends), ROUTINE) if len(depends) >= ROUTINE else []
    routine = [
        step
        for package, on in chosen
        for step in (
            Step(f"{package} loses {on}", delete={"depends": [(package, on)]}),
            Step(f"{package} has {on} again", {"depends": [(package, on)]}),
        )
    ]
    return [*STORY, *routine[:ROUTINE]]


@dataclass
class Stream:
    """A Structured Streaming query that reads a folder of change files, and commits each at the service."""

    spark: SparkSession
    url: str
    folder: Path
    steps: Sequence[Step]

    def run(self, keep: bool) -> None:
        """Write the files of the story, and follow the stream until all are committed; with `keep`, until Ctrl-C."""
        self.folder.mkdir()
        say(f"A stream reads {self.folder}, one file at a time. Each is a transaction, and is committed once:")
        done = Event()
        with rederive.connect(self.url) as service, rederive.connect(self.url) as other:
            changes = other.subscribe("affected", "exposure", "mixed")
            follower = Thread(target=follow, args=(changes,), daemon=True)
            follower.start()
            query = (
                self.spark.readStream.format("text")
                .option("maxFilesPerTrigger", 1)
                .load(str(self.folder))
                .writeStream.foreachBatch(lambda frame, number: self._commit(service, frame, number, done))
                .option("checkpointLocation", str(self.folder.with_name("checkpoint")))
                .start()
            )
            with progress("committing the stream", lambda: Count(self.committed, len(self.steps), "transactions")):
                for number, one in enumerate(self.steps, 1):
                    (self.folder / f".{number:03}").write_text(one.line() + "\n", encoding="utf-8")
                    (self.folder / f".{number:03}").rename(self.folder / f"{number:03}.jsonl")
                    time.sleep(0.5 if number <= len(STORY) else 0)
                while not done.wait(0.2) and query.isActive:
                    pass
            if keep:
                say(f"Still running. Write change files into {self.folder}, look at {self.url}, end with Ctrl-C.", "bold")
                try:
                    query.awaitTermination()
                except KeyboardInterrupt:
                    say("")
            query.stop()
            if (failure := query.exception()) is not None:
                raise failure
        say(f"The stream is at its end: {self.committed} transactions.")

    committed: int = 0

    def _commit(self, service: Any, frame: DataFrame, number: int, done: Event) -> None:
        for row in frame.collect():
            # The key makes a batch that Spark repeats after a crash harmless.
            key = f"demo-{number}"
            if self.committed < len(self.steps):
                change = json.loads(row.value)
                say(f"  {change.pop('says')}")
                service.apply(**change, key=key)
            else:
                commit_line(service, row.value, key)
            self.committed += 1
            time.sleep(0.1)  # so that what the subscriber receives is printed below what caused it
        if self.committed >= len(self.steps):
            done.set()


def commit_line(service: Any, line: str, key: str) -> None:
    """Commit a line that somebody wrote while the demo runs; a mistake in it ends nothing."""
    try:
        service.apply_lines([line], key)
    except rederive.RederiveError as error:
        say(f"  refused: {error}", "red")
    else:
        say("  a change of yours")


def follow(changes: Any) -> None:
    """Print what a subscriber of the service receives; the first change is the state at the beginning."""
    with suppress(rederive.RederiveError, RuntimeError):  # the demo ends while the subscription goes on
        for change in changes:
            if change.kind == "change":
                for view, delta in change.deltas.items():
                    show_change(view, list(delta.plus), list(delta.minus))


# The check


EXPECTED = {
    "depends_on": """WITH RECURSIVE pair(package, "on") AS (
        FROM depends UNION SELECT d.package, p."on" FROM depends d JOIN pair p ON d."on" = p.package) FROM pair""",
    "uses": """SELECT service, package FROM runs
        UNION SELECT r.service, d."on" FROM runs r JOIN depends_on d ON r.package = d.package""",
    "affected": """SELECT u.service, u.package, a.id AS advisory FROM uses u JOIN advisory a ON u.package = a.package
        WHERE NOT EXISTS (FROM mitigated m WHERE m.service = u.service AND m.advisory = a.id)""",
    "exposure": """SELECT o.team, count(DISTINCT a.service) AS services, max(v.severity) AS worst
        FROM affected a JOIN owner o ON a.service = o.service JOIN advisory v ON a.advisory = v.id GROUP BY o.team""",
    "mixed": """SELECT u.service, i.interface, u.package AS one, w.package AS other
        FROM uses u JOIN implements i ON u.package = i.package
        JOIN uses w ON u.service = w.service JOIN implements j ON w.package = j.package AND j.interface = i.interface
        WHERE u.package < w.package""",
}
BASES = ("depends", "runs", "owner", "advisory", "mitigated", "implements")


def read_lake(lake: Path, db: rederive.Database) -> dict[str, pa.Table]:
    """Base relations and views as another reader of Delta tables has them; a view that is not stored has no table."""
    from deltalake import DeltaTable, QueryBuilder

    def read(place: Path) -> pa.Table:
        # Through a query: this reader's frames know no deletion vectors.
        return pa.table(QueryBuilder().register("t", DeltaTable(str(place))).execute("SELECT * FROM t").read_all())

    places = {name: lake / "base" / name for name in BASES} | {name: lake / "views" / name for name in VIEWS}
    return {name: read(place) if place.exists() else db.rows(name).to_arrow() for name, place in places.items()}


def check(tables: Mapping[str, pa.Table]) -> bool:
    """Compute every view from scratch with DuckDB, and compare row by row."""
    connection = duckdb.connect()
    made: list[str] = []
    with step("DuckDB computes every view", lambda: Count(len(made), len(EXPECTED), "views")) as done:
        for name in BASES:
            connection.register("given", tables[name])
            connection.execute(f"CREATE TABLE {name} AS FROM given")
        for view, query in EXPECTED.items():
            connection.execute(f"CREATE TABLE {view} AS {query}")
            made.append(view)
        done("DuckDB computed every view from scratch, from the base relations of the lake")
    wrong = 0
    for view in VIEWS:
        columns = [name for (name, *_) in connection.execute(f"DESCRIBE {view}").fetchall()]
        connection.register("maintained", tables[view].select(columns))
        sizes = [
            _count(connection, query)
            for query in (f"FROM {view}", f"FROM {view} EXCEPT FROM maintained", f"FROM maintained EXCEPT FROM {view}")
        ]
        wrong += sizes[1] + sizes[2]
        style = "red" if sizes[1] or sizes[2] else "green"
        say(f"  {view}: {sizes[0]:,} rows; {sizes[1]:,} are missing, {sizes[2]:,} should not be there", style)
    say("Every view is right." if not wrong else "DIFFERENT.", "bold green" if not wrong else "bold red")
    return not wrong


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    [(number,)] = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    return int(number)


# Output: bars on a terminal, plain lines elsewhere


def title(text: str) -> None:
    say(f"\n{text}\n", "bold")


def say(text: str, style: str = "") -> None:
    console.print(Text(text, style=style))


def show(result: rederive.Result, *views: str) -> None:
    for view in views:
        if (change := result.changes.get(view)) is not None:
            show_change(view, change.plus, change.minus)
    say(f"        version {result.version}, {result.seconds * 1e3:.1f} ms", "dim")


def show_change(view: str, plus: Sequence[Sequence[Any]], minus: Sequence[Sequence[Any]]) -> None:
    for rows, sign, style in ((minus, "-", "red"), (plus, "+", "green")):
        if rows:
            shown = ", ".join("(" + ", ".join(map(str, row)) + ")" for row in rows[:3])
            say(f"      {sign} {len(rows):>3,} {view:<9} {shown}{', ...' if len(rows) > 3 else ''}", style)


class Count(NamedTuple):
    """How much of a step is done, of how much, where that is known."""

    done: int
    total: int | None
    unit: str

    def __str__(self) -> str:
        return f"{self.done:,}{f' of {self.total:,}' if self.total is not None else ''} {self.unit}"


Counted: TypeAlias = Callable[[], Count]


@contextmanager
def step(doing: str, counted: Counted) -> Iterator[Callable[[str], None]]:
    """Show a bar while something takes its time; then one line with how long it took and what was done."""
    said: list[str] = []
    started = time.perf_counter()
    with progress(doing, counted):
        yield said.append
    say(f"{time.perf_counter() - started:6.1f} s  {' '.join(said)}")


@contextmanager
def progress(doing: str, counted: Counted) -> Iterator[None]:
    """A bar with a running count on a terminal."""
    if not console.is_terminal:
        yield
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
    )
    ended = Event()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None, counts="")

        def poll() -> None:
            while not ended.wait(0.3):
                count = counted()
                bar.update(task, total=count.total or None, completed=count.done, counts=str(count))

        poller = Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            ended.set()
            poller.join()


if __name__ == "__main__":
    sys.exit(main())
