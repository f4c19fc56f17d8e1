"""SQL next to Datalog, in a store and in data frames: uses that are not supported are refused by name, and nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import rederive
from rederive.cli.main import app
from rederive.errors import IllTypedRow, NullInKey, StrategyError, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATALOG = ".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9."


# The store


def test_a_store_takes_changes_and_questions_in_sql(tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store") as db:
        db.define(DATALOG)
        (result,) = db.sql("INSERT INTO n VALUES (7), (11), (12)")
        assert result.changes["big"].plus == [(11,), (12,)]
        db.sql("DELETE FROM n WHERE x = 11")
    with rederive.open(tmp_path / "store") as db:
        assert db.query("SELECT count(*), max(x) FROM big") == [(1, 12)]
        assert [change.minus for change in db.changes("big", since=1)] == [[(11,)]]
        db.sql("DROP VIEW big")
    with rederive.open(tmp_path / "store") as db:
        assert list(db.pipeline.state.program.relations) == ["n"]


def test_a_program_without_a_remote_relation_has_nothing_to_advise_on(tmp_path: Path) -> None:
    program = tmp_path / "program.sql"
    program.write_text("CREATE TABLE t (k BIGINT PRIMARY KEY);", encoding="utf-8")
    result = CliRunner().invoke(app, ["advise", str(program)])
    assert isinstance(result.exception, StrategyError)
    assert "tables USING remote" in str(result.exception)


# Data frames


@pytest.mark.slow
def test_a_data_frame_may_hold_nulls_where_the_table_may(spark: SparkSession) -> None:
    db = rederive.open(engine="resident", spark=spark)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a SMALLINT, s STRING); CREATE VIEW v AS SELECT k, s FROM t WHERE a IS NULL")
    frame = spark.createDataFrame([(1, None, "x"), (2, 7, None)], "k INT, a INT, s STRING")
    assert db.apply("t", inserts=frame).changes["v"].plus == [(1, "x")]
    with pytest.raises(IllTypedRow, match="'40000' is not a number of 16 bits"):
        db.apply("t", inserts=spark.createDataFrame([(3, 40000, "x")], "k INT, a INT, s STRING"))
    with pytest.raises(NullInKey, match="'k'"):
        db.apply("t", inserts=spark.createDataFrame([(None, 4, "x")], "k INT, a INT, s STRING"))
    assert db.rows("t") == [(1, None, "x"), (2, 7, None)]


# Derivation on demand


@pytest.mark.parametrize("strategy", ["on_demand", "filtration", "differencing", "materialized", "recompute", "auto"])
def test_numbered_rows_are_asked_for_by_any_of_their_columns(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.sql("""
        CREATE TABLE t (g INT NOT NULL, h INT NOT NULL, k INT PRIMARY KEY);
        CREATE TABLE asked (g BIGINT, h BIGINT, k BIGINT, r BIGINT, PRIMARY KEY (g, h, k, r));
        CREATE TEMPORARY VIEW one AS SELECT g, h, k, row_number() OVER (PARTITION BY g ORDER BY k DESC) AS r FROM t;
        CREATE TEMPORARY VIEW two AS SELECT g, h, k, row_number() OVER (PARTITION BY g, h ORDER BY k) AS r FROM t;
        CREATE VIEW there AS SELECT * FROM asked a WHERE EXISTS
          (SELECT 1 FROM one o WHERE o.g = a.g AND o.h = a.h AND o.k = a.k AND o.r = a.r);
        CREATE VIEW gone AS SELECT * FROM asked a WHERE NOT EXISTS
          (SELECT 1 FROM two o WHERE o.g = a.g AND o.h = a.h AND o.k = a.k AND o.r = a.r);
        CREATE VIEW lasts AS SELECT a.k, o.k AS other FROM asked a JOIN two o ON o.r = a.r AND o.h = a.h;
    """)
    db.sql("INSERT INTO t VALUES (1, 1, 1), (1, 2, 2), (1, 1, 3), (2, 1, 4)")
    db.sql("INSERT INTO asked VALUES (1, 1, 3, 1), (1, 1, 1, 1), (1, 2, 2, 2), (2, 1, 4, 1)")
    assert db.rows("there") == [(1, 1, 3, 1), (1, 2, 2, 2), (2, 1, 4, 1)]
    assert db.rows("gone") == [(1, 1, 3, 1), (1, 2, 2, 2)]
    (result,) = db.sql("DELETE FROM t WHERE k = 3")
    assert result.changes["there"].minus == [(1, 1, 3, 1), (1, 2, 2, 2)]
    assert "gone" not in result.changes
    (result,) = db.sql("DELETE FROM t WHERE k = 1")
    assert result.changes["gone"].plus == [(1, 1, 1, 1)]
    assert db.rows("lasts") == [(1, 4), (3, 4), (4, 4)]


def test_alter_view_is_refused_by_name() -> None:
    """It was taken for a DROP, and was an internal error."""
    db = rederive.open()
    db.sql("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t")
    with pytest.raises(Unsupported, match="not supported: ALTER VIEW"):
        db.sql("ALTER VIEW v AS SELECT 1 AS x")
