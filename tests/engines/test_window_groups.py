"""Windows whose order is stored: after every change, the view is what ordering each partition from scratch gives."""

from __future__ import annotations

import datetime
from decimal import Decimal
from random import Random

import pytest

from rederive.engines.resident.run import partition, window_frames, window_groups
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.window_groups import WindowGroups
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.table import Table, rows_of
from rederive.ir.floats import NAN
from rederive.ir.rules import Aggregate, Column, Frame, Function, Order, Relation
from rederive.ir.terms import DATE, FLOAT, NUMBER, SYMBOL, Kind, Part, Type, Value

DECIMAL = Type(Kind.DECIMAL, 20, 2)
TYPES = (NUMBER, NUMBER, NUMBER, FLOAT, DECIMAL, SYMBOL, DATE)
COLUMNS = tuple(Column(f"c{i}", type_, True) for i, type_ in enumerate(TYPES))
SOURCE = Relation("s", COLUMNS)
GROUP, ORDERS = 0, (1, 3, 4, 5, 6)
VALUES: dict[Type, tuple[Value, ...]] = {
    NUMBER: (None, -3, -1, 0, 1, 2, 2**40, 2**62, -(2**62), -(2**63)),
    FLOAT: (None, 0.1, -0.5, 1e300, float("inf"), NAN, 2.5, 1e-300),
    DECIMAL: (None, Decimal("0.10"), Decimal("-2.35"), Decimal("7.00"), Decimal("123456789012.34")),
    SYMBOL: (None, "a", "b", "ab", "z"),
    DATE: (None, *(datetime.date(2024, 1, 28) + datetime.timedelta(days=n) for n in range(6))),
}
RESULTS = {
    Function.ROW_NUMBER: NUMBER, Function.NTILE: NUMBER, Function.COUNT: NUMBER, Function.PERCENT_RANK: FLOAT,
    Function.CUME_DIST: FLOAT,
}  # fmt: skip
FRAMES = (
    Frame(None, 0, by_value=True), Frame(None, 0), Frame(0, None), Frame(0, None, by_value=True), Frame(-2, 1), Frame(1, 3),
    Frame(-3, -2), Frame(None, -1), Frame(2, None), Frame(None, None), Frame(0, 0, by_value=True), Frame(None, 2),
)  # fmt: skip
DISTANCES: dict[int, tuple[Frame, ...]] = {
    1: (Frame(-1, 1, by_value=True), Frame(None, 2, by_value=True), Frame(1, 2**40, by_value=True)),
    3: (Frame(-0.5, 0.5, by_value=True), Frame(-1.0, None, by_value=True)),
    4: (Frame(Decimal(-3), 0, by_value=True),),
    6: (Frame(-2, 0, by_value=True), Frame(-1, 0, by_value=True, months=True), Frame(None, 1, by_value=True)),
}


def _aggregate(rng: Random) -> Aggregate:
    group = (GROUP,) if rng.random() < 0.8 else ()
    order = tuple(Order(c, rng.random() < 0.4, rng.random() < 0.5) for c in rng.sample(ORDERS, rng.choice((1, 1, 2))))
    function = rng.choice((
        Function.ROW_NUMBER, Function.LAG, Function.NTILE, Function.PERCENT_RANK, Function.CUME_DIST, Function.FIRST_VALUE,
        Function.LAST_VALUE, Function.NTH_VALUE, Function.COUNT, Function.SUM, Function.SUM, Function.MEAN, Function.MIN,
        Function.MAX, Function.COLLECT_LIST,
    ))  # fmt: skip
    value: int | None = rng.choice((2, 3, 4)) if function in (Function.SUM, Function.MEAN) else rng.choice((None, 2, 3, 5))
    frame = rng.choice(FRAMES)
    if len(order) == 1 and (given := DISTANCES.get(order[0].column)) and rng.random() < 0.5:
        frame = rng.choice(given)
    skips = rng.random() < 0.4
    match function:
        case Function.ROW_NUMBER:
            return Aggregate("v", function, "s", group, None, None, order, rng.choice((None, None, 1, 3, 20)))
        case Function.NTILE:
            return Aggregate("v", function, "s", group, None, None, order, None, (), (rng.choice((1, 2, 5, 100)),))
        case Function.PERCENT_RANK | Function.CUME_DIST:
            return Aggregate("v", function, "s", group, None, None, order)
        case Function.LAG:
            others = (2,) if rng.random() < 0.5 else ()
            return Aggregate("v", function, "s", group, 2, None, order, None, others, (rng.choice((-3, -1, 0, 1, 2)), skips))
        case Function.FIRST_VALUE | Function.LAST_VALUE | Function.NTH_VALUE:
            place = {Function.FIRST_VALUE: 1, Function.LAST_VALUE: 0}.get(function, rng.choice((1, 2, 4)))
            return Aggregate("v", function, "s", group, rng.choice((2, 3, 5)), None, order, None, (), (place, skips), frame)
        case Function.COUNT:
            return Aggregate("v", function, "s", group, value, None, order, None, (), (), frame)
        case Function.COLLECT_LIST:
            return Aggregate("v", function, "s", group, 2, None, order, None, (), (), frame)
        case _:
            return Aggregate("v", function, "s", group, value or 5, None, order, None, (), (), frame)


def _result(aggregate: Aggregate) -> Type:
    value = TYPES[aggregate.value] if aggregate.value is not None else NUMBER
    match aggregate.function:
        case Function.SUM:
            return Type(Kind.DECIMAL, 30, 2) if value == DECIMAL else value
        case Function.MEAN:
            return Type(Kind.DECIMAL, 24, 6) if value == DECIMAL else FLOAT
        case Function.COLLECT_LIST:
            return Type(Kind.ARRAY, parts=(Part("element", NUMBER),))
        case function:
            return RESULTS.get(function, value)


def _row(rng: Random, aggregate: Aggregate) -> tuple[Value, ...]:
    row = [rng.choice(VALUES[type_]) for type_ in TYPES]
    row[GROUP] = rng.choice((1, 1, 1, 2, None))
    # Sums of 64 bits do not overflow here; those of other windows may hold any number.
    if aggregate.function is Function.SUM:
        row[2] = rng.choice((None, -3, 0, 5, 2**40))
    # Distances from the ends of time or of 64 bits are not what this is about.
    row[1] = rng.choice((None, -3, -1, 0, 1, 2, 4, 2**40))
    return tuple(row)


class _Maintained:
    """A source, a view and the groups between them."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.codes = Codes()
        self.groups = WindowGroups(aggregate, SOURCE, _result(aggregate), self.codes)
        self.source, self.view = Table("s", len(TYPES)), Table("v", len(TYPES) + 1)

    def rows(self) -> set[CodedRow]:
        return set(rows_of(self.source.primary, len(TYPES)))

    def change(self, gone: set[CodedRow], came: set[CodedRow], *, commits: bool) -> None:
        leaving, entering, new = Table("-", len(TYPES)), Table("+", len(TYPES)), Table("new", len(TYPES))
        leaving.load(gone)
        entering.load(came)
        new.load((self.rows() - gone) | came)
        view_gone, view_came = Table("v-", len(TYPES) + 1), Table("v+", len(TYPES) + 1)
        self.groups.change(leaving, entering, new, self.view, view_gone, view_came, Meter())
        self.groups.prepare(new)
        if not commits:
            self.groups.rollback()
            return
        self.groups.commit()
        self.source.apply(leaving, entering)
        self.view.apply(view_gone, view_came)

    def check(self) -> None:
        expected = Table("expected", len(TYPES) + 1)
        for key, leaf in self.groups.fold(self.rows()):
            expected.add(key, leaf)
        assert self.view.primary == expected.primary


@pytest.mark.parametrize("seed", range(100))
def test_a_changed_order_gives_what_ordering_from_scratch_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_groups, "_SMALL", 2)
    monkeypatch.setattr(window_groups, "_MANY", 1)
    monkeypatch.setattr(window_groups, "_BY_ROW", 3)
    monkeypatch.setattr(window_frames, "_SINGLE", 3)
    monkeypatch.setattr("rederive.engines.resident.run.window_results.BLOCK", 4)
    monkeypatch.setattr(partition, "BLOCK", 4)
    rng = Random(seed)
    aggregate = _aggregate(rng)
    maintained = _Maintained(aggregate)
    for _ in range(12):
        have = maintained.rows()
        gone = set(rng.sample(sorted(have), min(len(have), rng.choice((0, 1, 1, 3)))))
        new = maintained.codes.encode_rows(TYPES, [_row(rng, aggregate) for _ in range(rng.choice((0, 1, 1, 2, 15)))])
        maintained.change(gone, set(new) - have, commits=rng.random() < 0.8)
        maintained.check()
