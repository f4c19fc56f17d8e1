"""Tables of other databases, read by JDBC in one statement: their rows, and how many transactions the rows reflect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import environ
from string import Template
from typing import Final

from rederive.errors import IllTypedRow, SourceUnavailable
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.lake.delta_log import FAILURES
from rederive.lake.external import first_line
from rederive.lake.frame_rows import PROBLEM, convert_frame
from rederive.lake.session import spark_session
from rederive.lake.types import rows_of

_VERSION, _THERE = "rederive_version", "rederive_there"
_DRIVERS: Final = {"jdbc:postgresql:": "org.postgresql.Driver"}  # Java finds by itself only the drivers that it was started with
_HINT: Final = "check url, table, driver, version and the driver's jar: python -m rederive.lake.jars postgresql"


@dataclass(frozen=True, slots=True)
class JdbcTable:
    """A table, or a query in brackets, at a JDBC address.

    `${NAME}` in the address is an environment variable, so that programs contain no secret. `version`: a query that returns one
    number, how many transactions the database has committed.
    """

    url: str
    table: str
    driver: str | None = None
    version: str | None = None

    @property
    def statement(self) -> str:
        """The SQL that is read. One statement sees one state, so rows and version belong together, even without any row.

        >>> print(JdbcTable("jdbc:x", "r", version="SELECT n FROM taken").statement)
        (SELECT v.*, t.* FROM (SELECT (SELECT n FROM taken) AS rederive_version) v
         LEFT JOIN (SELECT 1 AS rederive_there, r.* FROM r r) t ON 1 = 1) found
        """
        if self.version is None:
            return self.table
        return (
            f"(SELECT v.*, t.* FROM (SELECT ({self.version}) AS {_VERSION}) v\n"
            f" LEFT JOIN (SELECT 1 AS {_THERE}, r.* FROM {self.table} r) t ON 1 = 1) found"
        )

    def read(self, relation: Relation, environment: Mapping[str, str] = environ) -> tuple[list[Row], int | None]:
        """The rows and the version; raises SourceUnavailable if the database does not answer."""
        options = {"url": self._address(environment), "dbtable": self.statement}
        driver = self.driver or next((name for start, name in _DRIVERS.items() if self.url.startswith(start)), None)
        options |= {"driver": driver} if driver else {}
        extra = [] if self.version is None else [_VERSION, _THERE]
        try:
            frame = spark_session().read.format("jdbc").options(**options).load()
            found = convert_frame(frame, relation, extra).toArrow()
        except FAILURES as error:
            raise SourceUnavailable(f"'{relation.name}' cannot be read: {_reason(error)}", hint=_HINT) from None
        if problem := next(filter(None, found[PROBLEM].to_pylist()), None):
            raise IllTypedRow(f"relation '{relation.name}': {problem}").at(self.table)
        if self.version is None:
            return rows_of(found, relation), None
        # If the table is empty, the LEFT JOIN yields one row with the version alone, in which _THERE is NULL.
        return rows_of(found.filter(found[_THERE].is_valid()), relation), self._number(found[_VERSION].to_pylist())

    def _address(self, environment: Mapping[str, str]) -> str:
        try:
            return Template(self.url).substitute(environment)
        except (KeyError, ValueError) as error:
            raise SourceUnavailable(f"the address '{self.url}' names {error}, which is not an environment variable") from None

    def _number(self, versions: list[int | None]) -> int:
        number = versions[0]
        if number is None:
            raise SourceUnavailable(f"'{self.version}' gives no version", hint="it must return the number of transactions so far")
        return int(number)


def _reason(error: Exception) -> str:
    """The database's own message, which Spark wraps.

    >>> wrapped = ValueError("Failed JDBC")
    >>> wrapped._cause = ValueError("org.postgresql.util.PSQLException: Connection to 127.0.0.1:5432 refused.")
    >>> _reason(wrapped)
    'Connection to 127.0.0.1:5432 refused.'
    """
    said = first_line(getattr(error, "_cause", None) or error)
    return re.sub(r"^[\w.$]+(Exception|Error): ", "", said)
