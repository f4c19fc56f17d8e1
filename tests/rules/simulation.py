"""Active rules by the letter of docs/decisions/0025-when-a-rule-fires.md, over plain sets: shares nothing with the product.

A state is the rows of the base relations; the oracle evaluates every view of it from scratch at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rederive.ir.rules import Program
from tests.oracle import Rows, evaluate

Row = tuple[Any, ...]
Fired = tuple[str, list[Row], list[Row]]


class Endless(Exception):
    """More firings than the limit."""


@dataclass(frozen=True)
class Plan:
    """A rule on a view. `write`: insert or delete, the relation, and for each of its columns a column or a constant."""

    name: str
    view: str
    signs: str = "plus"
    immediate: bool = False
    priority: int = 0
    write: tuple[str, str, tuple[tuple[str, Any], ...]] | None = None

    @property
    def order(self) -> tuple[bool, int, str]:
        return not self.immediate, -self.priority, self.name


@dataclass
class Simulation:
    program: Program
    base: Rows
    rules: list[Plan]
    limit: int
    fired: list[Fired] = field(default_factory=list)

    def transaction(self, statements: list[tuple[str, str, list[Row]]]) -> list[Fired]:
        """Run one transaction; its firings. Endless leaves the state as it was."""
        before = {name: set(rows) for name, rows in self.base.items()}
        start = evaluate(self.program, self.base)
        seen = {rule.name: start[rule.view] for rule in self.rules}
        self.fired = []
        try:
            for kind, relation, rows in statements:
                self.change(kind, relation, rows)
                self.round([rule for rule in self.rules if rule.immediate], seen)
            self.round(self.rules, seen)
        except Endless:
            self.base = before
            raise
        return self.fired

    def change(self, kind: str, relation: str, rows: list[Row]) -> None:
        self.base[relation] = self.base[relation] | set(rows) if kind == "insert" else self.base[relation] - set(rows)

    def round(self, rules: list[Plan], seen: dict[str, set[Row]]) -> None:
        """Until quiet. Within a round, a rule fires once for a row that has entered since the rule's last round."""
        done: dict[tuple[str, str], set[Row]] = {}
        while True:
            now = evaluate(self.program, self.base)
            for rule in sorted(rules, key=lambda rule: rule.order):
                plus = now[rule.view] - seen[rule.name] - done.get((rule.name, "+"), set())
                minus = seen[rule.name] - now[rule.view] - done.get((rule.name, "-"), set())
                plus, minus = (plus if rule.signs != "minus" else set()), (minus if rule.signs != "plus" else set())
                if plus or minus:
                    done[rule.name, "+"] = done.get((rule.name, "+"), set()) | plus
                    done[rule.name, "-"] = done.get((rule.name, "-"), set()) | minus
                    self.fire(rule, sorted(plus), sorted(minus))
                    break
            else:
                for rule in rules:
                    seen[rule.name] = now[rule.view] if rule.immediate else seen[rule.name]
                return

    def fire(self, rule: Plan, plus: list[Row], minus: list[Row]) -> None:
        if len(self.fired) >= self.limit:
            raise Endless
        self.fired.append((rule.name, plus, minus))
        if rule.write is not None:
            kind, relation, columns = rule.write
            rows = [tuple(row[value] if how == "column" else value for how, value in columns) for row in plus or minus]
            self.change(kind, relation, rows)
