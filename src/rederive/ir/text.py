"""Stable printing of the IR: `explain`, error messages and golden files read what this writes."""

from __future__ import annotations

import json

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
    Relation,
    Rule,
)
from rederive.ir.terms import Call, Constant, Kind, Term, Value, Variable

_INFIX = {"+", "-", "*", "/", "%", "^", "band", "bor", "bxor", "bshl", "bshr", "land", "lor", "lxor"}


def show_value(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(str(value))


def show_term(term: Term) -> str:
    match term:
        case Variable():
            return "_" if term.anonymous else term.name
        case Constant():
            return show_value(term.value)
        case Call(functor, (left, right)) if functor in _INFIX:
            return f"{_operand(left)} {functor} {_operand(right)}"
        case Call("-", (only,)):
            return f"-{_operand(only)}"
        case Call():
            return f"{term.functor}({', '.join(map(show_term, term.arguments))})"


def _operand(term: Term) -> str:
    nested = isinstance(term, Call) and term.functor in _INFIX
    return f"({show_term(term)})" if nested else show_term(term)


def show_atom(atom: Atom) -> str:
    return f"{atom.name}({', '.join(map(show_term, atom.terms))})"


def show_literal(literal: Literal) -> str:
    match literal:
        case Atom():
            return show_atom(literal)
        case Negation():
            return f"!{show_atom(literal.atom)}"
        case Comparison(Operator.MATCH | Operator.CONTAINS | Operator.NOT_MATCH | Operator.NOT_CONTAINS as operator):
            return f"{operator.value}({show_term(literal.left)}, {show_term(literal.right)})"
        case Comparison():
            return f"{show_term(literal.left)} {literal.operator.value} {show_term(literal.right)}"


def show_rule(rule: Rule) -> str:
    """One rule on one line.

    >>> x, y, z = Variable("x"), Variable("y"), Variable("z")
    >>> show_rule(Rule(Atom("p", (x, y)), (Atom("e", (x, z)), Negation(Atom("q", (z, y))))))
    'p(x, y) :- e(x, z), !q(z, y).'
    """
    if not rule.body:
        return f"{show_atom(rule.head)}."
    return f"{show_atom(rule.head)} :- {', '.join(map(show_literal, rule.body))}."


def show_aggregate(aggregate: Aggregate, source: Relation) -> str:
    names = [column.name for column in source.columns]
    head = ", ".join([*(names[i] for i in aggregate.group), "result"])
    value = "" if aggregate.function is Function.COUNT or aggregate.value is None else f" {names[aggregate.value]}"
    body = f"{aggregate.source}({', '.join(names)})"
    return f"{aggregate.relation}({head}) :- result = {aggregate.function.value}{value} : {{ {body} }}."


def show_definition(definition: Definition, program: Program) -> str:
    match definition:
        case Rule():
            return show_rule(definition)
        case Aggregate():
            return show_aggregate(definition, program.relations[definition.source])


def show_relation(relation: Relation) -> str:
    columns = ", ".join(f"{column.name}: {column.type}" for column in relation.columns)
    key = f" key({', '.join(relation.columns[i].name for i in relation.key)})" if relation.key else ""
    return f".decl {relation.name}({columns}){key}"


def quoted(kind: Kind) -> bool:
    """Whether values of this kind are written as strings in programs and in JSON."""
    return kind in (Kind.SYMBOL, Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL)
