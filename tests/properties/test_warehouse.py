"""Random warehouses and streams of transactions: every view that is not waiting equals recomputation, and its change is exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule
from rederive.ir.terms import Row
from rederive.warehouse.report import MaintenanceReport, MaintenanceStatus
from rederive.warehouse.selfmaint.conjunctive import StoredView
from rederive.warehouse.selfmaint.source_update import SourceUpdate
from rederive.warehouse.sources import Reading
from rederive.warehouse.warehouse import Warehouse
from tests.properties.test_maintained_equals_recomputed import examples
from tests.properties.test_selfmaint import definitions, row_sets, updates
from tests.warehouse.witness import Database, answers, updated


def text_of(schema: Mapping[str, int], found: Sequence[StoredView], remote: Sequence[str], keyed: Sequence[str] = ()) -> str:
    arities = {**schema, **{view.name: len(view.queries[0].head.terms) for view in found}}
    lines = [f".decl {name}({', '.join(f'c{i}: number' for i in range(arity))})" for name, arity in arities.items()]
    lines = [f"{line} key(c0)" if name in keyed else line for name, line in zip(arities, lines, strict=True)]
    lines += [f".remote {name}(rows={10 + i})" for i, name in enumerate(remote)]
    lines += [show_rule(Rule(query.head, query.body)) for view in found for query in view.queries]
    return "\n".join([*lines, *(f".stored {view.name}" for view in found)])


class World:
    """The sources themselves, and a warehouse that may or may not be able to read them."""

    def __init__(self, database: Database, net: bool) -> None:
        self.states = [database]
        self.down: set[str] = set()
        self.net = net

    def reader(self, name: str) -> Callable[[], Reading]:
        def read() -> Reading:
            if name in self.down:
                raise ConnectionError("down")
            return Reading(self.states[-1][name], len(self.states) - 1)

        return read

    def take(self, update: SourceUpdate) -> SourceUpdate:
        """What the source reports of an update: all of it, or its net effect."""
        present = self.states[-1]
        self.states.append(updated(update, present))
        if not self.net:
            return update
        insert = {name: rows - present[name] for name, rows in update.inserts.items()}
        return SourceUpdate.of(insert, {name: rows & present[name] for name, rows in update.deletes.items()}, net=True)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Warehouse, tuple[StoredView, ...], World, list[SourceUpdate], list[str]]:
    schema, found = draw(definitions(plain=draw(st.booleans())))
    world = World({name: draw(row_sets(arity, 4)) for name, arity in schema.items()}, draw(st.booleans()))
    remote = sorted(draw(st.sets(st.sampled_from(sorted(schema)), min_size=1)))
    stream = draw(st.lists(updates(schema), min_size=1, max_size=4))
    states = list(accumulate(stream, lambda state, update: updated(update, state), initial=world.states[0]))
    # A key that the sources respect: where no two rows ever share their first column.
    keyed = [n for n in schema if all(len({row[0] for row in state[n]}) == len(state[n]) for state in states)]
    text = text_of(schema, found, remote, keyed if draw(st.booleans()) else ())
    readers = {name: world.reader(name) for name in remote}
    warehouse = Warehouse(text, readers, net=world.net, log=draw(st.integers(0, 2)), steps=3000)
    for view in found:
        warehouse.load(view.name, answers(view, world.states[0]))
    for name in set(schema) - set(remote):
        if any(name in view.sources for view in warehouse.views):
            warehouse.load(name, world.states[0][name])
    return warehouse, found, world, stream, remote


def check(
    warehouse: Warehouse, found: Sequence[StoredView], world: World, report: MaintenanceReport, before: Mapping[str, set[Row]]
) -> None:
    for view in found:
        stored = set(warehouse.rows(view.name))
        if view.name not in warehouse.waiting():
            assert stored == answers(view, world.states[report.version])
        if view.name in report.views:
            outcome = report.views[view.name]
            assert set(outcome.plus) == stored - before[view.name]
            assert set(outcome.minus) == before[view.name] - stored


@examples(20)
@given(worlds(), st.data())
def test_views_are_exact_or_wait(
    case: tuple[Warehouse, tuple[StoredView, ...], World, list[SourceUpdate], list[str]], data: st.DataObject
) -> None:
    warehouse, found, world, stream, remote = case
    for update in stream:
        world.down = data.draw(st.sets(st.sampled_from(remote)))
        before = {view.name: set(warehouse.rows(view.name)) for view in found}
        reported = world.take(update)
        report = warehouse.apply(reported.inserts, reported.deletes)
        assert not world.down.intersection(report.reads)
        assert world.down or not warehouse.waiting()
        check(warehouse, found, world, report, before)
    world.down = set()
    before = {view.name: set(warehouse.rows(view.name)) for view in found}
    check(warehouse, found, world, warehouse.retry(), before)
    assert not warehouse.waiting()


@examples(20)
@given(worlds())
def test_transactions_received_in_advance_are_taken_back_or_waited_for(
    case: tuple[Warehouse, tuple[StoredView, ...], World, list[SourceUpdate], list[str]],
) -> None:
    """The source is ahead of the transaction being processed by those that were received but not processed yet."""
    warehouse, found, world, stream, _ = case
    for update in stream:
        reported = world.take(update)
        warehouse.receive(reported.inserts, reported.deletes)
    before = {view.name: set(warehouse.rows(view.name)) for view in found}
    reports = warehouse.process()
    assert [report.version for report in reports] == list(range(1, len(stream) + 1))
    for report in reports:
        for view in found:
            outcome = report.views[view.name]
            if outcome.status is not MaintenanceStatus.WAITING:
                before[view.name] = (before[view.name] - set(outcome.minus)) | set(outcome.plus)
                assert before[view.name] == answers(view, world.states[report.version])
            else:
                assert not world.net, "net changes can always be taken back"
    assert not warehouse.waiting(), "the last transaction is read in its own state"
