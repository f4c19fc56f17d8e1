"""What a rule finds: where its head rows go, and the lines that hand them over.

Where loops remain below the point at which the head's key is known, their findings are gathered in one bitmap and handed over
once. Where the driver alone gives the head, as in a rederivation, a row that is found is not looked for again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from pyroaring import BitMap

from rederive.engines.resident.compile.function_text import INDENT
from rederive.engines.resident.compile.term_text import TermText
from rederive.engines.resident.storage.codes import Code, Codes
from rederive.engines.resident.storage.table import Key, Leaf
from rederive.ir.rules import Rule
from rederive.ir.terms import Type
from rederive.scalar.failures import ScalarError


@dataclass(frozen=True, slots=True)
class Pending:
    """Found rows go to `rows`, gathered by the head's primary key, for a fixpoint to take in.

    `failures`: as of `Counts`. Rules that derive requests need it: they hold only the literals before the requested one.
    """

    rows: dict[Key, Leaf]
    failures: list[ScalarError] | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """The primary keys of the heads that a driver's key leads to, appended to `found`: where its leaf would flow."""

    found: list[Key]


@dataclass(frozen=True, slots=True)
class Counts:
    """Every binding of the body adds the function's third argument to its head row's count.

    `failures`: bindings that a functor fails for are noted there and left out. Rules that join both states need it: such a
    binding may hold in neither, and then it is left out of what is added as well as of what is taken away.
    """

    rows: dict[tuple[Code, ...], int]
    failures: list[ScalarError]


Target: TypeAlias = Pending | Keys | Counts
LOOP = re.compile(r"( *)for (.+) in (\w+):")  # over what a lookup found
NO_VALUE = 0  # a code that joins nothing: that of NULL


class FindingsText(TermText):
    """Writes what becomes of the rows that a rule's body finds."""

    def __init__(self, rule: Rule, into: Target, codes: Codes, types: Mapping[str, Type]) -> None:
        super().__init__({"BitMap": BitMap, "ScalarError": ScalarError}, codes, types)
        self.rule = rule
        self.into = into
        # The name of the bitmap that holds the bulk variable; `fresh` where this function owns it and may hand it over uncopied.
        self.leaf = ""
        self.fresh = False
        # Line and depth at which the head's key is first known.
        self.gather: tuple[int, int] | None = None
        self.rest = ""

    def mark(self, bulk: str | None) -> None:
        """Remember where the head's key is known first: what the loops below find can be gathered there."""
        if self.gather is None and isinstance(self.into, Pending) and all(map(self.known, self.rule.head.terms[:-1])):
            self.gather = (len(self.lines), self.depth)
            self.loops = 0
            # The loops below can only find values of this bitmap: they stop when all of them are found.
            if self.leaf and bulk is not None:
                self.line(f"rest = {self.leaf}")
                self.rest, self.leaf = self.leaf, "rest"

    def emit(self, bulk: str | None) -> None:
        """Write what becomes of one binding of the body: counted, noted as a key, or handed over as a finding."""
        slots = self.slots(self.rule.head)
        key = self.key(slots[:-1]) if len(slots) > 1 else "()"
        match self.into:
            # One derivation for each binding of the body: count(head) += times.
            case Counts(rows):
                row = f"({', '.join(slots)},)" if self.rule.head.terms else "()"
                self.line(f"{self.name('counts', rows)}[{row}] = {self.name('count', rows.get)}({row}, 0) + times")
            case Keys(found):
                self.line(f"{self.name('reach', found.append)}({key})")
            case Pending(rows):
                # No loop below the point where the key is known: there is nothing to gather.
                if self.gather is None or not self.loops:
                    if bulk is None:
                        self.hand_over_one(rows, key, slots[-1])
                    else:
                        self.hand_over(rows, key, self.leaf, owned=self.fresh)
                elif self.rest:
                    self.strike_off(rows, key)
                else:
                    self.gather_up(rows, key, f"|= {self.leaf}" if bulk else f".add({slots[-1]})")

    def hand_over(self, rows: dict[Key, Leaf], key: str, leaf: str, *, owned: bool) -> None:
        """Add a bitmap to the findings of its key."""
        pending, get = self.name("pending", rows), self.name("get", rows.get)
        self.line(f"into = {get}({key})")
        # A leaf of an index or of the driver is copied; one that this function made is handed over as it is.
        self.line(f"if into is None: {pending}[{key}] = {leaf if owned else f'{leaf}.copy()'}")
        self.line(f"else: into |= {leaf}")

    def hand_over_one(self, rows: dict[Key, Leaf], key: str, slot: str) -> None:
        """Add one value to the findings of its key."""
        self.line(f"into = {self.name('get', rows.get)}({key})")
        self.line(f"if into is None: {self.name('pending', rows)}[{key}] = BitMap(({slot},))")
        self.line(f"else: into.add({slot})")

    def gather_up(self, rows: dict[Key, Leaf], key: str, operation: str) -> None:
        """Findings for one key go into one bitmap, handed over when the loops are done."""
        assert self.gather is not None
        position, depth = self.gather
        self.line(f"gathered {operation}" if operation.startswith("|") else f"gathered{operation}")
        self.lines.insert(position, "    " * depth + "gathered = BitMap()")
        self.depth = depth
        self.enter("if gathered:")
        self.hand_over(rows, key, "gathered", owned=True)

    def begin_with_last(self, position: int) -> None:
        """Let each loop begin with the value that struck off values last: the next leaf has often the same derivation."""
        for i in range(position, len(self.lines)):
            if (loop := LOOP.fullmatch(self.lines[i])) is not None:
                last = self.name("last", [NO_VALUE])
                both, (indent, value, found) = self.name("chain", chain), loop.groups()
                self.lines[i] = f"{indent}for {value} in {both}({last}, {found}) if {last}[0] in {found} else {found}:"
                self.line(f"{last}[0] = {value}")

    def strike_off(self, rows: dict[Key, Leaf], key: str) -> None:
        """Values of the driver are struck off when they are found, and the loops end when none is left."""
        assert self.gather is not None
        position, depth = self.gather
        self.line(f"rest = rest - {self.leaf}")
        self.begin_with_last(position)
        self.line("if not rest: break")
        # `break` leaves one loop: each loop around it ends as well.
        loops = [line for line in self.lines[position:] if line.lstrip().startswith("for ")]
        for line in reversed(loops[:-1]):
            self.depth = (len(line) - len(line.lstrip())) // len(INDENT) + 1
            self.line("if not rest: break")
        self.depth = depth
        self.line(f"hit = {self.rest} - rest")
        self.enter("if hit:")
        self.hand_over(rows, key, "hit", owned=True)
