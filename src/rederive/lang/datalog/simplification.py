"""The last steps of lowering a rule: constants take the types of their places, and trivial equations are substituted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from rederive.analysis.safety import check_safety
from rederive.analysis.types import check_literal, common_type, functor_of, variable_types
from rederive.errors import SyntaxProblem, TypeClash
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Relation, Rule
from rederive.ir.terms import SYMBOL, Call, Constant, Kind, Simple, Term, Type, Value, Variable
from rederive.scalar.regex.ecmascript import compile_ecmascript
from rederive.values import from_python, from_text

_HOLDS: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


def finish_rule(rule: Rule, relations: Mapping[str, Relation]) -> Rule:
    """Check the rule for safety and types; return it with typed constants and without trivial equations."""
    # First: the types of a rule with an unbound variable could not be told.
    check_safety(rule)
    types = variable_types(rule, relations)
    head = _typed_atom(rule.head, relations)
    return _substituted(Rule(head, tuple(_typed(literal, types, relations) for literal in rule.body), rule.span))


def is_impossible(rule: Rule) -> bool:
    """Whether a comparison of two constants is false, so that the rule can never fire."""
    return any(isinstance(literal, Comparison) and _verdict(literal) is False for literal in rule.body)


def typed_constant(constant: Constant, type: Type) -> Constant:
    """The constant as a value of this type; raises TypeClash if it does not fit."""
    check_literal(constant, type)
    try:
        return Constant(_converted(constant, type), type, constant.span)
    except ValueError as reason:
        raise TypeClash(str(reason), constant.span) from None


def _converted(constant: Constant, type: Type) -> Value:
    match constant.value, type.kind:
        case Decimal(), Kind.FLOAT:
            # A literal with a point is an exact decimal up to here, so that 0.1 in a decimal column is exact.
            return from_text(str(constant.value), type)
        case str(), _ if constant.type == SYMBOL:
            return from_text(constant.value, type)
        case _:
            return from_python(constant.value, type)


def _typed(literal: Literal, types: Mapping[str, Type], relations: Mapping[str, Relation]) -> Literal:
    match literal:
        case Atom():
            return _typed_atom(literal, relations)
        case Negation():
            return Negation(_typed_atom(literal.atom, relations))
        case Comparison():
            type = common_type(literal.left, literal.right, types)
            left, right = _typed_term(literal.left, type, types), _typed_term(literal.right, type, types)
            if literal.operator in (Operator.MATCH, Operator.NOT_MATCH) and isinstance(left, Constant):
                _check_pattern(left)
            return Comparison(literal.operator, left, right, literal.span)


def _check_pattern(pattern: Constant) -> None:
    try:
        compile_ecmascript(str(pattern.value))
    except ValueError as error:
        hint = "use the syntax of ECMAScript, as in Soufflé, and classes of POSIX such as [[:digit:]]"
        raise SyntaxProblem(f"not a regular expression: {error}", pattern.span, hint=hint) from None


def _typed_atom(atom: Atom, relations: Mapping[str, Relation]) -> Atom:
    pairs = zip(atom.terms, relations[atom.relation].types, strict=True)
    terms = tuple(typed_constant(term, type) if isinstance(term, Constant) else term for term, type in pairs)
    return Atom(atom.relation, terms, atom.variant, atom.span)


def _typed_term(term: Term, type: Type, types: Mapping[str, Type]) -> Term:
    match term:
        case Variable():
            return term
        case Constant():
            return typed_constant(term, type)
        case Call():
            shared = bool(functor_of(term).same)
            arguments = (_typed_term(a, type if shared else _own_type(a, types), types) for a in term.arguments)
            return Call(term.functor, tuple(arguments), term.span)


def _own_type(term: Term, types: Mapping[str, Type]) -> Type:
    """The type of an argument of a functor whose arguments may have different types."""
    return common_type(term, term, types)


def _substituted(rule: Rule) -> Rule:
    """`p(y) :- q(x), y = x.` becomes `p(x) :- q(x).`: one equation at a time, until none is trivial."""
    # Sound because `=` of rules is identity of values, in which NULL equals NULL (docs/decisions/0016).
    while (found := next(filter(None, map(_replacement, rule.body)), None)) is not None:
        equation, old, new = found
        body = tuple(_replaced(literal, old, new) for literal in rule.body if literal is not equation)
        rule = Rule(_replaced_atom(rule.head, old, new), body, rule.span)
    # A literal that is stated twice restricts nothing more; joins would look it up twice.
    kept = dict.fromkeys(literal for literal in rule.body if not _redundant(literal))
    return Rule(rule.head, tuple(kept), rule.span)


def _replacement(literal: Literal) -> tuple[Literal, Variable, Simple] | None:
    """A trivial equation, the variable that it removes, and the term that replaces it. A name of the user is kept."""
    match literal:
        case Comparison(Operator.EQ, Variable() as left, Variable() as right) if left != right:
            # Generated names start with `_`; the user's name stays, for errors and for `explain`.
            return (literal, right, left) if right.name.startswith("_") else (literal, left, right)
        case Comparison(Operator.EQ, Variable() as left, Constant() as right):
            return literal, left, right
        case Comparison(Operator.EQ, Constant() as left, Variable() as right):
            return literal, right, left
        case _:
            return None


def _replaced(literal: Literal, old: Variable, new: Simple) -> Literal:
    match literal:
        case Atom():
            return _replaced_atom(literal, old, new)
        case Negation():
            return Negation(_replaced_atom(literal.atom, old, new))
        case Comparison():
            left, right = _replaced_term(literal.left, old, new), _replaced_term(literal.right, old, new)
            return Comparison(literal.operator, left, right, literal.span)


def _replaced_atom(atom: Atom, old: Variable, new: Simple) -> Atom:
    return Atom(atom.relation, tuple(new if term == old else term for term in atom.terms), atom.variant, atom.span)


def _replaced_term(term: Term, old: Variable, new: Simple) -> Term:
    match term:
        case Variable():
            return new if term == old else term
        case Constant():
            return term
        case Call():
            return Call(term.functor, tuple(_replaced_term(a, old, new) for a in term.arguments), term.span)


def _redundant(literal: Literal) -> bool:
    return isinstance(literal, Comparison) and _verdict(literal) is True


def _verdict(test: Comparison) -> bool | None:
    """The truth of a comparison that does not depend on data; None if it does."""
    match test.left, test.right:
        case Constant(left), Constant(right) if test.operator in _HOLDS:
            return _HOLDS[test.operator](left, right)
        # x = x holds also for NULL. x <= x does not, so it stays.
        case Variable() as left, Variable() as right if left == right and test.operator is Operator.EQ:
            return True
        case _:
            return None
