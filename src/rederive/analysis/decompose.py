"""Recursions that fall apart by a column: every rule carries it unchanged from the recursive literal to the head.

In  closure(x, y) :- closure(x, z), edge(z, y)  no row with one x ever leads to a row with another. Rows can be parted by such a
column, and each part brought to its fixpoint for itself.
"""

from __future__ import annotations

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Rule
from rederive.ir.terms import Variable


def carried_column(component: Component) -> int | None:
    """The first column that all recursive rules of a component of one relation carry along, where there is one.

    >>> from rederive.analysis.graph import components
    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl edge(x: symbol, y: symbol)  .decl closure(x: symbol, y: symbol)
    ...     closure(x, y) :- edge(x, y).  closure(x, y) :- edge(x, z), closure(z, y).
    ... ''')
    >>> [carried_column(component) for component in components(program)]
    [1]
    """
    if not component.recursive or len(component.relations) != 1:
        return None
    (name,) = component.relations
    pairs = []
    for definition in component.definitions:
        if isinstance(definition, Aggregate):
            return None
        inside = [literal for literal in definition.body if isinstance(literal, Atom) and literal.relation == name]
        # Two recursive literals may join rows of different parts.
        if len(inside) > 1:
            return None
        pairs += [(definition, atom) for atom in inside]
    arity = len(pairs[0][0].head.terms)
    # Every recursive rule must carry the same column: the parts are then closed under all of them.
    return next((i for i in range(arity) if all(_carries(rule, atom, i) for rule, atom in pairs)), None)


def _carries(rule: Rule, atom: Atom, column: int) -> bool:
    term = rule.head.terms[column]
    return isinstance(term, Variable) and atom.terms[column] == term
