"""Atoms, literals, rules and whole programs.

Everything is frozen data. A pass makes a new program; it never changes one. A span says where the text of a node is. Spans do not
count in comparisons: two rules are equal if they say the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from functools import cached_property
from itertools import islice
from operator import is_
from typing import TypeAlias

from rederive.errors import Span
from rederive.ir.terms import UTC, Row, Simple, Term, Type, Value, Variable, variables

CLOCK = "rederive_clock"
"""The base relation whose one row is the time of the database, if a view reads it; `Database.advance` replaces the row."""


class Variant(Enum):
    """Which relation of a maintained one an atom reads; the superscripts of the papers.

    `OLD` and `NEW` are the states before and after the transaction. The phases of a strategy fill the others: `DEL` and `INS` are
    what may leave and enter, `RED` is what of `DEL` another derivation supports, `PLUS` and `MINUS` are the exact delta. `ADD`
    and `SUB` are derivations that enter and leave, `TOUCHED` are the groups of an aggregate that change, `FOLD` are their
    results, and `FRESH` is a view evaluated from scratch, and `BEFORE` its old state evaluated so.
    `KEPT` is what of `DEL` is proved before it is deleted, from rows that
    come `EARLIER` in the order of proofs.
    """

    # The values are the superscripts in printed programs: closure^del.
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
    BEFORE = "before"
    KEPT = "kept"
    EARLIER = "earlier"
    ADD = "add"
    SUB = "sub"


# Without slots: what follows from the fields is computed once, at its first use, and stays in `__dict__`.
@dataclass(frozen=True)
class Atom:
    """`relation^variant(terms)`."""

    relation: str
    terms: tuple[Simple, ...]
    variant: Variant = Variant.OLD
    span: Span | None = field(default=None, compare=False, repr=False)

    @cached_property
    def name(self) -> str:
        """The relation with its variant, as `explain` prints it."""
        return f"{self.relation}^{self.variant.value}" if self.variant is not Variant.OLD else self.relation

    def as_variant(self, variant: Variant) -> Atom:
        """The same atom over another variant of the relation."""
        return Atom(self.relation, self.terms, variant, self.span)


@dataclass(frozen=True, slots=True)
class Negation:
    """`!atom`; every variable of the atom is bound elsewhere in the body."""

    # Never within its own component (`analysis.graph.check_stratified`).
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
    """A comparison of two terms. It reads no relation."""

    operator: Operator
    left: Term
    right: Term
    span: Span | None = field(default=None, compare=False, repr=False)


Literal: TypeAlias = Atom | Negation | Comparison


@dataclass(frozen=True, slots=True)
class Rule:
    """`head :- body.` The body is a conjunction; an empty one makes the head a fact of a view."""

    # Terms of head and body are variables and constants; a call is bound by an equation `x = f(...)` in the body.
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
    # Of all values of a group, which a changed group folds from scratch.
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"
    COVAR_POP = "covar_pop"
    COVAR_SAMP = "covar_samp"
    CORR = "corr"
    PERCENTILE = "percentile"
    PERCENTILE_DISC = "percentile_disc"
    MODE = "mode"
    LISTAGG = "listagg"
    COLLECT_LIST = "collect_list"
    COLLECT_SET = "collect_set"
    MAX_BY = "max_by"
    MIN_BY = "min_by"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    PRODUCT = "product"
    # Of each row of a group, by its place in the order of the group.
    ROW_NUMBER = "row_number"
    LAG = "lag"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"
    NTILE = "ntile"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"


# A group whose rows change adds and subtracts them; it is not read again.
TOTALS = frozenset({Function.COUNT, Function.SUM, Function.MEAN})
EXTREMES = frozenset({Function.MIN, Function.MAX})
_OF_ROWS = frozenset({
    Function.ROW_NUMBER, Function.LAG, Function.FIRST_VALUE, Function.LAST_VALUE, Function.NTH_VALUE, Function.NTILE,
    Function.PERCENT_RANK, Function.CUME_DIST,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """A column of the source to order by, ascending or descending, with NULL first or last."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows around a row that a function of a window sees: from `start` to `end`, both included; None is unbounded.

    With `by_value` the bounds are distances of the value to order by, 0 being all rows with an equal value: days of a DATE,
    microseconds of a TIMESTAMP, or months of both with `months`. Otherwise they are numbers of rows.
    """

    start: int | float | Decimal | None
    end: int | float | Decimal | None
    by_value: bool = False
    months: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Defines `relation(group..., result)` by folding `function` over the rows of `source` that share the group's columns.

    Only groups that have rows appear. The rows of the source are distinct, so each is folded once. NULL is not folded.

    ROW_NUMBER defines `relation(group..., rest..., result)`: the rows themselves, each with its number in its group by `order`.
    Rows that are equal in `order` are ordered by their values, so that the numbers are determined. `most`: only the rows with the
    first so many numbers appear. The other functions of windows, and any function with a `frame`, likewise define
    `relation(group..., rest..., result)`.

    `others` are the columns of further arguments, and `parameters` the arguments that are constant.
    """

    relation: str
    function: Function
    source: str
    # Columns of the source, in the order in which they become the first columns of the view.
    group: tuple[int, ...]
    value: int | None
    span: Span | None = field(default=None, compare=False, repr=False)
    order: tuple[Order, ...] = ()
    most: int | None = None
    others: tuple[int, ...] = ()
    parameters: tuple[Value, ...] = ()
    frame: Frame | None = None

    @property
    def is_window(self) -> bool:
        """Whether each row of a group has a result of its own."""
        return self.frame is not None or self.function in _OF_ROWS

    @property
    def arguments(self) -> tuple[int, ...]:
        """The columns of all arguments."""
        return (*(() if self.value is None else (self.value,)), *self.others)


Definition: TypeAlias = Rule | Aggregate


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation. `nullable`: whether it may hold NULL. `bits`: the width of its integers or floats, at most 64.

    `default`: what SQL puts into a row that leaves the column out, instead of NULL; it may read the other columns of the row as
    the variables `c0`, `c1` and so on. `without_zone`: whether SQL declares it as TIMESTAMP_NTZ, which its tables then have.
    """

    name: str
    type: Type
    nullable: bool = False
    # Values are checked against it where they come in; engines compute in 64 bits.
    bits: int = 64
    default: Term | None = field(default=None, compare=False, repr=False)
    # Not compared: a database in UTC has the same values for both types, and no other database has the type.
    without_zone: bool = field(default=False, compare=False, repr=False)


class Role(Enum):
    """What a relation is for those who read it: a set of rows, or a bag, which holds a row any number of times."""

    SET = "set"
    BAG = "bag"


@dataclass(frozen=True, slots=True)
class BagRelations:
    """The relations by which an engine, which knows sets alone, holds a bag. Lowering names them.

    `rows`: the rows of the bag with columns behind the visible ones by which equal rows differ; of a table, the base relation of
    its numbered copies: (row, 1) ... (row, n) for a row that is there n times. `counts`: of a view, its rows, each with its
    multiplicity in the last column. A table has no such relation.
    """

    rows: str
    counts: str | None = None


@dataclass(frozen=True)
class Relation:
    """A declared relation. `key` are the columns that identify a row; by default all of them.

    `monitored`: whether its changes are reported; where it is None, the `.output` directives decide. `bag`: the relations that
    hold it, where it is a bag; the relation itself then has each row once. `location`: the Delta table that holds the rows of a
    base relation in place, where others write it.
    """

    name: str
    columns: tuple[Column, ...]
    # Of base relations alone: the key of a view follows from its rules (`analysis.derivations`).
    key: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)
    monitored: bool | None = None
    bag: BagRelations | None = field(default=None, compare=False, repr=False)
    location: str | None = field(default=None, compare=False)

    @cached_property
    def arity(self) -> int:
        """The number of columns."""
        return len(self.columns)

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """The types of the columns."""
        return tuple(column.type for column in self.columns)

    @cached_property
    def role(self) -> Role:
        """Whether it is a set or a bag."""
        return Role.SET if self.bag is None else Role.BAG

    @cached_property
    def is_auxiliary(self) -> bool:
        """Whether lowering added it: its name holds a dot, which the name of a declared relation cannot."""
        return "." in self.name


@dataclass(frozen=True, slots=True)
class Fact:
    """A row that a program gives a base relation."""

    relation: str
    # Typed by the columns of the relation when the program is compiled.
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
    """`.remote relation(options)`: a base relation whose rows are elsewhere, and how a source reads them."""

    relation: str
    options: tuple[tuple[str, str], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def source(self) -> str:
        """The kind of source that reads it; `none` where nothing can."""
        return dict(self.options).get("source", "none")


class Mode(Enum):
    """What becomes of a transaction that violates a constraint: the violation is reported, or the transaction is refused."""

    MONITOR = "monitor"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A view whose rows are violations. It is always monitored.

    `table`, `text`: of a condition that a table declares for its rows, the table and the words of the condition. No row of such
    a view is ever committed.
    """

    view: str
    mode: Mode
    span: Span | None = field(default=None, compare=False, repr=False)
    table: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Program:
    """Relations, their definitions, and what to load and to monitor. Base relations are those without a definition.

    `zone`: the time zone in which SQL reads the parts and the text of a timestamp.
    """

    relations: Mapping[str, Relation]
    definitions: tuple[Definition, ...]
    facts: tuple[Fact, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()
    # The views that a warehouse stores over remote relations.
    stored: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    zone: str = UTC

    @cached_property
    def defined(self) -> Mapping[str, tuple[Definition, ...]]:
        """The definitions of each view."""
        found: dict[str, list[Definition]] = {}
        for definition in self.definitions:
            found.setdefault(defines(definition), []).append(definition)
        return {name: tuple(definitions) for name, definitions in found.items()}

    def extends(self, before: Program) -> bool:
        """Whether this program has everything of another one at its start, as the same objects, and then relations of its own."""
        definitions, relations = before.definitions, before.relations
        if len(self.definitions) < len(definitions) or len(self.relations) < len(relations):
            return False
        is_same = all(map(is_, definitions, self.definitions)) and all(map(is_, relations.values(), self.relations.values()))
        return is_same and all(defines(d) not in relations for d in islice(self.definitions, len(definitions), None))

    def without(self, names: Collection[str]) -> Program:
        """This program without some relations, which none of the others reads."""
        gone = frozenset(names)
        lost = {id(definition) for name in gone for definition in self.definitions_of(name)}
        program = replace(
            self,
            relations={name: relation for name, relation in self.relations.items() if name not in gone},
            definitions=tuple([definition for definition in self.definitions if id(definition) not in lost]),
            facts=tuple(fact for fact in self.facts if fact.relation not in gone),
            inputs=tuple(one for one in self.inputs if one.relation not in gone),
            outputs=tuple(name for name in self.outputs if name not in gone),
            remotes=tuple(remote for remote in self.remotes if remote.relation not in gone),
            stored=tuple(name for name in self.stored if name not in gone),
            constraints=tuple(constraint for constraint in self.constraints if constraint.view not in gone),
        )
        program._inherit(self, gone)
        return program

    def inherit(self, before: Program) -> None:
        """Take over what is known of a program that this one extends: the facts about it are not computed from scratch."""
        if self.extends(before):
            self._inherit(before, frozenset())

    def _inherit(self, before: Program, gone: Collection[str]) -> None:
        """Take over what is known of a program that has the relations `gone` more, and lacks those behind the rest."""
        left = len(before.definitions) - sum(len(before.definitions_of(name)) for name in gone)
        added: dict[str, list[Definition]] = {}
        for definition in islice(self.definitions, left, None):
            added.setdefault(defines(definition), []).append(definition)
        facts, new = self.__dict__, tuple(islice(self.relations, len(before.relations) - len(gone), None))
        defined, views, bases, bags, folded = before.defined, before.views, before.bases, before.bags, before.folded_names
        if gone:
            defined = {name: found for name, found in defined.items() if name not in gone}
            views, bases = (tuple(name for name in names if name not in gone) for names in (views, bases))
            bags = {name: bag for name, bag in bags.items() if bag not in gone}
            folded = folded.difference(map(str.lower, gone))
        facts["defined"] = {**defined, **{name: tuple(found) for name, found in added.items()}}
        facts["views"] = (*views, *(name for name in new if name in added))
        facts["bases"] = (*bases, *(name for name in new if name not in added))
        facts["bags"] = {**bags, **_bag_names(self.relations[name] for name in new)}
        facts["folded_names"] = folded.union(map(str.lower, new))

    @cached_property
    def folded_names(self) -> frozenset[str]:
        """The names of all relations in lower case, as SQL reads them."""
        return frozenset(map(str.lower, self.relations))

    @cached_property
    def memo(self) -> dict[str, object]:
        """Facts that an analysis found about this program, under its name: each is computed once."""
        return {}

    @cached_property
    def bags(self) -> Mapping[str, str]:
        """The bag whose rows a relation counts or numbers, by the name of that relation."""
        return _bag_names(self.relations.values())

    @cached_property
    def views(self) -> tuple[str, ...]:
        """Names of the defined relations, in the order of their declaration."""
        return tuple(name for name in self.relations if name in self.defined)

    def is_view(self, name: str) -> bool:
        """Whether rules or an aggregate define the relation."""
        return name in self.defined

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """Names of the relations without a definition, in the order of their declaration."""
        return tuple(name for name in self.relations if name not in self.defined)

    def shared_bases(self, other: Program) -> frozenset[str]:
        """The base relations that another program has too, with the same columns: their rows stay when it takes over."""
        return frozenset(name for name in self.bases if self.shares_base(name, other))

    def shares_base(self, name: str, other: Program) -> bool:
        """Whether another program has a base relation too, with the same columns."""
        if other is self:
            return True
        base = other.relations.get(name)
        return base is not None and not other.is_view(name) and base.columns == self.relations[name].columns

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """What transactions change: the user's base relations, and the tables that are bags."""
        bases = set(self.bases)
        declared = (name for name, relation in self.relations.items() if not relation.is_auxiliary)
        return tuple(name for name in declared if name in bases or self.numbered_copies(name) is not None)

    @cached_property
    def in_place(self) -> Mapping[str, Relation]:
        """The base relations whose rows others write, each with the table that is attached as it."""
        tables = ((base, self.relations[self.bags.get(base, base)]) for base in self.bases)
        return {base: table for base, table in tables if table.location is not None}

    def numbered_copies(self, table: str) -> str | None:
        """The base relation that numbers the copies of a table's rows; None where the table is a set, and for views."""
        bag = self._bag(table)
        return bag.rows if bag is not None and bag.counts is None else None

    def counting_relation(self, view: str) -> str:
        """The relation whose delta tells that of a view: the view itself, or where it is a bag, the one that counts its rows."""
        bag = self._bag(view)
        return bag.counts if bag is not None and bag.counts is not None else view

    def _bag(self, name: str) -> BagRelations | None:
        relation = self.relations.get(name)
        return relation.bag if relation is not None else None

    @cached_property
    def monitored(self) -> tuple[str, ...]:
        """The views whose changes are reported: the `.output` relations, or all declared views if there are none.

        Views that are declared as monitored, and the views of constraints, are added to them.
        """
        views = [self.relations[name] for name in self.views if not self.relations[name].is_auxiliary]
        # As in Soufflé, `.output` names the results; a program without one monitors every view that does not opt out.
        chosen = self.outputs or tuple(view.name for view in views if view.monitored is None)
        constraints = {constraint.view for constraint in self.constraints}
        more = (view.name for view in views if view.monitored or view.name in constraints)
        return tuple(dict.fromkeys((*chosen, *more)))

    def definitions_of(self, name: str) -> tuple[Definition, ...]:
        """The rules and aggregates that define a relation; none for a base relation."""
        return self.defined.get(name, ())


def _bag_names(relations: Iterable[Relation]) -> dict[str, str]:
    """The bags among relations, by the relation that counts or numbers their rows."""
    # A pass may copy a relation under an auxiliary name; the bag is the declared one.
    bags = ((relation.name, relation.bag) for relation in relations if not relation.is_auxiliary)
    return {bag.counts or bag.rows: name for name, bag in bags if bag is not None}


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
        # Left before right: the order in which errors name variables.
        case Comparison():
            return variables(literal.left) + variables(literal.right)


def read_by(rule: Rule) -> tuple[str, ...]:
    """The relations that a rule names; an error about its evaluation may show rows of each."""
    # The head too: an error about a value may show a row of it.
    atoms = (literal.atom if isinstance(literal, Negation) else literal for literal in (rule.head, *rule.body))
    return tuple(dict.fromkeys(atom.relation for atom in atoms if isinstance(atom, Atom)))
