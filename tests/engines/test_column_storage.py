"""Codes that values have of their own, and tables by column: both against plain Python."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rederive
from rederive.engines.resident.storage.codes import NULL, Codes
from rederive.engines.resident.storage.column_table import ColumnTable, as_columns
from rederive.engines.resident.storage.table import Table
from rederive.engines.resident.storage.unit_codes import UnitCodec
from rederive.errors import DuplicateKey
from rederive.ir.terms import BOOLEAN, DATE, NUMBER, TIMESTAMP, UNSIGNED, Kind, Type

MONEY = Type(Kind.DECIMAL, 12, 2)
WIDE = Type(Kind.DECIMAL, 30, 3)
EDGES = [0, 1, -1, 2**24 - 1, 2**24, 2**24 + 1, -(2**24), -(2**24) - 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32, -(2**30), -(2**31)]
VALUES: dict[Type, list[Any]] = {
    NUMBER: [*EDGES, 2**63 - 1, -(2**63)],
    UNSIGNED: [n for n in EDGES if n >= 0],
    BOOLEAN: [False, True],
    MONEY: [Decimal(n) / 100 for n in EDGES],
    WIDE: [Decimal(n).scaleb(-3) for n in (*EDGES, 10**29)],
    DATE: [datetime.date.min, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date.max],
    TIMESTAMP: [
        datetime.datetime(1970, 1, 1),
        datetime.datetime(1969, 12, 31, 23, 59),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    ],
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_values_of_numbers_and_times_come_back_from_their_codes(type_: Type) -> None:
    values = [*VALUES[type_], None]
    codec, other = Codes().codec(type_), Codes().codec(type_)
    codes = [codec.encode(value) for value in values]
    assert len(set(codes)) == len(values)
    assert codes[-1] == NULL
    assert all(0 < code < 2**32 for code in codes[:-1])
    assert [codec.values[code] for code in codes] == values
    assert [codec.find(value) for value in values] == codes
    column = np.array(codes, np.uint32)
    assert codec.decode_many(column) == values
    # By column, in any order: the same values share a code, whichever way they came.
    assert other.decode_many(other.encode_many(values)) == values
    numbers, compact = codec.compact(column)
    assert [compact[number] for number in numbers.tolist()] == values
    assert numbers.max() <= len(values)


@pytest.mark.parametrize("type_", [t for t in VALUES if t != WIDE], ids=str)
def test_units_of_codes_are_those_of_the_values(type_: Type) -> None:
    values = VALUES[type_]
    codec = Codes().codec(type_)
    assert isinstance(codec, UnitCodec)
    codes = codec.encode_many(values)
    units = codec.units(codes)
    assert codec.from_units(units).tolist() == codes.tolist()
    assert codec.from_units(units[::-1]).tolist() == codes[::-1].tolist()
    assert (np.argsort(units) == sorted(range(len(values)), key=values.__getitem__)).all()


def test_a_decimal_with_more_digits_than_its_type_has_a_code_of_its_own() -> None:
    codec = Codes().codec(MONEY)
    assert codec.encode(Decimal("1.00")) == codec.encode(Decimal("1.0")) != codec.encode(Decimal("1.001"))
    assert codec.values[codec.encode(Decimal("1.001"))] == Decimal("1.001")


def test_restored_codes_are_those_of_before() -> None:
    one, two = Codes().codec(NUMBER), Codes().codec(NUMBER)
    codes = [one.encode(value) for value in (7, 10**12, -(10**15), 10**13)]
    two.restore(one.listed)
    assert [two.find(value) for value in (7, 10**12, -(10**15), 10**13)] == codes
    assert two.encode(10**14) not in codes


def test_a_column_of_small_numbers_makes_no_value() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, price DECIMAL(9,2) NOT NULL, day DATE NOT NULL, n INT NOT NULL)")
        rows = [(i, Decimal(i) / 100, datetime.date.fromordinal(700_000 + i), i % 7) for i in range(5000)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        types = (pa.int64(), pa.decimal128(9, 2), pa.date32(), pa.int32())
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        db.load("t", pa.table(arrays, names=["id", "price", "day", "n"]))
        codecs = db.pipeline.state.engine.codes.codecs()  # type: ignore[attr-defined]
        assert sum(len(codec.codes) - 1 for codec in codecs) == 0
        assert sorted(db.rows("t")) == rows


@pytest.mark.parametrize("spread", [1, 1000], ids=["close together", "far apart"])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_by_column_holds_what_a_dictionary_holds(spread: int, seed: int) -> None:
    """Rows by key: added, removed and replaced, one by one and in bulk, until numbers are used again."""
    chance = random.Random(seed)
    table, held = ColumnTable("t", 3, (0,)), dict[int, tuple[int, int, int]]()
    is_indexed = seed == 1
    if is_indexed:
        table.index((1,))

    def changed(rows: list[tuple[int, int, int]]) -> Table:
        found = Table("changed", 3)
        found.load(rows)
        return found

    for _ in range(25):
        many = chance.choice((1, 5, 300, 1500))
        fresh = list({chance.randrange(1, 6000) * spread for _ in range(many)})
        came = [(key, chance.randrange(1, 9), chance.randrange(1, 9)) for key in fresh]
        came = [row for row in came if held.get(row[0]) != row]
        leaving = [row for row in held.values() if chance.random() < 0.2] if chance.random() < 0.5 else []
        gone = {row[0]: row for row in (*leaving, *(held[row[0]] for row in came if row[0] in held))}
        table.apply(changed(list(gone.values())), changed(came))
        for key in gone:
            del held[key]
        held.update((row[0], row) for row in came)
        columns = table.scan()
        assert len(table) == len(held) == len(columns[0])
        assert set(zip(*(column.tolist() for column in columns), strict=True)) == set(held.values())
        probe = as_columns([*list(held.values())[:50], (999_999_999, 1, 1)], 3)
        positions, rows = table.find_many((0,), probe[:1])
        assert sorted(positions.tolist()) == list(range(len(probe[0]) - 1))
        assert (table.columns[1][rows] == probe[1][positions]).all()
        assert all(row in table for row in list(held.values())[:5])
        assert set(table.matching({1: 3})) == {row for row in held.values() if row[1] == 3}
        lookup = table.lookup((1,)) if is_indexed else table.lookup((0, 1))
        if held:
            key, one, two = chance.choice(list(held.values()))
            expected = {(k, b) for k, a, b in held.values() if a == one} if is_indexed else {two}
            assert set(lookup(one if is_indexed else (key, one))) == expected


def test_rows_that_share_a_key_are_refused_and_leave_nothing() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, b BIGINT NOT NULL, c BIGINT NOT NULL)")
        db.load("t", [(i, i, i, i) for i in range(200)])
        for rows in ([(500, 1, 1, 1), (500, 2, 2, 2)], [(7, 1, 1, 1), (501, 1, 1, 1)]):
            with pytest.raises(DuplicateKey):
                db.load("t", rows)
            assert sorted(db.rows("t")) == [(i, i, i, i) for i in range(200)]
        with db.transaction() as tx:
            tx.delete("t", [(7, 7, 7, 7)])
            tx.insert("t", [(7, 8, 8, 8), (500, 1, 1, 1)])
        assert len(db.rows("t")) == 201
        assert db.rows("t", {"id": 7}) == [(7, 8, 8, 8)]


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_one_code_and_its_units_are_those_of_whole_columns(type_: Type) -> None:
    codec = Codes().codec(type_)
    assert isinstance(codec, UnitCodec)
    codes = [codec.encode(value) for value in VALUES[type_]]
    units = codec.units(np.array(codes, np.uint32)).tolist() if type_ != WIDE else [int(value * 1000) for value in VALUES[type_]]
    assert [codec.units_of_code(code) for code in codes] == units
    assert [codec.code_of_units(number) for number in units] == codes


def test_a_finder_forgets_what_changes() -> None:
    table = ColumnTable("t", 4, (0, 1, 2))
    find, whole = table.finder((0, 1, 2)), table.finder((0, 1, 2, 3))
    assert find((7, 8, 9)) == []
    number = table.add_row((7, 8, 9, 1))
    assert find((7, 8, 9)) == [number] == whole((7, 8, 9, 1))
    gone, came = Table("gone", 4), Table("came", 4)
    gone.load([(7, 8, 9, 1)])
    came.load([(7, 8, 9, 2)])
    table.apply(gone, came)
    # In its place: the key is found as before, and the whole row is another.
    assert (find((7, 8, 9)), whole((7, 8, 9, 1)), whole((7, 8, 9, 2))) == ([number], [], [number])
    table.remove_row(number)
    assert find((7, 8, 9)) == [] == whole((7, 8, 9, 2))


def test_sums_of_decimals_have_all_their_digits() -> None:
    """They were rounded to the 28 digits of Python's default context, and so were the digits that a hash reads."""
    large = Decimal("123456789012345678901234567890123456.78")
    db = rederive.open()
    db.sql("CREATE TABLE t (g INT, a BIGINT PRIMARY KEY, d DECIMAL(38,2) NOT NULL)")
    db.sql("CREATE VIEW v AS SELECT sum(d) AS s FROM t; CREATE VIEW h AS SELECT DISTINCT hash(d) AS h FROM t")
    with db.transaction() as tx:
        tx.insert("t", [(1, 1, large), (1, 2, Decimal("0.01"))])
    assert db.rows("v") == [(Decimal("123456789012345678901234567890123456.79"),)]
    with db.transaction() as tx:
        tx.delete("t", [(1, 2, Decimal("0.01"))])
    assert db.rows("v") == [(large,)]
    with db.transaction() as tx:
        tx.insert("t", [(1, 3, Decimal("123456789012345678901234567890123456.79"))])
    assert len(db.rows("h")) == 2
