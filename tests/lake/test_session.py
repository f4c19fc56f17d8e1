"""Sessions: what is missing is said before anything starts, and a session that is handed in stays as it was."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rederive.errors import MissingDependency
from rederive.lake import jars
from rederive.lake.session import require_delta, require_java, settings, spark_session
from rederive.lake.tables import Area, Lake
from rederive.lake.types import dataframe
from tests.lake.test_tables import EDGE, net_changes

BARE = """
import warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from rederive.lake.session import spark_session
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1).count()
before = spark.conf.getAll
try:
    spark_session(spark)
except Exception as error:
    print(error)
print(spark.conf.getAll == before)
"""


def test_importing_rederive_starts_nothing() -> None:
    code = "import sys, rederive; print({'pyspark', 'delta', 'py4j', 'pandas', 'deltalake'} & sys.modules.keys() or 'none')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "none\n"


def test_a_session_that_runs_is_used_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1,)], "x bigint")  # the session that a user works in is the active one
    spark.range(1).write.format("delta").save(str(tmp_path / "any"))  # Delta adds two settings of its own at its first use
    before = spark.conf.getAll
    assert spark_session(spark) is spark
    assert spark_session(master="local[7]", options={"spark.sql.shuffle.partitions": "99"}) is spark
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.create(Area.BASE, EDGE)
    lake.append(Area.BASE, EDGE, dataframe(spark, EDGE, [("a", "b")]), 1)
    lake.apply_changes(Area.BASE, EDGE, net_changes(lake, EDGE, [("a", "b")], [("b", "c")], 2), 2)
    assert spark.conf.getAll == before
    assert SparkSession.getActiveSession() is spark


@pytest.mark.slow
def test_a_session_without_delta_is_refused() -> None:
    said = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=True).stdout
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and spark.sql.catalog.spark_catalog=" in said
    assert said.endswith("True\n")


def test_a_setting_that_is_lacking_is_named(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.spark_catalog", "somebody.else")
    with pytest.raises(MissingDependency, match=r"started without spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta"):
        require_delta(other)


def test_jars_that_were_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDERIVE_JARS", str(tmp_path))
    with pytest.raises(
        MissingDependency, match=f"{tmp_path}: error.missing_dependency.*\n  help: fetch them once: {jars.COMMAND}"
    ):
        settings("local[1]")


def test_jars_of_another_release_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "resolved.json").write_text('{"packages": ["io.delta:delta-spark_2.12:1.0.0"], "jars": []}')
    assert jars.find_jars(place=tmp_path) is None


def test_jars_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the resolver says is handed on, and nothing counts as fetched."""
    monkeypatch.setattr(jars, "_RESOLVE", "import sys; sys.exit('Error: unresolved dependency')")
    with pytest.raises(
        MissingDependency, match="cannot be fetched: Error: unresolved dependency\n  help: connect to a network once"
    ):
        jars.fetch_jars(place=tmp_path / "new")
    assert jars.find_jars(place=tmp_path / "new") is None


def test_jars_of_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert jars.main(["postgres"]) == 2
    assert "unknown jars 'postgres'; known: kafka, postgresql" in capsys.readouterr().err


def test_jars_and_wheel_are_of_one_release() -> None:
    _, artifact, release = jars.PACKAGES[0].split(":")
    assert release.split(".")[:2] == version("delta-spark").split(".")[:2]
    assert artifact.split("_")[1] == ".".join(version("pyspark").split(".")[:2])


def fake_java(folder: Path, says: str) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


def test_java_missing_or_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match=f"there is none in JAVA_HOME={tmp_path}\n  help: install Java 17"):
        require_java()
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(MissingDependency, match=r"Spark needs Java 17, and .* is openjdk version .11"):
        require_java()


def test_pyspark_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "delta", None)
    with pytest.raises(
        MissingDependency, match=r"the Python package 'delta' is missing\n  help: pip install 'rederive\[spark\]'"
    ):
        spark_session()
