"""Auxiliary views that copy rows of another relation are put into their readers, so that nothing stores the rows twice.

The lowering of SQL makes a relation of each body of a SELECT, of the rows under an aggregate and under a window.

    window(i, s, n) :- sale(i, s, n).              the same rows: whoever reads `window` reads `sale`
    rows(s, i) :- sale(_, i, s).                   no test, and one rule reads it: put into that rule
    query(i, p) :- window(i, s, n), rank(s, i, n, p).
                                                   each row of `rank` has a row of its source, which need not be read as well
    top(i) :- query(i, p), p <= 3.                 the only reader of `query`: put into it if its rows have one derivation each

Values that are computed stay where they are: their errors count for the rows of their own rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from heapq import heapify, heappop, heappush

from rederive.analysis.derivations import derives_once, window_columns
from rederive.analysis.graph import components, edges, needed
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Literal, Negation, Program, Rule, defines
from rederive.ir.terms import Call, Variable
from rederive.maintain.passes.unfold import has_plain_head, put_in_place


def drop_copies(program: Program, targets: Collection[str]) -> Program:
    """The program without copies among its auxiliary views; those that nobody reads any more still have their rules."""
    rewriting = _Rewriting(program, targets)
    rewriting.run()
    return replace(program, definitions=tuple(rewriting.definitions)) if rewriting.has_changed else program


class _Rewriting:
    """The definitions of a program while copies leave it, by number. `readers`: how often each definition reads a relation.

    A view is looked at when a definition changed that it is read by, or that defines it: the cost follows the program's size.
    """

    def __init__(self, program: Program, targets: Collection[str]) -> None:
        self.relations = program.relations
        self.definitions = list(program.definitions)
        self.has_changed = False
        self._targets = frozenset(targets)
        self._numbers: dict[str, list[int]] = {}
        self._readers: dict[str, Counter[int]] = {}
        read = needed(program, targets)
        for number, definition in enumerate(self.definitions):
            self._numbers.setdefault(defines(definition), []).append(number)
            if defines(definition) in read:
                for edge in edges(definition):
                    self._readers.setdefault(edge.source, Counter())[number] += 1
        # In this order, as what is put into a reader goes on from there.
        self._candidates = [
            component.relations[0]
            for component in components(program)
            if not component.recursive
            and len(component.definitions) == 1
            and program.relations[component.relations[0]].is_auxiliary
            and component.relations[0] not in program.bags
            and component.relations[0] not in self._targets
        ]
        self._ranks = {name: rank for rank, name in enumerate(self._candidates)}
        self._waiting = list(range(len(self._candidates)))

    def definitions_of(self, name: str) -> tuple[Definition, ...]:
        """As `Program.definitions_of`."""
        return tuple(self.definitions[number] for number in self._numbers.get(name, ()))

    def run(self) -> None:
        """Drop what can be dropped."""
        for number in range(len(self.definitions)):
            self._drop_sources(number)
        heapify(self._waiting)
        # Ends: each change takes a literal away, or one reader of a view or all of them, and views are not recursive.
        while self._waiting:
            rank = heappop(self._waiting)
            while self._waiting and self._waiting[0] == rank:
                heappop(self._waiting)
            self._drop(self._candidates[rank])

    def _drop(self, name: str) -> None:
        """Put a view that copies rows into its readers, if it is one."""
        (number,) = self._numbers[name]
        rule, readers = self.definitions[number], self._readers.get(name)
        if not readers or not isinstance(rule, Rule) or not has_plain_head(rule.head) or _computes(rule):
            return
        if (source := self._copied(rule)) is not None:
            for reader in list(readers):
                self._put(reader, _renamed(self.definitions[reader], name, source))
        elif readers.total() == 1:
            (reader,) = readers
            if (merged := self._merged(self.definitions[reader], rule)) is not None:
                self._put(reader, merged)

    def _put(self, number: int, definition: Definition) -> None:
        """Put a definition in the place of another one of the same relation."""
        before, self.definitions[number], self.has_changed = self.definitions[number], definition, True
        sources = [edge.source for edge in edges(definition)]
        for source in sources:
            self._readers.setdefault(source, Counter())[number] += 1
        self._forget(number, before)
        for name in (defines(definition), *sources):
            self._look_at(name)
        for other in (number, *(self._readers.get(defines(definition), ()) if isinstance(definition, Aggregate) else ())):
            self._drop_sources(other)

    def _forget(self, number: int, definition: Definition) -> None:
        """Forget what a definition reads; what nobody reads then reads nothing, either."""
        for edge in edges(definition):
            readers = self._readers[edge.source]
            readers[number] -= 1
            if not readers[number]:
                del readers[number]
            if readers:
                self._look_at(edge.source)
            elif edge.source not in self._targets:
                for other in self._numbers.get(edge.source, ()):
                    self._forget(other, self.definitions[other])

    def _look_at(self, name: str) -> None:
        if name in self._ranks:
            heappush(self._waiting, self._ranks[name])

    def _drop_sources(self, number: int) -> None:
        """A rule that reads a window and the rows under it reads the window alone."""
        rule = self.definitions[number]
        if isinstance(rule, Rule) and (under := next((one for one in rule.body if self._is_under_window(one, rule)), None)):
            self._put(number, replace(rule, body=tuple(one for one in rule.body if one is not under)))

    def _is_under_window(self, literal: Literal, rule: Rule) -> bool:
        """Whether a literal has the rows of a source, and a window over it has the same rows in the rule."""
        if not isinstance(literal, Atom):
            return False
        for other in rule.body:
            match self.definitions_of(other.relation) if isinstance(other, Atom) else ():
                case (Aggregate(source=source) as window,) if window.is_window and source == literal.relation:
                    assert isinstance(other, Atom)
                    if tuple(literal.terms[i] for i in window_columns(window, len(literal.terms))) == other.terms[:-1]:
                        return True
                case _:
                    pass
        return False

    def _copied(self, rule: Rule) -> str | None:
        """The relation whose rows are those of the rule's head, column by column."""
        (atom, *others) = rule.body or (None,)
        if others or not isinstance(atom, Atom) or atom.terms != rule.head.terms or not atom.terms:
            return None
        one, two = (self.relations[name] for name in (rule.head.relation, atom.relation))
        return atom.relation if one.types == two.types else None

    def _merged(self, reader: Definition, rule: Rule) -> Rule | None:
        """The only reader of a rule's head, with the rule's body in the place of it; None where that is no gain."""
        if not isinstance(reader, Rule):
            return None
        atoms = [literal for literal in reader.body if not isinstance(literal, Comparison)]
        place = next(
            (i for i, one in enumerate(reader.body) if isinstance(one, Atom) and one.relation == rule.head.relation), None
        )
        if place is None or len(atoms) != 1:
            return None
        merged = put_in_place(reader, place, rule)
        is_projection = len(rule.body) == 1 and isinstance(rule.body[0], Atom) and _is_plain(rule.body[0])
        return merged if is_projection or derives_once(merged, self) else None


def _computes(rule: Rule) -> bool:
    return any(isinstance(t, Call) for one in rule.body if isinstance(one, Comparison) for t in (one.left, one.right))


def _renamed(definition: Definition, name: str, source: str) -> Definition:
    match definition:
        case Aggregate():
            return replace(definition, source=source) if definition.source == name else definition
        case Rule(body=body) if any(edge.source == name for edge in edges(definition)):
            return replace(definition, body=tuple(_renamed_literal(literal, name, source) for literal in body))
        case _:
            return definition


def _renamed_literal(literal: Literal, name: str, source: str) -> Literal:
    match literal:
        case Atom(relation) if relation == name:
            return replace(literal, relation=source)
        case Negation(atom) if atom.relation == name:
            return Negation(replace(atom, relation=source))
        case _:
            return literal


def _is_plain(atom: Atom) -> bool:
    """Whether every row of the relation matches."""
    return all(isinstance(term, Variable) for term in atom.terms) and len(set(atom.terms)) == len(atom.terms)
