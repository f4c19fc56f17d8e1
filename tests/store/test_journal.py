"""The journal by itself: versions, retention, bulk versions of a lake, group commit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rederive.delta import Delta
from rederive.errors import Closed, Expired, Mismatch, StoreError
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, SYMBOL
from rederive.records import CatalogRecord, DefinitionText, RecordedDelta, VersionRecord
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
E = Relation("e", (Column("x", NUMBER),))
V = Relation("v", (Column("x", NUMBER), Column("s", SYMBOL)), key=(0,))


def entry(number: int, key: str | None = None) -> VersionRecord:
    """Version n puts row n into e, and takes row n - 1 out."""
    base, view = (
        RecordedDelta(E, Delta([(number,)], [(number - 1,)])),
        RecordedDelta(V, Delta([(number, "new")], [(number - 1, "old")])),
    )
    return VersionRecord(number, NOON, "resident", (base,), (view,), key, key)


def bulk(number: int) -> VersionRecord:
    return VersionRecord(number, NOON, "spark", staged=f"stage/{number}")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path) as opened:
        yield opened


def reopened(journal: Journal, retention: int | None = None) -> Journal:
    journal.close()
    return Journal.open(journal.folder, retention)


def test_the_rows_of_a_version_are_counted_once_and_stay_right(journal: Journal) -> None:
    journal.append([entry(1), entry(2)])
    first = journal.summaries(1, 2)
    journal.append([VersionRecord(3, NOON, "resident"), entry(4)])
    found = journal.summaries(0, 4)
    assert [dict(one.changed) for one in found] == [{"e": (1, 1), "v": (1, 1)}] * 2 + [{}, {"e": (1, 1), "v": (1, 1)}]
    assert (found[1:2], journal.summaries(0, 4)) == (first, found)
    with JournalReader.read(journal.folder) as reader:
        assert reader.summaries(0, 4) == found


def test_entries_come_back_as_they_were_appended(journal: Journal) -> None:
    entries = [entry(1, "k"), entry(2), VersionRecord(3, NOON, "resident")]
    for each in entries:
        journal.append([each])
    with reopened(journal) as journal:
        assert list(journal.since(0)) == entries
        assert list(journal.since(2)) == entries[2:]
        assert list(journal.since(3)) == []
        assert (journal.version, journal.base_rows(), journal.find_key("k"), journal.find_key("j")) == (
            3,
            {"e": [(2,)]},
            entries[0],
            None,
        )


def test_one_view_alone(journal: Journal) -> None:
    journal.amend(CatalogRecord(followed={"v": 0, "e": None}))
    journal.append([entry(1)])
    (found,) = journal.since(0, "v")
    assert (found.base, found.views) == ((), entry(1).views)
    with pytest.raises(Mismatch):
        journal.since(0, "e")


def test_many_versions_in_one_commit_are_all_there_or_none(journal: Journal) -> None:
    journal.append([entry(1), entry(2), entry(3)])
    assert (journal.version, journal.base_rows()) == (3, {"e": [(3,)]})
    with pytest.raises(Mismatch, match="version 6 cannot follow version 4"):
        journal.append([entry(4), entry(6)])
    with pytest.raises(Mismatch):
        journal.append([entry(3)])
    assert (journal.version, journal.base_rows()) == (3, {"e": [(3,)]})
    journal.append([entry(4)])
    assert [e.number for e in journal.since(0)] == [1, 2, 3, 4]


def test_a_key_is_used_once(journal: Journal) -> None:
    journal.append([entry(1, "k")])
    with pytest.raises(StoreError):
        journal.append([entry(2, "k")])
    assert journal.version == 1


def test_a_relation_that_changed_its_columns_is_read_with_those_it_had(journal: Journal) -> None:
    other = Relation("v", (Column("y", SYMBOL),))
    journal.append([entry(1)])
    views = (RecordedDelta(V, Delta(minus=[(1, "new")])), RecordedDelta(other, Delta([("a",)])))
    journal.append([VersionRecord(2, NOON, "resident", views=views)])
    (found,) = journal.since(1)
    deltas = [(c.relation, c.delta.signed()) for c in found.views]
    assert sorted(deltas, key=repr) == sorted([(V, {(1, "new"): -1}), (other, {("a",): 1})], key=repr)


def test_a_relation_that_a_failed_append_named_is_known_to_nobody(journal: Journal) -> None:
    with pytest.raises(Mismatch):
        journal.append([entry(1), entry(3)])
    journal.append([entry(1)])
    with reopened(journal) as journal:
        assert journal.base_rows() == {"e": [(1,)]}


def test_the_catalog_changes_with_its_version(journal: Journal) -> None:
    one, two, three = (DefinitionText(0, "<text>", text, "[]") for text in "abc")
    journal.append([entry(1)], CatalogRecord((one, two), {"v": 0}))
    journal.append([entry(2)], CatalogRecord((one, three, two), {"v": 0, "w": 2, "e": None}))
    with pytest.raises(Mismatch):
        journal.append([entry(9)], CatalogRecord())
    with reopened(journal) as journal:
        assert journal.catalog == CatalogRecord((one, three, two), {"v": 0, "w": 2, "e": None})
        journal.amend(CatalogRecord((one,), {}))
        assert journal.catalog == CatalogRecord((one,), {})


def test_more_versions_than_are_read_at_once(journal: Journal) -> None:
    journal.append([entry(i) for i in range(1, 1001)])
    assert [e.number for e in journal.since(3)] == list(range(4, 1001))


# Lake


def test_without_a_lake_everything_is_settled(journal: Journal) -> None:
    journal.append([entry(1)])
    assert (journal.lake, journal.settled, list(journal.unsettled())) == (None, 1, [])
    with pytest.raises(Mismatch, match="no lake"):
        journal.settle_to(1)
    with pytest.raises(Mismatch):
        journal.append_bulk(bulk(2))


def test_what_is_unsettled_is_settled_in_order(journal: Journal) -> None:
    journal.append([entry(1)])
    journal.attach_lake("/lake")
    assert (journal.lake, journal.settled, journal.base_rows()) == ("/lake", 1, {})
    journal.append([entry(2)])
    journal.append_bulk(bulk(3))
    journal.append([entry(4)])
    with reopened(journal) as journal:
        assert list(journal.unsettled()) == [entry(2), bulk(3), entry(4)]
        journal.settle_to(3)
        journal.settle_to(2)
        assert (journal.settled, list(journal.unsettled())) == (3, [entry(4)])
        assert journal.base_rows() == {}
        with pytest.raises(Mismatch, match="no version 5"):
            journal.settle_to(5)
        with pytest.raises(Mismatch, match="already"):
            journal.attach_lake("/other")


@pytest.mark.parametrize(
    "wrong",
    [
        VersionRecord(2, NOON, "spark"),
        VersionRecord(2, NOON, "spark", base=(RecordedDelta(E, Delta([(1,)])),), staged="s"),
        bulk(3),
    ],
)
def test_a_bulk_version_that_is_none(journal: Journal, wrong: VersionRecord) -> None:
    journal.append([entry(1)])
    journal.attach_lake("/lake")
    with pytest.raises(Mismatch):
        journal.append_bulk(wrong)
    assert journal.version == 1


def test_retention_spares_what_is_not_settled(journal: Journal) -> None:
    journal.append([entry(1)])
    journal.attach_lake("/lake")
    with reopened(journal, retention=2) as journal:
        for number in range(2, 11):
            journal.append([entry(number)])
        assert [e.number for e in journal.unsettled()] == list(range(2, 11))
        assert journal.reach() == 1
        journal.settle_to(6)
        assert (journal.reach(), [e.number for e in journal.unsettled()]) == (6, [7, 8, 9, 10])
        journal.settle_to(10)
        assert (journal.reach(), [e.number for e in journal.since(8)]) == (8, [9, 10])
        with pytest.raises(Expired):
            journal.since(7)


def test_the_last_version_is_never_forgotten(journal: Journal) -> None:
    with reopened(journal, retention=1) as journal:
        for number in range(1, 5):
            journal.append([entry(number)])
        assert (journal.reach(), [e.number for e in journal.since(3)]) == (3, [4])
    with Journal.open(journal.folder) as journal:
        assert (journal.version, journal.base_rows()) == (4, {"e": [(4,)]})


# Reading beside the writer


def test_a_reader_sees_commits_and_nothing_else(journal: Journal) -> None:
    journal.append([entry(1)])
    with JournalReader.read(journal.folder) as reader:
        assert [e.number for e in reader.since(0)] == [1]
        journal.append([entry(2)])
        assert [e.number for e in reader.since(0)] == [1, 2]
        with pytest.raises(Mismatch):
            journal.append([entry(3), entry(5)])
        assert reader.version == 2
        assert not hasattr(reader, "append")


def test_cursors_are_forgotten_on_request(journal: Journal) -> None:
    journal.append([entry(1)])
    journal.acknowledge("a", 1, NOON)
    journal.acknowledge("b", 0, NOON)
    journal.delete_cursor("a")
    journal.delete_cursor("nobody")
    assert (journal.cursor("a"), journal.cursor("b")) == (None, 0)


def test_a_closed_journal_refuses(journal: Journal) -> None:
    journal.close()
    journal.close()
    for call in (lambda: journal.append([entry(1)]), lambda: journal.version, lambda: journal.since(0)):
        with pytest.raises(Closed):
            call()
