"""No call, text, argument or request ends in anything but an error of ours, and none of them in `internal`."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rederive
from rederive.boundary import Signal, boundary, guard, guard_class, mark_as_callers, to_public_error
from rederive.cli.main import INTERNAL, main
from rederive.errors import Internal, LimitExceeded, MissingDependency, RederiveError, TooDeep, WrongArgument, WrongRows, WrongUse
from tests.properties.any_sql import BASE, any_statement
from tests.selection import fast_only

LIMITS = rederive.Limits(seconds=2, growth=2**28)


# The boundary itself


def test_what_is_not_ours_becomes_internal_with_its_cause() -> None:
    with pytest.raises(Internal, match=r"KeyError: 'x'") as caught, boundary():
        dict[str, int]()["x"]
    assert isinstance(caught.value.__cause__, KeyError)
    assert "report" in str(caught.value.hint)


PASSING = [KeyboardInterrupt(), SystemExit(3), StopIteration(), Signal(), LimitExceeded("x"), mark_as_callers(KeyError("x"))]


@pytest.mark.parametrize("error", PASSING)
def test_what_passes_as_it_is(error: BaseException) -> None:
    @guard
    def call() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        call()
    assert caught.value is error


def test_recursion_and_memory_have_errors_of_their_own() -> None:
    assert isinstance(to_public_error(RecursionError()), TooDeep)
    assert isinstance(to_public_error(MemoryError()), LimitExceeded)


def test_generators_properties_and_coroutines_are_guarded() -> None:
    import asyncio

    @guard_class
    class Public:
        def numbers(self) -> Iterator[int]:
            yield 1
            raise KeyError("x")

        @property
        def one(self) -> int:
            raise KeyError("x")

        async def wait(self) -> None:
            raise KeyError("x")

    with pytest.raises(Internal):
        list(Public().numbers())
    with pytest.raises(Internal):
        _ = Public().one
    with pytest.raises(Internal):
        asyncio.run(Public().wait())


def test_workers_without_the_package_are_told_what_to_set() -> None:
    error = to_public_error(RuntimeError("Job aborted: ModuleNotFoundError: No module named 'rederive'"))
    assert isinstance(error, MissingDependency)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(error)


def test_a_bug_anywhere_below_a_public_method_is_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    db = rederive.open()
    db.define(".decl n(x: number)")
    monkeypatch.setattr(db.pipeline.state.engine, "net_effect", lambda operations: dict[str, int]()["a bug"])
    with pytest.raises(Internal, match="a bug"), db.transaction() as tx:
        tx.insert("n", [(1,)])


def test_the_callers_own_errors_pass() -> None:
    db = rederive.open()
    db.define(".decl n(x: number)  .decl p(x: number)  p(x) :- n(x).")

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx.insert("n", rows())

    def callback(change: rederive.Change) -> None:
        raise LookupError("mine")

    db.subscribe("p", callback)
    with pytest.raises(LookupError, match="mine"), db.transaction() as tx:
        tx.insert("n", [(2,)])


def test_wrong_calls_are_refused_by_name() -> None:
    db = rederive.open()
    db.define(".decl n(x: number)")
    calls: list[Callable[[], object]] = [
        lambda: db.define(5),  # type: ignore[arg-type]
        lambda: db.rows(None),  # type: ignore[arg-type]
        lambda: db.query(b"n(x)"),  # type: ignore[arg-type]
        lambda: db.define(),  # type: ignore[call-arg]
        lambda: db.rows(),  # type: ignore[call-arg]
        lambda: db.subscribe("n", 5),  # type: ignore[arg-type]
        lambda: rederive.open(retention="many"),  # type: ignore[arg-type]
        lambda: rederive.open(bogus=1),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.raises(WrongArgument):
            call()
    with pytest.raises(WrongRows), db.transaction() as tx:
        tx.insert("n", 5)  # type: ignore[arg-type]
    with pytest.raises(WrongUse):
        _ = db.transaction().result


# Texts


def checked(run: Callable[[], object], what: object) -> bool:
    """Whether it is answered; what is refused is refused by an error of ours."""
    try:
        run()
    except Internal as error:
        raise AssertionError(f"internal: {what}") from error
    except RederiveError as error:
        return not str(error)
    return True


def run_statements(seed: int, count: int) -> None:
    db: rederive.Database | None = None
    for number in range(count):
        random = Random(seed * 1_000_003 + number)
        if db is None or number % 40 == 0:
            strategy = random.choice(["auto", "on_demand", "counting", "recompute", "materialized", "filtration"])
            db = rederive.open(strategy=strategy, limits=LIMITS)
            db.sql(BASE)
        text = any_statement(random)
        run = db.query if text.lstrip().upper().startswith(("SELECT", "WITH")) else db.sql
        checked(lambda run=run, text=text: run(text), text)  # type: ignore[misc]


@pytest.mark.parametrize("seed", fast_only(range(3), 0))
def test_any_statement_of_sql(seed: int) -> None:
    run_statements(seed, 150)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_statements_of_sql(seed: int) -> None:
    run_statements(seed, 600)


WORDS = r"""
.decl .type .input .output .remote symbol number unsigned float boolean date decimal(4,1) key e t d f p x y k _ nil
true false 1 -1 0x1F 2u 1.5 99999999999999999999 "a" "2024-01-01" count sum min max mean cat strlen to_number substr ord
match contains band bnot ( ) { } , . ; : :- ! = != < <= + - * / % ^
""".split()
DECLARED = """.decl e(x: symbol, y: symbol) .decl t(k: number) .decl d(x: date, y: decimal(4,1)) .decl f(x: float)
.decl p(x: number) p(x) :- t(x), x > 1. .decl c(x: symbol, y: symbol) c(x, y) :- e(x, y). c(x, y) :- e(x, z), c(z, y)."""
RULES = """p(x) :- t(x), !t(y), y = x + 1.
p(n) :- n = count : t(_).
p(to_number(x)) :- e(x, _).
c(x, cat(x, y)) :- e(x, y).
p(1 / x) :- t(x).
p(x) :- t(x), (x < 3 ; x > 5).
p(max y : t(y)) :- t(x).
f(x) :- f(x).
p(x) :- p(y), x = y - 1, x > 0."""


@pytest.mark.parametrize("seed", fast_only(range(3), 0))
def test_any_rule_of_datalog(seed: int) -> None:
    for number in range(60):
        random = Random(seed * 1_000_003 + number)
        db = rederive.open(strategy=random.choice(["auto", "on_demand", "materialized", "filtration"]), limits=LIMITS)
        db.define(DECLARED)
        with db.transaction() as tx:
            tx.insert("e", [("a", "b"), ("b", "1")])
            tx.insert("t", [(0,), (2,), (9,)])
        for _ in range(4):
            words = random.choice(RULES.splitlines()).replace("(", " ( ").replace(")", " ) ").split()
            for _ in range(random.randrange(3)):
                words[random.randrange(len(words))] = random.choice(WORDS)
            text = " ".join(words)
            for run in (db.define, db.definitions.add_rule, db.query, db.definitions.remove_rule):
                checked(lambda run=run, text=text: run(text), text)  # type: ignore[misc]
        checked(lambda db=db: [db.rows(view) for view in db.pipeline.state.program.views], "rows")  # type: ignore[misc]


# Values

ODD: list[Any] = [
    None, 0, -1, 1.5, True, "", "x", "e", "v", b"x", [], {}, (), object(), [1], [()], [(1,)], [("a", "b")], {"e": [(1, 2)]},
    [{"x": 1}], float("nan"), float("inf"), 2**70, "SELECT", "é\x00", "\ud800", lambda: 1, [[1, 2, 3]], [None], "x" * 300,
    "SELECT 1", "e(x, y)", "e(", set(), range(3), [(None, None)], [(2**70, 1)], [(1.5, 2)], [("1", 2)], [(True, False)],
]  # fmt: skip
NOT_CALLED = {"close", "ingest", "begin", "commit", "write", "announce", "create", "run_rule_statement", "note_failure", "acting",
              "commit_together", "load_typed", "stands", "follow", "functions", "engine", "house", "trace",
              "advance", "evaluate_with", "followed", "followed_parts", "install_and_write", "install_parked",
              "take_back"}  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_odd_values(seed: int) -> None:
    random = Random(seed)
    db = rederive.open(limits=LIMITS)
    db.define(".decl e(x: number, y: number) .decl v(x: number) v(x) :- e(x, _). .decl s(k: symbol, d: decimal(5,2)) key(k)")
    names = [name for name, _ in inspect.getmembers(rederive.Database, inspect.isfunction) if name[0] != "_"]
    for _ in range(300):
        name = random.choice([name for name in names if name not in NOT_CALLED])
        values = [random.choice(ODD) for _ in range(random.randrange(4))]
        options = {random.choice(["x", "k", "only", "name", "since"]): random.choice(ODD)} if random.random() < 0.3 else {}

        def call(name: str = name, values: list[Any] = values, options: dict[str, Any] = options) -> None:
            if name == "transaction":
                with db.transaction() as tx:
                    getattr(tx, random.choice(["insert", "delete", "upsert"]))(*values)
                return
            found = getattr(db, name)(*values, **options)
            if hasattr(found, "__next__"):
                list(found)

        checked(call, (name, values, options))


# The command line


def test_a_bug_ends_a_command_with_70_and_shows_its_traceback_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "a.dl"
    program.write_text(".decl n(x: number)")
    monkeypatch.setattr("rederive.cli.program_commands.define", lambda db, program: dict[str, int]()["a bug"])
    for words, shown in (["check"], False), (["--debug", "check"], True):
        monkeypatch.setenv("REDERIVE_DEBUG", "0")
        monkeypatch.setattr(sys, "argv", ["rederive", *words, str(program)])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr().err
        assert ended.value.code == INTERNAL
        assert "error[internal]: rederive failed: KeyError: 'a bug'" in text
        assert ("Traceback" in text) is shown


@pytest.mark.parametrize("seed", fast_only(range(3), 0))
def test_any_arguments(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(seed)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.dl").write_text(DECLARED + " .output p .input t")
    (tmp_path / "b.sql").write_text(BASE)
    (tmp_path / "t.facts").write_text("1\n2\nx\n")
    (tmp_path / "c.jsonl").write_text('{"insert": {"t": [[3]]}}\n{"insert": {"e": [["a"]]}}\n')
    (tmp_path / "raw").write_bytes(b"\xff\x00")
    words = """check explain advise run log query init a.dl b.sql c.jsonl t.facts raw nothing . --facts --base t=t.facts t=raw =
    --changes --store st --strategy counting --only plus --initial --stats --format json --view p --max-rounds 3
    p(x) t( --since -1 é""".split()
    for _ in range(60):
        given = [random.choice(words[:7]), *(random.choice(words) for _ in range(random.randrange(6)))]
        monkeypatch.setattr(sys, "argv", ["rederive", *given])
        with contextlib.suppress(SystemExit):
            main()
        assert "error[internal]" not in capsys.readouterr().err, given


def test_the_process_exits_with_70() -> None:
    code = "from rederive.cli import main, program_commands as m; m.define = lambda d, p: {}['x']; main.main()"
    done = subprocess.run([sys.executable, "-c", code, "check", "a.dl"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (INTERNAL, False)
