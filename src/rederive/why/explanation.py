"""Explanations: what `why` and `why_not` answer, as frozen data that prints as a tree.

They speak of tables and views. The auxiliary relations that lowering adds do not appear: the premises of their rows take their
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from rederive.ir.printing import show_value
from rederive.ir.terms import Row
from rederive.values import to_json


@dataclass(frozen=True, slots=True)
class Explanation:
    """A row and how it is derived.

    `derivations`: none for a row of a base relation. `is_cut`: there are derivations, but they lie beyond the requested depth.
    `is_repeated`: the row was explained before, further up on the page. `further`: whether there are more derivations than shown.
    """

    relation: str
    row: Row
    derivations: tuple[DerivationStep, ...] = ()
    is_base: bool = False
    is_cut: bool = False
    is_repeated: bool = False
    further: bool = False

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_json(self) -> dict[str, Any]:
        """The tree as JSON; values as everywhere in HTTP."""
        found: dict[str, Any] = {"relation": self.relation, "row": [to_json(value) for value in self.row]}
        if self.is_base:
            found["base"] = True
        if self.derivations:
            found["derivations"] = [step.to_json() for step in self.derivations]
        marks = {"cut": self.is_cut, "repeated": self.is_repeated, "further": self.further}
        return found | {name: True for name, is_set in marks.items() if is_set}


@dataclass(frozen=True, slots=True)
class DerivationStep:
    """One application of a rule. `left_out`: how many rows of an aggregate's group are not shown."""

    rule: str
    premises: tuple[Premise, ...]
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """The step as JSON."""
        found: dict[str, Any] = {"rule": self.rule, "premises": [premise.to_json() for premise in self.premises]}
        return found | ({"left_out": self.left_out} if self.left_out else {})


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds, or fails, apart from rows that are there: a comparison, or that no row matches."""

    text: str

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The condition as JSON."""
        return {"condition": self.text}


Premise: TypeAlias = Explanation | Condition


@dataclass(frozen=True, slots=True)
class FailedRule:
    """Why one rule does not derive a row: the premises that hold, and the first that does not."""

    rule: str
    holds: tuple[Premise, ...]
    fails: Condition

    def to_json(self) -> dict[str, Any]:
        """The failure as JSON."""
        return {"rule": self.rule, "holds": [premise.to_json() for premise in self.holds], "fails": self.fails.text}


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a row is not in a relation: what fails in each rule that could derive it. Without rules, nobody inserted the row."""

    relation: str
    row: Row
    rules: tuple[FailedRule, ...] = ()

    def __str__(self) -> str:
        lines = [f"{show_fact(self.relation, self.row)} is not there"]
        if not self.rules:
            lines.append("  it is a base relation, and no transaction inserted the row")
        for failed in self.rules:
            lines.append(f"  {failed.rule}")
            lines += [f"    holds: {_title(premise)}" for premise in failed.holds]
            lines.append(f"    fails: {failed.fails}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The absence as JSON."""
        row = [to_json(value) for value in self.row]
        return {"relation": self.relation, "row": row, "rules": [failed.to_json() for failed in self.rules]}


def shown_name(relation: str) -> str:
    """The name of a relation as its user wrote it: a recursion in WITH is lowered to the view, a dot, its name and a digit.

    >>> shown_name("edge"), shown_name("closure.path1")
    ('edge', 'path')
    """
    _, dot, name = relation.rpartition(".")
    return name[:-1] if dot else relation


def show_fact(relation: str, row: Row) -> str:
    """A row as an atom, such as `edge("a", "b")`."""
    return f"{shown_name(relation)}({', '.join(map(show_value, row))})"


def _title(premise: Premise) -> str:
    return show_fact(premise.relation, premise.row) if isinstance(premise, Explanation) else premise.text


def _lines(node: Explanation) -> Iterator[str]:
    """The tree as text. Without recursion in Python: a proof may be deeper than its stack."""
    work: list[tuple[str, Premise | str]] = [("", node)]
    while work:
        indent, item = work.pop()
        if not isinstance(item, Explanation):
            yield f"{indent}{item}"
            continue
        note = "  (see above)" if item.is_repeated else "  ..." if item.is_cut else ""
        yield f"{indent}{show_fact(item.relation, item.row)}{note}"
        below: list[tuple[str, Premise | str]] = []
        for step in item.derivations:
            below.append((indent, f"  by {step.rule}"))
            below += [(f"{indent}    ", premise) for premise in step.premises]
            if step.left_out:
                below.append((f"{indent}    ", f"and {step.left_out} more row{'s' if step.left_out > 1 else ''}"))
        if item.further:
            below.append((indent, "  or by other derivations"))
        work += reversed(below)
