"""The compiler of the resident engine: a rule's text in, the text of a Python function out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rederive.analysis.types import variable_types
from rederive.engines.resident.compile.findings import Counts, Keys, Pending, Target
from rederive.engines.resident.compile.rule_compiler import function_text
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.relations import Tables
from rederive.engines.resident.storage.codes import Codes
from rederive.ir.printing import show_literal, show_rule
from rederive.ir.rules import Rule
from rederive.lang import compile_program
from rederive.limits import Limits
from rederive.maintain.plan import plan

DECLARED = """
.decl edge(x: symbol, y: symbol)  .decl step(x: symbol, y: symbol)  .decl node(x: symbol)  .decl flag()
.decl sale(item: symbol, shop: symbol, n: number)  .decl price(item: symbol, p: number)
.decl p(x: symbol, y: symbol)  .decl q(x: symbol)  .decl r(item: symbol, n: number)  .decl closure(x: symbol, y: symbol)
"""
CLOSURE = "closure(x, y) :- edge(x, y). closure(x, y) :- edge(x, z), closure(z, y)."


@dataclass(frozen=True)
class Case:
    """The rule to compile comes last in `text`; `driver` is the body position that it starts from, in Datalog's order."""

    text: str
    driver: int | None
    into: str = "pending"
    strategy: str = "materialized"


CASES = {
    "closure_from_a_change": Case(CLOSURE, 1),
    "closure_from_a_step": Case(CLOSURE, 0),
    "closure_flow": Case(CLOSURE, 1, "keys"),
    "copy": Case("p(x, y) :- edge(x, y).", None),
    "join": Case("p(x, y) :- edge(x, z), step(z, y).", 0),
    "join_of_three_columns": Case("p(i, s) :- sale(i, s, n), price(i, n).", 1),
    "bitmap_intersection": Case("p(x, y) :- edge(x, y), step(x, y), node(y).", 0),
    "meeting": Case("q(x) :- node(x), edge(x, z), step(z, x).", 0),
    "projection": Case("q(x) :- edge(x, _).", 0),
    "constant": Case('q(y) :- edge("a", y).', None),
    "repeated_variable": Case("q(x) :- edge(x, x).", 0),
    "negation": Case("p(x, y) :- edge(x, y), !step(x, y).", 0),
    "negated_projection": Case("q(x) :- node(x), !step(x, x), !flag().", 0),
    "comparison_of_codes": Case('p(x, y) :- edge(x, y), x != y, y != "b".', 0),
    "comparison_with_null_test": Case("q(i) :- price(i, n), n > 3.", 0),
    "functor": Case("r(i, m) :- price(i, n), m = n + 1.", 0),
    "functor_that_can_fail": Case("r(i, m) :- price(i, n), sale(i, _, k), m = n / k, m > 1.", 0),
    "derivation_counts": Case("q(x) :- edge(x, y), node(y).", 0, "counts"),
    "aggregate_input": Case("r(s, n) :- sale(_, s, n), n >= 0.", 0),
    "lookup_of_a_derived_view": Case(f"{CLOSURE} p(x, y) :- node(x), closure(x, y), edge(y, x).", 0, strategy="on_demand"),
}


def compiled(case: Case) -> str:
    program = compile_program(DECLARED + case.text)
    rule = program.definitions[-1]
    assert isinstance(rule, Rule)
    maintenance = plan(program, program.views, case.strategy)
    codes = Codes()
    targets: dict[str, Target] = {"pending": Pending({}), "keys": Keys([]), "counts": Counts({}, [])}
    tables = Tables(maintenance, maintenance.derived_views, codes, Meter(), Limits())
    text = function_text(rule, case.driver, targets[case.into], tables.resolve, codes, variable_types(rule, program.relations))
    start = f"# from {show_literal(rule.body[case.driver])}" if case.driver is not None else "# from nothing"
    return f"# {show_rule(rule)}\n{start}\n{text}\n"


@pytest.mark.parametrize("name", CASES)
def test_the_function_of_a_rule(golden: Callable[[str, str], None], name: str) -> None:
    golden(f"compiled/{name}.txt", compiled(CASES[name]))
