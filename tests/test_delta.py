"""The laws of deltas, on random deltas of sets and of bags; and what stays undecoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rederive.delta import (
    BOTH,
    CountedSide,
    Delta,
    DeltaSum,
    LazyRows,
    Row,
    Rows,
    Sign,
    copies,
    counted,
    first,
    from_counted,
    from_numbered,
    multiplicities,
    sort_rows,
)

PLUS, MINUS = frozenset({Sign.PLUS}), frozenset({Sign.MINUS})
rows = st.tuples(st.sampled_from("abcd"))
sets = st.frozensets(rows)
bags: st.SearchStrategy[Counter[Row]] = st.builds(Counter, st.dictionaries(rows, st.integers(1, 3)))
relations = st.one_of(sets, bags)
deltas = st.one_of(
    st.builds(Delta.of, st.dictionaries(rows, st.integers(-3, 3))),
    st.builds(Delta.between, sets, sets),
    st.builds(Delta, sets.map(sorted), st.just(())),
)


def applied(delta: Delta, relation: Counter[Row]) -> Counter[Row]:
    changed = Counter(relation)
    assert not delta.apply(changed)
    return changed


# Union, inversion, cancellation


@given(deltas, deltas, deltas)
def test_union_is_associative_and_commutative(d: Delta, e: Delta, f: Delta) -> None:
    assert d.union(e).union(f) == d.union(e.union(f)) == d.union(e, f)
    assert d.union(e) == e.union(d)


@given(deltas)
def test_the_empty_delta_is_neutral(d: Delta) -> None:
    assert d.union(Delta()) == d == d.net()
    assert bool(d.net()) == (d != Delta())


@given(deltas, deltas)
def test_inverting_twice_changes_nothing_and_distributes(d: Delta, e: Delta) -> None:
    assert d.invert().invert() == d
    assert d.union(e).invert() == d.invert().union(e.invert())


@given(deltas)
def test_a_delta_and_its_inverse_cancel(d: Delta) -> None:
    assert not d.union(d.invert())


@given(relations, relations)
def test_a_net_delta_has_no_row_on_both_sides(old: Counter[Row], new: Counter[Row]) -> None:
    delta = Delta.between(old, new)
    assert not set(delta.plus) & set(delta.minus)
    assert all(count > 0 for side in (delta.plus, delta.minus) for count in multiplicities(side).values())


# Applying


@given(relations, relations, relations)
def test_applying_a_union_is_applying_one_after_the_other(r: Counter[Row], s: Counter[Row], t: Counter[Row]) -> None:
    first, second = Delta.between(r, s), Delta.between(s, t)
    start = Counter(r)
    assert applied(first.union(second), start) == applied(second, applied(first, start)) == Counter(t)
    assert first.union(second) == Delta.between(r, t)


@given(relations, relations)
def test_the_inverse_leads_back(old: Counter[Row], new: Counter[Row]) -> None:
    delta = Delta.between(old, new)
    assert applied(delta.invert(), applied(delta, Counter(old))) == Counter(old)
    assert delta.invert() == Delta.between(new, old)


@given(sets, sets, sets)
def test_deltas_of_sets_that_follow_one_another_move_each_row_once(
    r: frozenset[Row], s: frozenset[Row], t: frozenset[Row]
) -> None:
    total = Delta.between(r, s).union(Delta.between(s, t))
    assert set(total.signed().values()) <= {-1, 1}
    assert (frozenset(total.plus), frozenset(total.minus)) == (t - r, r - t)
    assert total.counts is None


@given(deltas, bags)
def test_a_row_that_is_not_there_is_found_and_never_held_below_zero(d: Delta, relation: Counter[Row]) -> None:
    changed = Counter(relation)
    assert d.apply(changed) == [row for row, count in d.signed().items() if relation[row] + count < 0]
    assert all(count > 0 for count in changed.values())


# Assignment


@given(sets, st.lists(st.builds(Delta, sets, sets), min_size=3, max_size=3))
def test_overriding_assigns_one_after_the_other(start: frozenset[Row], some: list[Delta]) -> None:
    d, e, f = (Delta(delta.plus, frozenset(delta.minus) - frozenset(delta.plus)) for delta in some)
    assert d.override(e).assign(start) == e.assign(d.assign(start))
    assert d.override(e).override(f) == d.override(e.override(f))
    assert d.override(d) == d


@given(sets, sets)
def test_a_delta_that_fits_may_be_assigned(old: frozenset[Row], new: frozenset[Row]) -> None:
    assert Delta.between(old, new).assign(old) == new


# Restriction


@given(deltas, deltas)
def test_both_signs_together_are_the_whole(d: Delta, e: Delta) -> None:
    assert d.restrict(PLUS).union(d.restrict(MINUS)) == d == d.restrict(BOTH)
    assert d.restrict(PLUS).restrict(PLUS) == d.restrict(PLUS)
    assert not d.restrict(PLUS).restrict(MINUS)
    assert d.invert().restrict(PLUS) == d.restrict(MINUS).invert()
    total = d.union(e)
    assert total.restrict(PLUS).union(total.restrict(MINUS)) == total


@given(deltas, deltas)
def test_selecting_rows_distributes_over_union(d: Delta, e: Delta) -> None:
    def early(row: Row) -> bool:
        return row < ("c",)

    assert d.union(e).where(early) == d.where(early).union(e.where(early))
    assert d.where(early).union(d.where(lambda row: not early(row))) == d


# The sum that grows in place


@given(st.lists(deltas))
def test_a_sum_is_the_union_of_all(some: list[Delta]) -> None:
    total = DeltaSum()
    for delta in some:
        total.add(delta)
    assert total.delta() == Delta().union(*some)


@given(sets, st.lists(sets))
def test_a_clamped_sum_takes_repetitions_once(start: frozenset[Row], states: list[frozenset[Row]]) -> None:
    total, known = DeltaSum(is_clamped=True), start
    for state in states:
        total.add(Delta(state, known - state))  # all rows that are there are said to enter, new or not
        known = state
    assert {row for row, count in total.counts.items() if count > 0} >= known - start
    assert set(total.counts.values()) <= {-1, 1}


# Sides


@given(bags, bags)
def test_copies_counts_and_order(old: Counter[Row], new: Counter[Row]) -> None:
    delta = Delta.between(old, new).ordered()
    assert Counter(copies(delta.plus)) == new - old
    assert Counter(copies(delta.minus)) == old - new
    assert list(delta.plus) == sorted(new - old)
    plus, minus = delta.counts or (None, None)
    assert Delta(counted(delta.plus, plus), counted(delta.minus, minus)) == delta


@given(bags, bags)
def test_both_relations_that_stand_for_a_bag_tell_its_delta(old: Counter[Row], new: Counter[Row]) -> None:
    numbers = [{(*row, i) for row, n in bag.items() for i in range(1, n + 1)} for bag in (old, new)]
    assert from_numbered(Delta(numbers[1] - numbers[0], numbers[0] - numbers[1])) == Delta.between(old, new)
    totals = [{(*row, n) for row, n in bag.items()} for bag in (old, new)]
    found = from_counted(Delta(totals[1] - totals[0], totals[0] - totals[1]))
    assert found == Delta.between(old, new)
    assert (len(found.plus), len(found.minus)) == (len(new - old), len(old - new))


class Sealed(LazyRows):
    """Rows that must not be decoded."""

    def __len__(self) -> int:
        return 7

    def __iter__(self) -> Iterator[Row]:
        pytest.fail("decoded")


def test_nothing_is_decoded_before_it_is_read() -> None:
    delta = Delta(Sealed(), Sealed())
    assert delta
    assert delta.invert().restrict(PLUS).counts is None
    bag = from_counted(Delta(Sealed()))
    assert bag
    assert (len(bag.plus), len(bag.minus)) == (7, 0)
    assert isinstance(bag.plus, CountedSide)
    assert isinstance(bag.plus.counted_rows, Sealed)


class Elsewhere(Sealed):
    """Counted rows that are added up where they are."""

    def net_counts(self, leaving: Rows) -> tuple[Rows, Rows]:
        assert isinstance(leaving, Elsewhere)
        return [("a", 2)], [("b", 1), ("c", 3)]


def test_a_bag_whose_copies_enter_and_leave_elsewhere_is_added_up_there() -> None:
    bag = from_counted(Delta(Elsewhere(), Elsewhere()))
    assert (len(bag.plus), len(bag.minus)) == (1, 2)
    assert isinstance(bag.minus, CountedSide)
    assert bag.minus.counted_rows == [("b", 1), ("c", 3)]
    assert bag.counts == ([2], [1, 3])
    assert bag == Delta({("a",): 2}, {("b",): 1, ("c",): 3})


def test_some_rows_of_a_side() -> None:
    assert first([("a",), ("b",), ("c",)], 2) == [("a",), ("b",)]
    assert first({("a",): 2}, 2) == [("a",)]


@given(st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from("ab"))))
def test_rows_are_ordered_by_value_and_null_comes_first(given_rows: list[Row]) -> None:
    by_key = sorted(given_rows, key=lambda row: tuple((value is not None, 0 if value is None else value) for value in row))
    assert sort_rows(given_rows) == by_key
