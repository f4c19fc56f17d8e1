"""The relations of an aggregate: the bindings of its body, and the aggregate over them.

Soufflé's aggregates count bindings, not values: `sum w : { edge(x, y, w) }` adds w for every (x, y, w). So the view of a body
has a column for each of its variables, and the aggregate folds the rows of that view, which is a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rederive.analysis.safety import check_safety
from rederive.analysis.types import body_types, term_type
from rederive.errors import TypeClash, UnsafeVariable
from rederive.ir.rules import Aggregate, Atom, Column, Function, Literal, Relation, Rule, literal_variables
from rederive.ir.terms import FLOAT, NUMBER, Simple, Type, Variable
from rederive.lang.datalog import syntax
from rederive.lang.datalog.simplification import finish_rule, is_impossible
from rederive.lang.program_builder import ProgramBuilder
from rederive.scalar.datalog.signatures import NUMERIC

Literals: TypeAlias = tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class AggregateBody:
    """One alternative of an aggregate's body: its literals, the outer literals that make it safe, and the value to fold."""

    literals: Literals
    support: Literals
    value: Simple | None


@dataclass(frozen=True, slots=True)
class AggregateView:
    """The view of the bindings of an aggregate's body, unless a relation already holds them, and the aggregate over it."""

    builder: ProgramBuilder
    owner: str
    fold: syntax.ParsedAggregate
    group: tuple[Variable, ...]
    bodies: Sequence[AggregateBody]
    fresh: frozenset[str]

    def define(self) -> tuple[Relation, tuple[Variable, ...]]:
        """Define the aggregate; return its relation and the variables of the group, in the order of its columns."""
        columns = self._columns()
        number = self.builder.free_number(self.owner)
        #   deg.body1(x, y, w) :- body.
        #   deg.count1(x, n) :- n = count : { deg.body1(x, y, w) }.
        source = self._direct(columns) or self._body_view(f"{self.owner}.body{number}", columns)
        # In the order of the source's columns; the variables are returned in the same order.
        positions = tuple(i for i, variable in enumerate(columns) if variable in self.group)
        value = self._value_position(columns)
        result = self._result(None if value is None else source.columns[value].type)
        name = f"{self.owner}.{self.fold.function.value}{number}"
        self.builder.aggregate(
            Aggregate(name, self.fold.function, source.name, positions, value, self.fold.span),
            (*(source.columns[i] for i in positions), Column("result", result)),
        )
        return self.builder.relations[name], tuple(columns[i] for i in positions)

    def _columns(self) -> list[Variable]:
        """All variables of the body. Each binding of them counts once; variables that are computed from others add nothing."""
        found = [v for body in self.bodies for literal in body.literals for v in literal_variables(literal)]
        values = [body.value for body in self.bodies if isinstance(body.value, Variable)]
        return [v for v in dict.fromkeys((*found, *values, *self.group)) if v.name not in self.fresh]

    def _direct(self, columns: Sequence[Variable]) -> Relation | None:
        # A body of one atom over exactly these variables: the rows of the relation are the bindings.
        match self.bodies:
            case [AggregateBody((Atom(relation, terms),), ())] if terms == tuple(columns) and self._plain_value():
                return self.builder.relations[relation]
            case _:
                return None

    def _plain_value(self) -> bool:
        """Whether the value is a variable of the body, or there is none, so that it needs no column of its own."""
        return self.fold.value is None or isinstance(self.fold.value, syntax.Var)

    def _value_position(self, columns: Sequence[Variable]) -> int | None:
        match self.fold.value:
            case None:
                return None
            case syntax.Var(name):
                return columns.index(Variable(name))
            case _:
                return len(columns)

    def _body_view(self, name: str, columns: Sequence[Variable]) -> Relation:
        rules = [self._body_rule(name, columns, body) for body in self.bodies]
        for body, rule in zip(self.bodies, rules, strict=True):
            self._check_alternative(body, columns)
            check_safety(rule)
        types = body_types(rules[0].body, self.builder.relations)
        # `_` has a column, because each of its values is a binding that counts.
        names = [f"_{i}" if variable.is_anonymous else variable.name for i, variable in enumerate(columns)]
        names += [_unused("value", names)] * (not self._plain_value())
        declared = (Column(n, term_type(t, types)) for n, t in zip(names, rules[0].head.terms, strict=True))
        relation = self.builder.relations[name] = Relation(name, tuple(declared), span=self.fold.span)
        self.builder.definitions.extend(rules_that_can_fire([finish_rule(rule, self.builder.relations) for rule in rules]))
        return relation

    def _check_alternative(self, body: AggregateBody, columns: Sequence[Variable]) -> None:
        """Every alternative must bind all columns, since the bindings of all alternatives are rows of one relation."""
        found = {v for literal in body.literals + body.support for v in literal_variables(literal)}
        for variable in columns:
            if variable not in found:
                shown = "_" if variable.is_anonymous else variable.name
                raise UnsafeVariable(
                    f"'{shown}' is used only in some alternatives of an aggregate's body",
                    variable.span,
                    hint="use the same variables in each alternative, or define a relation for the disjunction",
                )

    def _body_rule(self, name: str, columns: Sequence[Variable], body: AggregateBody) -> Rule:
        value = () if self._plain_value() or body.value is None else (body.value,)
        head = Atom(name, (*columns, *value), span=self.fold.span)
        return Rule(head, body.literals + body.support, self.fold.span)

    def _result(self, value: Type | None) -> Type:
        """The type of the result: number for count, float for mean, else the type of the value."""
        if value is None:
            return NUMBER
        # min and max are defined for every type, by its order.
        if self.fold.function in (Function.SUM, Function.MEAN) and value.kind not in NUMERIC:
            span = self.fold.span if self.fold.value is None else self.fold.value.span
            raise TypeClash(f"{self.fold.function.value} needs a number, not a {value}", span)
        return FLOAT if self.fold.function is Function.MEAN else value


def is_never_empty(bodies: Sequence[AggregateBody], group: Sequence[Variable], outer: Literals) -> bool:
    """Whether an outer atom is a row of every group, as in `r(x, n) :- edge(x, _), n = count : { edge(x, _) }`."""
    match bodies:
        case [AggregateBody((Atom() as atom,))]:
            return any(isinstance(other, Atom) and _covers(other, atom, group) for other in outer)
        case _:
            return False


def _covers(outer: Atom, inner: Atom, group: Sequence[Variable]) -> bool:
    def free(term: Simple) -> bool:
        return isinstance(term, Variable) and term not in group and inner.terms.count(term) == 1

    # A column that the body leaves open accepts the value of the
    # outer atom, so that the outer atom itself is a row of the group.
    return outer.relation == inner.relation and all(
        free(mine) or mine == theirs for mine, theirs in zip(inner.terms, outer.terms, strict=True)
    )


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def rules_that_can_fire(rules: Sequence[Rule]) -> list[Rule]:
    """The distinct rules that can fire, or one rule if none can: without a rule, the head would be a base relation."""
    return [rule for rule in dict.fromkeys(rules) if not is_impossible(rule)] or list(rules[:1])
