"""The IR as text, for `explain`, error messages and golden files. Equal programs have equal texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from rederive.ir.rules import (
    Aggregate,
    Atom,
    Comparison,
    Definition,
    Frame,
    Function,
    Literal,
    Negation,
    Operator,
    Program,
    Relation,
    Rule,
    literal_variables,
)
from rederive.ir.terms import Call, Constant, Lambda, Term, Value, Variable

_INFIX = {"+", "-", "*", "/", "%", "^", "band", "bor", "bxor", "bshl", "bshr", "land", "lor", "lxor"}
_INFIX |= {"=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "div", "like", "rlike"}


def show_value(value: Value) -> str:
    """A value as a constant of a rule."""
    match value:
        case None:
            return "null"
        # Before int: bool is a subclass of it.
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case tuple() if isinstance(names := getattr(value, "names", None), tuple):
            return f"{{{', '.join(f'{name}: {show_value(part)}' for name, part in zip(names, value, strict=True))}}}"
        case tuple():
            return f"[{', '.join(map(show_value, value))}]"
        case _:
            return json.dumps(str(value))


def show_term(term: Term) -> str:
    """A term; nested infix operators are in parentheses, so that the text does not depend on precedence."""
    match term:
        case Variable():
            return "_" if term.is_anonymous else term.name
        case Constant(value=Lambda(parameters, _, body)):
            return f"(({', '.join(parameters)}) -> {show_term(body)})"
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
    """An atom with the variant of its relation, such as `closure^del(x, y)`."""
    return f"{atom.name}({', '.join(map(show_term, atom.terms))})"


def show_literal(literal: Literal) -> str:
    """An atom, a negated atom or a comparison."""
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
    """One rule on one line. A `_` that lowering needed elsewhere, as in a head, gets a name.

    >>> x, y, z = Variable("x"), Variable("y"), Variable("z")
    >>> show_rule(Rule(Atom("p", (x, y)), (Atom("e", (x, z)), Negation(Atom("q", (z, y))))))
    'p(x, y) :- e(x, z), !q(z, y).'
    >>> show_rule(Rule(Atom("p", (Variable("7"),)), (Atom("e", (Variable("7"), Variable("8"))),)))
    'p(_1) :- e(_1, _).'
    """
    literals = (rule.head, *rule.body)
    times = Counter(v for literal in literals for v in literal_variables(literal))
    # Names that the rule does not use yet.
    free = (name for i in count(1) if Variable(name := f"_{i}") not in times)
    # One that occurs once is printed as `_` again; one that occurs twice would lose its identity.
    names = {v: Variable(next(free)) for v, occurrences in times.items() if v.is_anonymous and occurrences > 1}
    head, *body = (show_literal(_renamed(literal, names) if names else literal) for literal in literals)
    return f"{head} :- {', '.join(body)}." if body else f"{head}."


def _renamed(literal: Literal, names: Mapping[Variable, Variable]) -> Literal:
    match literal:
        case Atom():
            return replace(literal, terms=tuple(names.get(t, t) if isinstance(t, Variable) else t for t in literal.terms))
        case Negation(atom):
            renamed = _renamed(atom, names)
            assert isinstance(renamed, Atom)
            return Negation(renamed)
        case Comparison():
            return replace(literal, left=_renamed_term(literal.left, names), right=_renamed_term(literal.right, names))


def _renamed_term(term: Term, names: Mapping[Variable, Variable]) -> Term:
    match term:
        case Variable():
            return names.get(term, term)
        case Constant():
            return term
        case Call():
            return replace(term, arguments=tuple(_renamed_term(argument, names) for argument in term.arguments))


def show_aggregate(aggregate: Aggregate, source: Relation) -> str:
    """An aggregate on one line; its variables have the names of the columns of its source."""
    names = [column.name for column in source.columns]
    if aggregate.is_window:
        return _show_ranking(aggregate, names)
    head = ", ".join([*(names[i] for i in aggregate.group), "result"])
    # COUNT counts rows or values that are not NULL; which column they come from is not printed.
    value = _show_call(aggregate, names) if aggregate.function is not Function.COUNT else "count"
    body = f"{aggregate.source}({', '.join(names)})"
    order = f" by ({_show_order(aggregate, names)})" if aggregate.order else ""
    return f"{aggregate.relation}({head}) :- result = {value}{order} : {{ {body} }}."


def _show_call(aggregate: Aggregate, names: Sequence[str]) -> str:
    """The function and its arguments: columns, then constants."""
    arguments = [*(names[i] for i in aggregate.arguments), *map(repr, aggregate.parameters)]
    return " ".join([aggregate.function.value, ", ".join(arguments)]).strip()


def _show_order(aggregate: Aggregate, names: Sequence[str]) -> str:
    return ", ".join(f"{names[o.column]}{' desc' if o.descending else ''}" for o in aggregate.order)


def _show_frame(frame: Frame) -> str:
    unit = "range" if frame.by_value else "rows"
    start, end = ("unbounded" if bound is None else str(bound) for bound in (frame.start, frame.end))
    return f" {unit} {start} to {end}{' months' if frame.months else ''}"


def _show_ranking(ranking: Aggregate, names: Sequence[str]) -> str:
    rest = [i for i in range(len(names)) if i not in ranking.group]
    head = ", ".join([*(names[i] for i in (*ranking.group, *rest)), "result"])
    first = f" up to {ranking.most}" if ranking.most is not None else ""
    first += _show_frame(ranking.frame) if ranking.frame is not None else ""
    body = f"{ranking.source}({', '.join(names)})"
    called = f"{_show_call(ranking, names)} by ({_show_order(ranking, names)}){first}"
    return f"{ranking.relation}({head}) :- result = {called} : {{ {body} }}."


def show_definition(definition: Definition, program: Program) -> str:
    """A rule or an aggregate on one line."""
    match definition:
        case Rule():
            return show_rule(definition)
        case Aggregate():
            return show_aggregate(definition, program.relations[definition.source])


def show_relation(relation: Relation) -> str:
    """The declaration of a relation."""
    columns = ", ".join(f"{column.name}: {column.type}" for column in relation.columns)
    key = f" key({', '.join(relation.columns[i].name for i in relation.key)})" if relation.key else ""
    return f".decl {relation.name}({columns}){key}"
