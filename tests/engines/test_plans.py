"""Plans as Spark SQL, without a Spark session: each kind of node and expression, rules, and the plans of the engine.

The expected text is in tests/golden/spark/*.sql, one query under each name. `make golden` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from rederive.analysis.bindings import join_order
from rederive.analysis.types import variable_types
from rederive.engines.spark.net.by_query import net_effect_plan
from rederive.engines.spark.net.net_effect import candidate_rows
from rederive.engines.spark.net.requested import ends_plan, requests_plan
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    Expression,
    FieldOf,
    InList,
    LogicalNot,
    Named,
    NullTest,
    SortKey,
    TypedValue,
    Window,
    call,
    conjunction,
    count_rows,
    disjunction,
    equal,
    infix,
    number,
    ref,
)
from rederive.engines.spark.plan.functors import Functors
from rederive.engines.spark.plan.nodes import (
    Aliased,
    Distinct,
    Filter,
    GroupBy,
    Hint,
    Join,
    JoinKind,
    Limit,
    OneRow,
    Plan,
    Projection,
    Repartition,
    Scan,
    Sort,
    UnionAll,
    Values,
    exists,
)
from rederive.engines.spark.plan.printer import print_expression, print_query
from rederive.engines.spark.plan.rule_query import RuleQuery
from rederive.engines.spark.plan.sources import Combined, Difference, Distributed, Local, Source, scan
from rederive.engines.spark.run.aggregates.by_group import rows_of_groups, summed_totals, totals_plan
from rederive.engines.spark.run.aggregates.from_scratch import native_plan, numbered_plan
from rederive.engines.spark.run.derivation_counts import counted_plan
from rederive.engines.spark.run.storage import duplicate_rows
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Aggregate, Atom, Comparison, Function, Negation, Order, Rule
from rederive.ir.terms import NUMBER, SYMBOL, Kind, Type
from rederive.lang import compile_program

Check = Callable[[str, Mapping[str, str]], None]
FOLDER = Path(__file__).parent.parent / "golden" / "spark"
R, S = Scan("r"), Scan("s")
C0, C1 = ref(0), ref(1)
SAME = (equal(ref(0, "a"), ref(0, "b")),)

EXPRESSIONS: Mapping[str, Expression | Named] = {
    "column": ColumnRef("c0", "a"),
    "all columns": AllColumns("a"),
    "symbol with quotes and a dollar": TypedValue("it's $5", SYMBOL),
    "NULL of a type": TypedValue(None, Type(Kind.DECIMAL, 10, 2)),
    "whole numbers": infix("+", number(3), number(-3)),
    "cast": Cast(C0, Type(Kind.UNSIGNED)),
    "function": call("coalesce", C0, C1),
    "conjunction": conjunction([C0, C1, LogicalNot(C0)]),
    "disjunction of nothing": disjunction([]),
    "null-safe equality": equal(C0, C1),
    "plain equality": equal(C0, C1, null_safe=False),
    "NULL tests": infix("OR", NullTest(C0), NullTest(C1, is_null=False)),
    "case": CaseWhen(((NullTest(C0), number(0)), (C1, number(1))), C0),
    "in": InList(C0, (number(1), number(2))),
    "field": FieldOf(call("f", C0), "error"),
    "window": Window(call("row_number"), (C0,), (SortKey(C1, descending=True, nulls_first=False),)),
    "named": Named(C0, "c1"),
}

NODES: Mapping[str, Plan] = {
    "one row": Projection(OneRow(), (Named(number(1), "c0"),)),
    "scan": R,
    "values": Values((NUMBER, SYMBOL), ((1, "a"),)),
    "values without rows": Values((NUMBER,), ()),
    "values without columns": Values((), ((),)),
    "inner join": Join(Aliased(R, "a"), Aliased(S, "b", Hint.BROADCAST), on=(equal(ref(0, "a"), ref(1, "b")),)),
    "cross join": Join(Aliased(R, "a"), Aliased(S, "b"), JoinKind.CROSS),
    "semi-join": Projection(Join(Aliased(R, "a"), Aliased(S, "b"), JoinKind.SEMI, SAME), (AllColumns("a"),)),
    "anti-join": Join(Aliased(R, "a"), Aliased(S, "b", Hint.SHUFFLE_HASH), JoinKind.ANTI, SAME),
    "a filter below a join": Join(Filter(Aliased(R, "a"), (NullTest(ref(0, "a")),)), Aliased(S, "b"), JoinKind.CROSS),
    "filter": Filter(R, (NullTest(C0), C1)),
    "a filter above a projection": Filter(Projection(R, (Named(C1, "c0"),)), (NullTest(C0),)),
    "projection": Projection(R, (C1, Named(C0, "c1"))),
    "group by": GroupBy(R, (C0,), (C0, Named(call("sum", C1), "c1"))),
    "group by nothing": GroupBy(R, (), (count_rows(),), infix(">", count_rows(), number(0))),
    "a filter above groups": Filter(GroupBy(R, (C0,), (C0,)), (C0,)),
    "distinct": Distinct(Projection(R, (C0,))),
    "union": UnionAll((R, Projection(S, (C0,)), Values((NUMBER,), ((1,),)))),
    "a union of limited parts": UnionAll((Limit(R, 1), S)),
    "distinct of a union": Distinct(UnionAll((R, S))),
    "repartition": Distinct(Repartition(UnionAll((R, S)), 4, (C0,))),
    "sort and limit": Limit(Sort(Projection(R, (C0,)), (SortKey(C0),)), 2),
    "a limit of a limit": Limit(Limit(R, 3), 2),
    "exists": exists(Filter(R, (C0,))),
}


def test_expressions(check: Check) -> None:
    check("expressions", {name: print_expression(expression) for name, expression in EXPRESSIONS.items()})


def test_nodes(check: Check) -> None:
    check("nodes", {name: print_query(plan) for name, plan in NODES.items()})


def test_a_join_needs_aliases_and_conditions() -> None:
    with pytest.raises(TypeError, match="the left side of a join has no alias: Projection"):
        Join(Projection(R, (C0,)), Aliased(S, "b"), JoinKind.CROSS)
    with pytest.raises(ValueError, match="a INNER join with 0 conditions"):
        Join(Aliased(R, "a"), Aliased(S, "b"))
    with pytest.raises(ValueError, match="a union without parts"):
        UnionAll(())


def test_a_threshold_is_at_least_minus_one() -> None:
    with pytest.raises(ValueError, match=r"Tuning\.driver_rows is -2"):
        Tuning(driver_rows=-2)


# Sources


def distributed(types: Iterable[Type], name: str, rows: int) -> Distributed:
    """Rows in Spark that no session has."""
    return Distributed(tuple(types), name, rows, lambda: None)  # type: ignore[arg-type,return-value]


def test_sources(check: Check) -> None:
    types, tuning = (NUMBER,), Tuning()
    many, more = distributed(types, "many", 10_000_000), distributed(types, "more", 10_000_000)
    few, none = Local(types, frozenset({(1,)})), Local(types, frozenset())
    sources: dict[str, Source] = {
        "local": few,
        "distributed": many,
        "combined": Combined(types, (many, few)),
        "combined with nothing": Combined(types, (many, none)),
        "difference of a few": Difference(many, few, null_safe=False),
        "difference of many": Difference(many, more),
        "overlay": Combined(types, (Difference(many, few), more)),
    }
    check("sources", {name: print_query(scan(source, tuning)) for name, source in sources.items()})


# Rules

PROGRAM = """
.decl p(x: number, y: symbol)  .decl q(y: symbol, z: number)  .decl k(y: symbol, z: number) key(y)  .decl e()
.decl v(x: number, z: number)  .decl w(x: number)  .decl u(x: number, y: symbol)  .decl n(x: number)
"""
RULES = {
    "a join": "v(x, z) :- p(x, y), q(y, z).",
    "a product": "v(x, z) :- p(x, _), q(_, z).",
    "a repeated variable and a constant": 'w(x) :- p(x, "a"), v(x, x).',
    "negation": "u(x, y) :- p(x, y), !q(y, x).",
    "negation of a relation without columns": "w(x) :- n(x), !e().",
    "a comparison": 'v(x, z) :- p(x, y), q(y, z), x < z, y != "b".',
    "arithmetic that may fail": "v(x, z) :- n(x), z = x * x - 1.",
    "a division in a test": "w(x) :- n(x), 10 / x > 2.",
    "a computed value that is joined": "v(x, z) :- n(x), z = x + 1, n(z).",
    "functors of symbols": "u(x, y) :- p(x, z), y = cat(z, substr(z, x, 2)).",
    "a Python function": 'w(x) :- p(x, y), match("a.*", y).',
}


@pytest.mark.parametrize("size", ["small", "large"])
def test_rules(check: Check, size: str) -> None:
    """Rule, plan, SQL: over relations that fit a broadcast, and over relations that do not."""
    found = {}
    for name, text in RULES.items():
        program = compile_program(PROGRAM + text)
        (rule,) = (one for one in program.definitions if isinstance(one, Rule))
        query = RuleQuery(Functors(lambda *_: None), variable_types(rule, program.relations), Tuning())
        rows = 1_000 if size == "small" else 10_000_000
        for step in join_order(list(rule.body), frozenset()):
            match step.literal:
                case Comparison():
                    query.compare(step.literal)
                case Negation(Atom() as atom):
                    relation = program.relations[atom.relation]
                    query.exclude(atom, distributed(relation.types, atom.relation, rows), relation)
                case Atom() as atom:
                    relation = program.relations[atom.relation]
                    query.join(atom, distributed(relation.types, atom.relation, rows), relation)
        found[f"{name}: {text}"] = print_query(query.head(rule.head))
    check(f"rules_{size}", found)


def test_a_rule_that_starts_from_a_small_delta(check: Check) -> None:
    """The values of the delta are pushed into the scan; the smaller side is the build side."""
    program = compile_program(PROGRAM + RULES["a join"])
    (rule,) = (one for one in program.definitions if isinstance(one, Rule))
    (p, q) = (one for one in rule.body if isinstance(one, Atom))
    found = {}
    deltas: dict[str, Source] = {
        "local": Local((NUMBER, SYMBOL), frozenset({(1, "a")})),
        "large": distributed((NUMBER, SYMBOL), "d", 5_000),
    }
    for name, rows in deltas.items():
        query = RuleQuery(Functors(lambda *_: None), variable_types(rule, program.relations), Tuning())
        query.join(p, rows, program.relations["p"])
        query.join(q, distributed((SYMBOL, NUMBER), "q", 10_000_000), program.relations["q"])
        found[f"{name} delta"] = print_query(query.head(rule.head))
    check("rules_delta", found)


# Plans of the engine


def test_aggregates(check: Check) -> None:
    total, counted = (Aggregate("v", function, "r", (1,), 0) for function in (Function.SUM, Function.COUNT))
    best = Aggregate("v", Function.ROW_NUMBER, "r", (1,), None, order=(Order(0, descending=True),), most=3)
    plans = {
        "a sum by group": native_plan(total, R),
        "a count of everything": native_plan(Aggregate("v", Function.COUNT, "r", (), None), R),
        "the least": native_plan(Aggregate("v", Function.MIN, "r", (1,), 0), R),
        "numbered rows": numbered_plan(best, 2, R),
        "totals of two aggregates": totals_plan([total, counted], [(R, -1), (S, 1)]),
        "totals summed": summed_totals(UnionAll((R, S)), 1),
        "rows of groups": rows_of_groups(R, S, (1,), Hint.BROADCAST),
        "derivation counts": counted_plan([(R, False, 1), (S, True, -1)], (NUMBER,)),
    }
    check("aggregates", {name: print_query(plan) for name, plan in plans.items()})


def test_net_effects(check: Check) -> None:
    relations = compile_program(".decl r(k: number, v: symbol) key(k)  .decl s(v: symbol)").relations
    keyed, plain = relations["r"], relations["s"]
    plans = {
        "requests": requests_plan(keyed, [(R, 1, 0, 0), (S, None, 1, 1)]),
        "ends of requests": ends_plan(keyed, R),
        "net effect with a key and upserts": net_effect_plan(keyed, True, R, S, 4),
        "net effect without a key": net_effect_plan(plain, False, R, S, 4),
        "net effect without candidates": net_effect_plan(plain, False, R, None, 4),
        "candidate rows": candidate_rows(R, S, (0,), (InList(ref(0, "s"), (number(1),)),)),
        "rows that share a key": duplicate_rows(keyed, R, S),
    }
    check("net_effects", {name: print_query(plan) for name, plan in plans.items()})


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    """Compare queries with the golden file of a name, or write it."""

    def compare(name: str, found: Mapping[str, str]) -> None:
        text = "\n".join(f"-- {title}\n{query};\n" for title, query in found.items())
        file = FOLDER / f"{name}.sql"
        if request.config.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8")
        assert file.read_text(encoding="utf-8") == text

    return compare
