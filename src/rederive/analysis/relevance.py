"""Partial evaluation (HD94, section 4): constants pushed through the rules to the patterns read of base relations.

What a view, or a part of it, reads of a base relation is a set of patterns: a constant, or None for any value, in each column. A
transaction none of whose rows fits a pattern cannot matter, and no rule need be evaluated to know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rederive.delta import Pattern
from rederive.ir.rules import Aggregate, Atom, Negation, Program, Rule
from rederive.ir.terms import Constant, Simple, Value, Variable

Patterns = Mapping[str, frozenset[Pattern]]


def base_patterns(program: Program, view: str, bindings: Pattern = ()) -> Patterns:
    """What the rows of a view that have these values read of each base relation.

    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl edge(x: symbol, y: symbol)  .decl path(x: symbol, y: symbol)  .decl from_a(y: symbol)
    ...     path(x, y) :- edge(x, y).  path(x, y) :- path(x, z), edge(z, y).
    ...     from_a(y) :- edge("a", y).
    ... ''')
    >>> base_patterns(program, "from_a")
    {'edge': frozenset({((0, 'a'),)})}
    """
    found: dict[str, set[Pattern]] = {}
    seen: set[tuple[str, Pattern]] = set()
    waiting = [(view, bindings)]
    while waiting:
        name, given = waiting.pop()
        # Ends: there are finitely many constants, and so finitely many patterns of each relation.
        if (name, given) in seen:
            continue
        seen.add((name, given))
        definitions = program.definitions_of(name)
        if not definitions:
            found.setdefault(name, set()).add(given)
        for definition in definitions:
            match definition:
                case Aggregate():
                    # A bound group column restricts the source; a bound result does not, as it depends on all rows of the group.
                    group = {definition.group[i]: value for i, value in given if i < len(definition.group)}
                    waiting.append((definition.source, tuple(sorted(group.items()))))
                case Rule():
                    waiting += _read_patterns(definition, dict(given))
    return {name: frozenset(patterns) for name, patterns in found.items()}


def _read_patterns(rule: Rule, given: Mapping[int, Value]) -> Iterable[tuple[str, Pattern]]:
    """The patterns that a rule's literals read when head columns are given; nothing where a constant of the head rules it out."""
    values: dict[str, Value] = {}
    for i, value in given.items():
        match rule.head.terms[i]:
            case Constant(constant) if constant != value:
                return
            case Variable(name) if values.setdefault(name, value) != value:
                return
    # A negated atom is read as well: a change of it can change the view. Comparisons are ignored, which only widens the patterns.
    for literal in rule.body:
        atom = literal.atom if isinstance(literal, Negation) else literal
        if isinstance(atom, Atom):
            known = ((i, _value(term, values)) for i, term in enumerate(atom.terms))
            yield atom.relation, tuple((i, value) for i, (value, is_known) in known if is_known)


def _value(term: Simple, values: Mapping[str, Value]) -> tuple[Value, bool]:
    match term:
        case Constant(value):
            return value, True
        case Variable(name):
            return values.get(name), name in values
