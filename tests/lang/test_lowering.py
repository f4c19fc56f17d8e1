"""Each rule of Datalog's lowering, as pairs of a program and the rules that it becomes: `fixtures/lowering/<module>.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rederive.ir.printing import show_definition
from rederive.lang import compile_program
from tests.fixture_pairs import check_pairs, read_pairs

FOLDER = Path(__file__).parent / "fixtures" / "lowering"
SCHEMA = """
.decl edge(x: symbol, y: symbol)
.decl node(x: symbol)
.decl price(x: symbol, n: number)
.decl paid(d: date, amount: decimal(10,2))
.decl p(x: symbol)
.decl q(x: symbol, n: number)
.decl r(n: number)
"""


def lowered(text: str) -> str:
    """The rules and facts that a text adds to the schema."""
    program = compile_program(SCHEMA + text)
    rules = [show_definition(definition, program) for definition in program.definitions]
    facts = [f"fact {fact.relation}{fact.row!r}" for fact in program.facts]
    return "\n".join([*rules, *facts])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_lowering(path: Path, request: pytest.FixtureRequest) -> None:
    check_pairs(path, lowered, update=request.config.getoption("--update-golden"))


def test_each_module_that_lowers_has_its_pairs() -> None:
    pairs = {path.stem: len(read_pairs(path)[1]) for path in FOLDER.glob("*.txt")}
    assert pairs.keys() >= {"dnf", "clauses", "aggregates", "simplification", "lower"}
    assert sum(pairs.values()) >= 40
