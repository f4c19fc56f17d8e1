"""Lines of progress in the log: how far the long jobs of Spark are."""

from __future__ import annotations

import logging
from threading import Lock, Thread
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOG: Final = logging.getLogger("rederive.progress")
INTERVAL: Final = 5.0
"""Seconds between two lines of progress; jobs that take less have none."""
_watched: set[str] = set()  # by application
_lock: Final = Lock()


def log_progress(spark: SparkSession, interval: float = INTERVAL) -> None:
    """Log the stages of long jobs, if somebody reads the logger `rederive.progress`; once for each Spark context."""
    context = spark.sparkContext
    with _lock:
        if not LOG.isEnabledFor(logging.INFO) or context.applicationId in _watched:
            return
        _watched.add(context.applicationId)
    Thread(target=_watch, args=(context, interval), name="rederive-progress", daemon=True).start()


def _watch(context: SparkContext, interval: float) -> None:
    """Until the context ends. A job that is new since the last look has no line yet."""
    known: set[int] = set()
    try:
        while not context._jsc.sc().isStopped():
            jobs = _running_jobs(context)
            for number in sorted(known & jobs.keys()):
                LOG.info("%s", jobs[number])
            known = set(jobs)
            sleep(interval)
    except (Py4JError, Py4JJavaError, OSError, AttributeError):
        return  # the context, or its JVM, has ended


def _running_jobs(context: SparkContext) -> dict[int, str]:
    """The running jobs by number: what each does, and how far it is."""
    store: Any = context._jsc.sc().statusStore()
    found = {}
    for number in context.statusTracker().getActiveJobsIds():
        job = store.job(number)
        what = job.description().get() if job.description().isDefined() else job.name()
        tasks, stages = (job.numCompletedTasks(), job.numTasks()), (job.numCompletedStages(), job.stageIds().size())
        found[number] = "{}: {} of {} tasks, {} of {} stages".format(what, *tasks, *stages)
    return found
