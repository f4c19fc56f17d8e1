"""Reading remote relations: in the state after a given transaction, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from rederive.boundary import caller_function, given_rows
from rederive.errors import SourceUnavailable
from rederive.ingest.input_file import read_rows
from rederive.ir.rules import Program, Relation, Remote
from rederive.ir.terms import Row
from rederive.rows import typed_row
from rederive.warehouse.selfmaint.source_update import SourceUpdate


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a remote relation. `version`: how many transactions they reflect.

    None means: all that the warehouse has received. Such a source changes in lock step with the warehouse.
    """

    rows: Iterable[Row]
    version: int | None = None


Reader = Callable[[], Reading | Iterable[Row]]


class RemoteSources:
    """The readers of remote relations, and the expected number of their rows."""

    def __init__(self, program: Program, readers: Mapping[str, Reader]) -> None:
        self._relations = program.relations
        self._readers = {remote.relation: r for remote in program.remotes if (r := _declared_reader(remote, program)) is not None}
        self._readers |= {relation: caller_function(reader) for relation, reader in readers.items()}
        self._rows = {remote.relation: dict(remote.options).get("rows") for remote in program.remotes}

    def estimate(self, relation: str) -> float:
        """Return the expected number of rows; infinity if the program does not declare it."""
        declared = self._rows.get(relation)
        return float(declared) if declared is not None else inf

    def version(self, relations: Iterable[str]) -> int:
        """Return how many transactions the relations reflect now; 0 if no source says."""
        readings = {relation: self._reading(relation).version for relation in relations}
        versions = {relation: version for relation, version in readings.items() if version is not None}
        # A first state that mixes two versions would never be corrected.
        if len(set(versions.values())) > 1:
            reflected = ", ".join(f"'{relation}' reflects {version}" for relation, version in versions.items())
            raise SourceUnavailable(f"the sources changed while they were read: {reflected}", hint="try again")
        return max(versions.values(), default=0)

    def read(self, relation: str, version: int, updates: Mapping[int, SourceUpdate]) -> frozenset[Row]:
        """Return the rows after a transaction. From a reading that is ahead, later transactions are taken back."""
        latest = max(updates, default=version)
        reading = self._reading(relation)
        # A source in lock step has seen exactly what the warehouse has received.
        at = latest if reading.version is None else reading.version
        if at < version:
            raise SourceUnavailable(f"'{relation}' reflects transaction {at}, and {version} is needed", hint="try again later")
        if at > latest:
            hint = "send the transactions in between to the warehouse first"
            raise SourceUnavailable(f"'{relation}' reflects transaction {at}, and the warehouse has received {latest}", hint=hint)
        rows = frozenset(typed_row(self._relations[relation], row) for row in given_rows(reading.rows))
        # Newest first: the inverse of a net update is exact in the state that it left.
        for later in range(at, version, -1):
            rows = _take_back(relation, rows, updates[later])
        return rows

    def _reading(self, relation: str) -> Reading:
        if relation not in self._readers:
            raise SourceUnavailable(
                f"the remote relation '{relation}' has no reader", hint="pass a reader for it to the warehouse"
            )
        try:
            found = self._readers[relation]()
        except OSError as error:  # a connection, a file or a time limit
            raise SourceUnavailable(f"'{relation}' cannot be read: {error}") from error
        return found if isinstance(found, Reading) else Reading(found)


def _take_back(relation: str, rows: frozenset[Row], update: SourceUpdate) -> frozenset[Row]:
    """Return the rows before an update. Only a net update can be taken back: an idle insert must not delete the row."""
    if relation not in update.relations:
        return rows
    if not update.net:
        message = f"'{relation}' is ahead by a transaction that is not known to be net and cannot be taken back"
        raise SourceUnavailable(message, hint="open the warehouse with net=True if the sources report net changes")
    return update.before(relation, rows)


def _declared_reader(remote: Remote, program: Program) -> Reader | None:
    """Return the reader that a declaration describes: a Parquet file, in lock step, or a table of a database."""
    options, relation = dict(remote.options), program.relations[remote.relation]
    match remote.source:
        case "parquet":
            return _file_reader(Path(options["path"]), relation)
        case "jdbc":
            return _table_reader(options, relation)
        case _:
            return None


def _file_reader(path: Path, relation: Relation) -> Reader:
    def read() -> Iterable[Row]:
        path.stat()  # raises OSError for a missing file: the source is unavailable
        return read_rows(path, relation)

    return read


def _table_reader(options: Mapping[str, str], relation: Relation) -> Reader:
    def read() -> Reading:
        from rederive.lake.jdbc import JdbcTable  # Spark starts when a table is read, not before

        given = (options.get(name) for name in ("driver", "version"))
        return Reading(*JdbcTable(options["url"], options["table"], *given).read(relation))

    return read
