"""Views that only one rule reads, put into that rule.

For  named(m, p) :- imported(m, p), called(p, "sort").
     imported(m, p) :- import(m, p).  imported(m, p) :- uses(m, y), import(y, p).

    named(m, p) :- import(m, p), called(p, "sort").
    named(m, p) :- uses(m, y), import(y, p), called(p, "sort").

Where nothing is stored, a delta of `import` then meets the test on the name before it is joined with `uses`. Through `imported`,
the delta of that view is computed for all names first, and most of it is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from rederive.analysis.graph import components, edges, needed
from rederive.ir.rules import Atom, Program, Rule, defines, literal_variables
from rederive.ir.substitute import substitute_variables
from rederive.ir.terms import Simple, Variable

MOST_RULES = 8  # in the place of one reader


def unfold(program: Program, targets: Collection[str]) -> Program:
    """The program with views unfolded into their readers: those that are not targets, not recursive, and read once, not negated.

    >>> from rederive.ir.printing import show_definition
    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl e(x: symbol, y: symbol)  .decl n(x: symbol)  .decl p(x: symbol)  .decl q(x: symbol)
    ...     p(x) :- e(x, y), n(y).  p(x) :- n(x).  q(y) :- e(y, z), p(z).
    ... ''')
    >>> for definition in unfold(program, ["q"]).definitions_of("q"):
    ...     print(show_definition(definition, program))
    q(y) :- e(y, z), e(z, y_), n(y_).
    q(y) :- e(y, z), n(z).
    """
    # Ends: each turn takes one reader of a view away, and views are not recursive.
    while (found := next(_foldable(program, targets), None)) is not None:
        reader, rules = found
        definitions = (rule for d in program.definitions for rule in (rules if d is reader else (d,)))
        program = replace(program, definitions=tuple(definitions))
    return program


def _foldable(program: Program, targets: Collection[str]) -> Iterator[tuple[Rule, list[Rule]]]:
    """Readers, each with the rules to put in its place."""
    read = needed(program, targets)
    for component in components(program):
        (name, *_) = component.relations
        if component.recursive or name in targets or name not in read:
            continue
        # A relation that a rule reads twice has two entries: it is not unfolded, as its rules would be multiplied.
        readers = [d for d in program.definitions if defines(d) in read for edge in edges(d) if edge.source == name]
        rules = [d for d in component.definitions if isinstance(d, Rule) and has_plain_head(d.head)]
        if len(readers) == 1 and len(rules) == len(component.definitions) <= MOST_RULES:
            (reader,) = readers
            place = _place(reader.body, name) if isinstance(reader, Rule) else None
            if isinstance(reader, Rule) and place is not None:
                yield reader, [put_in_place(reader, place, rule) for rule in rules]


def _place(body: tuple[object, ...], name: str) -> int | None:
    """Where a body reads a relation without negating it."""
    return next((i for i, literal in enumerate(body) if isinstance(literal, Atom) and literal.relation == name), None)


def has_plain_head(head: Atom) -> bool:
    """Whether the head's columns are different variables, so that any terms can be given for them."""
    return all(isinstance(term, Variable) for term in head.terms) and len(set(head.terms)) == len(head.terms)


def put_in_place(reader: Rule, place: int, rule: Rule) -> Rule:
    """The reader with a rule's body for the atom; what is the rule's own is called by names that the reader does not use."""
    atom = reader.body[place]
    assert isinstance(atom, Atom)
    # Unification is a matching: the head has different variables, each of which gets the reader's term.
    values: dict[str, Simple] = {v.name: t for v, t in zip(rule.head.terms, atom.terms, strict=True) if isinstance(v, Variable)}
    taken = {v.name for literal in (reader.head, *reader.body) for v in literal_variables(literal)}
    for name in dict.fromkeys(v.name for literal in rule.body for v in literal_variables(literal)):
        if name not in values:
            fresh = name
            # Variables of the body alone are existential: they must not be captured by names of the reader.
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            values[name] = Variable(fresh)
    return replace(reader, body=(*reader.body[:place], *substitute_variables(rule, values).body, *reader.body[place + 1 :]))
