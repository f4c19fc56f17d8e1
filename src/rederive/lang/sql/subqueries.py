"""Queries inside expressions: EXISTS, IN and scalar subqueries, correlated or not.

A correlated query becomes a relation over the outer variables that it mentions; the enclosing query joins or negates it. If
its truth is needed as a value, as under OR, a *mark* relation gives it for each outer value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp

from rederive.errors import WrongArity
from rederive.ir.rules import Atom, Column, Comparison, Negation, Operator
from rederive.ir.terms import BOOLEAN, Constant, Variable, variables
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.grouping import is_grouped
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.predicates import require_equal
from rederive.lang.sql.rule_body import RuleBody
from rederive.lang.sql.scope import Scope
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BIGINT, BOOL, column_of_type

if TYPE_CHECKING:
    from rederive.lang.sql.lowered_relation import LoweredRelation
    from rederive.lang.sql.query import PreparedQuery


class PreparesQueries(Protocol):
    """The part of the query lowering that subqueries need."""

    def prepare(self, node: exp.Expr, around: Scope | None = None) -> PreparedQuery:
        """The body and the outputs of a query."""

    def query(self, node: exp.Expr, around: Scope | None = None, target: str | None = None) -> LoweredRelation:
        """The relation of a query."""

    def project(self, prepared: PreparedQuery, target: str | None) -> LoweredRelation:
        """Define the relation of a prepared query."""

    def count_and_value(self, rel: LoweredRelation, around: Scope) -> LoweredRelation:
        """The number of rows of a relation with one column, and the greatest of its values, for each outer value."""


_ROWS = ("group", "having", "limit", "offset", "distinct", "qualify")  # with these, an aggregate may have no row, or several


class SubqueryLowering:
    """Lowers the subqueries of one statement."""

    def __init__(self, queries: PreparesQueries, context: StatementContext) -> None:
        self.queries = queries
        self.context = context

    # Conditions

    def require(self, node: exp.Expr, lower: ExpressionLowering, *, positive: bool) -> None:
        """Keep the bindings for which EXISTS or IN is true; or, if not `positive`, for which its negation is true.

        EXISTS is true or false, so its negation is the absence of a hit. IN may be NULL, and NOT NULL is NULL: the negation of
        IN is true only if there is neither a hit nor a doubt.
        """
        body = lower.scope.body
        match node:
            case exp.In() if not positive:
                atom = self.define("bad", self.doubts(node, lower))
            case exp.In():
                atom = self.define("hit", [self.equals(node, lower)])
            case _:
                atom = self.define("hit", [self.exists(node, lower)])
        #   IN, EXISTS: body, hit(outer).       NOT EXISTS: body, !hit(outer).       NOT IN: body, !bad(outer).
        body.mention(v for v in atom.terms if isinstance(v, Variable))
        body.add(atom if positive else Negation(atom))

    def exists(self, node: exp.Expr, lower: ExpressionLowering) -> RuleBody:
        """The body of an EXISTS: its outputs do not matter."""
        return self.queries.prepare(_query(node.this), lower.scope).body

    def equals(self, node: exp.In, lower: ExpressionLowering) -> RuleBody:
        """The body of an IN: the answers of the query that equal the value."""
        prepared, values = self.pairs(node, lower)
        for (_, typed), value in zip(prepared.outputs, values, strict=True):
            require_equal(typed, value, prepared.lower, node)
        return prepared.body

    def pairs(self, node: exp.In, lower: ExpressionLowering) -> tuple[PreparedQuery, list[TypedTerm]]:
        """The query of an IN and the values that are compared with its outputs."""
        prepared = self.queries.prepare(_query(node.args["query"]), lower.scope)
        nodes = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(nodes) != len(prepared.outputs):
            message = f"IN compares {len(nodes)} values with {len(prepared.outputs)} columns"
            raise WrongArity(message, self.context.span(node))
        around = lower.scope.body
        values = [replace(typed, term=around.term(typed.term)) for typed in map(lower.lower, nodes)]
        prepared.body.mention(v for value in values for v in variables(value.term))
        return prepared, values

    def doubts(self, node: exp.In, lower: ExpressionLowering) -> list[RuleBody]:
        """The bodies for which NOT IN is not true.

        `x NOT IN (q)` is `x <> y` for every y of q. It is false if some y equals x, and NULL if some y is NULL, or if x is NULL
        and q has any answer. If q has no answer, it is true for every x, even for NULL.
        """
        # A body is lowered once for each reason: lowering it adds literals to it.
        bodies = [self.equals(node, lower)]
        prepared, values = self.pairs(node, lower)
        if len(values) > 1:
            is_nullable = any(typed.nullable for typed in (*values, *(typed for _, typed in prepared.outputs)))
            return [*bodies, *([self.perhaps_equal(node, lower)] if is_nullable else [])]
        if prepared.outputs[0][1].nullable:
            bodies.append(self.with_null(prepared, prepared.outputs[0][1]))
        if values[0].nullable:
            prepared, values = self.pairs(node, lower)
            bodies.append(self.with_null(prepared, values[0]))
        return bodies

    def perhaps_equal(self, node: exp.In, lower: ExpressionLowering) -> RuleBody:
        """The body of a NOT IN of several columns: the rows of which no column is known to differ from the value."""
        prepared, values = self.pairs(node, lower)
        inner = prepared.lower
        for (_, typed), value in zip(prepared.outputs, values, strict=True):
            equal = inner.comparison("=", typed, value, node)
            prepared.body.require(
                inner.call("coalesce", [equal, TypedTerm(Constant(True, BOOLEAN), BOOL, False)], BOOL, nullable=False)
            )
        return prepared.body

    @staticmethod
    def with_null(prepared: PreparedQuery, typed: TypedTerm) -> RuleBody:
        """The body of the query, restricted to bindings for which a term is NULL."""
        simple = prepared.body.assign(typed, "value")
        prepared.body.add(Comparison(Operator.EQ, simple.term, Constant(None, typed.type.type)))
        return prepared.body

    def define(self, word: str, bodies: Sequence[RuleBody]) -> Atom:
        """Define the relation of the outer values for which one of the bodies has an answer; return its atom."""
        outer = {name: variable for body in bodies for name, variable in body.outer.items()}
        name = self.context.name(word)
        self.context.declare(name, [replace(self.context.columns[v], nullable=True) for v in outer])
        for body in bodies:
            body.outer = dict(outer)  # every rule has all outer columns, also those that only another body mentions
            literals = body.finish()
            self.context.define(name, [body.representative(v) for v in outer.values()], literals)
        return Atom(name, tuple(outer.values()))

    # Values

    def value(self, node: exp.Expr, lower: ExpressionLowering) -> TypedTerm:
        """The value of a subquery: the truth of EXISTS and IN, or the result of a scalar subquery."""
        # As in Spark, IN and NOT IN are FALSE as values where they are unknown.
        match node:
            case exp.In():
                return self.mark(lower, self.define("hit", [self.equals(node, lower)]))
            case exp.Not(this=exp.In() as inner):
                return self.mark(lower, self.define("bad", self.doubts(inner, lower)), positive=False)
            case exp.Exists():
                return self.mark(lower, self.define("hit", [self.exists(node, lower)]))
            case exp.Subquery():
                return self.scalar(node, lower)
        raise self.context.unsupported("ANY and ALL", node, "use EXISTS, or combine conditions with OR and AND")

    def mark(self, lower: ExpressionLowering, found: Atom, *, positive: bool = True) -> TypedTerm:
        """The truth of an atom, or of its negation, as a relation.

        The mark has one row for each outer value, so that joining it neither drops nor multiplies rows of the query.
        """
        body = lower.scope.body
        outer = tuple(v for v in found.terms if isinstance(v, Variable))
        body.mention(outer)
        #   mark(outer, TRUE) :- domain(outer), hit(outer).
        #   mark(outer, FALSE) :- domain(outer), !hit(outer).
        name = self.context.name("mark")
        flag = Column("flag", BOOLEAN)
        self.context.declare(name, [*(replace(self.context.columns[v.name], nullable=True) for v in outer), flag])
        domain = list(dict.fromkeys(a for v in outer if (a := body.binder(v.name)) is not None))
        for value, literal in ((positive, found), (not positive, Negation(found))):
            self.context.define(name, (*outer, Constant(value, BOOLEAN)), [*domain, literal])
        return self.join(lower, name, outer, TypedTerm(self.context.fresh("flag"), BOOL, False), first=False)

    def scalar(self, node: exp.Subquery, lower: ExpressionLowering) -> TypedTerm:
        """A scalar subquery. An aggregate without GROUP BY has one row; of every other query, the rows are counted."""
        query = _query(node)
        is_one_row = isinstance(query, exp.Select) and not any(query.args.get(part) for part in _ROWS) and is_grouped(query)
        if is_one_row:
            rel = self.queries.project(self.queries.prepare(query, lower.scope), None)
        else:
            rel = self.queries.query(query, lower.scope)
        if len(rel.fields) != 1:
            raise WrongArity(f"a scalar subquery must have one column, not {len(rel.fields)}", self.context.span(node))
        (field,) = rel.fields
        value = TypedTerm(self.context.fresh(field.name), field.type, field.nullable if is_one_row else True)
        if is_one_row:
            return self.join(lower, rel.name, rel.outer, value, first=True)
        #   total(n, value, outer): the number of rows and the greatest value. It is the only one, or the transaction is refused.
        rel = self.queries.count_and_value(rel, lower.scope)
        number = TypedTerm(self.context.fresh("number"), BIGINT, False)
        for typed in (number, value):
            assert isinstance(typed.term, Variable)
            self.context.columns[typed.term.name] = column_of(typed, typed.term.name)
        body = lower.scope.body
        body.mention(rel.outer)
        body.add(Atom(rel.name, (number.term, value.term, *rel.outer)))  # type: ignore[arg-type]
        return lower.call("only value", [value, number], value.type, nullable=True)

    def join(
        self, lower: ExpressionLowering, name: str, outer: Sequence[Variable], typed: TypedTerm, *, first: bool
    ) -> TypedTerm:
        """Join a relation that has one value for each outer value; return the value."""
        body = lower.scope.body
        assert isinstance(typed.term, Variable)
        self.context.columns[typed.term.name] = column_of_type(typed.term.name, typed.type, typed.nullable)
        body.mention(outer)
        body.add(Atom(name, (typed.term, *outer) if first else (*outer, typed.term)))
        return typed


def _query(node: exp.Expr) -> exp.Expr:
    """The query without redundant parentheses."""
    while isinstance(node, exp.Subquery | exp.Paren) and not any(node.args.get(part) for part in ("with_", "limit", "offset")):
        node = node.this
    return node
