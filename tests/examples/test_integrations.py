"""The notebook, the dbt project, the Airflow DAG and the pipeline run as they are, where what they need is installed."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rederive
from rederive.lake.jars import find_jars
from rederive.lake.session import DELTA
from tests.examples.notebooks import run_notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = {
    "sale": ("id INT, item INT, amount INT", "(1, 1, 5), (2, 1, 7), (3, 2, 9)"),
    "item": ("item INT, kind STRING", "(1, 'tea'), (2, 'coffee'), (3, 'tea')"),
}
BY_KIND = "SELECT kind, sum(amount) AS total FROM sale JOIN item ON sale.item = item.item GROUP BY kind"


@pytest.mark.slow
def test_the_notebook(spark: SparkSession, tmp_path: Path) -> None:
    """Its cells run in order, in the session that runs; the cells themselves compare each view with Spark's answer."""
    shown = [now for _, now in run_notebook(EXAMPLES / "tables_in_place.ipynb", tmp_path)]
    assert "Change(version=2, view='unsold', +1, -1)" in "".join(shown[4][0]["text"])
    changes = spark.table("mart_notebook.by_kind_changes")
    assert {row["_version"] for row in changes.collect()} == {1, 2, 3, 4, 5}


def make_sources(spark: SparkSession, folder: Path, schema: str | None = None) -> None:
    if schema is not None:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for name, (columns, rows) in SOURCES.items():
        table = f"{schema}.{name}" if schema is not None else f"delta.`{folder}/{name}`"
        spark.sql(f"CREATE TABLE {table} ({columns}) USING DELTA {f'''LOCATION '{folder}/{name}' ''' if schema else ''}")
        spark.sql(f"INSERT INTO {table} VALUES {rows}")


# Airflow


def airflow_command() -> str:
    """The command of the DAG's task, which is text to whoever has no Airflow."""
    tree = ast.parse((EXAMPLES / "airflow" / "mart.py").read_text(encoding="utf-8"))
    (value,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REFRESH")
    return str(ast.literal_eval(value))


@pytest.mark.slow
def test_the_command_of_the_dag(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(lake=tmp_path / "mart", spark=spark) as db:
        for name in SOURCES:
            db.attach(name, f"{tmp_path}/{name}")
        db.sql(f"CREATE MATERIALIZED VIEW by_kind AS {BY_KIND}")
    spark.sql(f"INSERT INTO delta.`{tmp_path}/sale` VALUES (4, 3, 1)")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REDERIVE_LAKE": f"{tmp_path}/mart"}
    done = subprocess.run(
        ["bash", "-c", airflow_command()], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1])["changes"] == {"by_kind": [1, 1]}


@pytest.mark.slow
def test_the_dag(tmp_path: Path) -> None:
    """Airflow reads the DAG, and runs its first task; `airflow` is looked for on the PATH."""
    if (airflow := shutil.which("airflow")) is None:
        pytest.skip("Airflow is not installed")
    folder = str(EXAMPLES / "airflow")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": folder, "PYTHONPATH": ""}
    environment |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "false", "WRITE_TABLES": f"touch {tmp_path}/written"}

    def run(*command: str) -> str:
        return subprocess.run(
            [airflow, *command], env=environment, capture_output=True, text=True, timeout=600, check=True
        ).stdout

    run("db", "migrate")
    assert '"mart"' in run("dags", "list", "-l", "-o", "json")
    run("tasks", "test", "mart", "write", "2026-01-01")
    assert (tmp_path / "written").exists()


# dbt


def test_the_dbt_project_names_what_is_there() -> None:
    """What its file describes are the models that there are and the sources that they read."""
    described = (EXAMPLES / "dbt" / "models" / "schema.yml").read_text(encoding="utf-8")
    models = {path.stem: path.read_text(encoding="utf-8") for path in (EXAMPLES / "dbt" / "models").glob("*.sql")}
    sources, _, listed = described.partition("\nmodels:\n")
    assert set(re.findall(r"^  - name: (\w+)", listed, re.MULTILINE)) == set(models)
    assert set(re.findall(r"^      - name: (\w+)", sources, re.MULTILINE)) == SOURCES.keys()
    for name in ("by_kind", "unsold"):
        assert "materialized='rederive'" in models[name]
        assert set(re.findall(r"source\('shop', '(\w+)'\)", models[name])) == SOURCES.keys()


@pytest.mark.slow
def test_the_dbt_project(tmp_path: Path) -> None:
    """dbt compiles, rederive refreshes, dbt builds and tests what is downstream; a second run follows what others wrote.

    In a process of its own, whose Python has dbt: REDERIVE_DBT_PYTHON names it, or this one is used.
    """
    python = os.environ.get("REDERIVE_DBT_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import dbt.cli.main, dbt.adapters.spark"], capture_output=True, check=False).returncode:
        pytest.skip("dbt-core and dbt-spark are not installed")
    root = Path(__file__).parents[2]
    script = """
import sys
from rederive.lake.session import spark_session
folder = sys.argv[1]
spark = spark_session(options={"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.sql.shuffle.partitions": "2"})
from pathlib import Path
from examples.dbt.build import main
from tests.examples.test_integrations import make_sources
make_sources(spark, Path(folder), "shop")
main(f"{folder}/mart")
print("report", sorted(map(tuple, spark.table("mart.report").collect())))
spark.sql("INSERT INTO shop.sale VALUES (4, 3, 1)")
main(f"{folder}/mart")
print("report", sorted(map(tuple, spark.table("mart.report").collect())))
"""
    environment = {**os.environ, "PYTHONPATH": f"{root}/src:{root}"}
    done = subprocess.run(
        [python, "-c", script, str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    reports = [line for line in done.stdout.splitlines() if line.startswith("report")]
    assert reports == ["report [('coffee', 9, 0), ('tea', 12, 1)]", "report [('coffee', 9, 0), ('tea', 13, 0)]"]


# Spark Declarative Pipelines


@pytest.mark.slow
def test_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """It builds what is downstream of a view, from its rows and from its changes. Without a metastore, once.

    In processes of its own, whose Python has the packages of pipelines: REDERIVE_PIPELINES_PYTHON names it, or this one is used.
    """
    python = os.environ.get("REDERIVE_PIPELINES_PYTHON", sys.executable)
    found = subprocess.run(
        [python, "-c", "import grpc, yaml, pyspark; print(pyspark.__path__[0])"], capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip("pyspark[pipelines] is not installed")
    shutil.copytree(EXAMPLES / "pipelines", tmp_path / "pipeline")
    specification = tmp_path / "pipeline" / "spark-pipeline.yml"
    text = specification.read_text(encoding="utf-8")
    specification.write_text(text.replace("/tmp/mart_report", f"{tmp_path}/storage"), encoding="utf-8")
    home = found.stdout.decode().strip()
    settings = {**DELTA, "spark.jars": ",".join(map(str, find_jars() or ()))}
    environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": python, "REDERIVE_LAKE": f"{tmp_path}/mart"}

    def rows(table: str) -> list[tuple[object, ...]]:
        return sorted(map(tuple, spark.read.parquet(f"{tmp_path}/pipeline/spark-warehouse/{table}").collect()))

    def run() -> None:
        options = [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [f"{home}/bin/spark-pipelines", "run", *options],
            env=environment,
            cwd=tmp_path / "pipeline",
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    with rederive.open(lake=tmp_path / "mart", spark=spark) as db:
        db.sql("CREATE TABLE sale (id INT PRIMARY KEY, kind STRING NOT NULL, amount INT NOT NULL)")
        db.sql("CREATE MATERIALIZED VIEW by_kind AS SELECT kind, sum(amount) AS total FROM sale GROUP BY kind")
        db.sql("INSERT INTO sale VALUES (1, 'tea', 5), (2, 'tea', 7), (3, 'coffee', 9)")
        db.settle()
        db.sql("INSERT INTO sale VALUES (4, 'coffee', 2)")
        db.settle()
        run()
        assert rows("large_kinds") == [("coffee", 11), ("tea", 12)]
        first, last = db.version - 1, db.version
        assert rows("entered") == [(first, "coffee", 9), (first, "tea", 12), (last, "coffee", 11)]
