"""Clauses to rules: conjunctions of atoms with simple terms, projections for `_` under negation, views for aggregates.

    r(x, n) :- node(x), n = count : { edge(x, _) }.

becomes the aggregate `r.count1` over `edge` and two rules, because an empty group counts 0 but has no row in `r.count1`:

    r(x, n) :- node(x), r.count1(x, n).
    r(x, 0) :- node(x), !r.count1.project_0(x).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from rederive.analysis.safety import binders
from rederive.analysis.types import functor_of, relation_of
from rederive.errors import Span, UnsafeVariable, Unsupported
from rederive.ir.rules import (
    Atom,
    Comparison,
    Function,
    Literal,
    Negation,
    Operator,
    Rule,
    literal_variables,
)
from rederive.ir.terms import NUMBER, Call, Constant, Simple, Term, Variable
from rederive.lang.datalog import syntax
from rederive.lang.datalog.aggregates import AggregateBody, AggregateView, Literals, is_never_empty, rules_that_can_fire
from rederive.lang.datalog.dnf import Item, alternatives
from rederive.lang.datalog.simplification import finish_rule
from rederive.lang.program_builder import ProgramBuilder
from rederive.values import from_python

_REFUSED_FUNCTORS: Final = {"autoinc": "autoinc()", "range": "range", "as": "type casts (as)"}


def lower_clause(clause: syntax.Clause, builder: ProgramBuilder) -> None:
    """Add the rules of a clause, and the views that they need, to the builder."""
    body: syntax.Formula = syntax.And((), clause.span) if clause.body is None else clause.body
    # A clause with several heads is one rule for each head and each alternative of the body.
    for head in clause.heads:
        rules = [rule for items in alternatives(body) for rule in _ClauseLowering(builder, head, items).rules(clause.span)]
        builder.definitions.extend(rules_that_can_fire(rules))


def lower_constant(value: syntax.Value) -> Constant | None:
    """The constant that a value means, also if it is a sum, difference or product of integers; None if it is not constant."""
    match value:
        case syntax.ParsedConstant():
            return Constant(value.value, value.type, value.span)
        case syntax.Apply("+" | "-" | "*" as functor, arguments):
            numbers = [constant for a in arguments if (constant := lower_constant(a)) is not None]
            if len(numbers) < len(arguments) or len({number.type for number in numbers}) > 1:
                return None
            return _folded(functor, numbers, value.span)
        case _:
            return None


def _folded(functor: str, numbers: Sequence[Constant], span: Span) -> Constant | None:
    # Only integers are folded: the rounding of floats and the scale of decimals are decided where the term is typed.
    type = numbers[0].type
    match functor, [number.value for number in numbers]:
        case "-", [int() as only]:
            return Constant(-only, type, span)
        case "+", [int() as left, int() as right]:
            return Constant(left + right, type, span)
        case "-", [int() as left, int() as right]:
            return Constant(left - right, type, span)
        case "*", [int() as left, int() as right]:
            return Constant(left * right, type, span)
        case _:
            return None


@dataclass(slots=True)
class _Conjunction:
    """The literals of items, and the aggregates that they use, each with the variable of its result."""

    literals: list[Literal] = field(default_factory=list)
    folds: list[tuple[Variable, syntax.ParsedAggregate]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Level:
    """The surroundings of an aggregate: the names that mean the same inside and outside, and the literals that bind them.

    The literals of the innermost level come first.
    """

    names: frozenset[str]
    literals: Literals

    def within(self, names: Iterable[str], literals: Iterable[Literal]) -> _Level:
        return _Level(self.names | frozenset(names), (*literals, *self.literals))


class _ClauseLowering:
    """Lowers one head with one alternative of its body."""

    def __init__(self, builder: ProgramBuilder, head: syntax.ParsedAtom, items: Sequence[Item]) -> None:
        self._builder = builder
        self._head = head
        self._items = items
        self._owner = head.relation
        # All names of the clause, those inside of aggregates too: a fresh name must be new everywhere.
        self._used = {variable.name for node in (head, *items) for variable in syntax.variables(node)}
        self._fresh: set[str] = set()

    def rules(self, span: Span) -> Iterator[Rule]:
        conjunction = _Conjunction()
        self._gather(self._items, conjunction)
        head = self._atom(self._head, conjunction)
        # A name that occurs outside of every aggregate means one thing in the whole clause.
        level = _Level(_names((self._head, *self._items)), ())
        # One rule for each choice of empty and non-empty groups; without aggregates there is one choice.
        for literals in self._resolved(conjunction, level):
            yield finish_rule(Rule(head, literals, span), self._builder.relations)

    # items to literals

    def _gather(self, items: Sequence[Item], into: _Conjunction) -> None:
        for item in items:
            match item:
                case syntax.ParsedAtom():
                    into.literals.append(self._atom(item, into))
                case syntax.ParsedNegation(syntax.ParsedAtom() as atom):
                    into.literals.append(self._negation(atom, into))
                case syntax.Compare():
                    self._test(item, into)
                case _:
                    # `false` becomes a comparison that never holds: rules have no literal for it.
                    never = Constant(0, NUMBER, item.span)
                    into.literals.append(Comparison(Operator.NE, never, never, item.span))

    def _atom(self, atom: syntax.ParsedAtom, into: _Conjunction) -> Atom:
        relation_of(atom.relation, len(atom.arguments), self._builder.relations, atom.span)
        return Atom(atom.relation, tuple(self._simple(a, into) for a in atom.arguments), span=atom.span)

    def _negation(self, atom: syntax.ParsedAtom, into: _Conjunction) -> Negation:
        """`!edge(x, _)` means that there is no row for any value of `_`, so these columns are projected away first."""
        plain = self._atom(atom, into)
        # exists y: edge(x, y) is a projection. Its negation is safe, and that of edge(x, y) with free y is not.
        kept = [i for i, term in enumerate(plain.terms) if not (isinstance(term, Variable) and term.is_anonymous)]
        if len(kept) == len(plain.terms):
            return Negation(plain)
        name = self._builder.projection(self._builder.relations[atom.relation], kept, atom.span)
        return Negation(Atom(name, tuple(plain.terms[i] for i in kept), span=atom.span))

    def _test(self, test: syntax.Compare, into: _Conjunction) -> None:
        match (test.left, test.right) if isinstance(test.left, syntax.Var) else (test.right, test.left):
            case syntax.Var() as var, syntax.ParsedAggregate() as fold if _takes(test, var, fold):
                into.folds.append((Variable(var.name, var.span), fold))
            case _:
                left, right = self._term(test.left, into), self._term(test.right, into)
                into.literals.append(Comparison(test.operator, left, right, test.span))

    def _simple(self, value: syntax.Value, into: _Conjunction) -> Simple:
        term = self._term(value, into)
        if not isinstance(term, Call):
            return term
        # Atoms have simple terms only: a join looks up values, it does not compute them.
        variable = self._new(term.span)
        into.literals.append(Comparison(Operator.EQ, variable, term, term.span))
        return variable

    def _term(self, value: syntax.Value, into: _Conjunction) -> Term:
        match value:
            case syntax.Var():
                return Variable(value.name, value.span)
            case syntax.ParsedConstant():
                return Constant(value.value, value.type, value.span)
            case syntax.Apply():
                if value.functor in _REFUSED_FUNCTORS:
                    raise Unsupported(f"not supported: {_REFUSED_FUNCTORS[value.functor]}", value.span)
                call = Call(value.functor, tuple(self._term(a, into) for a in value.arguments), value.span)
                functor_of(call)
                return call
            case syntax.ParsedAggregate():
                result = self._new(value.span)
                into.folds.append((result, value))
                return result

    def _new(self, span: Span | None) -> Variable:
        # A name of the user may look like a generated one: `_1` is a legal variable.
        number = len(self._fresh) + 1
        while (name := f"_{number}") in self._used:
            number += 1
        self._used.add(name)
        self._fresh.add(name)
        return Variable(name, span)

    # aggregates

    def _resolved(self, conjunction: _Conjunction, level: _Level) -> Iterator[Literals]:
        """The conjunction with its aggregates joined: one alternative for each choice of empty and non-empty groups."""
        literals, folds = tuple(conjunction.literals), conjunction.folds
        if not folds:
            yield literals
            return
        # An aggregate can be joined once its group is bound. Its result may bind the group of another aggregate, so that the
        # others wait for the next step.
        inside = level.within((), literals)
        bound = binders(inside.literals)
        ready = [pair for pair in folds if all(v.name in bound for v in _group(pair[1], inside.names))]
        if not ready:
            raise _unbound_group(folds[0][1], inside.names, bound)
        # Ends: each step joins at least one aggregate, or refuses the clause.
        waiting = [pair for pair in folds if pair not in ready]
        for choice in product(*(self._aggregate(fold, result, inside) for result, fold in ready)):
            joined = [*literals, *(literal for part in choice for literal in part)]
            yield from self._resolved(_Conjunction(joined, waiting), level)

    def _aggregate(self, fold: syntax.ParsedAggregate, result: Variable, level: _Level) -> list[Literals]:
        """The literals that bind `result`: the atom of the aggregate; and, for an empty group, its absence and the value 0."""
        group = _group(fold, level.names)
        bodies = list(self._bodies(fold, level))
        view = AggregateView(self._builder, self._owner, fold, group, bodies, frozenset(self._fresh))
        relation, keys = view.define()
        join: Literals = (Atom(relation.name, (*keys, result), span=fold.span),)
        # The least, greatest and mean of nothing do not exist: the rule
        # does not fire for an empty group. A count or sum of nothing is 0.
        if fold.function not in (Function.COUNT, Function.SUM) or is_never_empty(bodies, group, level.literals):
            return [join]
        # The aggregate has no row for an empty group. There, the group itself comes from the outer literals.
        kept = range(len(keys))
        absent = Negation(Atom(self._builder.projection(relation, kept, fold.span), keys, span=fold.span))
        type = relation.columns[-1].type
        zero = Comparison(Operator.EQ, result, Constant(from_python(0, type), type, fold.span), fold.span)
        return [join, (absent, zero)]

    def _bodies(self, fold: syntax.ParsedAggregate, level: _Level) -> Iterator[AggregateBody]:
        """The alternatives of the aggregate's body, each with the outer literals that make it safe."""
        # Aggregates nest: names of this body are outside of the aggregates in it.
        names = _names(syntax.children(fold))
        for items in alternatives(fold.body):
            conjunction = _Conjunction()
            self._gather(items, conjunction)
            value = None if fold.value is None else self._simple(fold.value, conjunction)
            for literals in self._resolved(conjunction, level.within(names, ())):
                yield AggregateBody(literals, self._support(fold, literals, level), value)

    def _support(self, fold: syntax.ParsedAggregate, literals: Literals, level: _Level) -> Literals:
        """The outer literals that bind what the body uses but does not bind, such as x in `count : { p(y), y < x }`."""
        # An atom of the rule's own relation comes last: with it, the aggregate would be part of the recursion.
        outer = sorted(level.literals, key=lambda literal: isinstance(literal, Atom) and literal.relation == self._owner)
        binder, bound = binders(outer), binders(literals)
        uses = [*_group(fold, level.names), *(v for literal in literals for v in literal_variables(literal))]
        needed = [variable.name for variable in uses if variable.name not in bound]
        chosen: list[Literal] = []
        while needed:
            literal = binder.get(needed.pop(0))
            if literal is not None and literal not in chosen:
                chosen.append(literal)
                needed += [v.name for v in literal_variables(literal)] if isinstance(literal, Comparison) else []
        return tuple(chosen)


def _takes(test: syntax.Compare, var: syntax.Var, fold: syntax.ParsedAggregate) -> bool:
    """Whether `var = fold` binds the variable. A variable that the aggregate itself uses is compared with the result."""
    return test.operator is Operator.EQ and var not in syntax.variables(fold)


def _names(nodes: Iterable[syntax.Node]) -> frozenset[str]:
    """The names that are used outside of aggregates."""
    return frozenset(variable.name for node in nodes for variable in syntax.variables(node, into_folds=False))


def _group(fold: syntax.ParsedAggregate, outside: frozenset[str]) -> tuple[Variable, ...]:
    """The variables that an aggregate shares with its surroundings: it is grouped by them."""
    shared = (Variable(v.name, v.span) for v in syntax.variables(fold) if v.name in outside)
    return tuple(dict.fromkeys(shared))


def _unbound_group(fold: syntax.ParsedAggregate, outside: frozenset[str], bound: Iterable[str]) -> UnsafeVariable:
    # The first of them in the order of the text: one error says enough.
    known = set(bound)
    variable = next(v for v in _group(fold, outside) if v.name not in known)
    return UnsafeVariable(
        f"'{variable.name}' is used inside and outside of an aggregate, but nothing outside binds it",
        variable.span,
        hint=f"use '{variable.name}' in an atom outside of the aggregate, or rename it inside",
    )
