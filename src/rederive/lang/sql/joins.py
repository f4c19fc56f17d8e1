"""FROM: tables, subqueries, and joins of every kind.

Inner joins grow the body of their query. An outer join becomes relations of its own:

    j.match(l, r) :- left(l), right(r), condition.       j.hit(l) :- j.match(l, r).
    j(l, r) :- j.match(l, r).                            j(l, NULL) :- left(l), !j.hit(l).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from rederive.errors import Redefined, Span, UnknownName
from rederive.ir.rules import Atom, Column, Negation
from rederive.ir.terms import NUMBER, Constant, Simple, Variable
from rederive.lang.sql.expressions import ExpressionLowering, LowersSubqueries
from rederive.lang.sql.lowered_relation import LoweredRelation, TypedTerm
from rederive.lang.sql.predicates import require, require_equal
from rederive.lang.sql.rule_body import RuleBody, SourceRows
from rederive.lang.sql.scope import Scope, ScopeColumn, ambiguous, identifier, identifiers
from rederive.lang.sql.statement_context import StatementContext


class LowersQueries(Protocol):
    """What lowers queries."""

    @property
    def subqueries(self) -> LowersSubqueries: ...

    def query(self, node: exp.Expr, around: Scope | None = None, target: str | None = None) -> LoweredRelation: ...

    def values(self, node: exp.Values, target: str | None = None) -> LoweredRelation: ...


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of an outer join as an atom: all its columns, and those that identify a row."""

    atom: Atom
    key: tuple[Simple, ...]
    columns: tuple[Column, ...]


class JoinLowering:
    def __init__(self, queries: LowersQueries, context: StatementContext) -> None:
        self.queries = queries
        self.context = context

    def from_clause(self, first: exp.Expr, joins: Sequence[exp.Join], scope: Scope) -> None:
        self.operand(first, scope)
        for join in joins:
            self.join(join, scope)

    def operand(self, node: exp.Expr, scope: Scope) -> None:
        """A table, a view, a query in FROM, or sources in parentheses."""
        if _is_parenthesised(node):
            self.parenthesised(node, scope)
            return
        if node.args.get("joins"):
            raise self.context.unsupported("a join inside a join", node, "put it into parentheses")
        rel, alias = self.relation(node)
        columns = [field.name for field in rel.fields]
        self.bind(scope, alias, list(zip(columns, scope.body.read(rel), strict=True)), node)

    def bind(self, scope: Scope, alias: str, columns: Sequence[tuple[str, TypedTerm]], node: exp.Expr) -> None:
        if alias in scope.aliases:
            raise Redefined(f"two sources are called '{alias}'", self.context.span(node), hint="give one an alias")
        names_ = [name for name, _ in columns]
        if double := next((name for i, name in enumerate(names_) if name in names_[:i]), None):
            raise Redefined(f"'{alias}' has two columns '{double}'", self.context.span(node), hint="give one an alias")
        scope.bind(alias, columns)

    def parenthesised(self, node: exp.Expr, scope: Scope) -> None:
        """( sources ) [alias]: joined by themselves; under an alias, their own names mean nothing outside."""
        if unread := next((part for part, value in node.args.items() if value and part not in ("this", "alias", "joins")), None):
            raise self.context.unsupported(f"{unread.rstrip('_').upper()} of sources in parentheses", node)
        alone = not scope.body.literals
        inner = scope if alone else Scope(self.context.body(scope.body), scope.parent)
        self.from_clause(_bare(node.this), node.this.args.get("joins") or (), inner)
        if (alias := node.args.get("alias")) is not None:
            columns = self.renamed([c.name for c in inner.visible], alias, node)
            typed = [c.typed for c in inner.visible]
            inner.columns = []
            self.bind(inner, identifier(alias), list(zip(columns, typed, strict=True)), node)
        if not alone:
            side = self.frozen(inner)
            scope.body.add(side.atom)
            scope.body.sources.append(SourceRows(side.atom.terms, side.key))
            scope.columns += inner.columns

    def renamed(self, columns: list[str], alias: exp.Expr | None, node: exp.Expr) -> list[str]:
        given = identifiers(alias.args.get("columns") or ()) if alias is not None else []
        if given and len(given) != len(columns):
            raise Redefined(f"{len(given)} names for {len(columns)} columns", self.context.span(node))
        return given or columns

    def relation(self, node: exp.Expr) -> tuple[LoweredRelation, str]:
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
        columns = self.renamed([field.name for field in found.fields], alias, node)
        fields = tuple(replace(field, name=given) for field, given in zip(found.fields, columns, strict=True))
        found = replace(found, fields=fields)
        return found, name or f"source {len(self.context.builder.relations)}"

    # Joins

    def join(self, node: exp.Join, scope: Scope) -> None:
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        match side, kind:
            case (("" | "LEFT"), ("SEMI" | "ANTI")):
                self.semi(node, scope, positive=kind == "SEMI")
            case (("LEFT" | "RIGHT" | "FULL"), ("" | "OUTER")):
                self.outer(node, scope, side)
            case "", ("" | "INNER" | "CROSS"):
                self.inner(node, scope)
            case _:
                hint = "swap the sides, and use LEFT" if kind in ("SEMI", "ANTI") else None
                raise self.context.unsupported(f"a {f'{side} {kind}'.strip()} join", node, hint)

    def inner(self, node: exp.Join, scope: Scope) -> None:
        right = Scope(scope.body, scope.parent)
        left = Scope(scope.body, scope.parent, scope.columns)
        self.operand(node.this, right)
        self.check_aliases(left, right, node)
        keys = self.keys(node, left, right)
        scope.columns = [*left.columns, *right.columns]
        self.condition(node, keys, scope)
        scope.columns = merge_columns(keys, left, right, "LEFT")

    def check_aliases(self, left: Scope, right: Scope, node: exp.Expr) -> None:
        if double := next((alias for alias in right.aliases if alias in left.aliases), None):
            raise Redefined(f"two sources are called '{double}'", self.context.span(node.this), hint="give one an alias")

    def keys(self, node: exp.Join, left: Scope, right: Scope) -> list[JoinKey]:
        """The pairs of columns that USING or NATURAL equates."""
        span = self.context.span(node)
        ours, theirs = ([column.name for column in side.visible] for side in (left, right))
        if (node.args.get("method") or "").upper() == "NATURAL":
            shared = [name for name in dict.fromkeys(ours) if name in theirs]
        else:
            shared = identifiers(node.args.get("using") or ())
        found = []
        for name in shared:
            for side in (left, right):
                if side.find(name, None, span) is None:
                    raise UnknownName("column on both sides", name, (c.name for c in side.visible), span)
            one, two = (next(c for c in side.visible if c.name == name) for side in (left, right))
            found.append(JoinKey(name, one, two))
        return found

    def condition(self, node: exp.Join, keys: Sequence[JoinKey], scope: Scope) -> None:
        """Keep the rows that a join's condition keeps."""
        lower = ExpressionLowering(self.context, scope, self.queries.subqueries)
        for key in keys:
            require_equal(key.left.typed, key.right.typed, lower, node)
        if (on := node.args.get("on")) is not None:
            require(on, lower)

    def semi(self, node: exp.Join, scope: Scope, *, positive: bool) -> None:
        """The rows of the left side that have, or do not have, a partner."""
        if node.args.get("method"):
            raise self.context.unsupported(f"a {node.args['method']} {node.kind} join", node, "name the columns by USING")
        right = Scope(self.context.body(scope.body), scope.parent)
        self.operand(node.this, right)
        self.check_aliases(scope, right, node)
        inner = _SemiJoinScope(right.body, scope, right.columns)
        keys = []
        for key in self.keys(node, scope, right):
            left = replace(key.left.typed, term=scope.body.representative(key.left.typed.term))
            inner.body.mention(v for v in [left.term] if isinstance(v, Variable))
            keys.append(replace(key, left=replace(key.left, typed=left)))
        self.condition(node, keys, inner)
        atom = define_hits(inner.body, self.context)
        scope.body.mention(v for v in atom.terms if isinstance(v, Variable))
        scope.body.add(atom if positive else Negation(atom))
        first = [key.name for key in keys]
        scope.columns.sort(key=lambda c: first.index(c.name) if c.name in first and not c.hidden else len(first))

    # Outer joins

    def outer(self, node: exp.Join, scope: Scope, side: str) -> None:
        left = self.frozen(scope)
        right_scope = Scope(self.context.body(scope.body), scope.parent)
        self.operand(node.this, right_scope)
        self.check_aliases(scope, right_scope, node)
        right = self.frozen(right_scope)
        keys = self.keys(node, scope, right_scope)
        match = Scope(self.context.body(), scope.parent, [*scope.columns, *right_scope.columns])
        for one in (left, right):
            match.body.add(one.atom)
            match.body.sources.append(SourceRows(one.atom.terms, one.key))
        self.condition(node, keys, match)
        if match.body.outer:
            raise self.context.unsupported("an outer join whose condition refers to the query around it", node)
        whole, columns = self.padded(match.body, left, right, side)
        self.rebind(scope, (left, right), whole, columns, side)
        for one_scope in (scope, right_scope):
            one_scope.map_terms(self.now)
        keys = [key.mapped(self.now) for key in keys]
        scope.columns = merge_columns([self.whole(key, scope, side) for key in keys], scope, right_scope, side)

    def frozen(self, scope: Scope) -> JoinSide:
        """A side as one atom: the one that it is, or a relation of its own for what has been joined so far."""
        body = scope.body
        if body.outer:
            raise self.context.unsupported("an outer join inside a correlated query", None, "give the join a view of its own")
        if len(body.literals) == 1 and isinstance(body.literals[0], Atom) and not body.equal_to:
            (rows,) = body.sources
            atom = body.literals[0]
            return JoinSide(atom, rows.key, self.columns(atom.terms))
        kept = list(
            dict.fromkeys(t for rows in body.sources for t in map(body.representative, rows.terms) if isinstance(t, Variable))
        )
        kept += [t for t in computed_variables(body) if t not in kept]
        name = self.context.name("side")
        self.context.declare(name, self.columns(kept))
        self.context.define(name, kept, body.finish())
        keys = dict.fromkeys(t for rows in body.sources for t in map(body.representative, rows.key) if isinstance(t, Variable))
        scope.map_terms(lambda typed: replace(typed, term=body.term(typed.term)))
        return JoinSide(Atom(name, tuple(kept)), tuple(keys), self.columns(kept))

    def columns(self, terms: Sequence[Simple]) -> tuple[Column, ...]:
        return tuple(self.context.columns[term.name] for term in terms if isinstance(term, Variable))

    def padded(self, body: RuleBody, left: JoinSide, right: JoinSide, side: str) -> tuple[str, list[Column]]:
        """The rules of an outer join; the name of what they define."""
        match, whole = self.context.name("match"), self.context.name("join")
        terms = (*left.atom.terms, *right.atom.terms)
        nullable = [replace(c, nullable=True) for c in left.columns] if side in ("RIGHT", "FULL") else list(left.columns)
        nullable += [replace(c, nullable=True) for c in right.columns] if side in ("LEFT", "FULL") else list(right.columns)
        tag = [Column("side", NUMBER)] if side == "FULL" else []
        self.context.declare(match, [*left.columns, *right.columns])
        self.context.declare(whole, [*nullable, *tag])
        self.context.define(match, [body.representative(term) for term in terms], body.finish())
        self.context.define(whole, (*terms, *([Constant(0, NUMBER)] if tag else [])), [Atom(match, terms)])
        if side in ("LEFT", "FULL"):
            padding = [Constant(None, column.type) for column in right.columns]
            self.alone(whole, match, terms, left, (*left.atom.terms, *padding, *([Constant(1, NUMBER)] if tag else [])))
        if side in ("RIGHT", "FULL"):
            padding = [Constant(None, column.type) for column in left.columns]
            self.alone(whole, match, terms, right, (*padding, *right.atom.terms, *([Constant(2, NUMBER)] if tag else [])))
        return whole, [*nullable, *tag]

    def alone(self, whole: str, match: str, terms: Sequence[Simple], side: JoinSide, head: Sequence[Simple]) -> None:
        """The rows of one side without a partner, padded with NULLs."""
        name = self.context.name("hit")
        self.context.declare(name, side.columns)
        self.context.define(name, side.atom.terms, [Atom(match, tuple(terms))])
        self.context.define(whole, head, [side.atom, Negation(Atom(name, side.atom.terms))])

    def rebind(self, scope: Scope, sides: tuple[JoinSide, JoinSide], whole: str, columns: Sequence[Column], side: str) -> None:
        """From here on, the query reads the joined relation."""
        terms = [term for one in sides for term in one.atom.terms if isinstance(term, Variable)]
        tags = [self.context.fresh("side")] if side == "FULL" else []
        self.context.columns.update({v.name: column for v, column in zip((*terms, *tags), columns, strict=True)})
        key = (*sides[0].key, *sides[1].key, *tags)
        body = scope.body
        body.literals, body.equal_to, body.not_null = [Atom(whole, (*terms, *tags))], {}, set()
        body.sources = [SourceRows((*terms, *tags), key)]

    def now(self, typed: TypedTerm) -> TypedTerm:
        """The column as it is after the join: it may have become nullable."""
        if not isinstance(typed.term, Variable):
            return replace(typed, nullable=True)
        return replace(typed, nullable=typed.nullable or self.context.columns[typed.term.name].nullable)

    def whole(self, key: JoinKey, scope: Scope, side: str) -> JoinKey:
        """With the value that a full join's column has: the one of the side that has a row."""
        if side != "FULL":
            return key
        lower = ExpressionLowering(self.context, scope, self.queries.subqueries)
        both = lower.alike([key.left.typed, key.right.typed], exp.null())
        nullable = key.left.typed.nullable and key.right.typed.nullable
        value = lower.call("coalesce", both, both[0].type, nullable=nullable)
        return replace(key, both=ScopeColumn(key.name, f"using {self.context.fresh(key.name).name}", value))


@dataclass(frozen=True, slots=True)
class JoinKey:
    """A column of USING: that of the left side, that of the right side, and what both are in a full join."""

    name: str
    left: ScopeColumn
    right: ScopeColumn
    both: ScopeColumn | None = None

    def mapped(self, function: Callable[[TypedTerm], TypedTerm]) -> JoinKey:
        left, right = (replace(column, typed=function(column.typed)) for column in (self.left, self.right))
        return JoinKey(self.name, left, right)


@dataclass(slots=True)
class _SemiJoinScope(Scope):
    """The right side of a semi join: its condition sees both sides alike."""

    def find(self, name: str, table: str | None, span: Span) -> TypedTerm | None:
        found = Scope.find(self, name, table, span)
        if found is not None and table is None and self.parent is not None and self.parent.find(name, None, span) is not None:
            raise ambiguous(name, [c.alias for side in (self.parent, self) for c in side.visible if c.name == name], span)
        return found


def merge_columns(keys: Sequence[JoinKey], left: Scope, right: Scope, side: str) -> list[ScopeColumn]:
    """The columns of a join: those of USING once and first, then the rest of both sides. What is hidden comes last.

    The side that is kept whole gives the value of a column that both sides have.
    """
    lefts, rights = [key.left.name for key in keys], [key.right.name for key in keys]
    rest = [c for c in left.visible if c.name not in lefts] + [c for c in right.visible if c.name not in rights]
    shown = [key.both or (key.right if side == "RIGHT" else key.left) for key in keys]
    hidden = [key.left for key in keys if side in ("RIGHT", "FULL")] + [key.right for key in keys if side != "RIGHT"]
    before = [c for c in (*left.columns, *right.columns) if c.hidden]
    return [*shown, *rest, *(replace(column, hidden=True) for column in hidden), *before]


def _is_parenthesised(node: exp.Expr) -> bool:
    """Whether this is a list of sources in parentheses, not a query in parentheses."""
    inner = node.this
    if not isinstance(node, exp.Subquery) or not isinstance(inner, exp.Table | exp.Subquery | exp.Values):
        return False
    named = inner.args.get("joins") or inner.args.get("alias")
    return isinstance(inner, exp.Table) or bool(named) or _is_parenthesised(inner)


def _bare(node: exp.Expr) -> exp.Expr:
    """The first of some sources, without those that are joined to it."""
    bare = node.copy()
    bare.set("joins", None)
    return bare


def define_hits(body: RuleBody, context: StatementContext) -> Atom:
    """The relation of the outer values for which a body has an answer."""
    outer = tuple(body.outer.values())
    name = context.name("hit")
    context.declare(name, [replace(context.columns[v.name], nullable=True) for v in outer])
    literals = body.finish()
    context.define(name, [body.representative(v) for v in outer], literals)
    return Atom(name, outer)


def computed_variables(body: RuleBody) -> list[Variable]:
    """The variables that hold computed values, such as those of subqueries."""
    atoms = [literal for literal in body.literals if isinstance(literal, Atom)]
    known = {t for rows in body.sources for t in rows.terms}
    return [t for atom in atoms for t in atom.terms if isinstance(t, Variable) and t not in known and t.name not in body.equal_to]
