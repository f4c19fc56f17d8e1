"""Where an atom of a maintenance rule finds its rows: kept, found by the transaction, through an overlay, or on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rederive.analysis.graph import Component, components
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Source, Types, overlay, union
from rederive.ir.rules import Atom, Program, Variant
from rederive.ir.terms import Row
from rederive.maintain.maintenance_rule import State

Bound = tuple[int, ...]
Read = Callable[[str], Source]


class Lazy(Protocol):
    """Rows that are derived for the bindings that somebody asks with."""

    def ask(self, bound: Bound, keys: Frame) -> None:
        """Make the rows complete for these values of the bound columns."""

    def source(self) -> Source:
        """The rows derived so far."""

    @property
    def derived(self) -> int:
        """How many these are."""


@dataclass(slots=True)
class Growing:
    """Rows found so far."""

    types: Types
    rows: set[Row] = field(default_factory=set)
    parts: list[Distributed] = field(default_factory=list)

    @property
    def source(self) -> Source:
        return union(self.types, self.known)

    @property
    def known(self) -> tuple[Frame, ...]:
        return (Local(self.types, frozenset(self.rows)), *self.parts)

    def add(self, frame: Frame) -> None:
        """Take in rows that are not there yet."""
        match frame:
            case Local(_, rows):
                self.rows |= rows
            case Distributed():
                self.parts.append(frame)

    def put(self, frames: Iterable[Frame]) -> None:
        """Hold these rows instead."""
        self.clear()
        for frame in frames:
            self.add(frame)

    def clear(self) -> None:
        self.rows.clear()
        self.parts.clear()

    def __bool__(self) -> bool:
        return bool(self.rows or self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.known))


@dataclass(frozen=True, slots=True)
class LazyOverlay:
    """`new = (old - gone) + came` over an old state that is derived on demand."""

    old: Lazy
    gone: Growing
    came: tuple[Growing, ...]

    def ask(self, bound: Bound, keys: Frame) -> None:
        self.old.ask(bound, keys)

    def source(self) -> Source:
        return overlay(self.old.source(), self.gone.source, [came.source for came in self.came])

    @property
    def derived(self) -> int:
        return self.old.derived


Find = Callable[[Atom], Source | Lazy]
Derive = Callable[[Component, Variant], Mapping[str, Lazy]]


class Relations:
    """The relations of one program, in all variants. `kept` reads what stays between transactions; `derive` makes the answers of
    a component in one state."""

    def __init__(
        self, program: Program, states: Mapping[str, State], on_demand: Collection[str], kept: Read, derive: Derive
    ) -> None:
        self.program = program
        self.states = states
        self.on_demand = frozenset(on_demand)
        self.kept = kept
        self.derive = derive
        self._found: dict[tuple[str, Variant], Growing] = {}
        self._lazy: dict[tuple[str, Variant], Lazy] = {}
        self._components = {name: component for component in components(program) for name in component.relations}

    def component(self, name: str) -> Component:
        return self._components[name]

    def types(self, name: str) -> Types:
        return self.program.relations[name].types

    def found(self, name: str, variant: Variant) -> Growing:
        """What this transaction finds of a variant."""
        types = self.types(name)
        return self._found.setdefault((name, variant), Growing(types))

    def of(self, atom: Atom) -> Source | Lazy:
        return self.state(atom.relation, atom.variant)

    def state(self, name: str, variant: Variant) -> Source | Lazy:
        state = self.states.get(name)
        if variant is Variant.NEW and state is not None:
            old = self.state(name, Variant.OLD)
            gone, came = self.found(name, state.gone), tuple(self.found(name, v) for v in state.came)
            if isinstance(old, Source):
                return overlay(old, gone.source, [c.source for c in came])
            return LazyOverlay(old, gone, came)
        if variant in (Variant.OLD, Variant.NEW) and name in self.on_demand:
            return self._derived(name, variant)
        if variant is Variant.OLD and (name, variant) not in self._found:
            return self.kept(name)
        return self.found(name, variant).source

    def _derived(self, name: str, state: Variant) -> Lazy:
        if (name, state) not in self._lazy:
            for one, lazy in self.derive(self._components[name], state).items():
                self._lazy[one, state] = lazy
        return self._lazy[name, state]

    def derived_sizes(self) -> dict[str, int]:
        """How many rows of each view were derived on demand, in both states together."""
        sizes: dict[str, int] = {}
        for (name, _), lazy in self._lazy.items():
            if size := lazy.derived:
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def forget(self) -> None:
        """Drop all that a transaction found."""
        self._found.clear()
        self._lazy.clear()
