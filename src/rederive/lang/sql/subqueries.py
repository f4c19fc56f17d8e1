"""Queries inside expressions: EXISTS, IN and scalar subqueries, also correlated ones.

A correlated query becomes a relation over the outer variables that it mentions: the query around joins it, or negates it. Where
its truth is needed as a value, as under OR, a *mark* relation gives it for each value asked for: true, false or NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp

from rederive.errors import WrongArity
from rederive.ir.rules import Atom, Column, Comparison, Literal, Negation, Operator
from rederive.ir.terms import BOOLEAN, Constant, Variable, variables
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.grouping import is_grouped
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.predicates import require_equal
from rederive.lang.sql.rule_body import RuleBody
from rederive.lang.sql.scope import Scope
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BOOL

if TYPE_CHECKING:
    from rederive.lang.sql.lowered_relation import LoweredRelation
    from rederive.lang.sql.query import PreparedQuery


class PreparesQueries(Protocol):
    def prepare(self, node: exp.Expr, around: Scope | None = None) -> PreparedQuery: ...

    def project(self, prepared: PreparedQuery, target: str | None) -> LoweredRelation: ...


class SubqueryLowering:
    def __init__(self, queries: PreparesQueries, context: StatementContext) -> None:
        self.queries = queries
        self.context = context

    # Conditions

    def require(self, node: exp.Expr, lower: ExpressionLowering, *, positive: bool) -> None:
        """Keep the bindings for which an EXISTS or IN is true, or, where not positive, false."""
        body = lower.scope.body
        match node:
            case exp.In() if not positive:
                atom = self.defined("bad", self.doubts(node, lower))
            case exp.In():
                atom = self.defined("hit", [self.equals(node, lower)])
            case _:
                atom = self.defined("hit", [self.exists(node, lower)])
        body.mention(v for v in atom.terms if isinstance(v, Variable))
        body.add(atom if positive else Negation(atom))

    def exists(self, node: exp.Expr, lower: ExpressionLowering) -> RuleBody:
        return self.queries.prepare(_query(node.this), lower.scope).body

    def equals(self, node: exp.In, lower: ExpressionLowering) -> RuleBody:
        """The answers of the query that equal the value."""
        prepared, values = self.pairs(node, lower)
        for (_, typed), value in zip(prepared.outputs, values, strict=True):
            require_equal(typed, value, prepared.lower, node)
        return prepared.body

    def pairs(self, node: exp.In, lower: ExpressionLowering) -> tuple[PreparedQuery, list[TypedTerm]]:
        prepared = self.queries.prepare(_query(node.args["query"]), lower.scope)
        nodes = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(nodes) != len(prepared.outputs):
            message = f"{len(nodes)} values are looked for among {len(prepared.outputs)} columns"
            raise WrongArity(message, self.context.span(node))
        around = lower.scope.body
        values = [replace(typed, term=around.term(typed.term)) for typed in map(lower.lower, nodes)]
        prepared.body.mention(v for value in values for v in variables(value.term))
        return prepared, values

    def doubts(self, node: exp.In, lower: ExpressionLowering) -> list[RuleBody]:
        """Why NOT IN may not be true: an answer equals the value, an answer is NULL, or the value is, and there is an answer."""
        bodies = [self.equals(node, lower)]
        prepared, values = self.pairs(node, lower)
        if len(values) > 1 and any(typed.nullable for typed in (*values, *(t for _, t in prepared.outputs))):
            raise self.context.unsupported("NOT IN on several columns that may be NULL", node, "use NOT EXISTS")
        if prepared.outputs[0][1].nullable:
            bodies.append(self.with_null(prepared, prepared.outputs[0][1]))
        if values[0].nullable:
            prepared, values = self.pairs(node, lower)
            bodies.append(self.with_null(prepared, values[0]))
        return bodies

    @staticmethod
    def with_null(prepared: PreparedQuery, typed: TypedTerm) -> RuleBody:
        simple = prepared.body.assign(typed, "value")
        prepared.body.add(Comparison(Operator.EQ, simple.term, Constant(None, typed.type.type)))
        return prepared.body

    def defined(self, word: str, bodies: Sequence[RuleBody]) -> Atom:
        """The outer values for which one of the bodies has an answer."""
        outer = {name: variable for body in bodies for name, variable in body.outer.items()}
        name = self.context.name(word)
        self.context.declare(name, [replace(self.context.columns[v], nullable=True) for v in outer])
        for body in bodies:
            body.outer = dict(outer)
            literals = body.finish()
            self.context.define(name, [body.representative(v) for v in outer.values()], literals)
        return Atom(name, tuple(outer.values()))

    # Values

    def value(self, node: exp.Expr, lower: ExpressionLowering) -> TypedTerm:
        match node:
            case exp.In():
                found = self.defined("hit", [self.equals(node, lower)])
                doubtful = self.defined("bad", self.doubts(node, lower))
                return self.mark(lower, found, doubtful)
            case exp.Exists():
                found = self.defined("hit", [self.exists(node, lower)])
                return self.mark(lower, found, found)
            case exp.Subquery():
                return self.scalar(node, lower)
        raise self.context.unsupported("ANY and ALL", node, "use EXISTS, or OR and AND")

    def mark(self, lower: ExpressionLowering, found: Atom, doubtful: Atom) -> TypedTerm:
        """True where found, false where not even doubtful, and NULL in between."""
        body = lower.scope.body
        outer = tuple(dict.fromkeys(v for atom in (found, doubtful) for v in atom.terms if isinstance(v, Variable)))
        body.mention(outer)
        name = self.context.name("mark")
        nullable = found is not doubtful
        flag = Column("flag", BOOLEAN, nullable)
        self.context.declare(name, [*(replace(self.context.columns[v.name], nullable=True) for v in outer), flag])
        domain = list(dict.fromkeys(a for v in outer if (a := body.binder(v.name)) is not None))
        cases: list[tuple[bool | None, list[Literal]]] = [(True, [found]), (False, [Negation(doubtful)])]
        if nullable:
            cases.append((None, [doubtful, Negation(found)]))
        for value, literals in cases:
            self.context.define(name, (*outer, Constant(value, BOOLEAN)), [*domain, *literals])
        return self.joined(lower, name, outer, TypedTerm(self.context.fresh("flag"), BOOL, nullable), first=False)

    def scalar(self, node: exp.Subquery, lower: ExpressionLowering) -> TypedTerm:
        """The one row of an aggregate without GROUP BY."""
        query = _query(node)
        if not isinstance(query, exp.Select) or query.args.get("group") or query.args.get("having") or not is_grouped(query):
            raise self.context.unsupported(
                "a scalar subquery that is not an aggregate",
                node,
                "take max(...) of it, which is the same where there is one row",
            )
        rel = self.queries.project(self.queries.prepare(query, lower.scope), None)
        if len(rel.fields) != 1:
            raise WrongArity(f"a scalar subquery has one column, not {len(rel.fields)}", self.context.span(node))
        (field,) = rel.fields
        return self.joined(
            lower, rel.name, rel.outer, TypedTerm(self.context.fresh(field.name), field.type, field.nullable), first=True
        )

    def joined(
        self, lower: ExpressionLowering, name: str, outer: Sequence[Variable], typed: TypedTerm, *, first: bool
    ) -> TypedTerm:
        """Join a relation that has one value for each of the outer ones."""
        body = lower.scope.body
        assert isinstance(typed.term, Variable)
        self.context.columns[typed.term.name] = Column(typed.term.name, typed.type.type, typed.nullable, typed.type.bits or 64)
        body.mention(outer)
        body.add(Atom(name, (typed.term, *outer) if first else (*outer, typed.term)))
        return typed


def _query(node: exp.Expr) -> exp.Expr:
    """The query without the parentheses that say nothing."""
    while isinstance(node, exp.Subquery | exp.Paren) and not any(node.args.get(part) for part in ("with_", "limit", "offset")):
        node = node.this
    return node
