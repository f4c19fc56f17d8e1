"""Tables that this process writes without Spark, read again by the `deltalake` package."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from rederive.errors import Mismatch, WriteConflict
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, Kind, Row, Type
from rederive.lake import local_log, local_writes
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION
from rederive.lake.declaration import table_properties
from rederive.lake.local_log import LocalLog
from rederive.lake.tables import Area, table_schema
from rederive.lake.types import arrow_table, schema_of
from tests.lake import witness
from tests.selection import fast_only

SALE = Relation("sale", (Column("id", NUMBER), Column("name", SYMBOL, nullable=True), Column("price", FLOAT)), key=(0,))
MARK = Relation("mark", (Column("word", SYMBOL, nullable=True), Column("day", DATE, nullable=True)))


def new_table(place: Path, relation: Relation) -> LocalLog:
    log = LocalLog(place)
    log.create(schema_of(relation), table_properties(relation, "UTC"))
    return log


def changes(relation: Relation, *given: tuple[int, Row, int]) -> pa.Table:
    """The columns of a change table: `(version, row, count)`, with a count below zero for copies that leave."""
    own = {
        VERSION: pa.array([version for version, _, _ in given], pa.int64()),
        CHANGE: pa.array([PLUS if number > 0 else MINUS for _, _, number in given], pa.string()),
        COUNT: pa.array([abs(number) for _, _, number in given], pa.int64()),
    }
    table = arrow_table(relation, [row for _, row, _ in given])
    return pa.table([*own.values(), *table.columns], names=[*own, *table.column_names])


def rows(log: LocalLog) -> Counter[Row]:
    return Counter(witness.rows(str(log.place)))


@pytest.mark.parametrize("seed", fast_only(range(5), 0))
@pytest.mark.parametrize("relation", [SALE, MARK], ids=["set", "bag"])
def test_random_changes_with_restarts_and_compactions(tmp_path: Path, relation: Relation, seed: int) -> None:
    chance, log = random.Random(seed), new_table(tmp_path, relation)
    expected: Counter[Row] = Counter()
    version = 0
    for step in range(8):
        given: list[tuple[int, Row, int]] = []
        row: Row
        for _ in range(chance.choice([1, 3])):  # versions that are settled together
            version += 1
            for row in chance.sample(sorted(expected, key=repr), min(len(expected), chance.randrange(8))):
                gone = chance.randint(1, expected[row])
                given.append((version, row, -gone))
                expected[row] -= gone
            expected = +expected
            for _ in range(chance.randrange(12)):
                if relation is SALE:
                    number = chance.randrange(40)
                    if all(row[0] != number for row in expected):
                        row = (number, chance.choice(["a", "bb", None]), chance.choice([0.0, 1.5]))
                        given.append((version, row, 1))
                        expected[row] += 1
                else:
                    row = (chance.choice(["x", "y" * 50, None]), chance.choice([None, date(2024, 2, 29), date(1, 1, 1)]))
                    copies = chance.randint(1, 3)
                    # One record of a version has each row once.
                    if not any(one[:2] == (version, row) for one in given):
                        given.append((version, row, copies))
                        expected[row] += copies
        if given:
            local_writes.apply_changes(relation, log, changes(relation, *given), version)
            assert rows(log) == expected
            # A repetition, and one with versions that the table has, change nothing.
            local_writes.apply_changes(relation, log, changes(relation, *given), version)
        if step % 4 == 3:
            before = len(log.files)
            assert local_writes.compact(log, local_writes.identity_names(relation), 2) == (before >= 2)
            assert len(log.files) <= 1
        if step % 3 == 2:
            log = LocalLog(tmp_path)
            assert log.refresh()
        assert rows(log) == expected


def test_all_types(tmp_path: Path) -> None:
    types = (Type(Kind.DECIMAL, 38, 3), TIMESTAMP, FLOAT, Type(Kind.UNSIGNED), Type(Kind.BOOLEAN), NUMBER)
    relation = Relation("r", tuple(Column(f"c{i}", type, nullable=True) for i, type in enumerate(types)))
    log = new_table(tmp_path, relation)
    one: Row = (Decimal("-1.500"), datetime(2024, 2, 29, 12, 30, 0, 123456), -0.0, 2**64 - 1, True, -(2**63))
    none: Row = (None,) * len(types)
    local_writes.apply_changes(relation, log, changes(relation, (1, one, 1), (1, none, 1)), 1)
    # As the engine has it: -0.0 is 0.0, and a decimal has the scale of its column.
    same = (Decimal("-1.500"), one[1], 0.0, *one[3:])
    local_writes.apply_changes(relation, log, changes(relation, (2, same, -1)), 2)
    assert rows(log) == Counter([none])
    local_writes.apply_changes(relation, log, changes(relation, (3, none, -1)), 3)
    assert rows(log) == Counter()
    assert not log.files


def test_a_relation_without_columns(tmp_path: Path) -> None:
    relation = Relation("flag", ())
    log = new_table(tmp_path, relation)
    for version, number in ((1, 1), (2, -1), (3, 1)):
        local_writes.apply_changes(relation, log, changes(relation, (version, (), number)), version)
        assert sum(rows(log).values()) == max(number, 0)


def test_rows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    log = new_table(tmp_path, SALE)
    local_writes.apply_changes(SALE, log, changes(SALE, (1, (1, "a", 0.0), 1)), 1)
    with pytest.raises(Mismatch, match="lacks 1 rows"):
        local_writes.apply_changes(SALE, log, changes(SALE, (2, (1, "a", 2.0), -1)), 2)
    assert rows(log) == Counter([(1, "a", 0.0)])


def test_only_files_that_can_have_the_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_table(tmp_path, SALE)
    for version in (1, 2, 3):
        entering = [(version, (100 * version + i, "a", 0.0), 1) for i in range(10)]
        local_writes.apply_changes(SALE, log, changes(SALE, *entering), version)
    read: list[object] = []
    search = local_writes._candidates

    def counted(log: LocalLog, file: local_log.Action, *rest: Any) -> list[tuple[Row, int]]:
        read.append(file)
        return search(log, file, *rest)

    monkeypatch.setattr(local_writes, "_candidates", counted)
    local_writes.apply_changes(SALE, log, changes(SALE, (4, (205, "a", 0.0), -1)), 4)
    assert len(read) == 1


def test_another_writer_gets_the_number(tmp_path: Path) -> None:
    """The commit is made over what the other one left; one of two equal writers finds its version written."""
    log = new_table(tmp_path, SALE)
    other = LocalLog(tmp_path)
    assert other.refresh()
    local_writes.apply_changes(SALE, log, changes(SALE, (1, (1, "a", 0.0), 1)), 1)
    local_writes.apply_changes(SALE, other, changes(SALE, (1, (1, "a", 0.0), 1), (2, (2, "b", 0.0), 1)), 2)
    assert rows(log) == Counter([(1, "a", 0.0), (2, "b", 0.0)])
    assert log.refresh()
    assert (log.version, log.written) == (other.version, 2)


def test_after_a_few_attempts_the_other_writer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_table(tmp_path, SALE)

    def overtaken(*_: object, after: int) -> None:
        raise local_log.Overtaken

    monkeypatch.setattr(LocalLog, "commit", overtaken)
    with pytest.raises(WriteConflict):
        local_writes.apply_changes(SALE, log, changes(SALE, (1, (1, "a", 0.0), 1)), 1)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('"writerFeatures": ["deletionVectors"', '"writerFeatures": ["deletionVectors", "identityColumns"'),
        ('"partitionColumns": []', '"partitionColumns": ["id"]'),
        ('"delta.enableDeletionVectors": "true"', '"delta.enableChangeDataFeed": "true"'),
    ],
)
def test_a_table_with_other_features_is_left_to_spark(tmp_path: Path, text: str, other: str) -> None:
    log = new_table(tmp_path, SALE)
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    content = first.read_text()
    assert text in content
    first.write_text(content.replace(text, other))
    assert not LocalLog(tmp_path).refresh()
    shutil.rmtree(tmp_path / "_delta_log")
    assert not log.refresh()


def test_deletion_vectors_of_all_kinds(tmp_path: Path) -> None:
    log, positions = new_table(tmp_path, SALE), BitMap64([0, 7, 2**33])
    (first, second) = log.write_vectors([BitMap64([1]), positions])
    assert log.deleted({"deletionVector": first}) == BitMap64([1])
    assert log.deleted({"deletionVector": second}) == positions
    data = local_log._MAGIC + positions.serialize()
    inline = {"storageType": "i", "pathOrInlineDv": local_log._encode(data + bytes(-len(data) % 4)), "sizeInBytes": len(data)}
    assert log.deleted({"deletionVector": inline}) == positions


def test_null_is_refused_in_a_column_that_is_not_null(tmp_path: Path) -> None:
    log = LocalLog(tmp_path)
    log.create(table_schema(Area.BASE, SALE), table_properties(SALE, "UTC"))
    local_writes.apply_changes(SALE, log, changes(SALE, (1, (1, None, 2.5), 1)), 1)
    with pytest.raises(Mismatch, match="column 'price' of the table is NOT NULL"):
        local_writes.apply_changes(SALE, log, changes(SALE, (2, (2, "b", None), 1)), 2)
    assert rows(log) == {(1, None, 2.5): 1}


def test_changes_beyond_the_retention_are_removed(tmp_path: Path) -> None:
    """Whole files, and rows of a file with later versions; once, and without reading what has a later version."""
    log = LocalLog(tmp_path)
    log.create(table_schema(Area.CHANGES, SALE), table_properties(SALE, "UTC"))
    for first in (1, 4, 7):
        given = [(version, (version, "a", 1.0), 1) for version in range(first, first + 3)]
        local_writes.append_changes(log, changes(SALE, *given), first + 2)
    local_writes.remove_changes(log, 5)
    assert [row[0] for row in witness.rows(str(tmp_path))] == [6, 7, 8, 9]
    assert log.properties["rederive.since"] == "5"
    assert log.written == 9
    commit = log.version
    local_writes.remove_changes(log, 4)
    assert log.version == commit
    local_writes.compact(log, (VERSION,), 2)
    local_writes.remove_changes(log, 8)
    again = LocalLog(tmp_path)
    assert again.refresh()
    assert [row[0] for row in witness.rows(str(again.place))] == [9]


@pytest.mark.parametrize("versions", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_number_of_files_is_bounded(tmp_path: Path, versions: int) -> None:
    """Each version is a commit of its own to a table and its change table, which has the last 1,000 versions."""
    table, changed = new_table(tmp_path / "table", SALE), LocalLog(tmp_path / "changes")
    changed.create(table_schema(Area.CHANGES, SALE), table_properties(SALE, "UTC"))
    most = 0
    for version in range(1, versions + 1):
        given = [(version, (version, "a", 1.0), 1)] + [(version, (version - 50, "a", 1.0), -1)] * (version > 50)
        local_writes.apply_changes(SALE, table, changes(SALE, *given), version)
        local_writes.append_changes(changed, changes(SALE, *given), version)
        for log, by in ((table, ("id",)), (changed, (VERSION,))):
            most = max(most, len(log.files))
            if len(log.files) >= 64:
                if log is changed:
                    local_writes.remove_changes(log, version - 1000)
                local_writes.compact(log, by, 64)
    assert most <= 64
    assert sum(file["size"] for file in changed.files.values()) < 2**20
    assert {row[0] for row in rows(table)} == set(range(versions - 49, versions + 1))
    kept = {row[0] for row in witness.rows(str(changed.place))}
    assert kept == set(range(min(kept), versions + 1))
    assert min(kept) <= max(1, versions - 999)
