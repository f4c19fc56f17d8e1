"""Partial evaluation (HD94, section 4): a constant in a view's rules is pushed down into versions of the views that they read.

For  from_a(y) :- path("a", y).  path(x, y) :- edge(x, y).  path(x, y) :- path(x, z), edge(z, y).

    from_a(y) :- path.at("a", _)("a", y).
    path.at("a", _)("a", y) :- edge("a", y).
    path.at("a", _)("a", y) :- path.at("a", _)("a", z), edge(z, y).

A transitive closure is put into the linear form that carries the constant along, however it is written (`passes.linearize`). A
version is made only where it replaces the general view: where the recursion does not carry the constant along, as in
path(x, y) :- edge(x, z), path(z, y), x != y, all of `path` is needed in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rederive.analysis.graph import needed
from rederive.ir.printing import show_value
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Literal, Negation, Program, Relation, Rule
from rederive.ir.substitute import substitute_variables
from rederive.ir.terms import Constant, Variable
from rederive.maintain.passes.linearize import closures, form_for, in_form

Given = tuple[tuple[int, Constant], ...]


def push_constants(program: Program, targets: Collection[str]) -> Program:
    """The program with specialised versions of the views that its targets read through constants only."""
    general: set[str] = set()
    # Ends: `general` grows in each turn, and holds views of the program alone.
    while True:
        pushed = _Pushing(program, general).program(targets)
        # A version next to its general view would be maintained twice: such views are left general.
        still = needed(pushed, targets).intersection(_specialised(pushed))
        if not still:
            return pushed
        general |= still


def _specialised(program: Program) -> set[str]:
    return {name.partition(".at(")[0] for name in program.relations if ".at(" in name}


class _Pushing:
    """One attempt. The relations in `general` are left as they are."""

    def __init__(self, program: Program, general: Collection[str]) -> None:
        self.before = program
        # A version is made of rules, and an aggregate has none: it stays general.
        aggregates = {d.relation for d in program.definitions if isinstance(d, Aggregate)}
        self.candidates = set(program.views).difference(aggregates, general)
        self.closures = closures(program)
        self.made: dict[str, Relation] = {}
        self.definitions: list[Definition] = []

    def program(self, targets: Collection[str]) -> Program:
        read = needed(self.before, targets)
        rewritten = [
            self._rule(definition) if isinstance(definition, Rule) and definition.head.relation in read else definition
            for definition in self.before.definitions
        ]
        relations = {**self.before.relations, **self.made}
        return replace(self.before, relations=relations, definitions=(*rewritten, *self.definitions))

    def _rule(self, rule: Rule) -> Rule:
        return replace(rule, body=tuple(map(self._literal, rule.body)))

    def _literal(self, literal: Literal) -> Literal:
        match literal:
            case Atom():
                return self._atom(literal)
            case Negation(atom):
                return Negation(self._atom(atom))
            case Comparison():
                return literal

    def _atom(self, atom: Atom) -> Atom:
        given = tuple((i, term) for i, term in enumerate(atom.terms) if isinstance(term, Constant))
        if not given or atom.relation not in self.candidates:
            return atom
        return replace(atom, relation=self._version(self.before.relations[atom.relation], given))

    def _version(self, relation: Relation, given: Given) -> str:
        """The name of the version for these constants, made with its rules when it is first read."""
        values = dict(given)
        columns = (show_value(values[i].value) if i in values else "_" for i in range(relation.arity))
        name = f"{relation.name}.at({', '.join(columns)})"
        # Entered before its rules are made: a recursive rule then finds its own version.
        if name not in self.made:
            self.made[name] = replace(relation, name=name)
            for rule in self._rules(relation.name, values):
                bound = _bound(rule, values)
                if bound is not None:
                    special = substitute_variables(rule, bound)
                    self.definitions.append(self._rule(replace(special, head=replace(special.head, relation=name))))
        return name

    def _rules(self, name: str, given: Collection[int]) -> tuple[Rule, ...]:
        """The view's rules, in the form that carries the given columns along."""
        if (closure := self.closures.get(name)) is not None:
            return in_form(closure, form_for(closure, given))
        return tuple(rule for rule in self.before.definitions_of(name) if isinstance(rule, Rule))


def _bound(rule: Rule, given: Mapping[int, Constant]) -> dict[str, Constant] | None:
    """The variables of a rule that the given head columns fix, or None where the head rules them out."""
    found: dict[str, Constant] = {}
    for i, constant in given.items():
        match rule.head.terms[i]:
            # The rule derives no row with this constant, so the version does not need it.
            case Constant() as other if other != constant:
                return None
            case Variable(name) if found.setdefault(name, constant) != constant:
                return None
    return found
