"""Parse tree to syntax: the nodes that the rules of `datalog.lark` build."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias, cast

from lark import Token, Tree
from lark.tree import Meta

from rederive.errors import ProgramError, SourceText, Span, SyntaxProblem
from rederive.ir.rules import Function, Operator
from rederive.ir.terms import BOOLEAN, FLOAT, NUMBER, SYMBOL, UNSIGNED
from rederive.lang.datalog.grammar import parse_tree, refused, token_span
from rederive.lang.datalog.syntax import (
    And,
    Apply,
    Clause,
    ColumnDeclaration,
    Compare,
    ConstraintDirective,
    Declaration,
    Directive,
    Formula,
    InputDirective,
    Name,
    Option,
    Or,
    OutputDirective,
    ParsedAggregate,
    ParsedAtom,
    ParsedConstant,
    ParsedNegation,
    RemoteDirective,
    RuleDirective,
    Statement,
    StoredDirective,
    Truth,
    TypeDefinition,
    TypeName,
    Value,
    Var,
)

_OPERATOR_WORDS: Final = frozenset(["band", "bor", "bxor", "bnot", "bshl", "bshr", "land", "lor", "lxor", "lnot"])
_BUILT_IN: Final = _OPERATOR_WORDS | set("+-*/%^") | {"min", "max", "match", "contains"}
RESERVED: Final = _OPERATOR_WORDS | {"count", "sum", "mean", "min", "max", "true", "false", "match", "contains", "nil"}

_REFUSED_HINTS: Final = {
    "eqrel": "write rules for reflexivity, symmetry and transitivity",
    "input": "write the directive .input",
    "output": "write the directive .output",
    "printsize": "count the rows with an aggregate",
}
_ESCAPES: Final = r"use the escapes \" \\ \/ \b \f \n \r \t and \uXXXX"
_TESTS: Final = {"match": Operator.MATCH, "contains": Operator.CONTAINS}


@dataclass(frozen=True, slots=True)
class _Group:
    """An item in parentheses; its place decides whether it is a value or a condition."""

    item: _Item
    span: Span


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Items between commas: a conjunction, or the arguments of `min` and `max`."""

    items: tuple[_Item, ...]
    span: Span


_Item: TypeAlias = Value | Formula | _Group | _Sequence


def parse_program(source: SourceText) -> tuple[Statement, ...]:
    """The statements of a program text, in order.

    >>> [type(s).__name__ for s in parse_program(SourceText("<text>", ".decl p(x: number) p(1). .output p"))]
    ['Declaration', 'Clause', 'OutputDirective']
    """
    statements: list[Statement] = _Builder(source).build(parse_tree(source, "program"))
    return tuple(statements)


def parse_query(source: SourceText) -> ParsedAtom:
    """A single atom, such as `closure("a", y)`."""
    atom: ParsedAtom = _Builder(source).build(parse_tree(source, "query"))
    return atom


# nodes


_DIRECTIVES: Final[dict[str, type[Directive]]] = {
    ".input": InputDirective,
    ".output": OutputDirective,
    ".remote": RemoteDirective,
    ".stored": StoredDirective,
    ".constraint": ConstraintDirective,
    ".rule": RuleDirective,
}


class _Builder:
    """Builds the syntax tree: one method for each rule of the grammar, called from the leaves up."""

    def __init__(self, source: SourceText) -> None:
        self._source = source

    def build(self, tree: Tree[Token]) -> Any:
        children = [self.build(child) if isinstance(child, Tree) else child for child in tree.children]
        # A rule of the grammar and its method have one name.
        return getattr(self, tree.data)(tree.meta, children)

    def _span(self, meta: Meta) -> Span:
        if meta.empty:
            return Span(self._source, 1, 1, 1, 1)
        return Span(self._source, meta.line, meta.column, meta.end_line, meta.end_column)

    # directives

    def program(self, meta: Meta, children: list[Statement | list[Statement]]) -> list[Statement]:
        return [s for child in children for s in (child if isinstance(child, list) else [child])]

    def declaration(self, meta: Meta, children: list[Any]) -> Declaration:
        # Qualifiers that have no effect here (brie, btree, inline ...) are None; those that change the meaning were refused.
        names, columns, *qualifiers = children
        keys = [key for key in qualifiers if key is not None]
        if len(keys) > 1:
            raise SyntaxProblem(
                "the relation has a second key", keys[1][0].span, hint="list all columns of the key in one key(...)"
            )
        return Declaration(names, columns or (), keys[0] if keys else (), self._span(meta))

    def names(self, meta: Meta, children: list[Name]) -> tuple[Name, ...]:
        return tuple(children)

    def name(self, meta: Meta, children: list[Token]) -> Name:
        return Name(str(children[0]), self._span(meta))

    def columns(self, meta: Meta, children: list[ColumnDeclaration]) -> tuple[ColumnDeclaration, ...]:
        return tuple(children)

    def column(self, meta: Meta, children: list[Any]) -> ColumnDeclaration:
        return ColumnDeclaration(children[0], children[1], self._span(meta))

    def type(self, meta: Meta, children: list[Token | None]) -> TypeName:
        name, *parameters = children
        return TypeName(str(name), tuple(_integer(p) for p in parameters if p is not None), self._span(meta))

    def hint(self, meta: Meta, children: list[Token]) -> None:
        if (word := str(children[0])) in _REFUSED_HINTS:
            raise refused(word, self._span(meta), _REFUSED_HINTS[word])

    def key(self, meta: Meta, children: list[Any]) -> tuple[Name, ...]:
        return cast("tuple[Name, ...]", children[1])

    def subtype(self, meta: Meta, children: list[Any]) -> TypeDefinition:
        return TypeDefinition(children[0], (children[1],), self._span(meta))

    def union_type(self, meta: Meta, children: list[Any]) -> TypeDefinition:
        return TypeDefinition(children[0], tuple(children[1:]), self._span(meta))

    def legacy_type(self, meta: Meta, children: list[Any]) -> TypeDefinition:
        word, name = children
        # `.number_type T` of old Soufflé programs: T is the primitive type.
        primitive = word[1:].removesuffix("_type")
        return TypeDefinition(name, (TypeName(primitive, (), token_span(self._source, word)),), self._span(meta))

    def adt_branch(self, meta: Meta, children: list[Any]) -> NoReturn:
        raise refused("$", self._span(meta))

    def directive(self, meta: Meta, children: list[Any]) -> list[Statement]:
        word, *targets = children
        make = _DIRECTIVES[str(word)]
        return [make(name, options, span) for name, options, span in targets]

    def target(self, meta: Meta, children: list[Any]) -> tuple[Name, tuple[Option, ...], Span]:
        name, *options = children
        return name, tuple(o for o in options if o is not None), self._span(meta)

    def option(self, meta: Meta, children: list[Any]) -> Option:
        name, token = children
        text = self._text(token) if token.type == "STRING" else str(token)
        return Option(name, text, self._span(meta))

    def qualified(self, meta: Meta, children: list[Token]) -> Name:
        if len(children) > 1:
            raise refused("qualified names", self._span(meta))
        return Name(str(children[0]), self._span(meta))

    # clauses

    def clause(self, meta: Meta, children: list[Any]) -> Clause:
        heads, body = children
        return Clause(heads, None if body is None else self._formula(body), self._span(meta))

    def heads(self, meta: Meta, children: list[Apply]) -> tuple[ParsedAtom, ...]:
        return tuple(self._atom(child) for child in children)

    def qualified_head(self, meta: Meta, children: list[Any]) -> NoReturn:
        raise refused("qualified names", self._span(meta))

    def subsumption(self, meta: Meta, children: list[Any]) -> NoReturn:
        raise refused("subsumption", self._span(meta))

    def query(self, meta: Meta, children: list[Apply]) -> ParsedAtom:
        return self._atom(children[0])

    # conditions

    def alternatives(self, meta: Meta, children: list[_Item]) -> Or:
        return Or(tuple(map(self._formula, children)), self._span(meta))

    def conjunction(self, meta: Meta, children: list[_Item]) -> _Sequence:
        return _Sequence(tuple(children), self._span(meta))

    def negation(self, meta: Meta, children: list[_Item]) -> ParsedNegation:
        return ParsedNegation(self._formula(children[0]), self._span(meta))

    def test(self, meta: Meta, children: list[Any]) -> Compare:
        left, operator, right = children
        return Compare(operator, self._value(left), self._value(right), self._span(meta))

    def compare(self, meta: Meta, children: list[Token]) -> Operator:
        return Operator(str(children[0]))

    def group(self, meta: Meta, children: list[_Item]) -> _Group:
        return _Group(children[0], self._span(meta))

    # values

    def chain(self, meta: Meta, children: list[Any]) -> Value:
        operands = [self._value(child) for child in children[::2]]
        # The grammar reads a flat chain of operands and operators; levels bind here, so that the grammar stays LALR.
        operators = [str(token) for token in children[1::2]]
        for level in _PRECEDENCE:
            _bind(operands, operators, level)
        return operands[0]

    def power(self, meta: Meta, children: list[Any]) -> Apply:
        return Apply("^", (self._value(children[0]), self._value(children[2])), self._span(meta))

    def prefix(self, meta: Meta, children: list[Any]) -> Value:
        operand = self._value(children[1])
        match str(children[0]), operand:
            # The sign belongs to the number: the least integer has no positive counterpart.
            case "-", ParsedConstant(int() | Decimal() as number, type) if type in (NUMBER, FLOAT):
                return ParsedConstant(-number, type, self._span(meta))
            case functor, _:
                return Apply(functor, (operand,), self._span(meta))

    def call(self, meta: Meta, children: list[Any]) -> Apply:
        span = self._span(meta)
        return Apply(self._word(children[0], span), children[1] or (), span)

    def arguments(self, meta: Meta, children: list[_Item]) -> tuple[Value, ...]:
        return tuple(map(self._value, children))

    def extreme(self, meta: Meta, children: list[Any]) -> Apply:
        return Apply(str(children[0]), self._listed(children[1]), self._span(meta))

    def aggregate(self, meta: Meta, children: list[Any]) -> ParsedAggregate:
        # Two children: `count : { ... }`. Three: with the value to fold.
        function = Function(str(children[0]))
        value = self._value(children[1]) if len(children) == 3 else None
        return ParsedAggregate(function, value, self._formula(children[-1]), self._span(meta))

    def variable(self, meta: Meta, children: list[Token]) -> Var:
        span = self._span(meta)
        if children[0] == "nil":
            raise refused("[", span)
        return Var(self._word(children[0], span), span)

    def wildcard(self, meta: Meta, children: list[Token]) -> Var:
        # The offset is unique in the text, and no name that can be written starts with a digit.
        return Var(str(meta.start_pos), self._span(meta))

    def number(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(_integer(children[0]), NUMBER, self._span(meta))

    def unsigned(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(_integer(children[0][:-1]), UNSIGNED, self._span(meta))

    def float(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(Decimal(str(children[0])), FLOAT, self._span(meta))

    def string(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(self._text(children[0]), SYMBOL, self._span(meta))

    def true(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(True, BOOLEAN, self._span(meta))

    def false(self, meta: Meta, children: list[Token]) -> ParsedConstant:
        return ParsedConstant(False, BOOLEAN, self._span(meta))

    # The place of an item decides whether it is a value or a condition.

    def _value(self, item: _Item) -> Value:
        match item:
            case Var() | ParsedConstant() | Apply() | ParsedAggregate():
                return item
            case _Group():
                return self._value(item.item)
            case _:
                raise SyntaxProblem(f"expected a value, not the condition '{item.span.text}'", item.span)

    def _listed(self, group: _Group) -> tuple[Value, ...]:
        """The arguments of `min(a, b)`, which the grammar reads as a group."""
        # Between parentheses the grammar cannot tell arguments from a conjunction.
        items = group.item.items if isinstance(group.item, _Sequence) else (group.item,)
        return tuple(map(self._value, items))

    def _formula(self, item: _Item) -> Formula:
        match item:
            case Apply("match" | "contains" as name, (left, right)):
                return Compare(_TESTS[name], left, right, item.span)
            # `p(x)` is an atom as a condition and a functor as a value: only its place tells.
            case Apply() if item.functor not in _BUILT_IN:
                return self._atom(item)
            case ParsedConstant(bool() as value):
                return Truth(value, item.span)
            case _Group():
                return self._formula(item.item)
            case _Sequence():
                return And(tuple(map(self._formula, item.items)), item.span)
            case Var() | ParsedConstant() | Apply() | ParsedAggregate():
                raise self._no_condition(item)
            case _:
                return item

    def _atom(self, call: Apply) -> ParsedAtom:
        if call.functor in _BUILT_IN:
            raise SyntaxProblem(f"'{call.functor}' is a reserved word and cannot name a relation", call.span)
        return ParsedAtom(call.functor, call.arguments, call.span)

    def _no_condition(self, item: Value) -> ProgramError:
        # `a.p(x)`: the grammar stops at the dot, which ends a clause. The text behind it shows what was meant.
        rest = self._source.text.split("\n")[item.span.end_line - 1][item.span.end_column - 1 :]
        if isinstance(item, Var) and re.match(r"\.[A-Za-z_?]", rest):
            return refused("qualified names", item.span)
        return SyntaxProblem(
            f"expected a condition, not the value '{item.span.text}'",
            item.span,
            hint="write an atom such as p(x), a comparison such as x < y, or a negation",
        )

    def _word(self, token: Token, span: Span) -> str:
        """A name in a rule, which must not be the word of an operator."""
        if token in _OPERATOR_WORDS:
            raise SyntaxProblem(f"'{token}' is a reserved word", span)
        return str(token)

    def _text(self, token: Token) -> str:
        """The text of a string token; its escapes are those of JSON."""
        try:
            # `strict=False`: a string may contain tabs, which JSON itself forbids.
            text = str(json.loads(token, strict=False))
            # A lone surrogate, which JSON can escape, has no UTF-8 and is refused here.
            text.encode()
        except ValueError:
            span = token_span(self._source, token)
            raise SyntaxProblem("the string has an unknown escape", span, hint=_ESCAPES) from None
        return text


# The binary operators, those that bind tightest first. All associate to the left.
_PRECEDENCE: Final = (
    {"*", "/", "%"},
    {"+", "-"},
    {"bshl", "bshr"},
    {"band"},
    {"bxor"},
    {"bor"},
    {"land"},
    {"lxor"},
    {"lor"},
)


def _bind(operands: list[Value], operators: list[str], level: set[str]) -> None:
    """Replace, from left to right, each operator of this level and its two operands by one value."""
    if level.isdisjoint(operators):
        return
    values, kept = [operands[0]], []
    for operator, right in zip(operators, operands[1:], strict=True):
        if operator in level:
            left = values.pop()
            values.append(Apply(operator, (left, right), _between(left.span, right.span)))
        else:
            values.append(right)
            kept.append(operator)
    operands[:], operators[:] = values, kept


def _between(first: Span, last: Span) -> Span:
    return Span(first.source, first.line, first.column, last.end_line, last.end_column)


def _integer(digits: str) -> int:
    """An integer as written. Only 400 digits are converted: a longer number is out of every range anyway."""
    # Base 0 would refuse leading zeros of decimal numbers.
    return int(digits, 0) if digits[:2] in ("0x", "0b") else int(digits[:400])
