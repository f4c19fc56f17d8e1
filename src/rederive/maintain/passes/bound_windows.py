"""A row number that is only compared with a constant: the numbers beyond it are not made.

    top(i) :- rank(s, i, n, p), p <= 3.       rank(s, i, n, p) :- p = row_number by (n desc) : { sale(i, s, n) }.

    top(i) :- rank.first(3)(s, i, n, p), p <= 3.
    rank.first(3)(s, i, n, p) :- p = row_number by (n desc) up to 3 : { sale(i, s, n) }.

A change of one row moves the numbers of all rows after it; of the first three, it moves three.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rederive.analysis.graph import edges, needed
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Function, Negation, Operator, Program, Rule, defines
from rederive.ir.terms import Constant, Variable

_MIRRORED = {Operator.GT: Operator.LT, Operator.GE: Operator.LE, Operator.EQ: Operator.EQ}


def bound_windows(program: Program, targets: Collection[str]) -> Program:
    """The program with row numbers up to the greatest that a reader wants, where all its readers have a bound."""
    read = needed(program, targets)
    for window in program.definitions:
        if not isinstance(window, Aggregate) or window.function is not Function.ROW_NUMBER or window.most is not None:
            continue
        if window.relation not in read or window.relation in targets:
            continue
        readers = [d for d in program.definitions if defines(d) in read and any(e.source == window.relation for e in edges(d))]
        bounds = [_bound(reader, window.relation) for reader in readers]
        if bounds and None not in bounds:
            program = _bounded(program, window, max(bound for bound in bounds if bound is not None), readers)
    return program


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


def _bounded(program: Program, window: Aggregate, most: int, readers: Sequence[Definition]) -> Program:
    # Under a name of its own: the view itself keeps its rows for whoever queries it.
    name = f"{window.relation}.first({most})"

    def reading(rule: Definition) -> Definition:
        if not isinstance(rule, Rule) or rule not in readers:
            return rule
        renamed = (
            replace(one, relation=name) if isinstance(one, Atom) and one.relation == window.relation else one for one in rule.body
        )
        return replace(rule, body=tuple(renamed))

    relations = {**program.relations, name: replace(program.relations[window.relation], name=name)}
    made = replace(window, relation=name, most=most)
    return replace(program, relations=relations, definitions=(*map(reading, program.definitions), made))
