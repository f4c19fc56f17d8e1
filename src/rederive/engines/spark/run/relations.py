"""Where an atom of a maintenance rule finds its rows: stored, found by the transaction, through an overlay, or on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rederive.analysis.graph import Component, components
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source, Types, combine, overlay
from rederive.ir.rules import Atom, Program, Variant
from rederive.ir.terms import Row
from rederive.maintain.maintenance_rule import State

Bound = tuple[int, ...]
ReadStored = Callable[[str], Source]


class OnDemand(Protocol):
    """Rows that are derived for the bindings that are requested."""

    def request(self, bound: Bound, keys: Frame) -> None:
        """Make the rows complete for these values of the bound columns."""

    def source(self) -> Source:
        """The rows derived so far."""

    @property
    def derived(self) -> int:
        """The number of rows derived so far."""


@dataclass(slots=True)
class FoundRows:
    """The rows of a relation that were found so far: in the driver, and in parts in Spark."""

    types: Types
    rows: set[Row] = field(default_factory=set)
    parts: list[Distributed] = field(default_factory=list)

    @property
    def source(self) -> Source:
        """All rows."""
        return combine(self.types, self.known)

    @property
    def known(self) -> tuple[Frame, ...]:
        """The frames of all rows."""
        return (Local(self.types, frozenset(self.rows)), *self.parts)

    def add(self, frame: Frame) -> None:
        """Add rows that are not there yet."""
        # Precondition: no row is there yet, so the parts stay disjoint and their sizes add up.
        match frame:
            case Local(_, rows):
                self.rows |= rows
            case Distributed():
                self.parts.append(frame)

    def replace(self, frames: Iterable[Frame]) -> None:
        """Hold these rows instead."""
        self.clear()
        for frame in frames:
            self.add(frame)

    def clear(self) -> None:
        """Drop all rows."""
        self.rows.clear()
        self.parts.clear()

    def __bool__(self) -> bool:
        return bool(self.rows or self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.known))


@dataclass(frozen=True, slots=True)
class OnDemandOverlay:
    """new = (old - minus) + plus, over an old state that is derived on demand."""

    old: OnDemand
    minus: FoundRows
    plus: tuple[FoundRows, ...]

    def request(self, bound: Bound, keys: Frame) -> None:
        """Make the old state complete for these values of the bound columns."""
        self.old.request(bound, keys)

    def source(self) -> Source:
        """The rows of the new state, as far as the old one was derived."""
        # minus and plus are complete; only the old state is restricted to what was requested.
        return overlay(self.old.source(), self.minus.source, [plus.source for plus in self.plus])

    @property
    def derived(self) -> int:
        """The number of rows that were derived of the old state."""
        return self.old.derived


FindRows = Callable[[Atom], Source | OnDemand]
DeriveOnDemand = Callable[[Component, Variant], Mapping[str, OnDemand]]


class Relations:
    """The relations of one program, in all variants.

    `stored` reads what an engine holds between transactions; `derive` makes the views of a component on demand, in one state.
    """

    def __init__(
        self,
        program: Program,
        states: Mapping[str, State],
        on_demand: Collection[str],
        stored: ReadStored,
        derive: DeriveOnDemand,
    ) -> None:
        self.program = program
        self.states = states
        self.on_demand = frozenset(on_demand)
        self.stored = stored
        self.derive = derive
        self._found: dict[tuple[str, Variant], FoundRows] = {}
        self._derived: dict[tuple[str, Variant], OnDemand] = {}
        self._components = {name: component for component in components(program) for name in component.relations}

    def component(self, name: str) -> Component:
        """The component of a relation."""
        return self._components[name]

    def types(self, name: str) -> Types:
        """The column types of a relation."""
        return self.program.relations[name].types

    def found(self, name: str, variant: Variant) -> FoundRows:
        """What this transaction found of a variant."""
        types = self.types(name)
        return self._found.setdefault((name, variant), FoundRows(types))

    def of(self, atom: Atom) -> Source | OnDemand:
        """The rows of an atom."""
        return self.state(atom.relation, atom.variant)

    def state(self, name: str, variant: Variant) -> Source | OnDemand:
        """The rows of a relation in a variant."""
        state = self.states.get(name)
        # p^new = (p - p^del) + p^came, by the law that the maintenance program gives for p (decision 1).
        if variant is Variant.NEW and state is not None:
            old = self.state(name, Variant.OLD)
            minus, plus = self.found(name, state.gone), tuple(self.found(name, v) for v in state.came)
            if isinstance(old, Source):
                return overlay(old, minus.source, [part.source for part in plus])
            return OnDemandOverlay(old, minus, plus)
        if variant in (Variant.OLD, Variant.NEW) and name in self.on_demand:
            return self._on_demand(name, variant)
        # A view that is just being filled, or recomputed, is read as far as it is found.
        if variant is Variant.OLD and (name, variant) not in self._found:
            return self.stored(name)
        return self.found(name, variant).source

    def _on_demand(self, name: str, state: Variant) -> OnDemand:
        if (name, state) not in self._derived:
            # All views of a component at once: they share one fixpoint.
            for one, view in self.derive(self._components[name], state).items():
                self._derived[one, state] = view
        return self._derived[name, state]

    def derived_sizes(self) -> dict[str, int]:
        """How many rows of each view were derived on demand, in both states together."""
        sizes: dict[str, int] = {}
        for (name, _), view in self._derived.items():
            if size := view.derived:
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def clear(self) -> None:
        """Drop all that a transaction found."""
        self._found.clear()
        self._derived.clear()
