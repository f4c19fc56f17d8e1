"""What stands in for the engine of a database that was closed."""

from __future__ import annotations

from typing import NoReturn

from rederive.errors import Closed


class ClosedEngine:
    """Refuses everything, so that an open database need not ask at every call whether it is open."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed
