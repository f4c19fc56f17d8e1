"""The engine's own sessions on the user's context; the user's session, its settings and views stay as they are (decision 56)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet
from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin
from pyspark.sql.types import StructType

T = TypeVar("T")
_DESCRIPTION: Final = "spark.job.description"
ZONE: Final = "spark.sql.session.timeZone"


def wrapped(context: SparkContext, session: Any) -> SparkSession:
    """A session of the JVM for Python. Where Python knows none yet, its constructor would make this one the default."""
    known, active, classes = SparkSession._instantiatedSession, SparkSession._activeSession, _sessions(context)
    before, default = classes.getActiveSession(), classes.getDefaultSession()
    found = SparkSession(context, session)
    if SparkSession._instantiatedSession is not known:
        SparkSession._instantiatedSession, SparkSession._activeSession = known, active
        classes.setActiveSession(before.get()) if before.isDefined() else classes.clearActiveSession()
        classes.setDefaultSession(default.get()) if default.isDefined() else classes.clearDefaultSession()
    return found


def _sessions(context: SparkContext) -> Any:
    return SparkSession._get_j_spark_session_class(context._jvm)


def fresh_session(spark: SparkSession) -> SparkSession:
    """A session of our own on the user's context, in the user's time zone; else as the context was started."""
    # newSession shares the context and its caches, not temporary views, settings or registered functions.
    found = wrapped(spark.sparkContext, spark._jsparkSession.newSession())
    found.conf.set(ZONE, str(spark.conf.get(ZONE)))
    return found


def like_session(spark: SparkSession) -> SparkSession:
    """A session of our own with all that the user has set until now."""
    return wrapped(spark.sparkContext, spark._jsparkSession.cloneSession())


@contextmanager
def acting(session: SparkSession) -> Iterator[None]:
    """In this thread of the JVM, a session of ours is the active one: Delta adds settings of its own to whichever is.

    What Python takes for the active session stays, which it holds for all threads together.
    """
    classes = _sessions(session.sparkContext)
    # Thread-local in the JVM; the user's session must be active again afterwards.
    before = classes.getActiveSession()
    classes.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        classes.setActiveSession(before.get()) if before.isDefined() else classes.clearActiveSession()


def executed(data: DataFrame) -> Any:
    """The rows of data as an RDD of the JVM."""
    with acting(data.sparkSession):
        return data._jdf.queryExecution().toRdd()


def running_session() -> SparkSession | None:
    """The session that runs in this process already, as it is: the active one, or the default, or any on a bare context."""
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    classes = _sessions(context)
    if (found := classes.getActiveSession()).isDefined() or (found := classes.getDefaultSession()).isDefined():
        known = (one for one in (SparkSession._activeSession, SparkSession._instantiatedSession) if one is not None)
        same = (one for one in known if one._jsparkSession == found.get())
        return next(same, None) or wrapped(context, found.get())
    return wrapped(context, classes(context._jsc.sc(), {}))


def from_table(session: SparkSession, table: pa.Table, schema: StructType | str, file: str | None = None) -> DataFrame:
    """The rows of a table, by a Parquet file that every executor sees, where one is named.

    Else in one piece: Spark 4.2 reads a table up to the first of its chunks that is empty.
    """
    if file is not None:
        pyarrow.parquet.write_table(table, file)
        return session.read.schema(schema).parquet(f"file://{file}")  # else Spark looks in its default file system
    typed = session._parse_ddl(schema) if isinstance(schema, str) else schema
    # The session's own method would make it the active one, for all threads.
    return SparkConversionMixin.createDataFrame(session, table.combine_chunks(), typed)  # type: ignore[call-overload,no-any-return]


@contextmanager
def described(spark: SparkSession, what: str) -> Iterator[None]:
    """Jobs that run inside have this description in Spark's user interface, after the one that they have already."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{before}: {what}" if before else what)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def run_in_parallel(session: SparkSession, steps: Sequence[Callable[[], T]], most: int) -> list[T]:
    """The results of some steps, at most so many at the same time: Spark runs the jobs of several threads at once.

    Each thread has the description and the group that jobs of this thread have. When all ended, the first error is raised.
    """
    if len(steps) < 2 or most < 2:
        return [step() for step in steps]
    with ThreadPoolExecutor(min(len(steps), most)) as pool:
        started = [pool.submit(inheritable_thread_target(session)(step)) for step in steps]
    return [one.result() for one in started]


def at_most(rows: int, data: DataFrame) -> DataFrame:
    """The same data, no more than so many rows of each of its partitions."""
    session = data.sparkSession
    literal, integer, local_limit, dataset = _plan_classes(session._jvm)
    # A LocalLimit has no counterpart in the public API: `DataFrame.limit` gathers all rows in one partition.
    limited = local_limit(literal.create(rows, integer), data._jdf.logicalPlan())
    return DataFrame(dataset.ofRows(session._jsparkSession, limited), session)


@lru_cache(maxsize=1)
def _plan_classes(jvm: Any) -> tuple[Any, Any, Any, Any]:
    """Classes of the JVM, looked up once: for each part of a name, py4j searches all jars for a class of that name."""
    sql = jvm.org.apache.spark.sql
    return (
        sql.catalyst.expressions.Literal,
        sql.types.DataTypes.IntegerType,
        sql.catalyst.plans.logical.LocalLimit,
        sql.classic.Dataset,
    )


def in_session(session: SparkSession, data: DataFrame) -> DataFrame:
    """The same data in another session of its context."""
    dataset = _plan_classes(session._jvm)[-1]
    return DataFrame(dataset.ofRows(session._jsparkSession, data._jdf.logicalPlan()), session)
