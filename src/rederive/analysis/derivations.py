"""Views whose every row has one derivation: their rules alone give the exact change, without looking at the view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Definition, Program, Relation, Rule
from rederive.ir.terms import Variable


class DefinedRelations(Protocol):
    """A program, or what a pass has made of it so far."""

    @property
    def relations(self) -> Mapping[str, Relation]:
        """All relations, by name."""

    def definitions_of(self, name: str) -> tuple[Definition, ...]:
        """The rules and aggregates that define a relation."""


def derived_once(component: Component, program: Program) -> bool:
    """Whether in every state each row of the component's view is derived by one binding of its rule's variables at most.

    So it is where the head determines all of them: they are in it, or follow from what is by the key of a base relation or by
    the group of an aggregate.

    >>> from rederive.analysis.graph import components
    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl sale(id: number, item: symbol, n: number) key(id)
    ...     .decl big(id: number)          big(i) :- sale(i, _, n), n > 9.
    ...     .decl sold(item: symbol)       sold(x) :- sale(_, x, _).
    ... ''')
    >>> {c.relations: derived_once(c, program) for c in components(program)}
    {('big',): True, ('sold',): False}
    """
    # Two rules may derive the same row, and so may two rounds of a recursion.
    if component.recursive or len(component.definitions) != 1:
        return False
    (rule,) = component.definitions
    return isinstance(rule, Rule) and derives_once(rule, program)


def derives_once(rule: Rule, program: DefinedRelations) -> bool:
    """Whether each row of the head is derived by one binding of the variables at most."""
    atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
    known = _variables(rule.head)
    # Functional dependencies to a fixpoint (Armstrong): the key of an atom determines its other variables. Variables that only
    # equations bind follow from those of the atoms.
    while grown := [a for a in atoms if not known.issuperset(_variables(a)) and known.issuperset(_identity(a, program))]:
        known = known.union(*map(_variables, grown))
    return all(known.issuperset(_variables(atom)) for atom in atoms)


def window_columns(window: Aggregate, arity: int) -> tuple[int, ...]:
    """The columns of the source, in the order in which a window has them in front of its result."""
    return (*window.group, *(i for i in range(arity) if i not in window.group))


def _variables(atom: Atom) -> frozenset[str]:
    return frozenset(term.name for term in atom.terms if isinstance(term, Variable))


def _identity(atom: Atom, program: DefinedRelations) -> frozenset[str]:
    """The variables of an atom that determine its others."""
    return frozenset(t.name for i in _key(atom.relation, program) if isinstance(t := atom.terms[i], Variable))


def _key(name: str, program: DefinedRelations) -> tuple[int, ...]:
    relation = program.relations[name]
    whole = tuple(range(relation.arity))
    definitions = program.definitions_of(name)
    if not definitions:
        return relation.key or whole
    match definitions:
        # One result for each group; of a window, one for each row of the source.
        case (Aggregate() as aggregate,) if aggregate.is_window:
            source = _key(aggregate.source, program)
            order = window_columns(aggregate, program.relations[aggregate.source].arity)
            return tuple(i for i, column in enumerate(order) if column in source)
        case (Aggregate(group=group),):
            return tuple(range(len(group)))
        case _:
            return whole
