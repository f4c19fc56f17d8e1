"""The phases of a section, ready to run. Each is told afterwards whether the transaction was committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rederive.engines.resident.codes import CodedRow
from rederive.engines.resident.compile import Function, Source
from rederive.engines.resident.fixpoint import Fixpoint, Limits, Meter
from rederive.engines.resident.groups import Groups
from rederive.engines.resident.table import Table


class Runnable(Protocol):
    """A phase, ready to run."""

    def run(self, meter: Meter, limits: Limits) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SetPhase:
    """Rules to a fixpoint."""

    fixpoint: Fixpoint

    def run(self, meter: Meter, limits: Limits) -> None:
        self.fixpoint.run(meter, limits)

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        self.fixpoint.clear()


@dataclass(frozen=True, slots=True)
class NetPhase:
    """minus = del - red - ins, plus = ins - old, in place: from here on p^del and p^ins are the exact change."""

    old: Table
    gone: Table
    red: Table
    came: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        for back in (self.red, self.came):
            for key, leaf in back.primary.items():
                again = leaf & self.gone.primary[key] if key in self.gone.primary else None
                if again:
                    self.gone.remove(key, again)
        for key in list(self.came.primary):
            idle = self.came.primary[key] & self.old.primary[key] if key in self.old.primary else None
            if idle:
                self.came.remove(key, idle)
        self.red.clear()

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class DiffPhase:
    """plus = new - old, minus = old - new, where both states were evaluated."""

    old: Table
    new: Table
    gone: Table
    came: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        for one, other, into in ((self.old, self.new, self.gone), (self.new, self.old, self.came)):
            for key, leaf in one.primary.items():
                missing = leaf - other.primary[key] if key in other.primary else leaf.copy()
                if missing:
                    into.add(key, missing)

    def commit(self) -> None:
        self.old.clear()

    def rollback(self) -> None:
        self.old.clear()


@dataclass(frozen=True, slots=True)
class CountPhase:
    """Derivation counts: rows whose count leaves zero enter, rows whose count comes back to zero leave."""

    rules: tuple[tuple[Function, Table, int], ...]
    moved: dict[CodedRow, int]
    counts: dict[CodedRow, int]
    gone: Table
    came: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        for function, driver, times in self.rules:
            for key, leaf in driver.primary.items():
                function(key, leaf, times)
        self.net(meter)

    def net(self, meter: Meter) -> None:
        entered, left = [], []
        for row, change in self.moved.items():
            meter.touched += 1
            before = self.counts.get(row, 0)
            if not before and change:
                entered.append(row)
            elif before and not before + change:
                left.append(row)
        self.came.load(entered)
        self.gone.load(left)

    def commit(self) -> None:
        for row, change in self.moved.items():
            count = self.counts.get(row, 0) + change
            if count:
                self.counts[row] = count
            else:
                self.counts.pop(row, None)
        self.moved.clear()

    def rollback(self) -> None:
        self.moved.clear()


@dataclass(frozen=True, slots=True)
class GroupPhase:
    """An aggregate by affected group."""

    groups: Groups
    source: tuple[Table, Table, Source]
    view: tuple[Table, Table, Table]

    def run(self, meter: Meter, limits: Limits) -> None:
        self.groups.change(*self.source, *self.view, meter)

    def commit(self) -> None:
        self.groups.commit()

    def rollback(self) -> None:
        self.groups.rollback()


@dataclass(frozen=True, slots=True)
class FoldPhase:
    """An aggregate from scratch, in one state."""

    groups: Groups
    source: Source
    view: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        whole = Table("whole", self.source.arity)
        items = self.source.primary.items() if isinstance(self.source, Table) else self.source.items()
        for key, leaf in items:
            whole.add(key, leaf)
        nothing = Table("nothing", self.source.arity)
        self.groups.change(nothing, whole, whole, nothing, nothing, self.view, meter)
        self.groups.rollback()

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        self.groups.rollback()


@dataclass(frozen=True, slots=True)
class CountInitial:
    """The first evaluation of a counted view: every derivation once."""

    functions: tuple[Function, ...]
    moved: dict[CodedRow, int]
    counts: dict[CodedRow, int]
    view: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        for function in self.functions:
            function(1)
        meter.touched += len(self.moved)
        self.view.load(self.moved)

    def commit(self) -> None:
        self.counts.update(self.moved)
        self.moved.clear()

    def rollback(self) -> None:
        self.moved.clear()


@dataclass(frozen=True, slots=True)
class GroupInitial:
    """The first evaluation of an aggregate: its whole source enters."""

    groups: Groups
    source: Table
    view: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        nothing = Table("nothing", self.source.arity)
        self.groups.change(nothing, self.source, self.source, self.view, nothing, self.view, meter)

    def commit(self) -> None:
        self.groups.commit()

    def rollback(self) -> None:
        self.groups.rollback()
