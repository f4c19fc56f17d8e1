"""What all tests share: Hypothesis profiles, golden files, one Spark session, and which tests run in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "golden"

# `make test` runs the same few examples every time; `make test-all` runs others in each run, and many of them.
settings.register_profile("fast", max_examples=30, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden instead of comparing with it")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name what `--dist loadgroup` keeps in one process: all of Spark, and the tests that share a fixture of their module.

    A session of Spark takes ten seconds to start and a minute to get warm: one process pays for it, the others run the rest.
    First: xdist reads the names in the same hook, and its workers register theirs after this file.
    """
    for item in items:
        fixtures: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        if "spark" in fixtures:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif any(found[-1].scope == "module" for found in fixtures.values()):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` is what tests/golden/<name> holds; under --update-golden it is written there."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing: run `make golden` and read what it writes"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: if the change is meant, run `make golden`"

    return compare


@pytest.fixture(autouse=True)
def _restore_the_default_session() -> Iterator[None]:
    """Make the default session active again: the next database would be in the time zone of a test's own session."""
    yield
    if (sessions := getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)) is None:
        return
    default = sessions._instantiatedSession
    if default is not None and sessions._activeSession is not default:
        sessions._activeSession = default
        sessions._get_j_spark_session_class(default._jvm).setActiveSession(default._jsparkSession)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small session with Delta for the whole run: starting it takes about ten seconds."""
    from rederive.lake.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    options = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.driver.memory": "1g",
        # A few rows at a time, and hardly a query twice: compiling, planning again and shuffling cost more than they bring.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.leafNodeDefaultParallelism": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    session = spark_session(master="local[2]", options=options)
    yield session
    session.stop()
