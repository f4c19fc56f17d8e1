"""Changes over tables of Arrow in the driver: rules, totals and net effects, against the resident engine and plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, udf

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.net import by_arrow
from rederive.engines.spark.plan.expressions import Named, number
from rederive.engines.spark.plan.nodes import OneRow, Projection
from rederive.engines.spark.plan.rule_plan import RulePlan
from rederive.engines.spark.plan.sources import Distributed, Local, Source
from rederive.engines.spark.run.aggregates.arrow_totals import table_totals
from rederive.engines.spark.run.arrow_sets import net_tables, subtract
from rederive.engines.spark.run.data_frames import DataFrameRows, take_unchecked
from rederive.engines.spark.run.driver_arrow import derive_table
from rederive.engines.spark.run.driver_rows import derive_rows
from rederive.engines.spark.run.evaluation import Derivation, RelationRound, evaluate_all
from rederive.engines.spark.session.types import from_arrow, from_spark, to_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.errors import IllTypedRow, NullInKey
from rederive.ir.rules import Aggregate, Atom, Column, Function, Relation, Rule
from rederive.ir.terms import NUMBER, SYMBOL, Kind, Part, Row, Type
from rederive.lake.frame_rows import requested_frame_rows
from rederive.lang import compile_program
from tests.oracle import consequences
from tests.properties.programs import DOMAIN, scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario

LEAST, GREATEST = -(2**63), 2**63 - 1


# Rules


def test_rules_find_what_the_oracle_finds(spark: SparkSession) -> None:
    """Every rule of random programs over random rows, from every literal; what is left to Spark is counted, not compared."""
    engine = SparkEngine(spark)
    answered = []

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(scenario=scenarios(), seed=st.integers(0, 2**32))
    def compare(scenario: Scenario, seed: int) -> None:
        program, chance = compile_program(scenario[0].text), random.Random(seed)
        rows = {name: some_rows(relation.types, chance) for name, relation in program.relations.items()}
        for rule in program.definitions:
            if not isinstance(rule, Rule):
                continue
            drivers = [None, *(i for i, literal in enumerate(rule.body) if isinstance(literal, Atom))]
            compiled = RulePlan(rule, chance.choice(drivers), program.relations)
            read = {place: rows[atom.relation] for place, atom in compiled.atoms}
            table = derive_table(compiled, read, engine.jobs)
            found = derive_rows(compiled, {place: tuple(source.rows) for place, source in read.items()}, 10_000)
            answered.append((table is not None, found is not None))
            if table is not None or found is not None:
                expected = consequences(rule, {name: set(source.rows) for name, source in rows.items()})
                assert found is None or found == expected, rule
                types = program.relations[rule.head.relation].types
                assert table is None or set(from_arrow(table, types)) == expected, rule

    compare()
    by_tables, by_rows = (sum(column) for column in zip(*answered, strict=True))
    assert by_tables > len(answered) / 3
    assert by_rows > len(answered) * 0.9


def some_rows(types: Sequence[Type], chance: random.Random) -> Local:
    kinds = {Kind.SYMBOL: "symbol", Kind.NUMBER: "number", Kind.FLOAT: "float"}
    rows = {tuple(chance.choice(DOMAIN[kinds[type.kind]]) for type in types) for _ in range(chance.randint(0, 8))}
    return Local(tuple(types), frozenset(rows))


def rule_of(text: str, spark: SparkSession, tuning: Tuning | None = None, **rows: list[Row]) -> set[Row] | None:
    """What the rule of a program derives over tables; None where it is left to Spark."""
    program = compile_program(text)
    (rule,) = (definition for definition in program.definitions if isinstance(definition, Rule))
    found = {name: Local(program.relations[name].types, frozenset(given)) for name, given in rows.items()}
    jobs = SparkEngine(spark, tuning=tuning).jobs
    compiled = RulePlan(rule, None, program.relations)
    table = derive_table(compiled, {place: found[atom.relation] for place, atom in compiled.atoms}, jobs)
    return None if table is None else set(from_arrow(table, program.relations[rule.head.relation].types))


JOIN = ".decl p(x: number, y: symbol)  .decl q(y: symbol, z: number)  .decl v(x: number, z: number)  v(x, z) :- p(x, y), q(y, z)."


def test_a_join(spark: SparkSession) -> None:
    found = rule_of(JOIN, spark, p=[(1, "a"), (2, "b"), (3, "c")], q=[("a", 7), ("a", 8), ("c", 9)])
    assert found == {(1, 7), (1, 8), (3, 9)}


def test_a_join_that_finds_too_much_is_left_to_spark(spark: SparkSession) -> None:
    few = Tuning(arrow_rows=10)
    alike: list[Row] = [(i, "a") for i in range(10)]
    assert rule_of(JOIN, spark, few, p=alike, q=[("a", i) for i in range(4)]) == {(i, j) for i in range(10) for j in range(4)}
    assert rule_of(JOIN, spark, few, p=alike, q=[("a", i) for i in range(5)]) is None
    apart: list[Row] = [(i, f"s{i}") for i in range(10)]
    assert rule_of(JOIN, spark, few, p=apart, q=[(f"s{i}", i) for i in range(10)]) == {(i, i) for i in range(10)}


@pytest.mark.parametrize("body", ["p(x, y), q(x, _)", "p(x, y), q(_, y)", "p(x, y), !q(x, y)"])
def test_a_join_of_arrays_is_left_to_spark(spark: SparkSession, body: str) -> None:
    declared = " ".join(f".decl {name}(x: number, y: symbol)" for name in "pqv")
    program, array = compile_program(f"{declared} v(x, y) :- {body}."), Type(Kind.ARRAY, parts=(Part("element", SYMBOL),))
    relations = {
        name: replace(relation, columns=(relation.columns[0], replace(relation.columns[1], type=array)))
        for name, relation in program.relations.items()
    }
    (rule,) = (definition for definition in program.definitions if isinstance(definition, Rule))
    compiled = RulePlan(rule, None, relations)
    rows = Local((NUMBER, array), frozenset({(1, ("a", "b")), (2, ())}))
    read: dict[int, Source] = {place: rows for place, _ in compiled.atoms}
    assert derive_table(compiled, read, SparkEngine(spark).jobs) is None


def test_a_product_is_left_to_spark(spark: SparkSession) -> None:
    text = ".decl p(x: number)  .decl q(y: number)  .decl v(x: number, y: number)  v(x, y) :- p(x), q(y)."
    assert rule_of(text, spark, p=[(1,)], q=[(2,)]) is None


def test_a_rule_in_the_driver_beside_one_on_spark(spark: SparkSession) -> None:
    """Found by random programs: what a rule derived in the driver was asked of Spark again, by a query that there was not."""
    engine, rule = SparkEngine(spark), Rule(Atom("v", ()), ())
    asked = Derivation(rule, Projection(OneRow(), (Named(number(0), "c0"),)))
    table = to_arrow([(i,) for i in range(3_000)] * 2, (NUMBER,))
    for large in (False, True):
        known = [Derivation(rule, rows=frozenset({(1,), (0,)})), Derivation(rule, table=table), asked]
        for derivations, rows in ((known[:2], 3_000), (known[1:], 3_000), (known[::2], 2), (known, 3_000), (known[:1], 2)):
            found = evaluate_all({"v": RelationRound((NUMBER,), derivations, large)}, engine.jobs)["v"]
            assert sorted(engine.jobs.queries.rows(found)) == [(i,) for i in range(rows)]


# NULL


NULLABLE = """
    CREATE TABLE p (x BIGINT, y STRING, n BIGINT);
    CREATE TABLE q (y STRING, z BIGINT);
    CREATE VIEW same AS SELECT x, z FROM p, q WHERE p.y <=> q.y;
    CREATE VIEW lone AS SELECT x, y FROM p WHERE NOT EXISTS (SELECT * FROM q WHERE q.y <=> p.y);
    CREATE VIEW sums AS SELECT y, sum(n) AS total, count(n) AS known, count(*) AS rows FROM p GROUP BY y;
    CREATE VIEW pairs AS SELECT DISTINCT y FROM p UNION SELECT y FROM q;
"""
VIEWS = ("same", "lone", "sums", "pairs")


@pytest.mark.parametrize("mode", ["tables", "jobs"])
def test_null_is_identical_to_null(spark: SparkSession, mode: str) -> None:
    """Random changes of tables with NULLs, in lists: the same changes as the resident engine's."""
    tables, only_jobs = Tuning(python_rows=-1, driver_rows=0), Tuning(python_rows=-1, arrow_rows=-1)
    chance = random.Random(7)
    ours, witness = databases(spark, tables if mode == "tables" else only_jobs)
    for db in (ours, witness):
        db.sql(NULLABLE)
    rows: dict[str, list[Any]] = {
        "p": [(x, y, n) for x in (1, None) for y in ("a", None) for n in (5, None)],
        "q": [("a", 1), (None, 2), ("b", None)],
    }
    for _ in range(4):
        steps = [(chance.choice(["insert", "delete"]), name, chance.sample(rows[name], 2)) for name in ("p", "q", "p")]
        found = [changed(db, steps) for db in (ours, witness)]
        assert found[0] == found[1], steps
    assert all(sorted(ours.rows(view), key=repr) == sorted(witness.rows(view), key=repr) for view in VIEWS)


def databases(spark: SparkSession, tuning: Tuning) -> tuple[rederive.Database, rederive.Database]:
    """A database on Spark, and one in memory that says what is right."""
    witness = rederive.open(engine="resident", strategy="materialized")
    return rederive.Database(SparkEngine(spark, tuning=tuning), "materialized"), witness


def changed(db: rederive.Database, steps: list[tuple[str, str, list[Any]]]) -> dict[str, tuple[list[Row], list[Row]]]:
    with db.transaction() as tx:
        for action, name, rows in steps:
            getattr(tx, action)(name, rows)
    changes = tx.result.changes
    return {name: (sorted(c.plus, key=repr), sorted(c.minus, key=repr)) for name, c in changes.items()}


# Totals


ROWS = st.tuples(
    st.sampled_from("ab"), st.one_of(st.none(), st.sampled_from([LEAST, GREATEST, -1, 0]), st.integers(LEAST, GREATEST))
)


@given(gone=st.lists(ROWS), came=st.lists(ROWS, min_size=1))
def test_totals_are_exact(gone: list[Row], came: list[Row]) -> None:
    """The sum of a group can be far beyond 64 bits on its way."""
    alike = [Aggregate("v", function, "r", (0,), value) for function, value in ((Function.SUM, 1), (Function.COUNT, None))]
    parts = [(to_arrow(rows, (SYMBOL, NUMBER)), times) for rows, times in ((gone, -1), (came, 1))]
    total = Type(Kind.DECIMAL, 38, 0)
    found = table_totals(alike, parts, (SYMBOL, NUMBER, NUMBER, total, NUMBER, total))
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for rows, times in ((gone, -1), (came, 1)):
        for group, value in rows:
            expected[group][0] += times
            if isinstance(value, int):
                expected[group][1] += times
                expected[group][2] += times * value
    assert {row[0]: [int(number) for number in row[1:]] for row in zip(*(c.to_pylist() for c in found.columns), strict=True)} == {
        group: [rows, known, whole, rows, 0] for group, (rows, known, whole) in expected.items()
    }


# Data frames


def test_a_table_with_an_empty_chunk_is_handed_to_spark_whole(spark: SparkSession) -> None:
    """Found by the benchmark's check: Spark reads a table up to its first empty chunk, which joins and filters of Arrow leave."""
    parts = [to_arrow([(n,) for n in numbers], (NUMBER,)) for numbers in (range(3_000), (), range(3_000, 6_000))]
    frame = SparkEngine(spark).jobs.frames.of_table(pa.concat_tables(parts), (NUMBER,))
    assert isinstance(frame, Distributed)
    assert sorted(frame.data.collect()) == [(n,) for n in range(6_000)]


FRAMES = {"few": (9, 2, True), "none": (0, 2, True), "many": (10, 2, False), "in many parts": (9, 17, False)}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_collected_where_it_is_small_and_always_evaluated_once(spark: SparkSession, name: str) -> None:
    """Counted by a function that runs for each row: a frame is collected, or counted and then fetched, and its digest taken."""
    rows, parts, is_collected = FRAMES[name]
    evaluated = spark.sparkContext.accumulator(0)
    noted = udf(lambda n: (evaluated.add(1), n)[1], "long").asNondeterministic()  # type: ignore[func-returns-value]
    # Rows that were moved do not matter: nothing is evaluated twice.
    frame = spark.range(0, rows, 1, parts).repartition(parts).select(noted("id").alias("id"))
    held = DataFrameRows.held(frame, (NUMBER,))
    engine = SparkEngine(spark, tuning=Tuning(arrow_rows=20))
    assert (held.collect(engine.jobs.tuning) is not None) is is_collected
    (found,) = take_unchecked([held], (NUMBER,), engine.jobs)
    assert len(found) == len(held) == rows
    assert held.digest().startswith(f"{rows}:")
    assert sorted(held) == sorted(from_spark(found.data.collect(), (NUMBER,))) == [(n,) for n in range(rows)]
    assert evaluated.value == rows


@pytest.mark.parametrize("arrow_rows", [400_000, -1])
def test_the_first_wrong_row_of_a_frame_is_refused(spark: SparkSession, arrow_rows: int) -> None:
    """In the driver for few rows, by a query over the held frame for many; a column is called as the one of problems is."""
    relation = Relation("r", (Column("problem", NUMBER), Column("n", NUMBER, bits=8)), key=(0,))
    shaped = spark.sql("SELECT * FROM VALUES (1, 1), (2, 2), (NULL, 3) AS v(problem, n)").coalesce(1)
    wide = shaped.where("problem > 0").union(spark.sql("SELECT 4, 300"))
    with pytest.raises(IllTypedRow, match="300"):
        requested_frame_rows(wide, relation)
    jobs = SparkEngine(spark, tuning=Tuning(arrow_rows=arrow_rows)).jobs
    fitting = requested_frame_rows(wide.where("n < 9"), relation)
    (found,) = take_unchecked([fitting], relation.types, jobs)
    assert sorted(from_spark(found.data.collect(), relation.types)) == [(1, 1), (2, 2)]
    plain = requested_frame_rows(shaped.selectExpr("bigint(problem)", "tinyint(n)"), relation)
    with pytest.raises(NullInKey, match="'problem'"):
        _ = take_unchecked([plain], relation.types, jobs), plain.data


def test_what_is_in_the_driver_already_is_not_collected(spark: SparkSession) -> None:
    """The changes that an engine found, handed to it as operations."""
    engine = SparkEngine(spark)
    frames = [engine.jobs.frames.of_table(to_arrow([(n,) for n in range(most)], (NUMBER,)), (NUMBER,)) for most in (3_000, 4_000)]
    given = [DataFrameRows.of(frame, engine.jobs) for frame in frames if isinstance(frame, Distributed)]
    assert [len(frame) for frame in take_unchecked(given, (NUMBER,), engine.jobs)] == [3_000, 4_000]
    assert not [frame for frame in frames if "data" in vars(frame)], "Spark was handed them"


BULK = [
    pytest.param(400, 400, id="tables"),
    pytest.param(10, 400, id="too many", marks=pytest.mark.slow),
    pytest.param(60, 0, id="summed up"),
]


@pytest.mark.parametrize(("most", "pending"), BULK)
def test_bulk_changes_of_a_view(spark: SparkSession, most: int, pending: int) -> None:
    """Frames in another order of columns, with rows that are there already, next to files that Arrow reads and Spark wrote."""
    tuning = Tuning(driver_rows=3, arrow_rows=most, pending_rows=pending, file_rows=50)
    text = """
        .decl sale(id: number, item: symbol, n: number) key(id)  .decl item(item: symbol, kind: symbol) key(item)
        .decl sold(id: number, kind: symbol, n: number)  sold(i, k, n) :- sale(i, x, n), item(x, k).
        .decl total(kind: symbol, n: number)  total(k, t) :- item(_, k), t = sum n : { sold(_, k, n) }.
    """
    ours, witness = databases(spark, tuning)
    sales = {i: (i, f"i{i % 7}", i * i) for i in range(200)}
    items: list[Any] = [(f"i{i}", f"k{i % 3}") for i in range(6)]
    for db in (ours, witness):
        db.define(text)
        db.load("sale", list(sales.values()))
        db.load("item", items)
    changes = [
        ([(i, "i1", i) for i in range(200, 230)], [sales[i] for i in range(40, 70)]),
        ([sales[i] for i in range(50, 80)], [(i, "i1", i) for i in range(220, 240)]),
        ([(i, "i9", 1) for i in range(1000, 1003)], [sales[i] for i in range(0, 200, 50)]),
    ]
    for inserts, deletes in changes:
        frames = [
            spark.createDataFrame(rows, "id bigint, item string, n bigint").select("n", "id", "item")
            for rows in (inserts, deletes)
        ]
        found = ours.apply("sale", inserts=frames[0], deletes=frames[1]).changes
        with witness.transaction() as tx:
            tx.delete("sale", deletes)
            tx.insert("sale", inserts)
        expected = tx.result.changes
        assert {n: (set(c.plus), set(c.minus)) for n, c in found.items()} == {
            n: (set(c.plus), set(c.minus)) for n, c in expected.items()
        }
    for name in ("sale", "sold", "total"):
        assert set(ours.rows(name)) == set(witness.rows(name))


def test_what_arrow_is_asked_of_files_is_what_spark_wrote(spark: SparkSession) -> None:
    """Every type that can be told apart, through files and back as a row that leaves."""
    engine = SparkEngine(spark, tuning=Tuning(driver_rows=0, file_rows=1))
    columns = "id BIGINT PRIMARY KEY, s STRING NOT NULL, b BOOLEAN, d DATE, t TIMESTAMP, c DECIMAL(12,3), w BIGINT"
    db = rederive.Database(engine, "materialized")
    db.sql(f"CREATE TABLE r ({columns}); CREATE VIEW v AS SELECT id, s, b, d, t, c, w FROM r;")
    frame = spark.range(6).selectExpr(
        "id",
        "concat('é', id) AS s",
        "id % 2 = 0 AS b",
        "DATE'2024-02-29' AS d",
        "TIMESTAMP_NTZ'1969-12-31 23:59:59.123456' AS t",
        "CAST(id / 7 AS DECIMAL(12,3)) AS c",
        "CAST(NULL AS BIGINT) AS w",
    )
    db.load("r", frame)
    stored = engine.installed.storage.relations["r"].rows
    assert isinstance(stored, Distributed)
    assert stored.files is not None
    before = set(db.rows("v"))
    gone = db.apply("r", deletes=frame.where("id BETWEEN 2 AND 4")).changes["v"]
    assert set(gone.minus) == {row for row in before if row[0] in (2, 3, 4)}
    assert len(gone.minus) == 3
    assert set(db.rows("v")) == before - set(gone.minus)


KEYS = {
    "BIGINT": "10 * id",
    "STRING": "concat('é', 10 * id)",
    "DATE": "date_add(DATE'1969-12-01', CAST(10 * id AS INT))",
    "TIMESTAMP": "timestampadd(MICROSECOND, 10 * id, TIMESTAMP_NTZ'1969-12-31 23:59:59.9999')",
    "DECIMAL(20,2)": "CAST(10 * id / 4 AS DECIMAL(20,2))",
}


@pytest.mark.parametrize(
    ("type", "key"),
    [
        *(pytest.param(type, "x", marks=() if type in ("BIGINT", "STRING") else pytest.mark.slow) for type in KEYS),
        ("BIGINT", "x, y"),
    ],
)
def test_scattered_rows_are_looked_up_in_files(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, type: str, key: str) -> None:
    """Rows far from each other leave, enter and are upserted; those that are not there, and near misses, change nothing."""
    asked: list[object] = []
    monkeypatch.setattr(by_arrow, "candidates_plan", lambda _, parts, jobs: asked.extend(parts))
    ours, witness = databases(spark, Tuning(driver_rows=0, file_rows=1))
    all_rows = spark.range(40).selectExpr(f"{KEYS[type]} AS x", "id % 3 AS y", "id AS n").localCheckpoint()
    for db in (ours, witness):
        db.sql(f"CREATE TABLE r (x {type}, y BIGINT, n BIGINT, PRIMARY KEY ({key})); CREATE VIEW v AS SELECT x, n FROM r;")
        db.load("r", all_rows.where("n < 30") if db is ours else [tuple(row) for row in all_rows.where("n < 30").collect()])
    assert ours.pipeline.state.engine.installed.storage.relations["r"].rows.files is not None  # type: ignore[attr-defined]
    changes = {
        "delete": all_rows.where("n IN (1, 15, 29, 33)").union(all_rows.where("n = 7").withColumn("n", lit(-7))),
        "insert": all_rows.where("n IN (2, 31)"),
        "upsert": all_rows.where("n IN (4, 20, 32)").withColumn("n", lit(5)),
    }
    found = []
    for db in (ours, witness):
        with db.transaction() as tx:
            for action, rows in changes.items():
                getattr(tx, action)("r", rows if db is ours else [tuple(row) for row in rows.collect()])
        found.append({name: (set(change.plus), set(change.minus)) for name, change in tx.result.changes.items()})
    assert found[0] == found[1]
    assert (len(found[0]["v"][0]), len(found[0]["v"][1])) == (4, 5)
    assert set(ours.rows("r")) == set(witness.rows("r"))
    assert not asked


def test_tables_keep_nulls_apart_from_values() -> None:
    some = pa.table({"c0": pa.array([1, None, 2]), "c1": pa.array(["a", None, None])})
    other = pa.table({"c0": pa.array([None, 2]), "c1": pa.array([None, "b"])})
    assert subtract(some, other).to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": None}]
    gone, came = net_tables([(some, -1), (other, 1)])
    assert gone.to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": None}]
    assert came.to_pylist() == [{"c0": 2, "c1": "b"}]
