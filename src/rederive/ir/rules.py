"""Atoms, literals, rules and whole programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from rederive.errors import Span
from rederive.ir.terms import Row, Simple, Term, Type, Variable, variables


class Variant(Enum):
    """Which version of a relation an atom speaks of; the superscripts of the papers."""

    OLD = ""
    NEW = "new"
    DEL = "del"
    RED = "red"
    INS = "ins"
    PLUS = "plus"
    MINUS = "minus"
    TOUCHED = "touched"
    FOLD = "fold"
    FRESH = "fresh"
    ADD = "add"
    SUB = "sub"


@dataclass(frozen=True, slots=True)
class Atom:
    """`relation^variant(terms)`."""

    relation: str
    terms: tuple[Simple, ...]
    variant: Variant = Variant.OLD
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.relation}^{self.variant.value}" if self.variant is not Variant.OLD else self.relation

    def as_variant(self, variant: Variant) -> Atom:
        return Atom(self.relation, self.terms, variant, self.span)


@dataclass(frozen=True, slots=True)
class Negation:
    """`!atom`; every variable of the atom is bound elsewhere in the body."""

    atom: Atom


class Operator(Enum):
    """Tests between two terms. `EQ` also binds: `x = y + 1`."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    MATCH = "match"
    CONTAINS = "contains"
    NOT_MATCH = "!match"
    NOT_CONTAINS = "!contains"


@dataclass(frozen=True, slots=True)
class Comparison:
    """An evaluable literal."""

    operator: Operator
    left: Term
    right: Term
    span: Span | None = field(default=None, compare=False, repr=False)


Literal: TypeAlias = Atom | Negation | Comparison


@dataclass(frozen=True, slots=True)
class Rule:
    """`head :- body.` The body is a conjunction; an empty one makes the head a fact of a view."""

    head: Atom
    body: tuple[Literal, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


class Function(Enum):
    """The aggregate functions."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Defines `relation(group..., result)` by folding `function` over the rows of `source` that share the group's columns.

    Only groups that have rows appear. The source's rows are distinct, so every binding counts once.
    """

    relation: str
    function: Function
    source: str
    group: tuple[int, ...]
    value: int | None
    span: Span | None = field(default=None, compare=False, repr=False)


Definition: TypeAlias = Rule | Aggregate


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Relation:
    """A declared relation. `key` are the columns that identify a row; by default all of them."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def arity(self) -> int:
        return len(self.columns)

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(column.type for column in self.columns)

    @property
    def auxiliary(self) -> bool:
        """Made by lowering, not declared by the user: its name holds a dot, which no declared name may."""
        return "." in self.name


@dataclass(frozen=True, slots=True)
class Fact:
    relation: str
    row: Row
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Input:
    """`.input relation(options)`: where initial rows come from."""

    relation: str
    options: tuple[tuple[str, str], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """`.remote relation(options)`: a base relation that lives elsewhere, and how it can be read."""

    relation: str
    options: tuple[tuple[str, str], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def source(self) -> str:
        return dict(self.options).get("source", "none")


@dataclass(frozen=True, slots=True)
class Program:
    """Relations, their definitions, and what to load and to monitor. Base relations are those without a definition."""

    relations: Mapping[str, Relation]
    definitions: tuple[Definition, ...]
    facts: tuple[Fact, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()
    stored: tuple[str, ...] = ()

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the defined relations, in the order of their declaration."""
        defined = {defines(definition) for definition in self.definitions}
        return tuple(name for name in self.relations if name in defined)

    def is_view(self, name: str) -> bool:
        return any(defines(definition) == name for definition in self.definitions)

    @property
    def bases(self) -> tuple[str, ...]:
        defined = {defines(definition) for definition in self.definitions}
        return tuple(name for name in self.relations if name not in defined)

    @property
    def monitored(self) -> tuple[str, ...]:
        """The `.output` relations, or all the user's views where there is none."""
        return self.outputs or tuple(name for name in self.views if not self.relations[name].auxiliary)

    def definitions_of(self, name: str) -> tuple[Definition, ...]:
        return tuple(definition for definition in self.definitions if defines(definition) == name)


def defines(definition: Definition) -> str:
    """The relation that a rule or an aggregate defines."""
    match definition:
        case Rule():
            return definition.head.relation
        case Aggregate():
            return definition.relation


def literal_variables(literal: Literal) -> tuple[Variable, ...]:
    """All variable occurrences of a literal, from left to right."""
    match literal:
        case Atom():
            return tuple(term for term in literal.terms if isinstance(term, Variable))
        case Negation():
            return literal_variables(literal.atom)
        case Comparison():
            return variables(literal.left) + variables(literal.right)
