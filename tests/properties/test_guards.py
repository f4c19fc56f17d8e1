"""What a literal guards is never evaluated before it, in any rewriting or join order.

Random programs divide, convert and overflow for values that other literals of the same rule may rule out: a comparison, an atom,
a negation. Where the oracle, which evaluates functors last, derives the views without a failure, every strategy must do so too,
change by change and for every bound question. Nullable columns, outer joins and casts of SQL are compared with DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.lang import compile_program
from tests.duck import empty_duckdb
from tests.oracle import Rows, evaluate
from tests.properties.programs import Body, Change, Draw, Row, Sample, Signature, atom, comparison, negation
from tests.properties.test_maintained_equals_recomputed import GENERAL, STRATEGIES, apply, changed, examples

NUMBERS: list[Any] = [0, 1, 2, 3]
SYMBOLS: list[Any] = ["1", "2", "x", ""]
BASES = (Signature("b0", ("number", "symbol")), Signature("b1", ("number", "number")), Signature("b2", ("symbol",)))
HUGE = 2**62


def hazard(draw: Draw, body: Body) -> str | None:
    """A number that some values make undefined."""
    terms = [t for n in body.bound["number"] for t in (f"12 / {n}", f"7 % ({n} - 1)", f"{n} * {HUGE}", f"{n} + 1")]
    terms += [f"to_number({s})" for s in body.bound["symbol"]]
    return draw(st.sampled_from(terms)) if terms else None


def guarded_rule(draw: Draw, head: Signature, positive: Sequence[Signature], lower: Sequence[Signature], recursive: bool) -> str:
    body = Body()
    body.literals += [atom(draw, body, relation) for relation in positive]
    firm = {kind: list(names) for kind, names in body.bound.items()}
    for i in range(draw(st.integers(0, 2))):
        if (term := hazard(draw, body)) is not None:
            into = draw(st.sampled_from([f"z{i} = {term}", f"{term} > 2", f"b1({term}, _)", f"!b1(_, {term})"]))
            body.literals.append(into)
            if into.startswith("z") and not recursive:
                firm["number"].append(f"z{i}")
    for _ in range(draw(st.integers(0, 2))):
        body.literals += comparison(draw, body) if draw(st.booleans()) else [negation(draw, body, draw(st.sampled_from(lower)))]
    terms = [draw(st.sampled_from(firm[kind] or ["1" if kind == "number" else '"1"'])) for kind in head.types]
    return f"{head.name}({', '.join(terms)}) :- {', '.join(draw(st.permutations(body.literals)))}."


@st.composite
def guarded(draw: Draw, recursive: bool) -> Sample:
    views: list[Signature] = []
    rules: list[str] = []
    for i in range(draw(st.integers(1, 3))):
        lower = [*BASES, *views]
        view = Signature(f"v{i}", ("number", *draw(st.sampled_from(["", "number", "symbol"])).split()))
        for _ in range(draw(st.integers(1, 2))):
            positive = draw(st.lists(st.sampled_from(lower), min_size=1, max_size=3))
            rules.append(guarded_rule(draw, view, positive, lower, recursive=False))
        if recursive and draw(st.booleans()):
            others = len(view.types) - 1
            again = f"{view.name}({draw(st.sampled_from(['i - 1', 'i + 1', '12 / i']))}{', _' * others})"
            bounds = f"{'b0' if 'symbol' in view.types else 'b1'}(i, x)"
            body = draw(st.permutations([again, bounds]))
            rules.append(f"{view.name}(i{', x' * others}) :- {', '.join(body)}.")
        views.append(view)
    return Sample(BASES, tuple(views), tuple(rules))


def rows(relation: Signature) -> st.SearchStrategy[list[Row]]:
    values = {"number": NUMBERS, "symbol": SYMBOLS}
    return st.lists(st.tuples(*(st.sampled_from(values[kind]) for kind in relation.types)), max_size=4, unique=True)


CHANGES = st.lists(
    st.one_of([st.tuples(st.sampled_from(["insert", "insert", "delete"]), st.just(base.name), rows(base)) for base in BASES]),
    min_size=1,
    max_size=4,
)


def check(
    sample: Sample, transactions: Sequence[list[Change]], strategy: str, asked: Sequence[int] = (*NUMBERS, 6), **options: Any
) -> None:
    program = compile_program(sample.text)
    db = rederive.open(strategy=strategy, **options)
    db.define(sample.text)
    base: Rows = {name: set() for name in program.bases}
    before = evaluate(program, base)
    for change in transactions:
        try:
            after = evaluate(program, changed(base, change))
        except (ArithmeticError, ValueError):
            continue  # the transaction may be refused
        with db.transaction() as tx:
            apply(tx, change)
        moved = {view: (sorted(after[view] - before[view]), sorted(before[view] - after[view])) for view in program.views}
        found = {view: (list(c.plus), list(c.minus)) for view, c in tx.result.changes.items()}
        assert found == {view: both for view, both in moved.items() if both != ([], []) and view in program.monitored}
        base, before = changed(base, change), after
        for view in (signature.name for signature in sample.views):
            assert db.rows(view) == sorted(after[view])
            for value in asked:
                assert db.rows(view, c0=value) == sorted(row for row in after[view] if row[0] == value)


@examples(60)
@given(guarded(recursive=True), st.lists(CHANGES, min_size=1, max_size=4), st.sampled_from(GENERAL))
def test_functors_wait_for_their_guards(sample: Sample, transactions: list[list[Change]], strategy: str) -> None:
    check(sample, transactions, strategy)


@examples(40)
@given(guarded(recursive=False), st.lists(CHANGES, min_size=1, max_size=4), st.sampled_from(STRATEGIES))
def test_functors_wait_for_their_guards_without_recursion(
    sample: Sample, transactions: list[list[Change]], strategy: str
) -> None:
    check(sample, transactions, strategy)


# -- named cases ------------------------------------------------------------------------------------------------------

GUARDED = {
    "by an atom behind a sum": "p(i) :- e(i), q(i + 1), small(i).",
    "by a test behind a sum": "p(i) :- e(i), q(i + 1), i < 5.",
    "by a negation behind a sum": "p(i) :- e(i), q(i + 1), !large(i).",
    "by an atom of the last variable": "p(z, i) :- e(i), z = i + 1, pair(i, y), small(i).",
    "by the other side of a bulk join": "r(i, z, y) :- e(i), z = 12 / (i - 5), pair(i, y).",
    "in an aggregate": "p(n) :- n = count : { e(i), q(i + 1), small(i) }.",
}
MOST = 2**63 - 1


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rule", GUARDED.values(), ids=GUARDED)
def test_a_failure_counts_only_for_rows_that_the_whole_body_lets_through(rule: str, strategy: str) -> None:
    arity = {"p(z": 2, "r(i": 3}.get(rule[:3], 1)
    head = f".decl {rule[0]}({', '.join(f'c{i}: number' for i in range(arity))})"
    db = rederive.open(strategy=strategy)
    db.define(f"""
        .decl e(i: number) .decl q(i: number) .decl small(i: number) .decl large(i: number) .decl pair(i: number, j: number)
        {head} {rule}
    """)
    with db.transaction() as tx:
        tx.insert("e", [(1,), (5,), (MOST,)])
        tx.insert("q", [(2,)])
        tx.insert("small", [(1,)])
        tx.insert("large", [(MOST,)])
        tx.insert("pair", [(1, 7)])
    found = db.rows(rule[0])
    assert len(found) == 1
    assert tx.result.changes[rule[0]].plus == found
    assert db.rows(rule[0], c0=found[0][0]) == found
    with db.transaction() as tx:
        tx.delete("e", [(1,)])
    assert tx.result.changes[rule[0]].minus == found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_failure_of_a_row_that_the_whole_body_lets_through_is_refused(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(".decl e(i: number) .decl small(i: number) .decl p(i: number) p(i + 1) :- e(i), small(i).")
    with db.transaction() as tx:
        tx.insert("e", [(1,), (MOST,)])
    with pytest.raises(rederive.RederiveError, match="overflows"), db.transaction() as tx:
        tx.insert("small", [(MOST,)])
    assert db.rows("p") == []


# -- SQL --------------------------------------------------------------------------------------------------------------

SQL_STRATEGIES = ("auto", "materialized", "counting", "on_demand", "filtration", "differencing", "recompute")
TABLES = (
    "CREATE TABLE t0 (a INT, b INT NOT NULL, s {text})",
    "CREATE TABLE t1 (a INT, b INT, s {text}, PRIMARY KEY (a))",
)


@st.composite
def joins(draw: Draw) -> str:
    """An outer join on inequalities, with terms that fail where a column is 0 or no number, guarded by the condition."""
    kind = draw(st.sampled_from(["LEFT", "RIGHT", "FULL", "INNER"]))
    one, two = draw(st.permutations(["t0", "t1"]))
    sides = st.sampled_from(["q1.a", "q1.b", "q2.a", "q2.b", "1"])
    operators = st.sampled_from(["<", "<=", ">", "<>", "="])
    tests = [f"{draw(sides)} {draw(operators)} {draw(sides)}" for _ in range(draw(st.integers(1, 2)))]
    column = draw(st.sampled_from(["q1.b", "q2.b", "q1.a", "q2.a"]))
    hazards = [
        f"CASE WHEN {column} <> 0 THEN 12 / {column} END > 4",
        f"{column} <> 0 AND mod(12, nullif({column}, 0)) < 3",
        f"length(q1.s) {draw(operators)} {draw(sides)}",
        "CAST(CASE WHEN q2.s IN ('1', '2') THEN q2.s END AS INT) < 2",
    ]
    tests += [draw(st.sampled_from(hazards))] if draw(st.booleans()) else []
    shown = st.sampled_from(["q1.a", "q1.b", "q2.a", "q2.b", "q1.s", "q2.s"])
    chosen = draw(st.lists(shown, min_size=1, max_size=3, unique=True))
    where = f" WHERE {draw(sides)} {draw(operators)} {draw(sides)}" if draw(st.booleans()) else ""
    columns = ", ".join(f"{name} AS x{i}" for i, name in enumerate(chosen))
    text = f"SELECT {columns} FROM {one} q1 {kind} JOIN {two} q2 ON {' AND '.join(tests)}{where}"
    match draw(st.sampled_from(["", "group", "distinct", "nested"])):
        case "group":
            return f"{text.replace('SELECT', 'SELECT count(*) AS n,', 1)} GROUP BY {', '.join(chosen)}"
        case "distinct":
            return text.replace("SELECT", "SELECT DISTINCT", 1)
        case "nested":
            return f"SELECT z.x0, q3.b AS y FROM ({text}) z LEFT JOIN t0 q3 ON {'z.x0' if chosen[0][-1] != 's' else '1'} < q3.a"
        case _:
            return text


INTS = st.sampled_from([None, 0, 1, 2, 3])
SQL_ROWS = st.tuples(st.sampled_from(["t0", "t1"]), INTS, st.sampled_from([0, 1, 2]), st.sampled_from([None, "1", "2", "x"]))


def run(query: str, steps: Sequence[Sequence[tuple[str, Any, int, str | None]]], strategy: str, **options: Any) -> None:
    db, duck = rederive.open(strategy=strategy, **options), empty_duckdb()
    for table in TABLES:
        db.sql(table.format(text="STRING"))
        duck.execute(table.format(text="VARCHAR").replace("PRIMARY KEY (a)", "UNIQUE (a)"))
    db.sql(f"CREATE VIEW v AS {query}")
    taken = set()
    bag: Counter[Row] = Counter()
    for step in steps:
        with db.transaction() as tx:
            for table, a, b, s in step:
                if table == "t1" and (a is None or a in taken):
                    continue
                taken |= {a} if table == "t1" else set()
                tx.insert(table, [(a, b, s)])
                duck.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (a, b, s))
        for change in tx.result.changes.values():
            counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
            bag.update(dict(zip(change.plus, counts["plus"], strict=True)))
            bag.subtract(dict(zip(change.minus, counts["minus"], strict=True)))
        expected = Counter(duck.execute(query.replace(" / ", " // ")).fetchall())
        assert Counter(db.rows("v")) == expected == +bag


@examples(60)
@given(joins(), st.lists(st.lists(SQL_ROWS, min_size=1, max_size=4), min_size=1, max_size=3), st.sampled_from(SQL_STRATEGIES))
def test_outer_joins_on_inequalities(query: str, steps: Any, strategy: str) -> None:
    run(query, steps, strategy)


@pytest.mark.parametrize("strategy", SQL_STRATEGIES)
def test_a_key_that_an_outer_join_made_null_is_not_compared(strategy: str) -> None:
    """Found: the question for x3 = NULL met `q1.a < q2.a` before t1, whose key is never NULL."""
    query = "SELECT q1.a AS x3 FROM t1 q1 RIGHT JOIN t0 q2 ON q1.a < q2.a GROUP BY q1.a"
    run(query, [[("t0", 3, 1, "1")], [("t1", 1, 2, "a")], [("t0", None, 1, None)]], strategy)


@pytest.mark.parametrize("strategy", SQL_STRATEGIES)
def test_rules_of_datalog_read_columns_that_hold_null(strategy: str) -> None:
    """A comparison with NULL does not hold, and what is computed from NULL is NULL."""
    db = rederive.open(strategy=strategy)
    db.sql("CREATE TABLE t (a INT, b INT, s STRING)")
    db.define("""
        .decl less(x: number)  less(x) :- t(x, y, _), x < y.
        .decl other(s: symbol)  other(s) :- t(_, _, s), !match("a+", s).
        .decl long(n: number)  long(n) :- t(_, _, s), strlen(s) > 1, n = strlen(s).
        .decl next(n: number)  next(n) :- t(x, _, _), n = x + 1, n > 0.
    """)
    db.sql("INSERT INTO t VALUES (NULL, 1, NULL), (1, NULL, 'b'), (1, 2, 'aa')")
    found = {name: db.rows(name) for name in ("less", "other", "long", "next")}
    assert found == {"less": [(1,)], "other": [("b",)], "long": [(2,)], "next": [(2,)]}


def test_sql_knows_which_columns_of_datalog_hold_null() -> None:
    """Found: a column of Datalog was taken for one without NULL, so that `count` counted it."""
    db = rederive.open()
    db.sql("CREATE TABLE t (a INT, b INT NOT NULL)")
    db.define("""
        .decl p(x: number, y: number, z: number)  p(x, y, x + y) :- t(x, y).
        .decl q(x: number, n: number)  q(x, n) :- p(x, _, _), n = max y : { p(x, y, _) }.
    """)
    marked = {name: [column.nullable for column in db.pipeline.state.program.relations[name].columns] for name in ("p", "q")}
    assert marked == {"p": [True, False, True], "q": [True, False]}
    db.sql("CREATE VIEW v AS SELECT count(*) AS n, count(x) AS x, count(y) AS y, count(z) AS z FROM p")
    db.sql("CREATE VIEW w AS SELECT y FROM p WHERE NOT (x < 5)")
    db.sql("INSERT INTO t VALUES (NULL, 1), (2, 3)")
    assert db.rows("v") == [(2, 1, 2, 1)]
    assert db.rows("w") == []
