"""The time of a database: an input like any other, whose one row a transaction replaces."""

from __future__ import annotations

from datetime import UTC, datetime

from rederive.commit.pipeline import Pipeline
from rederive.engines.protocol import Action, Operation
from rederive.errors import UnknownTime
from rederive.ir.rules import CLOCK
from rederive.result import Result


def advance_clock(pipeline: Pipeline, to: datetime) -> Result:
    """Commit a later time; a time that is not later than the current one is refused."""
    return pipeline.commit_operations(clock_operations(pipeline, to))


def clock_operations(pipeline: Pipeline, to: datetime) -> list[Operation]:
    """The requests that replace the time."""
    state = pipeline.state
    at = to.astimezone(UTC).replace(tzinfo=None) if to.tzinfo is not None else to
    if CLOCK not in state.program.relations:
        raise UnknownTime("no view reads the time")
    before = tuple(state.engine.rows(CLOCK, {}))
    if any(isinstance(now, datetime) and now > at for (now,) in before):
        raise UnknownTime(f"the time is {before[0][0]!s} already, and does not go back to {at}")
    return [Operation(Action.DELETE, CLOCK, before), Operation(Action.INSERT, CLOCK, ((at,),))]
