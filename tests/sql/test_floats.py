"""NaN, infinities and FLOAT in views: what Spark answers, whatever order the rows came in and whatever left again."""

from __future__ import annotations

import random
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

import rederive
from rederive.errors import Unsupported
from rederive.ir.floats import NAN
from rederive.store.codec import rows_text
from tests.sql.test_functions import _plain
from tests.sql.test_spark_values import own as own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED: Final = Path(__file__).parent / "fixtures" / "floats" / "answers.tsv"
STRATEGIES: Final = ("auto", "materialized", "recompute", "counting", "on_demand", "filtration", "differencing")
TABLE: Final = "CREATE TABLE t (k INT PRIMARY KEY, g STRING, x DOUBLE, f FLOAT)"
ROWS: Final = [
    (1, "finite", 1.5, 0.1),
    (2, "finite", -2.0, 0.2),
    (3, "nan", nan, nan),
    (4, "nan", 1.0, 1.5),
    (5, "nan", nan, 16777217.0),
    (6, "plus", inf, inf),
    (7, "plus", inf, 1e39),
    (8, "plus", 3.0, 3.0),
    (9, "both", inf, inf),
    (10, "both", -inf, -inf),
    (11, "minus", -inf, -inf),
    (12, "zero", 0.0, 0.0),
    (13, "null", None, None),
    (14, "zero", 7.25, 1e-46),
    (15, "large", 1e308, 3e38),
    (16, "large", 1e308, 3e38),
]
LEAVING: Final = [(20, "finite", nan, nan), (21, "plus", -inf, -inf), (22, "minus", inf, inf), (23, "zero", nan, 5.0)]
QUERIES: Final = (
    "SELECT g, sum(x) AS s, sum(f) AS sf, avg(f) AS af, count(x) AS n FROM t GROUP BY g",
    "SELECT g, avg(x) AS a FROM t WHERE k < 15 GROUP BY g",
    "SELECT g, min(x) AS a, max(x) AS b, min(f) AS c, max(f) AS d FROM t GROUP BY g",
    "SELECT g, variance(x) AS a, stddev_pop(x) AS b, covar_samp(x, f) AS c, skewness(x) AS d FROM t WHERE k < 15 GROUP BY g",
    "SELECT g, median(x) AS m, percentile(x, 0.75) AS p, percentile_disc(0.5) WITHIN GROUP (ORDER BY f) AS q FROM t GROUP BY g",
    "SELECT g, max_by(k, x) AS a, min_by(k, x) AS b FROM t WHERE k NOT IN (5, 7, 16) GROUP BY g",
    "SELECT mode(x) AS m FROM t WHERE g IN ('nan', 'zero')",
    "SELECT x, count(*) AS n FROM t GROUP BY x",
    "SELECT f, count(*) AS n, sum(k) AS s FROM t GROUP BY f",
    "SELECT DISTINCT x FROM t",
    "SELECT count(DISTINCT x) AS a, count(DISTINCT f) AS b FROM t",
    "SELECT a.k AS k, b.k AS l FROM t a JOIN t b ON a.x = b.x",
    "SELECT a.k AS k, b.k AS l FROM t a JOIN t b ON a.x = b.f",
    "SELECT a.k AS k, b.k AS l FROM t a LEFT JOIN t b ON a.x < b.x AND b.g = 'nan'",
    "SELECT k FROM t WHERE x > 1e300",
    "SELECT k FROM t WHERE x <= double('NaN') AND NOT isnan(x)",
    "SELECT k FROM t WHERE x IN (double('NaN'), double('-inf'))",
    "SELECT k, x * 10 AS a, x - x AS b, -x AS c, abs(x) AS d, nanvl(x, -1D) AS e, string(x) AS h FROM t",
    "SELECT k, f + f AS a, f * 2 AS b, f / 2 AS c, f + 1.5 AS d, round(f, 1) AS e, string(f) AS h, -f AS i FROM t",
    "SELECT k, CAST(x AS DECIMAL(20, 2)) AS d FROM t WHERE g <> 'large'",
    "SELECT k, to_json(named_struct('x', x, 'f', f)) AS j, array(f, NULL) AS a, string(array(f, x)) AS s FROM t",
    "SELECT k, coalesce(f, 1) AS a, coalesce(f, 1.5F) AS b, greatest(f, 0.1F) AS c, if(f > 0, f, NULL) AS d FROM t",
    "SELECT k, rank() OVER (ORDER BY x) AS r, dense_rank() OVER (ORDER BY f DESC) AS d FROM t",
    "SELECT k, sum(x) OVER (PARTITION BY g ORDER BY k) AS s, max(f) OVER (PARTITION BY g ORDER BY k) AS m FROM t",
    "SELECT k, count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM t",
    "SELECT k, count(*) OVER (ORDER BY x DESC RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM t",
    "SELECT k, lag(f) OVER (ORDER BY k) AS l, lag(f, 1, 0) OVER (ORDER BY k) AS d, first_value(f) OVER (ORDER BY k) AS e FROM t",
    "SELECT k FROM t WHERE x IS NOT NULL ORDER BY x DESC, k LIMIT 4",
    "SELECT x FROM t UNION SELECT f FROM t",
    "SELECT x FROM t EXCEPT SELECT f FROM t",
    "SELECT f FROM t INTERSECT SELECT CAST(x AS FLOAT) FROM t",
    "SELECT x AS v, 1 AS n FROM t UNION ALL SELECT f, 2 FROM t",
    "SELECT g, collect_list(x) AS l, collect_set(f) AS s FROM t WHERE g IN ('plus', 'both') GROUP BY g",
)  # fmt: skip


def shown(rows: Any) -> str:
    """The rows as a text: sorted, -0.0 as 0.0, which we have as one."""
    return repr(sorted(repr(tuple(map(_plain, row))) for row in rows)).replace("-0.0", "0.0")


def sorted_sets(query: str, text: str) -> str:
    """Spark collects in the order in which it meets the rows, and we by value."""
    return "".join(sorted(text)) if "collect_" in query else text


def types_of(db: rederive.Database, view: str) -> str:
    answer = db.sql(f"DESCRIBE {view}")[0].answer
    assert answer is not None
    return " ".join(str(row[1]).lower() for row in answer.rows)


def stored() -> dict[str, tuple[str, str]]:
    return {query: (types, rows) for query, types, rows in (line.split("\t") for line in STORED.read_text().splitlines())}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_views_are_what_spark_answered(strategy: str) -> None:
    """Rows that are not finite enter, leave and stay; what is left is what Spark answers about it from scratch."""
    pick = random.Random(strategy)
    expected = stored()
    assert list(expected) == list(QUERIES), "run `pytest -m slow tests/sql/test_floats.py --update-golden`"
    db = rederive.open(strategy=strategy)
    db.sql(TABLE)
    early, late = ROWS[:8], [*ROWS[8:], *LEAVING]
    db.apply("t", inserts=early)
    for i, query in enumerate(QUERIES):
        db.sql(f"CREATE VIEW v{i} AS {query}")
    pick.shuffle(late)
    for row in late:
        db.apply("t", inserts=[row])
    for row in pick.sample(LEAVING, len(LEAVING)):
        db.apply("t", deletes=[row])
    for i, query in enumerate(QUERIES):
        found = shown(rederive_rows(db, f"v{i}"))
        assert sorted_sets(query, found) == sorted_sets(query, expected[query][1]), query


def rederive_rows(db: rederive.Database, view: str) -> list[Any]:
    """The rows with their copies."""
    return [tuple(row) for row in db.query(f"SELECT * FROM {view}")]


@pytest.mark.slow
def test_spark_gives_the_stored_answers(own: SparkSession, request: pytest.FixtureRequest) -> None:
    """With --update-golden, Spark's answers are stored."""
    found = answers_of_spark(own)
    if request.config.getoption("--update-golden"):
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text("".join(f"{query}\t{types}\t{rows}\n" for query, (types, rows) in found.items()))
    assert found == stored()


def answers_of_spark(session: SparkSession) -> dict[str, tuple[str, str]]:
    session.createDataFrame(ROWS, "k INT, g STRING, x DOUBLE, f FLOAT").createOrReplaceTempView("t")
    found = {}
    for query in QUERIES:
        frame = session.sql(query)
        found[query] = (" ".join(one.dataType.simpleString() for one in frame.schema.fields), shown(frame.collect()))
    session.catalog.dropTempView("t")
    return found


def test_columns_have_the_types_of_spark() -> None:
    db = rederive.open()
    db.sql(TABLE)
    for i, query in enumerate(QUERIES):
        db.sql(f"CREATE VIEW v{i} AS {query}")
        # Spark numbers ranks in INT; the types of windows are tested elsewhere.
        assert types_of(db, f"v{i}") == stored()[query][0], query


def test_a_sum_is_exact_when_an_infinity_leaves_again() -> None:
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW s AS SELECT sum(x) AS s, avg(x) AS a FROM t")
    seen = []
    rows = {1: 0.1, 2: 0.2, 3: inf, 4: -inf, 5: nan}
    for inserts, deletes in (((1, 2), ()), ((3,), ()), ((4,), ()), ((), (3,)), ((5,), ()), ((), (4, 5))):
        db.apply("t", inserts=[(k, "", rows[k], 0.0) for k in inserts], deletes=[(k, "", rows[k], 0.0) for k in deletes])
        seen.append(db.rows("s")[0][0])
    assert seen == [0.30000000000000004, inf, NAN, -inf, NAN, 0.30000000000000004]


def test_a_store_keeps_them(tmp_path: Path) -> None:
    with rederive.open(tmp_path / "db") as db:
        db.sql(f"{TABLE}; CREATE VIEW s AS SELECT g, sum(x) AS s, max(f) AS f FROM t GROUP BY g")
        db.apply("t", inserts=ROWS)
        before = sorted(db.rows("s")), sorted(db.rows("t"))
    with rederive.open(tmp_path / "db") as db:
        assert (sorted(db.rows("s")), sorted(db.rows("t"))) == before
        db.apply("t", deletes=[(3, "nan", nan, nan), (5, "nan", nan, 16777217.0)])
        assert ("nan", 1.0, 1.5) in db.rows("s")


def test_values_enter_as_spark_takes_them() -> None:
    """NaN in pandas is a missing value, as in spark.createDataFrame; in Arrow and in Python it is NaN."""
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x DOUBLE, f FLOAT)")
    db.apply("t", inserts=pd.DataFrame({"k": [1, 2], "x": [nan, inf], "f": [0.1, nan]}))
    db.apply("t", inserts=pa.table({"k": [3, 4], "x": pa.array([nan, -0.0]), "f": pa.array([0.1, 1e39])}))
    db.apply("t", inserts=[{"k": 5, "x": "NaN", "f": "-Infinity"}])
    assert sorted(db.rows("t")) == [
        (1, None, 0.10000000149011612), (2, inf, None), (3, NAN, 0.10000000149011612), (4, 0.0, inf), (5, NAN, -inf),
    ]  # fmt: skip
    assert rows_text(db.query("SELECT * FROM t WHERE k = 5")) == '[[5,"NaN","-Infinity"]]'


def test_what_is_refused_by_name() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, f FLOAT, d DECIMAL(5, 2) NOT NULL)")
    with pytest.raises(Unsupported, match="RANGE by FLOAT with a distance"):
        db.query("SELECT k, sum(f) OVER (ORDER BY f RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM t")
    with pytest.raises(Unsupported, match="this format"):
        db.query("SELECT format_string('%s', f) FROM t")
    db.apply("t", inserts=[(1, 1.5, Decimal("1.00"))])
    with pytest.raises(rederive.RederiveError, match=r"null|NULL"):
        db.sql("UPDATE t SET d = CAST(f * float('NaN') AS DECIMAL(5, 2))")
