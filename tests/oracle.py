"""The oracle: a naive evaluator of the rule IR, written to be seen to be right and to share nothing with any engine.

A relation's rows are a Python set; a body is nested loops over its literals; a stratum is iterated until nothing is added.
Undefined results raise `ArithmeticError` (overflow, division by zero) or `ValueError` (a bad conversion).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rederive.ir.floats import canonical
from rederive.ir.rules import (
    Aggregate,
    Atom,
    Comparison,
    Definition,
    Function,
    Literal,
    Negation,
    Operator,
    Program,
    Rule,
    defines,
    literal_variables,
)
from rederive.ir.terms import Call, Constant, Row, Term, Variable, variables

Rows = dict[str, set[Row]]
Binding = dict[str, Any]


def evaluate(program: Program, base: Mapping[str, set[Row]]) -> Rows:
    """The rows of every relation of `program` over these rows of its base relations."""
    rows: Rows = {name: set(base.get(name, ())) for name in program.relations}
    level = strata(program)
    for stratum in sorted(set(level.values())):
        definitions = [d for d in program.definitions if level[defines(d)] == stratum]
        while True:
            derived = [(defines(d), consequences(d, rows)) for d in definitions]
            if all(new <= rows[name] for name, new in derived):
                break
            for name, new in derived:
                rows[name] |= new
    return rows


def initial(program: Program) -> Rows:
    """The rows that the program's own facts give to its base relations."""
    rows: Rows = {name: set() for name in program.bases}
    for fact in program.facts:
        rows[fact.relation].add(fact.row)
    return rows


def strata(program: Program) -> dict[str, int]:
    """The least numbering where a view is not below what it reads, and above what it negates or aggregates."""
    level = dict.fromkeys(program.relations, 0)
    for _ in range(len(level) + 1):
        before = dict(level)
        for definition in program.definitions:
            head = defines(definition)
            level[head] = max([level[head], *(level[name] + apart for name, apart in reads(definition))])
        if level == before:
            return level
    raise AssertionError("not stratified")


def reads(definition: Definition) -> list[tuple[str, int]]:
    """The relations that a definition reads, with 1 where they must be complete before it and 0 elsewhere."""
    match definition:
        case Aggregate():
            return [(definition.source, 1)]
        case Rule():
            positive = [(literal.relation, 0) for literal in definition.body if isinstance(literal, Atom)]
            return positive + [(literal.atom.relation, 1) for literal in definition.body if isinstance(literal, Negation)]


def consequences(definition: Definition, rows: Rows) -> set[Row]:
    """The rows that a definition derives in one step."""
    match definition:
        case Rule():
            head = definition.head.terms
            return {tuple(value_of(term, b) for term in head) for b in solutions(definition.body, {}, rows)}
        case Aggregate():
            groups: dict[Row, list[Row]] = {}
            for row in rows[definition.source]:
                groups.setdefault(tuple(row[i] for i in definition.group), []).append(row)
            return {(*key, fold(definition, members)) for key, members in groups.items()}


def solutions(body: Sequence[Literal], binding: Binding, rows: Rows) -> Iterator[Binding]:
    """All bindings that make the body true. Tests run as soon as they are bound; what may fail runs last."""
    if not body:
        yield binding
        return
    literal = min((each for each in body if ready(each, binding)), key=urgency)
    rest = [each for each in body if each is not literal]
    match literal:
        case Atom():
            for row in rows[literal.relation]:
                extended = matched(literal, row, binding)
                if extended is not None:
                    yield from solutions(rest, extended, rows)
        case Negation():
            if all(matched(literal.atom, row, binding) is None for row in rows[literal.atom.relation]):
                yield from solutions(rest, binding, rows)
        case Comparison():
            for extended in compared(literal, binding):
                yield from solutions(rest, extended, rows)


def ready(literal: Literal, binding: Binding) -> bool:
    match literal:
        case Atom():
            return True
        case Negation():
            return all(v.is_anonymous or v.name in binding for v in literal_variables(literal))
        case Comparison():
            return not unbound(literal, binding) or assigned(literal, binding) is not None


def urgency(literal: Literal) -> int:
    match literal:
        case Atom():
            return 1
        case Negation():
            return 0
        case Comparison():
            return 2 if isinstance(literal.left, Call) or isinstance(literal.right, Call) else 0


def unbound(literal: Comparison, binding: Binding) -> bool:
    return any(v.name not in binding for v in literal_variables(literal))


def assigned(literal: Comparison, binding: Binding) -> tuple[str, Term] | None:
    """The variable that `variable = bound term` gives a value to, and the term."""
    if literal.operator is not Operator.EQ:
        return None
    for side, term in ((literal.left, literal.right), (literal.right, literal.left)):
        known = all(v.name in binding for v in variables(term))
        if known and isinstance(side, Variable) and side.name not in binding:
            return side.name, term
    return None


def matched(atom: Atom, row: Row, binding: Binding) -> Binding | None:
    """The binding extended so that the atom becomes this row, or None."""
    extended = dict(binding)
    for term, value in zip(atom.terms, row, strict=True):
        expected = term.value if isinstance(term, Constant) else extended.setdefault(term.name, value)
        if expected != value:
            return None
    return extended


def compared(literal: Comparison, binding: Binding) -> Iterator[Binding]:
    if unbound(literal, binding):
        assignment = assigned(literal, binding)
        assert assignment is not None
        name, term = assignment
        yield {**binding, name: value_of(term, binding)}
    elif TESTS[literal.operator](value_of(literal.left, binding), value_of(literal.right, binding)):
        yield binding


def value_of(term: Term, binding: Binding) -> Any:
    match term:
        case Variable():
            return binding[term.name]
        case Constant():
            return term.value
        case Call():
            return FUNCTORS[term.functor](*(value_of(argument, binding) for argument in term.arguments))


def fold(aggregate: Aggregate, members: Sequence[Row]) -> Any:
    """The aggregate of one group, which is never empty."""
    if aggregate.function is Function.COUNT:
        return len(members)
    assert aggregate.value is not None
    values: list[Any] = [row[aggregate.value] for row in members]
    match aggregate.function:
        case Function.SUM:
            return total(values) if isinstance(values[0], float) else fit(sum(values))
        case Function.MIN:
            return min(values)
        case Function.MAX:
            return max(values)
        case Function.MEAN:
            if not all(map(math.isfinite, values)):
                return total(values)
            return float(sum(map(Fraction, values)) / len(values))


def total(values: Sequence[float]) -> float:
    """The exact sum, rounded once; as IEEE 754 has it where a value is not finite."""
    finite = all(map(math.isfinite, values))
    return math.fsum(values) if finite else canonical(sum(value for value in values if not math.isfinite(value)))


def fit(value: Any) -> Any:
    """A number of 64 bits; anything else passes."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError(value)
    return value


def divide(left: Any, right: Any) -> Any:
    """Truncates toward zero on integers, as C does."""
    if isinstance(left, int):
        quotient = abs(left) // abs(right)
        return fit(quotient if (left < 0) == (right < 0) else -quotient)
    return left / right


def remainder(left: int, right: int) -> int:
    """Takes the sign of the dividend, as C does."""
    size = abs(left) % abs(right)
    return -size if left < 0 else size


def substr(text: str, start: int, length: int) -> str:
    end = start + length if length >= 0 else len(text)
    return text[start:end] if start >= 0 else ""


def to_string(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


FUNCTORS: dict[str, Callable[..., Any]] = {
    "+": lambda x, y: fit(x + y),
    "-": lambda x, *y: fit(x - y[0] if y else -x),
    "*": lambda x, y: fit(x * y),
    "/": divide,
    "%": remainder,
    "^": lambda x, y: fit(x**y),
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
    "bnot": operator.invert,
    "bshl": lambda x, y: fit(x << y % 64),
    "bshr": lambda x, y: x >> y % 64,
    "land": lambda x, y: int(x != 0 and y != 0),
    "lor": lambda x, y: int(x != 0 or y != 0),
    "lxor": lambda x, y: int((x != 0) != (y != 0)),
    "lnot": lambda x: int(x == 0),
    "min": min,
    "max": max,
    "cat": lambda *texts: "".join(texts),
    "strlen": len,
    "substr": substr,
    "ord": lambda text: ord(text[0]) if text else 0,
    "to_string": to_string,
    "to_number": lambda x: fit(int(x)),
    "to_float": float,
}

TESTS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.MATCH: lambda pattern, text: re.fullmatch(pattern, text) is not None,
    Operator.NOT_MATCH: lambda pattern, text: re.fullmatch(pattern, text) is None,
    Operator.CONTAINS: lambda needle, text: needle in text,
    Operator.NOT_CONTAINS: lambda needle, text: needle not in text,
}
