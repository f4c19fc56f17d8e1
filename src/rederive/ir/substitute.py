"""Substitution: terms in the places of the variables of a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rederive.ir.rules import Atom, Comparison, Literal, Negation, Rule
from rederive.ir.terms import Call, Simple, Term, Variable

Substitution = Mapping[str, Simple]


def substitute_variables(rule: Rule, values: Substitution) -> Rule:
    """The rule with the given terms for the variables of these names, all at once.

    >>> from rederive.ir.printing import show_rule
    >>> rule = Rule(Atom("p", (Variable("x"),)), (Atom("e", (Variable("x"), Variable("y"))),))
    >>> show_rule(substitute_variables(rule, {"x": Variable("y"), "y": Variable("x")}))
    'p(y) :- e(y, x).'
    """
    # Simultaneously: a term that is put in is not substituted again, so names can be swapped.
    head = _atom(rule.head, values)
    return replace(rule, head=head, body=tuple(_literal(literal, values) for literal in rule.body))


def substitute_term(term: Term, values: Mapping[str, Term]) -> Term:
    """A term with the given terms for the variables of these names.

    >>> substitute_term(Call("+", (Variable("x"), Variable("y"))), {"x": Call("-", (Variable("y"),))}).arguments[0].functor
    '-'
    """
    match term:
        case Call():
            return replace(term, arguments=tuple(substitute_term(argument, values) for argument in term.arguments))
        case Variable():
            return values.get(term.name, term)
        case _:
            return term


def _literal(literal: Literal, values: Substitution) -> Literal:
    match literal:
        case Atom():
            return _atom(literal, values)
        case Negation(atom):
            return Negation(_atom(atom, values))
        case Comparison():
            return replace(literal, left=_term(literal.left, values), right=_term(literal.right, values))


def _atom(atom: Atom, values: Substitution) -> Atom:
    return replace(atom, terms=tuple(_simple(term, values) for term in atom.terms))


def _term(term: Term, values: Substitution) -> Term:
    if isinstance(term, Call):
        return replace(term, arguments=tuple(_term(argument, values) for argument in term.arguments))
    return _simple(term, values)


def _simple(term: Simple, values: Substitution) -> Simple:
    return values.get(term.name, term) if isinstance(term, Variable) else term
