"""Sessions of our own beside the one that the user works in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession


@contextmanager
def unnoticed() -> Iterator[None]:
    """Whatever is done inside, the active session stays the same: making a data frame would put its session in that place."""
    before = SparkSession.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = before
        sessions = getattr(SparkContext._jvm, "SparkSession", None)
        if sessions is not None and before is not None:
            sessions.setActiveSession(before._jsparkSession)
        elif sessions is not None:
            sessions.clearActiveSession()
