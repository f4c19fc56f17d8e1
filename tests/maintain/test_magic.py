"""Magic sets: the rules for a question, their meaning, and how little of a large graph an answer touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.ir.printing import show_rule
from rederive.ir.rules import Aggregate, Atom, Column, Program, Relation, Rule, Variant, defines
from rederive.ir.terms import SYMBOL, Variable
from rederive.lang import compile_program
from rederive.maintain.passes.magic_sets import BindingPattern, aggregate_pattern, magic_relation
from rederive.maintain.program import MaintenanceProgram
from rederive.maintain.requested_queries import answering_rules
from tests.conftest import GOLDEN
from tests.oracle import evaluate
from tests.properties.test_maintained_equals_recomputed import examples

DECLARED = ".decl edge(x: symbol, y: symbol) .decl closure(x: symbol, y: symbol) closure(x, y) :- edge(x, y).\n"
RIGHT = DECLARED + "closure(x, y) :- edge(x, z), closure(z, y)."
LEFT = DECLARED + "closure(x, y) :- closure(x, z), edge(z, y)."
TWICE = DECLARED + "closure(x, y) :- closure(x, z), closure(z, y)."
PATTERNS: dict[str, tuple[int, ...]] = {"bf": (0,), "fb": (1,), "bb": (0, 1), "ff": ()}


def answering(program: Program, view: str, bound: tuple[int, ...]) -> list[Rule]:
    planned = MaintenanceProgram(program, (), ())  # without a section, every view is derived on demand
    queries = answering_rules([BindingPattern(view, bound)], planned)
    return list(dict.fromkeys(m.rule for rules in queries.values() for m in rules))


# As text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_rules_for_each_pattern_of_the_closure(golden: Callable[[str, str], None], pattern: str) -> None:
    rules = answering(compile_program(RIGHT), "closure", PATTERNS[pattern])
    golden(f"magic.closure.{pattern}.txt", "".join(f"{show_rule(rule)}\n" for rule in rules))


@pytest.mark.parametrize(
    ("program", "view", "bound"),
    [
        ("recursive_negation", "dark", (0,)),
        ("negation", "alone", (0,)),
        ("aggregates", "rich", (0,)),
        ("aggregates", "total", (0,)),
    ],
)
def test_the_rules_with_negation_and_with_aggregates(
    golden: Callable[[str, str], None], program: str, view: str, bound: tuple[int, ...]
) -> None:
    rules = answering(compile_program((GOLDEN / f"{program}.dl").read_text()), view, bound)
    golden(f"magic.{program}.{view}.txt", "".join(f"{show_rule(rule)}\n" for rule in rules))


def test_a_negated_view_is_asked_with_all_that_is_bound() -> None:
    program = compile_program((GOLDEN / "recursive_negation.dl").read_text())
    assert "m_reached^b(x) :- m_dark^b(x), node(x)." in map(show_rule, answering(program, "dark", (0,)))


def test_an_aggregate_asks_for_its_group() -> None:
    """The result column cannot be pushed down: all rows of the group are needed to fold it."""
    program = compile_program((GOLDEN / "aggregates.dl").read_text())
    (fold,) = program.definitions_of("total.sum1")
    for bound, asked in {(0,): (0,), (0, 1): (0,), (1,): (), (): ()}.items():
        assert isinstance(fold, Aggregate)
        assert aggregate_pattern(BindingPattern("total.sum1", bound), fold) == BindingPattern("pays", asked)


@pytest.mark.parametrize("program", ["closure", "negation", "recursive_negation", "aggregates"])
def test_whatever_magic_a_rule_reads_some_rule_derives(program: str) -> None:
    """No question is left unasked: each magic relation but the first is the head of a rule that is printed too."""
    compiled = compile_program((GOLDEN / f"{program}.dl").read_text())
    for view in compiled.views:
        arity = compiled.relations[view].arity
        for bound in ((), tuple(range(arity))):
            asked = magic_relation(BindingPattern(view, bound), compiled.relations[view]).name
            rules = answering(compiled, view, bound)
            heads = {defines(rule) for rule in rules}
            read = {edge for rule in rules for edge in names(rule) if edge.startswith("m_")}
            assert read <= heads | {asked}, f"{view}: {sorted(read - heads)}"


def names(rule: Rule) -> Iterable[str]:
    return (getattr(literal, "relation", "") for literal in rule.body)


# As what they mean: the oracle runs the printed rules

GRAPHS = st.sets(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=9)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("text", [RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
@examples(25)
@given(edges=GRAPHS, asked=st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")))
def test_the_rules_mean_the_question(text: str, pattern: str, edges: set[tuple[str, str]], asked: tuple[str, str]) -> None:
    program = compile_program(text)
    bound = PATTERNS[pattern]
    magic = magic_relation(BindingPattern("closure", bound), program.relations["closure"])
    rules = answering(program, "closure", bound)
    key = tuple(asked[i] for i in bound)
    found = evaluate(with_rules(program, rules, magic), {"edge": set(edges), "seed": {key}})["closure"]
    whole = evaluate(program, {"edge": set(edges)})["closure"]
    wanted = {row for row in whole if all(row[i] == asked[i] for i in bound)}
    assert {row for row in found if all(row[i] == asked[i] for i in bound)} == wanted
    assert found <= whole


def with_rules(program: Program, rules: Iterable[Rule], magic: Relation) -> Program:
    """The rewritten rules as a program of their own; `seed` holds the bindings that are asked for."""
    key = tuple(Variable(f"k{i}") for i in range(magic.arity))
    start = Rule(Atom(magic.name, key), (Atom("seed", key),))
    heads = {rule.head.relation: len(rule.head.terms) for rule in rules}
    relations = {name: Relation(name, (Column("c", SYMBOL),) * arity) for name, arity in heads.items()}
    relations |= {"edge": program.relations["edge"], "seed": magic, magic.name: magic}
    return Program(relations, (start, *rules))


# As work

CHAINS, LENGTH = 200, 20


@pytest.fixture(params=[RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
def chains(request: pytest.FixtureRequest) -> rederive.Database:
    """Many chains of 20 edges: 210 pairs each, 42,000 in all."""
    db = rederive.open(strategy="on_demand")
    db.define(request.param)
    db.load("edge", [(f"{c}.{i}", f"{c}.{i + 1}") for c, i in product(range(CHAINS), range(LENGTH))])
    return db


@pytest.mark.parametrize("bindings", [{"x": "7.15"}, {"y": "7.5"}, {"x": "7.15", "y": "7.18"}])
def test_a_bound_question_touches_its_own_chain_alone(chains: rederive.Database, bindings: dict[str, str]) -> None:
    found = chains.rows("closure", bindings)
    pairs = [(f"7.{i}", f"7.{j}") for i, j in product(range(LENGTH + 1), repeat=2) if i < j]
    assert found == sorted(row for row in pairs if all(row["xy".index(k)] == v for k, v in bindings.items()))
    assert 0 < chains.pipeline.state.engine.touched <= 4 * len(pairs)  # of 42,000


def test_a_query_touches_as_little(chains: rederive.Database) -> None:
    assert len(chains.query('closure("7.15", y)')) == 5
    assert chains.pipeline.state.engine.touched <= 50


def test_a_value_that_nobody_has_touches_nothing(chains: rederive.Database) -> None:
    chains.query('closure("7.15", y)')
    assert chains.query('closure("nowhere", y)') == []
    assert chains.pipeline.state.engine.touched == 0


def test_nothing_stays_after_a_question(chains: rederive.Database) -> None:
    chains.rows("closure", x="7.0")
    chains.query('closure(x, "7.3")')
    queries = chains.pipeline.state.engine.installed.queries  # type: ignore[attr-defined]
    for state in (Variant.OLD, Variant.NEW):
        assert not queries.derived("closure", state)
    assert queries.derived_sizes() == {}


def test_a_question_through_negation_and_aggregates_stays_small() -> None:
    db = rederive.open(strategy="on_demand")
    db.define(
        ".decl node(x: symbol) .decl edge(x: symbol, y: symbol) .decl closure(x: symbol, y: symbol)\n"
        ".decl apart(x: symbol, y: symbol) .decl reach(x: symbol, n: number)\n"
        "closure(x, y) :- edge(x, y). closure(x, y) :- edge(x, z), closure(z, y).\n"
        "apart(x, y) :- node(x), node(y), !closure(x, y).\n"
        "reach(x, n) :- node(x), n = count : { closure(x, _) }."
    )
    nodes = [f"{c}.{i}" for c, i in product(range(30), range(11))]
    db.load("node", [(n,) for n in nodes])
    db.load("edge", [(f"{c}.{i}", f"{c}.{i + 1}") for c, i in product(range(30), range(10))])
    assert db.rows("reach", x="3.4") == [("3.4", 6)]
    assert db.pipeline.state.engine.touched < 60
    assert db.rows("reach", x="3.4", n=6) == [("3.4", 6)]
    assert db.rows("reach", x="3.4", n=5) == []
    assert db.rows("apart", x="3.4", y="3.2") == [("3.4", "3.2")]
    assert db.pipeline.state.engine.touched < 60
    assert db.rows("apart", x="3.2", y="3.4") == []
