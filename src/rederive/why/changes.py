"""Why a row entered or left a view: which changed rows made or broke which derivation.

A row that left was derived before; each of its derivations is broken, because of what it reads something left, or something
entered that it reads negatively, or the group of an aggregate changed. Such a row changed for the same kind of reason, down to
base rows that the transaction inserted or deleted. With the two states exchanged, this also says why a row entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rederive.ir.rules import Aggregate, Atom, Negation, Rule
from rederive.ir.terms import Row
from rederive.values import to_json
from rederive.why.explainer import MOST_DEPTH, Explainer
from rederive.why.explanation import Condition, Explanation, Premise, show_fact
from rederive.why.instances import GroundAtom, RuleInstance, bound_columns


@dataclass(frozen=True, slots=True)
class ChangedDerivation:
    """A derivation that was made or broken: the rows that changed, and what of it did not change.

    `left_out`: how many further rows of a group changed.
    """

    rule: str
    changed: tuple[RowChange, ...]
    unchanged: tuple[Premise, ...] = ()
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """The derivation as JSON."""
        found: dict[str, Any] = {
            "rule": self.rule,
            "changed": [one.to_json() for one in self.changed],
            "unchanged": [one.to_json() for one in self.unchanged],
        }
        return found | ({"left_out": self.left_out} if self.left_out else {})


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that entered or left, and why. `derivations`: none for a base row, which a transaction inserted or deleted.

    `is_cut`: the reasons are beyond the requested depth. `is_repeated`: they are shown further up. `further`: whether there are
    more derivations than shown.
    """

    relation: str
    row: Row
    is_entered: bool
    derivations: tuple[ChangedDerivation, ...] = ()
    is_base: bool = False
    is_cut: bool = False
    is_repeated: bool = False
    further: bool = False

    def __str__(self) -> str:
        return "\n".join(_lines(self, ""))

    def to_json(self) -> dict[str, Any]:
        """The tree as JSON."""
        found: dict[str, Any] = {
            "relation": self.relation,
            "row": [to_json(value) for value in self.row],
            "change": "entered" if self.is_entered else "left",
        }
        if self.derivations:
            found["derivations"] = [one.to_json() for one in self.derivations]
        marks = {"base": self.is_base, "cut": self.is_cut, "repeated": self.is_repeated, "further": self.further}
        return found | {name: True for name, is_set in marks.items() if is_set}


def _lines(change: RowChange, indent: str) -> Iterator[str]:
    note = "  (see above)" if change.is_repeated else "  ..." if change.is_cut else ""
    if change.is_base:
        note = "  (inserted)" if change.is_entered else "  (deleted)"
    yield f"{indent}{show_fact(change.relation, change.row)} {'entered' if change.is_entered else 'left'}{note}"
    for one in change.derivations:
        yield f"{indent}  {'made' if change.is_entered else 'broken'}: {one.rule}"
        for below in one.changed:
            yield from _lines(below, f"{indent}    ")
        if one.left_out:
            yield f"{indent}    and {one.left_out} more rows changed"
        for premise in one.unchanged:
            text = show_fact(premise.relation, premise.row) if isinstance(premise, Explanation) else premise.text
            yield f"{indent}    unchanged: {text}"
    if change.further:
        yield f"{indent}  and other derivations"


@dataclass(slots=True)
class _Node:
    """A changed row as the engine knows it, and what its derivations say once they are looked at."""

    fact: GroundAtom
    is_entered: bool
    derivations: list[_Derivation] = field(default_factory=list)
    further: bool = False


@dataclass(slots=True)
class _Derivation:
    instance: RuleInstance
    changed: list[_Node] = field(default_factory=list)
    unchanged: dict[GroundAtom | Condition, None] = field(default_factory=dict)
    left_out: int = 0


class ChangeExplainer:
    """Explains what changed between two states of a program."""

    def __init__(self, before: Explainer, after: Explainer) -> None:
        self._states = {False: before, True: after}
        self._program = after.program
        self._tables = frozenset(after.program.bases)
        self._known: dict[tuple[GroundAtom, bool], _Node] = {}

    def why(self, fact: GroundAtom, depth: int, width: int) -> RowChange | None:
        """Explain why a row entered or left; None if it did neither. `depth` levels, `width` derivations of the row itself."""
        tops = self._changed_copies(fact)
        if not tops:
            return None
        is_entered = tops[0].is_entered
        level = tops[:width]
        # Hidden relations are levels, too, which the user does not see.
        for _ in range(MOST_DEPTH):
            level = self._expand(level, width)
            if not level:
                break
        shown: set[tuple[GroundAtom, bool]] = set()
        derivations = tuple(one for top in tops[:width] for one in self._shown(top, fact.relation, depth, width, shown))
        further = len(tops) > width or any(top.further for top in tops)
        is_base = fact.relation in self._program.tables
        return RowChange(fact.relation, fact.row, is_entered, derivations[:width], is_base=is_base, further=further)

    def _changed_copies(self, fact: GroundAtom) -> list[_Node]:
        """The row where it changed; of a bag, the copies of it that did. Those that left come first."""
        bag = self._program.relations[fact.relation].bag
        held = bag.rows if bag is not None else fact.relation
        wanted = dict(enumerate(fact.row))
        rows = {is_after: list(self._states[is_after].instances.rows(held, wanted)) for is_after in (False, True)}
        left = [_Node(GroundAtom(held, row), False) for row in rows[False] if row not in rows[True]]
        entered = [_Node(GroundAtom(held, row), True) for row in rows[True] if row not in rows[False]]
        # A bag may lose one copy and gain another, by other rows: then as many as are more.
        return [*left, *entered] if len(left) >= len(entered) else entered

    def _expand(self, level: list[_Node], width: int) -> list[_Node]:
        """Find the derivations of these rows, and what of them changed. First all reads of one state, then those of the other."""
        for is_after in (False, True):
            for node in level:
                if node.is_entered is is_after and node.fact.relation not in self._tables:
                    self._derive(node, self._states[is_after], width if (node.fact, is_after) not in self._known else 1)
        below: list[_Node] = []
        for is_after in (True, False):
            for node in level:
                for derivation in node.derivations if node.is_entered is not is_after else ():
                    below += self._compare(node, derivation, width)
        return below

    def _derive(self, node: _Node, explainer: Explainer, width: int) -> None:
        explainer.proofs.prove(node.fact)
        chosen = explainer.proofs.chosen[node.fact]
        others = (one for one in explainer.instances.of(node.fact) if one != chosen and node.fact not in one.facts)
        # The one that proves the row comes first: the rows that it reads are derived without it.
        is_top = not self._known
        found = [chosen, *islice(others, width if is_top else 0)]
        node.derivations = [_Derivation(one) for one in found[:width]]
        node.further = len(found) > width

    def _compare(self, node: _Node, derivation: _Derivation, width: int) -> list[_Node]:
        """Note what of a derivation does not hold in the other state; returns the rows that are new to the explanation."""
        own, other = self._states[node.is_entered], self._states[not node.is_entered]
        instance, changed = derivation.instance, []
        match instance.definition:
            case Aggregate() as aggregate:
                group = {column: node.fact.row[i] for i, column in enumerate(aggregate.group)}
                now, then = (explainer.instances.rows(aggregate.source, group) for explainer in (own, other))
                source = aggregate.source
                mine = [(GroundAtom(source, row), node.is_entered) for row in now if row not in set(then)]
                changed = mine + [(GroundAtom(source, row), not node.is_entered) for row in then if row not in set(now)]
                derivation.left_out = max(len(changed) - width, 0)
                changed = changed[:width]
            case Rule() as rule:
                for fact in instance.facts:
                    if not other.instances.holds(fact):
                        changed.append((fact, node.is_entered))
                    else:
                        derivation.unchanged |= dict.fromkeys(own.as_shown(fact, node.fact.relation, width))
                for literal in rule.body:
                    against = self._against(literal, instance, other)
                    if against is not None:
                        changed.append((against, not node.is_entered))
                    elif (text := own.condition(rule, literal, instance.binding)) is not None:
                        derivation.unchanged[Condition(text)] = None
        new = []
        for key in dict.fromkeys(changed):
            if key not in self._known:
                self._known[key] = _Node(*key)
                new.append(self._known[key])
            derivation.changed.append(self._known[key])
        return new

    @staticmethod
    def _against(literal: Any, instance: RuleInstance, other: Explainer) -> GroundAtom | None:
        """A row of the other state that a negated atom of the derivation excludes."""
        match literal:
            case Negation(Atom(relation, terms)):
                rows = other.instances.rows(relation, bound_columns(terms, instance.binding))
                return next((GroundAtom(relation, row) for row in rows), None)
            case _:
                return None

    # From rows of the engine to rows that a user knows

    def _shown(
        self, node: _Node, owner: str, depth: int, width: int, shown: set[tuple[GroundAtom, bool]]
    ) -> Iterator[ChangedDerivation]:
        explainer = self._states[node.is_entered]
        for one in node.derivations:
            title = explainer.title(owner, one.instance.definition)
            changed, unchanged, left_out = self._premises(one, owner, depth, width, shown)
            listed = tuple(p if isinstance(p, Condition) else Explanation(p.relation, p.row) for p in unchanged)
            yield ChangedDerivation(title, tuple(changed), listed, left_out)

    def _premises(
        self, one: _Derivation, owner: str, depth: int, width: int, shown: set[tuple[GroundAtom, bool]]
    ) -> tuple[Iterable[RowChange], Iterable[GroundAtom | Condition], int]:
        """What changed and what did not. A row that the user does not know is replaced by what changed for it."""
        changed: dict[RowChange, None] = {}
        unchanged, left_out = dict(one.unchanged), one.left_out
        for node in one.changed:
            visible = self._states[node.is_entered].visible(node.fact, owner)
            if visible is not None:
                changed[self._change(node, visible, depth - 1, width, shown)] = None
                continue
            for below in node.derivations:
                more = self._premises(below, owner, depth, width, shown)
                changed |= dict.fromkeys(more[0])
                unchanged |= dict.fromkeys(more[1])
                left_out += more[2]
        return changed, unchanged, left_out

    def _change(self, node: _Node, visible: GroundAtom, depth: int, width: int, shown: set[tuple[GroundAtom, bool]]) -> RowChange:
        if visible.relation in self._program.tables:
            return RowChange(visible.relation, visible.row, node.is_entered, is_base=True)
        if (key := (visible, node.is_entered)) in shown:
            return RowChange(visible.relation, visible.row, node.is_entered, is_repeated=True)
        if depth <= 0 or not node.derivations:
            return RowChange(visible.relation, visible.row, node.is_entered, is_cut=True)
        found = tuple(self._shown(node, visible.relation, depth, width, shown))
        shown.add(key)
        return RowChange(visible.relation, visible.row, node.is_entered, found[:1])
