"""What commands print: change lines, progress on a terminal, and files of statistics."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rich.console import Console

from rederive.database import Database
from rederive.errors import MissingFile
from rederive.ir.terms import Row
from rederive.records import Firing
from rederive.result import Answer
from rederive.values import to_json

_IN_MEMORY = 2**26  # bytes of output held in memory; more goes to a temporary file


def change_line(
    version: int, view: str, plus: Iterable[Row], minus: Iterable[Row], counts: Mapping[str, list[int]] | None = None
) -> bytes:
    """Encode a change as one line of JSON. `counts`: the multiplicity of each row, if not all are 1.

    >>> change_line(1, "closure", [("h", "d")], [])
    b'{"version": 1, "view": "closure", "plus": [["h","d"]], "minus": []}\\n'
    """
    # Left out for sets, so that their lines are the same as before bags existed.
    copies = f', "counts": {json.dumps(counts)}' if counts is not None else ""
    change = f'"plus": {rows_text(plus)}, "minus": {rows_text(minus)}{copies}'
    return f'{{"version": {version}, "view": {json.dumps(view)}, {change}}}\n'.encode()


def firing_line(firing: Firing) -> bytes:
    """Encode the firing of a rule as one line of JSON.

    >>> from rederive.ir.rules import Relation
    >>> firing_line(Firing(2, "low", "call", (("bolt",),), (), "done", "", Relation("low.condition", ())))
    b'{"version": 2, "rule": "low", "action": "call", "plus": [["bolt"]], "minus": []}\\n'
    """
    head = f'"version": {firing.version}, "rule": {json.dumps(firing.rule)}, "action": {json.dumps(firing.action)}'
    return f'{{{head}, "plus": {rows_text(firing.plus)}, "minus": {rows_text(firing.minus)}}}\n'.encode()


def answer_line(answer: Answer) -> bytes:
    """Encode the answer to a query as one line of JSON.

    >>> answer_line(Answer(("n",), [(1,), (2,)]))
    b'{"columns": ["n"], "rows": [[1],[2]]}\\n'
    """
    return f'{{"columns": {json.dumps(answer.columns)}, "rows": {rows_text(answer.rows)}}}\n'.encode()


def rows_text(rows: Iterable[Row]) -> str:
    """Encode rows as a JSON array.

    >>> rows_text([("a", 1)])
    '[["a",1]]'
    """
    # Without blanks, as the journal and HTTP write rows: the three can be compared as text.
    return json.dumps([[to_json(value) for value in row] for row in rows], separators=(",", ":"), ensure_ascii=False)


@contextmanager
def print_on_success() -> Iterator[IO[bytes]]:
    """Print what is written when the block ends; after an exception, print nothing."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as output:
        yield output
        output.seek(0)
        for block in iter(lambda: output.read(2**20), b""):
            sys.stdout.buffer.write(block)


@contextmanager
def show_progress(what: str) -> Iterator[None]:
    """Show on a terminal what a command is doing; standard output stays clean."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield


def write_file(path: Path, text: str) -> None:
    """Write a file of statistics or traces."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MissingFile(f"the file cannot be written: {error.strerror}").at(str(path)) from None


def settle_lake(db: Database) -> None:
    """Bring the tables of the lake to the last version, if there is a lake."""
    if db.pipeline.state.lake is not None:
        with show_progress(f"settling into {db.pipeline.state.lake}"):
            db.settle()
