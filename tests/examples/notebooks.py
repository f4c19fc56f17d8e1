"""Notebooks, run without a kernel: the code cells of an .ipynb file in order, in one namespace, in this process.

`run_notebook` returns what every cell shows. A notebook in the repository holds what it showed when it was written, and a test
compares. `python -m tests.examples.notebooks FILE` writes what its cells show now; read the diff before you commit it.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from os import chdir
from pathlib import Path
from typing import Any, TypeAlias

Shown: TypeAlias = list[dict[str, Any]]
"""The outputs of a cell as the format has them: a stream of text, then the value of its last expression."""


def run_notebook(path: Path, folder: Path, **given: object) -> list[tuple[Shown, Shown]]:
    """Run a notebook in `folder`, with the `given` names defined. Return what each code cell stores and what it shows."""
    namespace: dict[str, Any] = {"__name__": "__main__", **given}
    with _working_directory(folder):
        return [
            (cell["outputs"], _run_cell("".join(cell["source"]), namespace, f"{path.name}, cell {number}"))
            for number, cell in _code_cells(path)
        ]


def write_outputs(path: Path, folder: Path, **given: object) -> None:
    """Run a notebook and store what its cells show."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    shown = [outputs for _, outputs in run_notebook(path, folder, **given)]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = shown.pop(0)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _code_cells(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], 1):
        if cell["cell_type"] == "code":
            yield number, cell


def _run_cell(source: str, namespace: dict[str, Any], name: str) -> Shown:
    tree, printed = ast.parse(source, name), io.StringIO()
    # As in a notebook: the value of the last expression is shown, unless a semicolon ends it.
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if isinstance(last, ast.Expr) else None
    text = printed.getvalue()
    shown: Shown = []
    if text:
        shown.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": value._repr_html_().splitlines(keepends=True), **data}
        shown.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return shown


@contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    chdir(folder)
    try:
        yield
    finally:
        chdir(before)


if __name__ == "__main__":
    for file in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            write_outputs(Path(file).resolve(), Path(scratch))
