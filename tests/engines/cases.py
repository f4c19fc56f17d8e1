"""The program folders of `tests/programs`: program.dl, <relation>.facts, changes.jsonl, expected.jsonl.

`expected.jsonl` is what `rederive run` prints. It is computed by the oracle, never by an engine:
`PYTHONPATH=src:. python -m tests.engines.cases` rewrites it; review the difference before you commit it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rederive.ir.rules import Program
from rederive.ir.terms import Kind, Row, Type
from rederive.lang import compile_program
from tests.oracle import Rows, evaluate, initial

FOLDERS = sorted(path.parent for path in (Path(__file__).parent.parent / "programs").glob("*/program.dl"))

PARSERS = {Kind.SYMBOL: str, Kind.NUMBER: int, Kind.UNSIGNED: int, Kind.FLOAT: float}


@dataclass(frozen=True)
class Case:
    """One program with its data. A change maps `insert` and `delete` to rows by relation; deletes come first."""

    folder: Path
    text: str
    program: Program

    @property
    def facts(self) -> Rows:
        rows = initial(self.program)
        for item in self.program.inputs:
            types = self.program.relations[item.relation].types
            lines = (self.folder / f"{item.relation}.facts").read_text(encoding="utf-8").split("\n")[:-1]
            rows[item.relation] |= {parsed(line, types) for line in lines}
        return rows

    @property
    def changes(self) -> list[dict[str, dict[str, list[Any]]]]:
        return [json.loads(line) for line in (self.folder / "changes.jsonl").read_text(encoding="utf-8").splitlines()]

    @property
    def expected(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()]


def load(folder: Path) -> Case:
    text = (folder / "program.dl").read_text(encoding="utf-8")
    return Case(folder, text, compile_program(text))


def parsed(line: str, types: tuple[Type, ...]) -> Row:
    return tuple(PARSERS[type_.kind](text) for text, type_ in zip(line.split("\t"), types, strict=True))


def apply(program: Program, rows: Rows, change: dict[str, dict[str, list[Any]]]) -> Rows:
    """The base relations after one change: deletes, then inserts; an upsert replaces the row that has its key."""
    after = {name: set(members) for name, members in rows.items()}
    for name, gone in change.get("delete", {}).items():
        after[name] -= set(map(tuple, gone))
    for name, came in change.get("insert", {}).items():
        after[name] |= set(map(tuple, came))
    for name, came in change.get("upsert", {}).items():
        key = program.relations[name].key
        keys = {tuple(row[i] for i in key) for row in came}
        after[name] = {row for row in after[name] if tuple(row[i] for i in key) not in keys} | set(map(tuple, came))
    return after


def lines(case: Case) -> Iterator[dict[str, Any]]:
    """The expected output: version 1 is the initial answer, then the exact change of each view at each version."""
    states = [case.facts]
    for change in case.changes:
        states.append(apply(case.program, states[-1], change))
    before: Rows = {}
    for version, state in enumerate(states, start=1):
        after = evaluate(case.program, state)
        for view in case.program.monitored:
            old, new = before.get(view, set()), after[view]
            if old != new:
                yield {"version": version, "view": view, "plus": listed(new - old), "minus": listed(old - new)}
        before = after


def listed(rows: set[Row]) -> list[list[Any]]:
    return [list(row) for row in sorted(rows)]


if __name__ == "__main__":
    for each in FOLDERS:
        written = [json.dumps(line, ensure_ascii=False) for line in lines(load(each))]
        (each / "expected.jsonl").write_text("\n".join(written) + "\n", encoding="utf-8")
        print(f"{each.name}: {len(written)} lines")
