"""A row number that is only compared with a constant: the numbers beyond it are not made.

    top(i) :- rank(s, i, n, p), p <= 3.       rank(s, i, n, p) :- p = row_number by (n desc) : { sale(i, s, n) }.

    top(i) :- rank.first(3)(s, i, n, p), p <= 3.
    rank.first(3)(s, i, n, p) :- p = row_number by (n desc) up to 3 : { sale(i, s, n) }.

A change of one row moves the numbers of all rows after it; of the first three, it moves three.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rederive.analysis.graph import edges, needed
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Function, Negation, Operator, Program, Rule, defines
from rederive.ir.terms import Constant, Variable

_MIRRORED = {Operator.GT: Operator.LT, Operator.GE: Operator.LE, Operator.EQ: Operator.EQ}


def bound_windows(program: Program, targets: Collection[str]) -> Program:
    """The program with row numbers up to the greatest that a reader wants, where all its readers have a bound."""
    windows = [
        d for d in program.definitions if isinstance(d, Aggregate) and d.function is Function.ROW_NUMBER and d.most is None
    ]
    if not windows:
        return program
    read, relations, definitions = needed(program, targets), dict(program.relations), list(program.definitions)
    readers: dict[str, set[int]] = {}
    for number, definition in enumerate(definitions):
        for edge in edges(definition) if defines(definition) in read else ():
            readers.setdefault(edge.source, set()).add(number)
    for window in windows:
        if window.relation in targets or window.relation not in read:
            continue
        found = sorted(readers.get(window.relation, ()))
        bounds = [_bound(definitions[number], window.relation) for number in found]
        most = max((bound for bound in bounds if bound is not None), default=None)
        if most is None or None in bounds:
            continue
        # Under a name of its own: the view itself keeps its rows for whoever queries it.
        name = f"{window.relation}.first({most})"
        relations[name] = replace(program.relations[window.relation], name=name)
        for number in found:
            definitions[number] = _reading(definitions[number], window.relation, name)
        definitions.append(replace(window, relation=name, most=most))
    is_same = len(definitions) == len(program.definitions)
    return program if is_same else replace(program, relations=relations, definitions=tuple(definitions))


def _bound(reader: Definition, name: str) -> int | None:
    """The greatest row number that a definition can use; None where there is no bound."""
    if not isinstance(reader, Rule) or any(isinstance(one, Negation) and one.atom.relation == name for one in reader.body):
        return None
    atoms = [one for one in reader.body if isinstance(one, Atom) and one.relation == name]
    found = [_least_bound(reader, atom.terms[-1]) for atom in atoms]
    return None if None in found else max((bound for bound in found if bound is not None), default=None)


def _least_bound(rule: Rule, number: object) -> int | None:
    if isinstance(number, Constant):
        return max(number.value, 0) if isinstance(number.value, int) else None
    bounds = []
    for one in rule.body:
        match one:
            case Comparison(left=Variable() as left, operator=operator, right=Constant(value=int(value))) if left == number:
                bounds.append(_greatest(operator, value))
            case Comparison(left=Constant(value=int(value)), operator=operator, right=Variable() as right) if right == number:
                bounds.append(_greatest(_MIRRORED.get(operator, Operator.NE), value))
            case _:
                pass
    return min((bound for bound in bounds if bound is not None), default=None)


def _greatest(operator: Operator, value: int) -> int | None:
    match operator:
        case Operator.LE | Operator.EQ:
            return max(value, 0)
        case Operator.LT:
            return max(value - 1, 0)
        case _:
            return None


def _reading(rule: Definition, window: str, name: str) -> Rule:
    """A reader of a window that reads it under another name."""
    assert isinstance(rule, Rule)
    renamed = (replace(one, relation=name) if isinstance(one, Atom) and one.relation == window else one for one in rule.body)
    return replace(rule, body=tuple(renamed))
