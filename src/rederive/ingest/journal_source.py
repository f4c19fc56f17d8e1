"""Streams out: the changes of a store's views as Spark's data source `rederive`.

What Spark asks of a source is in `pipeline.source`; what a store has recorded is known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rederive.catalog import Catalog
from rederive.errors import StoreError
from rederive.ingest import source
from rederive.ingest.source import ChangeSource, Record, Session, Signed
from rederive.ir.rules import Relation
from rederive.ir.terms import UTC
from rederive.lake.names import folder_name
from rederive.lake.tables import MINUS, PLUS, Area
from rederive.locations import local_folder
from rederive.store.journal.reader import JournalReader


def register(spark: Session) -> None:
    """From now on `spark.readStream.format("rederive")` and `spark.read.format("rederive")` are known to this session."""
    source.register(spark, StoreSource)


class StoreSource(ChangeSource):
    """The changes of a view, from the journal of a store, which another process may be writing."""

    @staticmethod
    @contextmanager
    def record(store: str, view: str) -> Iterator[Record]:
        with JournalReader.read(local_folder(store, "a store")) as journal:
            journal.reach(view)  # refuses a view that is not there, or not recorded
            definitions = Catalog.of(journal.catalog.texts, journal.options.get("zone", UTC))
            yield JournalRecord(journal, definitions.program.relations[view])


class JournalRecord:
    """The changes of one view in a journal."""

    def __init__(self, journal: JournalReader, relation: Relation) -> None:
        self.relation = relation
        self._journal = journal

    @property
    def version(self) -> int:
        return self._journal.version

    @property
    def epoch(self) -> str:
        return self._journal.epoch

    def version_at(self, position: str) -> int:
        return self._journal.version_at(position)

    def between(self, since: int, until: int) -> Iterator[Signed]:
        for entry in self._journal.since(since, self.relation.name):
            if entry.number > until:
                return
            if entry.staged is not None:
                raise self._elsewhere(entry.number)
            for recorded in entry.views:
                delta = recorded.delta
                plus, minus = delta.counts or (None, None)
                for sign, rows, counts in ((PLUS, list(delta.plus), plus), (MINUS, list(delta.minus), minus)):
                    if rows:
                        yield Signed(entry.number, recorded.relation, sign, rows, counts)

    def _elsewhere(self, version: int) -> StoreError:
        """Whoever plans a scan for Spark has no Spark of its own to read the lake with."""
        table = f"{self._journal.lake}/{Area.CHANGES.value}/{folder_name(self.relation.name)}"
        return StoreError(
            f"version {version} is a bulk version: its changes are in the lake alone",
            hint=f'read or follow the change table instead: format("delta").load("{table}")',
        ).at(str(self._journal.folder))
