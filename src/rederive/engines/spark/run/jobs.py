"""What every step of the engine works with: a session of its own, and what registers, runs, compares and stores rows in it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from rederive.engines.spark.plan.functors import Functors
from rederive.engines.spark.run.frames import Frames
from rederive.engines.spark.run.python_functions import PythonFunctions
from rederive.engines.spark.run.queries import Queries
from rederive.engines.spark.run.scratch import Scratch
from rederive.engines.spark.run.sets import Sets
from rederive.engines.spark.session.sessions import fresh_session
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Program

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

    def admit(self, program: Program) -> None:
        """Prepare for the rows of a program: comparisons are null-safe as soon as one of its columns may hold NULL."""
        if any(column.nullable for relation in program.relations.values() for column in relation.columns):
            self.sets.null_safe = True
