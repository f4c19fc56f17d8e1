"""Failpoints: places where a test can kill the process, to check what the next start finds.

`REDERIVE_FAULT=journal.append:written` kills the process at the first hit of that point, `...:written@7` at the seventh. Without
the variable nothing happens.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "REDERIVE_FAULT"
POINTS: Final = (
    "journal.create:before",  # the folder exists, the file is empty
    "journal.create:written",  # the tables are created, not committed
    "journal.create:after",
    "journal.renew:written",  # an older journal is migrated, not committed
    "commit:propagated",  # the changes of a version are known, nothing is written
    "journal.append:begun",
    "journal.append:written",  # everything is in the file, not committed
    "journal.append:after",  # committed, not applied to the engine
    "commit:applied",  # applied to the engine, nobody is notified
    "journal.amend:begun",  # definitions or initial rows, without a version
    "journal.amend:written",
    "journal.amend:after",
    "journal.attach:begun",  # a store gets its lake
    "journal.attach:written",
    "journal.settle:begun",  # the lake has a version, the journal does not know it yet
    "journal.settle:written",
    "journal.settle:after",
    "lake.stage:part",  # some rows of a bulk version are staged, the journal does not know the version
    "lake.settle:table",  # one more table of the lake has the version
    "lake.settle:tables",  # all tables have it, state/settled does not
    "lake.settle:after",
    "refresh:read",  # the changes of the sources are known, nothing is written
    "refresh:committed",  # the version and the commits of its sources are durable, the engine reads the commits before them
    "webhook:sent",  # the receiver has it, the outbox does not know
    "stream:batch",  # a micro-batch is read, nothing of it is committed
    "stream:committed",  # its version is committed, what could not be read is not in quarantine
    "stream:quarantined",  # it is in quarantine, Spark does not know that the batch is done
)


def _armed() -> tuple[str, int]:
    point, _, number = os.environ.get(VARIABLE, "").partition("@")
    if point and point not in POINTS:
        raise RuntimeError(f"{VARIABLE}: unknown failpoint '{point}'; known: {', '.join(POINTS)}")
    return point, int(number or 1)


_point, _left = _armed()


def hit(point: str) -> None:
    """Kill this process as `kill -9` does, if the environment names this failpoint.

    >>> hit("journal.append:after")
    """
    global _left
    if point == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
