"""Without an extra, whatever needs it says which one to install; nothing else misses it.

Each test is one process in which the packages of the extras cannot be imported, and runs its calls one after the other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
{code}
"""
SPARK = {"pyspark", "delta", "py4j"}
SERVICE = {"starlette", "uvicorn", "uvloop", "httptools", "websockets", "prometheus_client", "netron"}
ALL = SPARK | SERVICE | {"httpx", "pandas", "polars"}


def python(code: str, folder: Path) -> str:
    """Run code where the packages of the extras cannot be imported; what it prints."""
    text = BLOCKED.format(packages=ALL, code=code)
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.dl").write_text('.decl e(x: symbol)  .decl p(x: symbol)  p(x) :- e(x).  e("a").\n')
    (tmp_path / "c.jsonl").write_text('{"insert": {"e": [["b"]]}}\n')
    return tmp_path


COMMANDS = """
import io
from contextlib import redirect_stderr, redirect_stdout
from rederive.cli.main import main
for arguments in {commands}:
    sys.argv, out, err, code = ["rederive", *arguments.split()], io.TextIOWrapper(io.BytesIO()), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    out.seek(0)
    print(arguments, code or 0, bool(out.read()), err.getvalue().replace("\\n", " "), sep="|")
"""


def test_a_command_names_the_extra(folder: Path) -> None:
    expected = {
        "run p.dl --lake lake": "spark",
        "run p.dl --engine spark": "spark",
        "run p.dl --engine auto": None,
        "shell --lake lake": "spark",
        "refresh lake": "spark",
        "stream p.dl --store s --changes in": "spark",
        "init project": None,
        "serve project": "service",
        "watch http://127.0.0.1:1 p": "client",
        "apply http://127.0.0.1:1 c.jsonl": "client",
        "query http://127.0.0.1:1 p(x)": "client",
        'why http://127.0.0.1:1 p("a")': "client",
        "run p.dl --changes c.jsonl --store s": None,
        "query s p(x)": None,
        'why s p("a")': None,
        "log s": None,
        "check p.dl": None,
        "explain p.dl": None,
    }
    printed = python(COMMANDS.format(commands=list(expected)), folder).splitlines()
    for line, (command, extra) in zip(printed, expected.items(), strict=True):
        if extra is None:
            assert line == f"{command}|0|True|"
        else:
            assert line.startswith(f"{command}|2|False|error[missing_dependency]: the Python package '")
            assert line.endswith(f"' is missing   help: pip install 'rederive[{extra}]' ")


CALLS = """
import rederive
from rederive.sources import ChangeFiles
db = rederive.open()
db.define('.decl e(x: symbol)  .decl p(x: symbol)  p(x) :- e(x).')
change = db.load("e", [("a",)]).changes["p"]
for call in (
    lambda: rederive.open(lake="lake"),
    lambda: rederive.open(engine="spark"),
    lambda: db.ingest(ChangeFiles("in")),
    lambda: db.tables.attach("t", "somewhere"),
    lambda: rederive.connect("http://127.0.0.1:1"),
    lambda: rederive.connect_async("http://127.0.0.1:1"),
    lambda: db.rows("p").to_pandas(),
    lambda: change.to_pandas(),
    lambda: db.query("SELECT * FROM p").to_polars(),
    lambda: change.to_polars(),
):
    try:
        call()
    except rederive.RederiveError as error:
        print(error.code, error.hint)
print(change.to_arrow().num_rows)
"""


def test_a_call_names_the_extra(folder: Path) -> None:
    extras = ["spark"] * 4 + ["client"] * 2 + ["pandas"] * 2 + ["polars"] * 2
    expected = [f"missing_dependency pip install 'rederive[{extra}]'" for extra in extras]
    assert python(CALLS, folder).splitlines() == [*expected, "1"]
