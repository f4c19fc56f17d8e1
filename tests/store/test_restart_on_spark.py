"""The Spark engine continues from saved frames and the tables of the lake, and evaluates no view."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.commit import restart
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.sections import Sections
from rederive.engines.spark.tuning import Tuning

PROGRAM = """
CREATE TABLE kind (id INT PRIMARY KEY, name STRING);
CREATE TABLE sale (id INT PRIMARY KEY, kind INT, amount DECIMAL(9, 2));
CREATE TABLE mark (word STRING);
CREATE VIEW total AS SELECT name, SUM(amount) AS amount, COUNT(*) AS number FROM sale JOIN kind ON sale.kind = kind.id
    GROUP BY name;
CREATE VIEW names AS SELECT name, sale.id FROM sale JOIN kind ON sale.kind = kind.id;
CREATE VIEW words AS SELECT word, COUNT(*) AS number FROM mark GROUP BY word;
"""
VIEWS = ("total", "names", "words")


@pytest.mark.slow
@pytest.mark.parametrize("driver_rows", [0, 1000])
def test_no_view_is_evaluated(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_rows: int) -> None:
    monkeypatch.setattr(restart, "WORTH_SAVING", 0)
    monkeypatch.setattr(SparkEngine, "default_tuning", Tuning(driver_rows=driver_rows, arrow_rows=driver_rows))
    with rederive.open(lake=tmp_path, engine="spark", spark=spark) as db:
        db.sql(PROGRAM)
        db.load("kind", [(i, f"k{i % 3}") for i in range(5)])
        db.load("sale", [(i, i % 5, i) for i in range(20)])
        db.load("mark", [("a",), ("a",), ("b",)])
        before = {view: db.rows(view) for view in VIEWS}
    filled: list[object] = []
    monkeypatch.setattr(Sections, "_fill", lambda self, section, phase: filled.append((section, phase)))
    for n in (1, 2):
        with rederive.open(lake=tmp_path, engine="spark", spark=spark) as db, rederive.open() as other:
            assert {view: db.rows(view) for view in VIEWS} == before
            db.sql(f"DELETE FROM sale WHERE id = {n}; UPDATE kind SET name = 'new{n}' WHERE id = {n}")
            db.sql("INSERT INTO mark VALUES ('a'), (NULL); DELETE FROM mark WHERE word = 'b'")
            other.sql(PROGRAM)
            for table in ("kind", "sale", "mark"):
                other.load(table, db.rows(table))
            before = {view: other.rows(view) for view in VIEWS}
            assert {view: db.rows(view) for view in VIEWS} == before
    assert not filled
