"""Remote relations and how they are read: in the state that is asked for, or not at all."""

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
    """The rows of a remote relation. `version`: how many of the transactions they reflect; None says all that were received,
    as of a source that changes in lock step with the warehouse."""

    rows: Iterable[Row]
    version: int | None = None


Reader = Callable[[], Reading | Iterable[Row]]


class RemoteSources:
    """A reader for each remote relation that has one, and what is expected of its size."""

    def __init__(self, program: Program, readers: Mapping[str, Reader]) -> None:
        self._relations = program.relations
        self._readers = {remote.relation: r for remote in program.remotes if (r := _declared(remote, program)) is not None}
        self._readers |= {relation: caller_function(reader) for relation, reader in readers.items()}
        self._rows = {remote.relation: dict(remote.options).get("rows") for remote in program.remotes}

    def estimate(self, relation: str) -> float:
        """The rows that reading it is expected to cost; what is not declared is expected to cost most."""
        declared = self._rows.get(relation)
        return float(declared) if declared is not None else inf

    def version(self, relations: Iterable[str]) -> int:
        """How many transactions all of them reflect now; 0 where none of them says."""
        readings = {relation: self._reading(relation).version for relation in relations}
        versions = {relation: version for relation, version in readings.items() if version is not None}
        if len(set(versions.values())) > 1:
            told = ", ".join(f"'{relation}' reflects {version}" for relation, version in versions.items())
            raise SourceUnavailable(f"the sources moved on while they were read: {told}", hint="try again")
        return max(versions.values(), default=0)

    def read(self, relation: str, version: int, updates: Mapping[int, SourceUpdate]) -> frozenset[Row]:
        """The relation after that transaction. A reading that is ahead is taken back by the transactions received since."""
        latest = max(updates, default=version)
        reading = self._reading(relation)
        at = latest if reading.version is None else reading.version
        if at < version:
            raise SourceUnavailable(f"'{relation}' reflects transaction {at} only, not yet {version}", hint="try again later")
        if at > latest:
            hint = "hand in the transactions in between first"
            raise SourceUnavailable(f"'{relation}' reflects transaction {at}, but only {latest} were received", hint=hint)
        rows = frozenset(typed_row(self._relations[relation], row) for row in given_rows(reading.rows))
        for later in range(at, version, -1):
            rows = _taken_back(relation, rows, updates[later])
        return rows

    def _reading(self, relation: str) -> Reading:
        if relation not in self._readers:
            raise SourceUnavailable(f"'{relation}' has no source", hint="give the warehouse a reader for it")
        try:
            found = self._readers[relation]()
        except OSError as error:  # a connection, a file or a time limit
            raise SourceUnavailable(f"'{relation}' cannot be read: {error}") from error
        return found if isinstance(found, Reading) else Reading(found)


def _taken_back(relation: str, rows: frozenset[Row], update: SourceUpdate) -> frozenset[Row]:
    """The state before an update that touches the relation; only one that is net says what it was."""
    if relation not in update.relations:
        return rows
    if not update.net:
        message = f"'{relation}' is ahead by a transaction that is not known to be net, and cannot be taken back"
        raise SourceUnavailable(message, hint="open the warehouse with net=True where the source reports net changes")
    return update.before(relation, rows)


def _declared(remote: Remote, program: Program) -> Reader | None:
    """The reader that a declaration gives by itself: a Parquet file, read in lock step, or a table of a database."""
    options, relation = dict(remote.options), program.relations[remote.relation]
    match remote.source:
        case "parquet":
            return _file(Path(options["path"]), relation)
        case "jdbc":
            return _table(options, relation)
        case _:
            return None


def _file(path: Path, relation: Relation) -> Reader:
    def read() -> Iterable[Row]:
        path.stat()  # a file that is not there is a source that is not available
        return read_rows(path, relation)

    return read


def _table(options: Mapping[str, str], relation: Relation) -> Reader:
    def read() -> Reading:
        from rederive.lake.jdbc import JdbcTable  # Spark starts when a table is read, and not before

        given = (options.get(name) for name in ("driver", "version"))
        return Reading(*JdbcTable(options["url"], options["table"], *given).read(relation))

    return read
