"""Definitions whose evaluation over the current rows does not end within the limits.

They are accepted, and the engine stores the base relations alone. The next change of rows or of definitions evaluates everything;
if that does not end either, the change is refused. Law: the version that ends the parking has the difference between the rows
that subscribers know and the rows that are found then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rederive.bags import read_rows
from rederive.delta import Delta, DeltaSum, Rows, multiplicities, sum_of_counts
from rederive.engines.protocol import Engine, Query
from rederive.errors import Endless
from rederive.ir.rules import Program
from rederive.ir.terms import Row, Type
from rederive.store.store import Store

Notified = Mapping[str, tuple[tuple[Type, ...], Counter[Row]]]


@dataclass(frozen=True, slots=True)
class ParkedDefinitions:
    """Why the definitions are not evaluated, and the rows of views and of parts of views that subscribers know."""

    error: Endless
    views: Notified
    parts: Mapping[Query, frozenset[Row]]

    @classmethod
    def over(
        cls, error: Endless, program: Program, views: Iterable[str], parts: Iterable[Query], engine: Engine
    ) -> ParkedDefinitions:
        """Park the definitions after `program`, whose rows the engine still has."""
        whole = {name: Counter(read_rows(program, name, {}, engine)) for name in views if program.is_view(name)}
        bound = {part: frozenset(engine.rows(part.view, dict(part.bindings))) for part in parts}
        return cls(error, {name: (program.relations[name].types, rows) for name, rows in whole.items()}, bound)

    @classmethod
    def recorded(cls, error: Endless, program: Program, store: Store) -> ParkedDefinitions:
        """Park the definitions of a store that is opened: subscribers know the sum of all recorded changes."""
        found: dict[str, tuple[tuple[Type, ...], Counter[Row]]] = {}
        for name in (name for name in program.monitored if program.is_view(name)):
            total = DeltaSum()
            for change in store.recorded_changes(program.relations[name], 0):
                total.add(change.delta)
            found[name] = (program.relations[name].types, Counter(multiplicities(total.delta().plus)))
        return cls(error, found, {})

    def with_error(self, error: Endless) -> ParkedDefinitions:
        """The same for other definitions, which do not end either."""
        return ParkedDefinitions(error, self.views, self.parts)

    def changes(self, found: Mapping[str, Delta], program: Program) -> dict[str, Delta]:
        """The deltas since the last notification. The engine had no views, and so reports all their rows as new."""
        views = {name: delta for name, delta in found.items() if not program.is_view(name)}
        reported = (program.bags.get(name, name) for name in found if program.is_view(name))
        for name in dict.fromkeys((*reported, *self.views)):
            delta, counted = found.get(program.counting_relation(name)), program.counting_relation(name) != name
            # Subscribers know a bag by its rows and multiplicities; the engine reports rows with a column that counts.
            came: Rows = () if delta is None else sum_of_counts(delta.plus) if counted else delta.plus
            types, gone = self.views.get(name, ((), Counter[Row]()))
            same = name in program.relations and program.relations[name].types == types
            views[name] = Delta.between(gone, came) if same else Delta(came, gone)  # rows of other types are other rows
        return {name: delta for name, delta in views.items() if delta}

    def part_changes(self, found: Mapping[Query, Delta]) -> dict[Query, Delta]:
        """The same for the parts of views that are computed for themselves."""
        nothing = Delta()
        parts = {p: Delta.between(self.parts.get(p, ()), found.get(p, nothing).plus) for p in (*found, *self.parts)}
        return {part: delta for part, delta in parts.items() if delta}


def base_program(program: Program) -> Program:
    """The base relations alone."""
    return Program({name: program.relations[name] for name in program.bases}, ())
