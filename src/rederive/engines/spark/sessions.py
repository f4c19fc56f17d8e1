"""Sessions of our own beside the one that the user works in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def unnoticed() -> Iterator[None]:
    """Whatever is done inside, the active session stays the same: making a data frame would put its session in that place."""
    before = SparkSession.getActiveSession()
    try:
        yield
    finally:
        if before is not None:
            SparkSession._activeSession = before
            assert before._jvm is not None
            before._jvm.SparkSession.setActiveSession(before._jsparkSession)
