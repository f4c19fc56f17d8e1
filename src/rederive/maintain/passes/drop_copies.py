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

from collections.abc import Collection
from dataclasses import replace

from rederive.analysis.derivations import derives_once, window_columns
from rederive.analysis.graph import components, edges, needed
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Literal, Negation, Program, Rule, defines
from rederive.ir.terms import Call, Variable
from rederive.maintain.passes.unfold import has_plain_head, put_in_place


def drop_copies(program: Program, targets: Collection[str]) -> Program:
    """The program without copies among its auxiliary views; those that nobody reads any more still have their rules."""
    # Ends: each turn takes a literal away, or one reader of a view or all of them, and views are not recursive.
    while (found := _without_source(program) or _without_one(program, targets)) is not None:
        program = replace(program, definitions=found)
    return program


def _without_source(program: Program) -> tuple[Definition, ...] | None:
    """The definitions where a rule that reads a window and the rows under it reads the window alone; None where no rule does."""
    for rule in program.definitions:
        if isinstance(rule, Rule) and (literal := next((one for one in rule.body if _is_under_window(one, rule, program)), None)):
            body = tuple(one for one in rule.body if one is not literal)
            return tuple(replace(rule, body=body) if d is rule else d for d in program.definitions)
    return None


def _is_under_window(literal: Literal, rule: Rule, program: Program) -> bool:
    """Whether a literal has the rows of a source, and a window over it has the same rows in the rule."""
    if not isinstance(literal, Atom):
        return False
    for other in rule.body:
        match program.definitions_of(other.relation) if isinstance(other, Atom) else ():
            case (Aggregate(source=source) as window,) if window.is_window and source == literal.relation:
                assert isinstance(other, Atom)
                if tuple(literal.terms[i] for i in window_columns(window, len(literal.terms))) == other.terms[:-1]:
                    return True
            case _:
                pass
    return False


def _without_one(program: Program, targets: Collection[str]) -> tuple[Definition, ...] | None:
    read = needed(program, targets)
    readers: dict[str, list[Definition]] = {}
    for definition in program.definitions:
        if defines(definition) in read:
            for edge in edges(definition):
                readers.setdefault(edge.source, []).append(definition)
    for component in components(program):
        (name, *_) = component.relations
        kept = component.recursive or name in targets or name in program.bags or name not in readers
        if kept or not program.relations[name].is_auxiliary or len(component.definitions) != 1:
            continue
        (rule,) = component.definitions
        if not isinstance(rule, Rule) or not has_plain_head(rule.head) or _computes(rule):
            continue
        if (source := _copied(rule, program)) is not None:
            return tuple(d if d is rule else _renamed(d, name, source) for d in program.definitions)
        if len(readers[name]) == 1 and (merged := _merged(readers[name][0], rule, program)) is not None:
            return tuple(merged if d is readers[name][0] else d for d in program.definitions)
    return None


def _computes(rule: Rule) -> bool:
    return any(isinstance(t, Call) for one in rule.body if isinstance(one, Comparison) for t in (one.left, one.right))


def _copied(rule: Rule, program: Program) -> str | None:
    """The relation whose rows are those of the rule's head, column by column."""
    (atom, *others) = rule.body or (None,)
    if others or not isinstance(atom, Atom) or atom.terms != rule.head.terms or not atom.terms:
        return None
    one, two = (program.relations[name] for name in (rule.head.relation, atom.relation))
    return atom.relation if one.types == two.types else None


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


def _merged(reader: Definition, rule: Rule, program: Program) -> Rule | None:
    """The only reader of a rule's head, with the rule's body in the place of it; None where that is no gain."""
    if not isinstance(reader, Rule):
        return None
    atoms = [literal for literal in reader.body if not isinstance(literal, Comparison)]
    place = next((i for i, one in enumerate(reader.body) if isinstance(one, Atom) and one.relation == rule.head.relation), None)
    if place is None:
        return None
    merged = put_in_place(reader, place, rule)
    is_projection = len(rule.body) == 1 and isinstance(rule.body[0], Atom) and _is_plain(rule.body[0])
    if is_projection and len(atoms) == 1:
        return merged
    return merged if len(atoms) == 1 and derives_once(merged, program) else None


def _is_plain(atom: Atom) -> bool:
    """Whether every row of the relation matches."""
    return all(isinstance(term, Variable) for term in atom.terms) and len(set(atom.terms)) == len(atom.terms)
