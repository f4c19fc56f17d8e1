"""FROM: tables, subqueries, and joins of every kind.

Inner joins grow the body of their query. An outer join becomes relations of its own:

    j.match(l, r) :- left(l), right(r), condition.       j.hit(l) :- j.match(l, r).
    j(l, r) :- j.match(l, r).                            j(l, NULL) :- left(l), !j.hit(l).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from rederive.errors import Redefined, UnknownName
from rederive.ir.rules import Atom, Column, Negation
from rederive.ir.terms import NUMBER, Constant, Simple, Variable
from rederive.lang.sql.body import Body, Rows
from rederive.lang.sql.conditions import equal, require
from rederive.lang.sql.context import Context
from rederive.lang.sql.expressions import Expressions, Subqueries
from rederive.lang.sql.relation import Rel, Typed
from rederive.lang.sql.scope import Binding, Scope, identifier, names


class Lowers(Protocol):
    """What lowers queries."""

    @property
    def subqueries(self) -> Subqueries: ...

    def query(self, node: exp.Expr, around: Scope | None = None, target: str | None = None) -> Rel: ...

    def values(self, node: exp.Values, target: str | None = None) -> Rel: ...


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an outer join as an atom: all its columns, and those that identify a row."""

    atom: Atom
    key: tuple[Simple, ...]
    columns: tuple[Column, ...]


class Joins:
    def __init__(self, queries: Lowers, context: Context) -> None:
        self.queries = queries
        self.context = context

    def from_clause(self, first: exp.Expr, joins: Sequence[exp.Join], scope: Scope) -> None:
        self.operand(first, scope)
        for join in joins:
            self.join(join, scope)

    def operand(self, node: exp.Expr, scope: Scope) -> None:
        """A table, a view or a query in FROM."""
        rel, alias = self.relation(node)
        if any(binding.alias == alias for binding in scope.bindings):
            raise Redefined(f"two sources are called '{alias}'", self.context.span(node), hint="give one an alias")
        names_ = [field.name for field in rel.fields]
        if double := next((name for i, name in enumerate(names_) if name in names_[:i]), None):
            raise Redefined(f"'{alias}' has two columns '{double}'", self.context.span(node), hint="give one an alias")
        scope.bindings.append(Binding(alias, dict(zip(names_, scope.body.read(rel), strict=True))))
        for join in node.args.get("joins") or ():
            self.join(join, scope)

    def relation(self, node: exp.Expr) -> tuple[Rel, str]:
        """What an operand reads, and the name that it goes by."""
        alias = node.args.get("alias")
        name = identifier(alias) if alias is not None and alias.args.get("this") is not None else ""
        match node:
            case exp.Table(this=exp.Identifier()):
                found, name = self.context.table(identifier(node), node), name or identifier(node)
            case exp.Subquery():
                found = self.queries.query(node.this)
            case exp.Values():
                found = self.queries.values(node)
            case _:
                raise self.context.unsupported("this source", node)
        columns = names(alias.args.get("columns") or ()) if alias is not None else []
        if columns and len(columns) != len(found.fields):
            raise Redefined(f"{len(columns)} names for {len(found.fields)} columns", self.context.span(node))
        if columns:
            fields = tuple(replace(field, name=given) for field, given in zip(found.fields, columns, strict=True))
            found = replace(found, fields=fields)
        return found, name or f"source {len(self.context.draft.relations)}"

    # Joins

    def join(self, node: exp.Join, scope: Scope) -> None:
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            self.semi(node, scope, positive=kind == "SEMI")
        elif side in ("LEFT", "RIGHT", "FULL"):
            self.outer(node, scope, side)
        elif kind in ("", "INNER", "CROSS", "OUTER") and not side:
            shared = self.joined(node, scope)
            scope.merged.update({name: left for name, (left, _) in shared.items()})
        else:
            raise self.context.unsupported(f"a {side} {kind} join", node)

    def joined(self, node: exp.Join, scope: Scope) -> dict[str, tuple[Typed, Typed]]:
        """Join an operand by the join's condition; the pairs of columns that USING or NATURAL equates."""
        before = [name for name, _ in scope.star(None, self.context.span(node))]
        lefts = {name: scope.find(name, None, self.context.span(node)) for name in before if before.count(name) == 1}
        self.operand(node.this, scope)
        columns = scope.bindings[-1].columns
        lower = Expressions(self.context, scope, self.queries.subqueries)
        shared = {name: (lefts.get(name), columns.get(name)) for name in self.shared(node, before, columns)}
        pairs: dict[str, tuple[Typed, Typed]] = {}
        for name, (left, right) in shared.items():
            if left is None or right is None:
                raise UnknownName("column on both sides", name, before if left is None else columns, self.context.span(node))
            equal(left, right, lower, node)
            pairs[name] = (left, right)
        if (on := node.args.get("on")) is not None:
            require(on, lower)
        return pairs

    @staticmethod
    def shared(node: exp.Join, left: Sequence[str], right: Sequence[str] | dict[str, Typed]) -> list[str]:
        if (node.args.get("method") or "").upper() == "NATURAL":
            return [name for name in left if name in right]
        return names(node.args.get("using") or ())

    def semi(self, node: exp.Join, scope: Scope, *, positive: bool) -> None:
        """The rows of the left side that have, or do not have, a partner."""
        inner = Scope(self.context.body(scope.body), scope)
        self.operand(node.this, inner)
        lower = Expressions(self.context, inner, self.queries.subqueries)
        span = self.context.span(node)
        for name in self.shared(node, [column for column, _ in scope.star(None, span)], inner.bindings[0].columns):
            left = scope.resolve(name, None, span)
            inner.body.mention(v for v in [scope.body.resolved(left.term)] if isinstance(v, Variable))
            equal(replace(left, term=scope.body.resolved(left.term)), inner.bindings[0].columns[name], lower, node)
        if (on := node.args.get("on")) is not None:
            require(on, lower)
        atom = hit(inner.body, self.context)
        scope.body.mention(v for v in atom.terms if isinstance(v, Variable))
        scope.body.add(atom if positive else Negation(atom))

    # Outer joins

    def outer(self, node: exp.Join, scope: Scope, side: str) -> None:
        left = self.frozen(scope)
        bindings, merged = list(scope.bindings), dict(scope.merged)
        right_scope = Scope(self.context.body(scope.body), scope.parent)
        self.operand(node.this, right_scope)
        right = self.frozen(right_scope)
        match = Scope(self.context.body(), scope.parent, bindings, merged)
        for one in (left, right):
            match.body.add(one.atom)
            match.body.sources.append(Rows(one.atom.terms, one.key))
        pairs = self.condition(node, match, right_scope.bindings)
        if match.body.outer:
            raise self.context.unsupported("an outer join whose condition refers to the query around it", node)
        whole, columns = self.padded(match.body, left, right, side)
        self.rebind(scope, (left, right), whole, columns, side)
        scope.bindings = [*self.mapped(bindings, scope.body), *self.mapped(right_scope.bindings, scope.body)]
        scope.merged = self.remerged(merged, pairs, scope, side)

    def condition(self, node: exp.Join, match: Scope, right: Sequence[Binding]) -> dict[str, tuple[Typed, Typed]]:
        span = self.context.span(node)
        lower = Expressions(self.context, match, self.queries.subqueries)
        before = [name for name, _ in match.star(None, span)]
        columns = right[0].columns
        pairs: dict[str, tuple[Typed, Typed]] = {}
        for name in self.shared(node, before, columns):
            left = match.find(name, None, span)
            if left is None or name not in columns:
                raise UnknownName("column on both sides", name, before if left is None else columns, span)
            pairs[name] = (left, columns[name])
        match.bindings = [*match.bindings, *right]
        for one, two in pairs.values():
            equal(one, two, lower, node)
        if (on := node.args.get("on")) is not None:
            require(on, lower)
        return pairs

    def frozen(self, scope: Scope) -> Side:
        """A side as one atom: the one that it is, or a relation of its own for what has been joined so far."""
        body = scope.body
        if body.outer:
            raise self.context.unsupported("an outer join inside a correlated query", None, "give the join a view of its own")
        if len(body.literals) == 1 and isinstance(body.literals[0], Atom) and not body.same:
            (rows,) = body.sources
            atom = body.literals[0]
            return Side(atom, rows.key, self.columns(atom.terms))
        kept = list(dict.fromkeys(t for rows in body.sources for t in map(body.resolved, rows.terms) if isinstance(t, Variable)))
        kept += [t for t in assigned(body) if t not in kept]
        name = self.context.name("side")
        self.context.declare(name, self.columns(kept))
        self.context.define(name, kept, body.finished())
        keys = dict.fromkeys(t for rows in body.sources for t in map(body.resolved, rows.key) if isinstance(t, Variable))
        for binding in scope.bindings:
            binding.columns = {n: replace(t, term=body.term(t.term)) for n, t in binding.columns.items()}
        scope.merged = {n: replace(t, term=body.term(t.term)) for n, t in scope.merged.items()}
        return Side(Atom(name, tuple(kept)), tuple(keys), self.columns(kept))

    def columns(self, terms: Sequence[Simple]) -> tuple[Column, ...]:
        return tuple(self.context.columns[term.name] for term in terms if isinstance(term, Variable))

    def padded(self, body: Body, left: Side, right: Side, side: str) -> tuple[str, list[Column]]:
        """The rules of an outer join; the name of what they define."""
        match, whole = self.context.name("match"), self.context.name("join")
        terms = (*left.atom.terms, *right.atom.terms)
        nullable = [replace(c, nullable=True) for c in left.columns] if side in ("RIGHT", "FULL") else list(left.columns)
        nullable += [replace(c, nullable=True) for c in right.columns] if side in ("LEFT", "FULL") else list(right.columns)
        tag = [Column("side", NUMBER)] if side == "FULL" else []
        self.context.declare(match, [*left.columns, *right.columns])
        self.context.declare(whole, [*nullable, *tag])
        self.context.define(match, [body.resolved(term) for term in terms], body.finished())
        self.context.define(whole, (*terms, *([Constant(0, NUMBER)] if tag else [])), [Atom(match, terms)])
        if side in ("LEFT", "FULL"):
            padding = [Constant(None, column.type) for column in right.columns]
            self.alone(whole, match, terms, left, (*left.atom.terms, *padding, *([Constant(1, NUMBER)] if tag else [])))
        if side in ("RIGHT", "FULL"):
            padding = [Constant(None, column.type) for column in left.columns]
            self.alone(whole, match, terms, right, (*padding, *right.atom.terms, *([Constant(2, NUMBER)] if tag else [])))
        return whole, [*nullable, *tag]

    def alone(self, whole: str, match: str, terms: Sequence[Simple], side: Side, head: Sequence[Simple]) -> None:
        """The rows of one side without a partner, padded with NULLs."""
        name = self.context.name("hit")
        self.context.declare(name, side.columns)
        self.context.define(name, side.atom.terms, [Atom(match, tuple(terms))])
        self.context.define(whole, head, [side.atom, Negation(Atom(name, side.atom.terms))])

    def rebind(self, scope: Scope, sides: tuple[Side, Side], whole: str, columns: Sequence[Column], side: str) -> None:
        """From here on, the query reads the joined relation."""
        terms = [term for one in sides for term in one.atom.terms if isinstance(term, Variable)]
        tags = [self.context.fresh("side")] if side == "FULL" else []
        self.context.columns.update({v.name: column for v, column in zip((*terms, *tags), columns, strict=True)})
        key = (*sides[0].key, *sides[1].key, *tags)
        body = scope.body
        body.literals, body.same, body.known = [Atom(whole, (*terms, *tags))], {}, set()
        body.sources = [Rows((*terms, *tags), key)]

    def mapped(self, bindings: Sequence[Binding], body: Body) -> list[Binding]:
        return [Binding(b.alias, {name: self.now(typed) for name, typed in b.columns.items()}) for b in bindings]

    def now(self, typed: Typed) -> Typed:
        """The column as it is after the join: it may have become nullable."""
        if not isinstance(typed.term, Variable):
            return replace(typed, nullable=True)
        return replace(typed, nullable=typed.nullable or self.context.columns[typed.term.name].nullable)

    def remerged(
        self, before: dict[str, Typed], pairs: dict[str, tuple[Typed, Typed]], scope: Scope, side: str
    ) -> dict[str, Typed]:
        """The columns that USING made one: the side that is kept whole gives the value."""
        lower = Expressions(self.context, scope, self.queries.subqueries)
        merged = {name: self.now(typed) for name, typed in before.items()}
        for name, pair in pairs.items():
            left, right = map(self.now, pair)
            both = lower.alike([left, right], exp.null())
            whole = lower.call("coalesce", both, both[0].type, nullable=left.nullable and right.nullable)
            merged[name] = {"LEFT": left, "RIGHT": right}.get(side, whole)
        return merged


def hit(body: Body, context: Context) -> Atom:
    """The relation of the outer values for which a body has an answer."""
    outer = tuple(body.outer.values())
    name = context.name("hit")
    context.declare(name, [replace(context.columns[v.name], nullable=True) for v in outer])
    literals = body.finished()
    context.define(name, [body.resolved(v) for v in outer], literals)
    return Atom(name, outer)


def assigned(body: Body) -> list[Variable]:
    """The variables that hold computed values, such as those of subqueries."""
    atoms = [literal for literal in body.literals if isinstance(literal, Atom)]
    known = {t for rows in body.sources for t in rows.terms}
    return [t for atom in atoms for t in atom.terms if isinstance(t, Variable) and t not in known and t.name not in body.same]
