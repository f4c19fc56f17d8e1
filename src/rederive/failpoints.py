"""Places where a test may kill the process, to see what the next start finds.

`REDERIVE_FAULT=journal.append:written` kills at the first passing of that point, `...:written@7` at the seventh. Nothing is armed
without the variable.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "REDERIVE_FAULT"
POINTS: Final = (
    "journal.create:before",  # the folder is there, the file is empty
    "journal.create:written",  # tables made, not committed
    "journal.create:after",
    "journal.renew:written",  # an older journal has the new format, not committed
    "commit:propagated",  # a version is worked out, and nothing is written
    "journal.append:begun",
    "journal.append:written",  # everything is in the file, but not committed
    "journal.append:after",  # committed, and the engine does not know yet
    "commit:applied",  # the engine knows, and nobody is told yet
    "journal.amend:begun",  # a definition or initial rows, without a version
    "journal.amend:written",
    "journal.amend:after",
    "journal.attach:begun",  # a store gets its lake
    "journal.attach:written",
    "journal.settle:begun",  # the lake has a version, and the journal is about to know
    "journal.settle:written",
    "journal.settle:after",
    "lake.stage:part",  # some rows of a bulk version are beside the tables, and the journal knows nothing of it
    "lake.settle:table",  # one more table of the lake has the version, the others may not
    "lake.settle:tables",  # all of them have it, and nobody wrote it down
    "lake.settle:after",
    "webhook:sent",  # the receiver has it, and the outbox does not know
    "stream:batch",  # a micro-batch is read, and nothing of it is committed
    "stream:committed",  # its version stands, what could not be read is not in quarantine yet
    "stream:quarantined",  # and it is, but the stream does not know that the batch is done
)


def _armed() -> tuple[str, int]:
    point, _, passing = os.environ.get(VARIABLE, "").partition("@")
    if point and point not in POINTS:
        raise RuntimeError(f"{VARIABLE}: no fault point '{point}'; known: {', '.join(POINTS)}")
    return point, int(passing or 1)


_point, _left = _armed()


def hit(point: str) -> None:
    """Kill this process, as `kill -9` would, where the environment asks for it here.

    >>> hit("journal.append:after")
    """
    global _left
    if point == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
