"""What every step of the engine works with: a session of its own, and what registers, runs, compares and stores rows in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from rederive.engines.spark.plan.functors import Functors
from rederive.engines.spark.plan.rule_plan import RulePlan
from rederive.engines.spark.run.frames import Frames, Scratch
from rederive.engines.spark.run.queries import Queries
from rederive.engines.spark.run.sets import Sets
from rederive.engines.spark.session.sessions import fresh_session
from rederive.engines.spark.session.types import sql_type
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Program
from rederive.ir.terms import Type

_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.limit.initialNumPartitions": "100000",  # a small answer is collected by one job
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # The sizes are known when a query is planned, and a plan that adapts on the way loses how rows are partitioned.
    "spark.sql.adaptive.enabled": "false",
    # Spark carries the constraints of a plan over a checkpoint, with columns that are not there any more.
    "spark.sql.constraintPropagation.enabled": "false",
    # It also loses how a checkpoint is partitioned if the plan that made it removed an alias that changes nothing.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases",
}


class PythonFunctions:
    """Python functions that SQL queries call: those that a session knows already."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._registered: set[str] = set()

    def register(self, name: str, function: Callable[..., Any], result: Type) -> None:
        """Register a function that returns a value of this type and an error text."""
        if name in self._registered:
            return
        value = StructField("value", _parse_datatype_string(sql_type(result)))
        structure = StructType([value, StructField("error", StringType())])
        self.session.udf.register(name, udf(function, structure, useArrow=False))
        self._registered.add(name)


class Jobs:
    """A session on the context of the given one, whose settings and temporary views stay as they are (decision 56).

    `scratch` stores rows in files, `frames` registers rows, `queries` runs plans, `sets` compares rows.
    """

    def __init__(self, spark: SparkSession, tuning: Tuning, *, decompose: bool = True, scratch: str | None = None) -> None:
        self.session = fresh_session(spark)
        self.tuning = tuning
        self.decompose = decompose
        for key, value in _SETTINGS.items():
            self.session.conf.set(key, value)
        self.parts = spark.sparkContext.defaultParallelism
        self.session.conf.set("spark.sql.shuffle.partitions", str(self.parts))
        self.functors = Functors(PythonFunctions(self.session).register)
        self.scratch = Scratch(self.session, tuning, scratch)
        self.frames = Frames(self.session, self.scratch, tuning)
        self.queries = Queries(self.session, self.frames, self.scratch, tuning)
        self.sets = Sets(self.queries, self.parts)
        # By the identity of a rule, which the value keeps alive, and the place that it starts from. `install` clears it.
        self.compiled: dict[tuple[int, int | None], RulePlan] = {}

    def admit(self, program: Program) -> None:
        """Prepare for the rows of a program: comparisons are null-safe as soon as one of its columns may hold NULL."""
        if any(column.nullable for relation in program.relations.values() for column in relation.columns):
            self.sets.null_safe = True
