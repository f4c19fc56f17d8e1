"""The syntax tree of Datalog: frozen nodes, each with the place of its text. Places do not take part in equality."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from rederive.errors import Span
from rederive.ir.rules import Function, Operator
from rederive.ir.terms import Type


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written."""

    text: str
    span: Span = field(compare=False, repr=False)


# values


@dataclass(frozen=True, slots=True)
class Var:
    """A variable. The name of a `_` is its offset in the text, so that each `_` is a different variable."""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ParsedConstant:
    """A constant as written. A float stays an exact decimal until its place decides between float and decimal."""

    value: str | int | bool | Decimal
    type: Type
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """A functor applied to values; the parser also reads an atom as one, until its place decides."""

    functor: str
    arguments: tuple[Value, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ParsedAggregate:
    """An aggregate: `sum value : { body }`."""

    function: Function
    value: Value | None
    body: Formula
    span: Span = field(compare=False, repr=False)


Value: TypeAlias = Var | ParsedConstant | Apply | ParsedAggregate


# conditions


@dataclass(frozen=True, slots=True)
class ParsedAtom:
    """A relation applied to values."""

    relation: str
    arguments: tuple[Value, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two values."""

    operator: Operator
    left: Value
    right: Value
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false` as a condition."""

    value: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ParsedNegation:
    """A negation."""

    part: Formula
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction."""

    parts: tuple[Formula, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction."""

    parts: tuple[Formula, ...]
    span: Span = field(compare=False, repr=False)


Formula: TypeAlias = ParsedAtom | Compare | Truth | ParsedNegation | And | Or


# statements


@dataclass(frozen=True, slots=True)
class TypeName:
    """The name of a type, with precision and scale if it is a decimal."""

    name: str
    parameters: tuple[int, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """`name: type` in a declaration."""

    name: Name
    type: TypeName
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Declaration:
    """`.decl names(columns) key(columns)`."""

    names: tuple[Name, ...]
    columns: tuple[ColumnDeclaration, ...]
    key: tuple[Name, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TypeDefinition:
    """`.type name <: member` or `.type name = member | member`."""

    name: Name
    members: tuple[TypeName, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Option:
    """`name=value` of a directive."""

    name: Name
    value: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InputDirective:
    """`.input relation(options)`: rows of the relation come from a file."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OutputDirective:
    """`.output relation`: the relation is monitored."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RemoteDirective:
    """`.remote relation(source=jdbc, ...)`: a base relation whose rows are elsewhere."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StoredDirective:
    """`.stored view`: a view that a warehouse stores."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ConstraintDirective:
    """`.constraint view(mode=reject)`: a view whose rows are violations."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RuleDirective:
    """`.rule name(when=view, do="...")`: an active rule; `relation` is the name of the rule."""

    relation: Name
    options: tuple[Option, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Clause:
    """`heads :- body.`, or a fact, whose body is None."""

    heads: tuple[ParsedAtom, ...]
    body: Formula | None
    span: Span = field(compare=False, repr=False)


Directive: TypeAlias = InputDirective | OutputDirective | RemoteDirective | StoredDirective | ConstraintDirective | RuleDirective
Statement: TypeAlias = Declaration | TypeDefinition | Directive | Clause
Node: TypeAlias = Value | Formula


def children(node: Node) -> tuple[Node, ...]:
    """The direct children of a node, from left to right."""
    match node:
        case Var() | ParsedConstant() | Truth():
            return ()
        case Apply() | ParsedAtom():
            return node.arguments
        case ParsedAggregate():
            return (node.body,) if node.value is None else (node.value, node.body)
        case Compare():
            return (node.left, node.right)
        case ParsedNegation():
            return (node.part,)
        case And() | Or():
            return node.parts


def variables(node: Node, *, into_folds: bool = True) -> Iterator[Var]:
    """The variables of a node, from left to right, with or without those of its aggregates."""
    if isinstance(node, Var):
        yield node
    elif into_folds or not isinstance(node, ParsedAggregate):
        for child in children(node):
            yield from variables(child, into_folds=into_folds)


def relations(node: Node) -> Iterator[str]:
    """The names of the relations that a node mentions."""
    if isinstance(node, ParsedAtom):
        yield node.relation
    for child in children(node):
        yield from relations(child)
