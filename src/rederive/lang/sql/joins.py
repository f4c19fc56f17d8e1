"""FROM: tables, subqueries and all kinds of joins.

An inner join adds literals to the body of its query. An outer join defines relations:

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
from rederive.lang.sql.generators import add_generator
from rederive.lang.sql.lowered_relation import LoweredRelation, TypedTerm
from rederive.lang.sql.pivots import pivot_query
from rederive.lang.sql.predicates import require, require_equal
from rederive.lang.sql.rule_body import RuleBody, SourceRows
from rederive.lang.sql.scope import Scope, ScopeColumn, ambiguous, identifier, identifiers
from rederive.lang.sql.statement_context import StatementContext


class LowersQueries(Protocol):
    """The part of the query lowering that FROM needs."""

    @property
    def subqueries(self) -> LowersSubqueries:
        """Lowers the subqueries of join conditions."""

    def query(self, node: exp.Expr, around: Scope | None = None, target: str | None = None) -> LoweredRelation:
        """The relation of a query."""

    def values(self, node: exp.Values, target: str | None = None) -> LoweredRelation:
        """The relation of a VALUES."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of an outer join as one atom, with the terms that identify a row and its columns."""

    atom: Atom
    key: tuple[Simple, ...]
    columns: tuple[Column, ...]


class JoinLowering:
    """Lowers the FROM clauses of one statement."""

    def __init__(self, queries: LowersQueries, context: StatementContext) -> None:
        self.queries = queries
        self.context = context

    def from_clause(self, first: exp.Expr, joins: Sequence[exp.Join], scope: Scope) -> None:
        """Bind the sources of a FROM clause in a scope, from left to right."""
        if (call := table_function(first)) is not None:
            add_generator(call, first, self._lower(scope), outer=False)
        else:
            self.operand(first, scope)
        for join in joins:
            self.join(join, scope)

    def _lower(self, scope: Scope) -> ExpressionLowering:
        return ExpressionLowering(self.context, scope, self.queries.subqueries)

    def operand(self, node: exp.Expr, scope: Scope, left: Scope | None = None) -> None:
        """Bind one operand: a table, a view, a query, or sources in parentheses. `left`: what a LATERAL query sees."""
        if _is_parenthesised(node):
            self.parenthesised(node, scope)
            return
        if node.args.get("joins"):
            raise self.context.unsupported("a join inside a join", node, "put the inner join into parentheses")
        rel, alias = self.relation(node, left)
        columns = [field.name for field in rel.fields]
        self.bind(scope, alias, list(zip(columns, scope.body.read(rel), strict=True)), node)

    def bind(self, scope: Scope, alias: str, columns: Sequence[tuple[str, TypedTerm]], node: exp.Expr) -> None:
        """Add a source to a scope; its alias and its columns must be unique."""
        if alias in scope.aliases:
            raise Redefined(f"two sources have the name '{alias}'", self.context.span(node), hint="give one of them an alias")
        names_ = [name for name, _ in columns]
        if double := next((name for i, name in enumerate(names_) if name in names_[:i]), None):
            raise Redefined(
                f"'{alias}' has two columns with the name '{double}'", self.context.span(node), hint="give one of them an alias"
            )
        scope.bind(alias, columns)

    def parenthesised(self, node: exp.Expr, scope: Scope) -> None:
        """Bind `( sources ) [alias]`: they are joined first. An alias hides the names of the sources from the outside."""
        if unread := next((part for part, value in node.args.items() if value and part not in ("this", "alias", "joins")), None):
            raise self.context.unsupported(f"{unread.rstrip('_').upper()} after sources in parentheses", node)
        # After other sources, the group has a body of its own: an outer join inside it must see its own sides only.
        alone = not scope.body.literals
        # Without other sources the group is the whole FROM, and parentheses change nothing.
        inner = scope if alone else Scope(self.context.body(scope.body), scope.parent)
        self.from_clause(_bare(node.this), node.this.args.get("joins") or (), inner)
        if (alias := node.args.get("alias")) is not None:
            columns = self.column_names([c.name for c in inner.visible], alias, node)
            typed = [c.typed for c in inner.visible]
            inner.columns = []
            self.bind(inner, identifier(alias), list(zip(columns, typed, strict=True)), node)
        if not alone:
            side = self.frozen(inner)
            scope.body.add(side.atom)
            scope.body.sources.append(SourceRows(side.atom.terms, side.key))
            scope.columns += inner.columns

    def column_names(self, columns: list[str], alias: exp.Expr | None, node: exp.Expr) -> list[str]:
        """The names of a source's columns: those of its alias, or its own."""
        given = identifiers(alias.args.get("columns") or ()) if alias is not None else []
        if given and len(given) != len(columns):
            raise Redefined(f"the alias names {len(given)} columns, but the source has {len(columns)}", self.context.span(node))
        return given or columns

    def relation(self, node: exp.Expr, left: Scope | None = None) -> tuple[LoweredRelation, str]:
        """The relation that an operand reads, and its alias."""
        if pivots := node.args.get("pivots"):
            return self.pivoted(node, pivots)
        alias = node.args.get("alias")
        name = identifier(alias) if alias is not None and alias.args.get("this") is not None else ""
        match node:
            case exp.Table(this=exp.Identifier()):
                found, name = self.context.table(identifier(node), node), name or identifier(node)
            case exp.Subquery():
                found = self.queries.query(node.this)
            case exp.Values():
                found = self.queries.values(node)
            case exp.Lateral(this=exp.Subquery() as inner):
                found = self.queries.query(inner.this, left)
            case _:
                raise self.context.unsupported("this kind of source in FROM", node, "use a table, a view, a query or VALUES")
        columns = self.column_names([field.name for field in found.fields], alias, node)
        fields = tuple(replace(field, name=given) for field, given in zip(found.fields, columns, strict=True))
        found = replace(found, fields=fields)
        return found, name or f"source {len(self.context.builder.relations)}"

    def pivoted(self, node: exp.Expr, pivots: Sequence[exp.Pivot]) -> tuple[LoweredRelation, str]:
        """A source with PIVOT or UNPIVOT, one after the other: each is a query over the source before it."""
        bare = node.copy()
        bare.set("pivots", None)
        found, name = self.relation(bare)
        # The source has a name that no text can contain (with a blank), so it hides no table; it is known to the pivots alone.
        before = dict(self.context.ctes)
        for pivot in pivots:
            source = f"pivoted {len(self.context.builder.relations)}"
            self.context.ctes[source] = found
            found = self.queries.query(pivot_query(pivot, source, found.fields, self.context))
            alias = pivot.args.get("alias")
            columns = self.column_names([field.name for field in found.fields], alias, node)
            fields = tuple(replace(field, name=given) for field, given in zip(found.fields, columns, strict=True))
            found, name = replace(found, fields=fields), identifier(alias) or source
        self.context.ctes = before
        return found, name

    # Joins

    def join(self, node: exp.Join, scope: Scope) -> None:
        """Join one more operand, by the kind of join."""
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        match side, kind:
            case (("" | "LEFT"), ("SEMI" | "ANTI")):
                self.semi(node, scope, positive=kind == "SEMI")
            case (("LEFT" | "RIGHT" | "FULL"), ("" | "OUTER")):
                self.outer(node, scope, side)
            case "", ("" | "INNER" | "CROSS"):
                self.inner(node, scope)
            case _:
                hint = "swap the sides and use LEFT" if kind in ("SEMI", "ANTI") else None
                raise self.context.unsupported(f"a {f'{side} {kind}'.strip()} join", node, hint)

    def inner(self, node: exp.Join, scope: Scope) -> None:
        """INNER and CROSS JOIN: both sides are literals of one body."""
        right = Scope(scope.body, scope.parent)
        # Both sides share one body, but USING and NATURAL must tell their columns apart.
        left = Scope(scope.body, scope.parent, scope.columns)
        if (call := table_function(node.this)) is not None:
            # A generator sees the sources before it, and adds its columns to them.
            known = len(left.columns)
            add_generator(call, node.this, self._lower(left), outer=False)
            left.columns, right.columns = left.columns[:known], left.columns[known:]
        else:
            self.operand(node.this, right, left)
        self.check_aliases(left, right, node)
        keys = self.keys(node, left, right)
        scope.columns = [*left.columns, *right.columns]
        self.condition(node, keys, scope)
        scope.columns = merge_columns(keys, left, right, "LEFT")

    def check_aliases(self, left: Scope, right: Scope, node: exp.Expr) -> None:
        """Refuse an alias that both sides have."""
        if double := next((alias for alias in right.aliases if alias in left.aliases), None):
            raise Redefined(
                f"two sources have the name '{double}'", self.context.span(node.this), hint="give one of them an alias"
            )

    def keys(self, node: exp.Join, left: Scope, right: Scope) -> list[JoinKey]:
        """The pairs of columns that USING or NATURAL equates."""
        span = self.context.span(node)
        ours, theirs = ([column.name for column in side.visible] for side in (left, right))
        if (node.args.get("method") or "").upper() == "NATURAL":
            # Without a shared name, NATURAL JOIN is a cross join.
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
        """Keep the rows that fulfil the condition of a join: USING, NATURAL or ON."""
        lower = ExpressionLowering(self.context, scope, self.queries.subqueries)
        for key in keys:
            require_equal(key.left.typed, key.right.typed, lower, node)
        if (on := node.args.get("on")) is not None:
            require(on, lower)

    def semi(self, node: exp.Join, scope: Scope, *, positive: bool) -> None:
        """SEMI and ANTI JOIN: the rows of the left side that have a partner, or that have none."""
        if node.args.get("method"):
            raise self.context.unsupported(f"a {node.args['method']} {node.kind} join", node, "name the columns with USING")
        right = Scope(self.context.body(scope.body), scope.parent)
        self.operand(node.this, right)
        self.check_aliases(scope, right, node)
        # The partners are projected to the columns of the left side that the condition uses: a semi join adds no copies.
        inner = _SemiJoinScope(right.body, scope, right.columns)
        keys = []
        for key in self.keys(node, scope, right):
            left = replace(key.left.typed, term=scope.body.representative(key.left.typed.term))
            inner.body.mention(v for v in [left.term] if isinstance(v, Variable))
            keys.append(replace(key, left=replace(key.left, typed=left)))
        self.condition(node, keys, inner)
        #   hit(left) :- right(right), condition.
        #   SEMI: body, hit(left).       ANTI: body, !hit(left).
        # Unlike NOT IN, an ANTI JOIN needs no null test: a pair whose condition is NULL does not match.
        atom = define_hits(inner.body, self.context)
        scope.body.mention(v for v in atom.terms if isinstance(v, Variable))
        scope.body.add(atom if positive else Negation(atom))
        # Spark shows the columns of USING first, also for a semi join.
        first = [key.name for key in keys]
        scope.columns.sort(key=lambda c: first.index(c.name) if c.name in first and not c.hidden else len(first))

    # Outer joins

    def outer(self, node: exp.Join, scope: Scope, side: str) -> None:
        """LEFT, RIGHT and FULL JOIN: the matches, and the rows without a match, padded with NULL."""
        # A side is read twice, by the matches and by the rows without
        # a match, and negation takes one atom: each side becomes one.
        if isinstance(node.this, exp.Lateral):
            self.outer_lateral(node, scope, side)
            return
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
        # ON decides which pairs match: a row that fails it is padded, and not dropped. WHERE filters after the padding.
        self.condition(node, keys, match)
        if match.body.outer:
            raise self.context.unsupported("an outer join whose condition refers to an enclosing query", node)
        whole, columns = self.padded(match.body, left, right, side)
        self.rebind(scope, (left, right), whole, columns, side)
        for one_scope in (scope, right_scope):
            one_scope.map_terms(self.after_join)
        keys = [key.map_terms(self.after_join) for key in keys]
        scope.columns = merge_columns([self.coalesced(key, scope, side) for key in keys], scope, right_scope, side)

    def outer_lateral(self, node: exp.Join, scope: Scope, side: str) -> None:
        """LEFT JOIN LATERAL: the rows of the query for each row of the left side, or NULL where it has none."""
        if side != "LEFT":
            raise self.context.unsupported(f"{side} JOIN LATERAL", node, "use LEFT JOIN LATERAL")
        if (call := table_function(node.this)) is not None:
            on = node.args.get("on")
            if on is not None and not (isinstance(on, exp.Boolean) and on.this):
                raise self.context.unsupported("a condition of LEFT JOIN LATERAL with a generator", on, "write ON TRUE")
            add_generator(call, node.this, self._lower(scope), outer=True)
            return
        left = self.frozen(scope)
        rel, alias = self.relation(node.this, scope)
        right_scope = Scope(self.context.body(scope.body), scope.parent)
        typed = right_scope.body.read(rel)
        self.bind(right_scope, alias, list(zip([field.name for field in rel.fields], typed, strict=True)), node)
        self.check_aliases(scope, right_scope, node)
        (whole_row,), (rows,) = right_scope.body.literals, right_scope.body.sources
        assert isinstance(whole_row, Atom)
        own = whole_row.terms[: len(rel.own)]
        # The correlated columns are variables of the left side, and are not padded.
        right = JoinSide(Atom(rel.name, own), tuple(term for term in rows.key if term in own), self.columns(own))
        match = Scope(self.context.body(), scope.parent, [*scope.columns, *right_scope.columns])
        match.body.add(left.atom, whole_row)
        match.body.sources += [SourceRows(left.atom.terms, left.key), rows]
        self.condition(node, (), match)
        whole, columns = self.padded(match.body, left, right, side)
        self.rebind(scope, (left, right), whole, columns, side)
        for one_scope in (scope, right_scope):
            one_scope.map_terms(self.after_join)
        scope.columns = [*scope.columns, *right_scope.columns]

    def frozen(self, scope: Scope) -> JoinSide:
        """A side as one atom. A side of several literals becomes a relation first."""
        body = scope.body
        if body.outer:
            raise self.context.unsupported("an outer join inside a correlated query", None, "define the join as a view")
        if len(body.literals) == 1 and isinstance(body.literals[0], Atom) and not body.equal_to:
            (rows,) = body.sources
            atom = body.literals[0]
            return JoinSide(atom, rows.key, self.columns(atom.terms))
        kept = list(
            dict.fromkeys(t for rows in body.sources for t in map(body.representative, rows.terms) if isinstance(t, Variable))
        )
        kept += [t for t in computed_variables(body) if t not in kept]
        # side(l) :- the literals of the left side so far.
        name = self.context.name("side")
        self.context.declare(name, self.columns(kept))
        self.context.define(name, kept, body.finish())
        keys = dict.fromkeys(t for rows in body.sources for t in map(body.representative, rows.key) if isinstance(t, Variable))
        # A column may have been equated with another one or with a constant; outside it is what the relation has.
        scope.map_terms(lambda typed: replace(typed, term=body.term(typed.term)))
        return JoinSide(Atom(name, tuple(kept)), tuple(keys), self.columns(kept))

    def columns(self, terms: Sequence[Simple]) -> tuple[Column, ...]:
        """The columns that the variables among these terms were made for."""
        return tuple(self.context.columns[term.name] for term in terms if isinstance(term, Variable))

    def padded(self, body: RuleBody, left: JoinSide, right: JoinSide, side: str) -> tuple[str, list[Column]]:
        """Define the rules of an outer join; return the name and the columns of the joined relation.

        The key of an outer join is that of both sides. In a FULL JOIN it may be NULL on either side, so a column `side` tells
        matches (0), rows of the left side (1) and rows of the right side (2) apart.
        """
        # An outer join is the union of the inner join and, for each side that it preserves, of an anti-join padded with NULL.
        #   match(l, r) :- left(l), right(r), condition.
        #   join(l, r) :- match(l, r).
        match, whole = self.context.name("match"), self.context.name("join")
        terms = (*left.atom.terms, *right.atom.terms)
        # The side that may be padded becomes nullable: RIGHT pads the left one, and the other way round.
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
        """Define the rows of one side that have no partner, padded with NULL."""
        name = self.context.name("hit")
        #   hit(l) :- match(l, _).
        #   join(l, NULL) :- left(l), !hit(l).
        self.context.declare(name, side.columns)
        self.context.define(name, side.atom.terms, [Atom(match, tuple(terms))])
        self.context.define(whole, head, [side.atom, Negation(Atom(name, side.atom.terms))])

    def rebind(self, scope: Scope, sides: tuple[JoinSide, JoinSide], whole: str, columns: Sequence[Column], side: str) -> None:
        """Let the query read the joined relation instead of its sources."""
        terms = [term for one in sides for term in one.atom.terms if isinstance(term, Variable)]
        tags = [self.context.fresh("side")] if side == "FULL" else []
        self.context.columns.update({v.name: column for v, column in zip((*terms, *tags), columns, strict=True)})
        key = (*sides[0].key, *sides[1].key, *tags)
        body = scope.body
        # Padding may make any column NULL again, so nothing that the body knew about its variables holds any more.
        body.literals, body.equal_to, body.not_null = [Atom(whole, (*terms, *tags))], {}, set()
        body.sources = [SourceRows((*terms, *tags), key)]

    def after_join(self, typed: TypedTerm) -> TypedTerm:
        """The column as it is after the join, which may have made it nullable."""
        if not isinstance(typed.term, Variable):
            return replace(typed, nullable=True)
        return replace(typed, nullable=typed.nullable or self.context.columns[typed.term.name].nullable)

    def coalesced(self, key: JoinKey, scope: Scope, side: str) -> JoinKey:
        """The key with the value of a FULL JOIN's column: that of the side that has a row."""
        if side != "FULL":
            return key
        lower = ExpressionLowering(self.context, scope, self.queries.subqueries)
        # A row of one side alone has NULL in the other's column, so the first value that is there is the key's.
        both = lower.to_common_type([key.left.typed, key.right.typed], exp.null())
        nullable = key.left.typed.nullable and key.right.typed.nullable
        value = lower.call("coalesce", both, both[0].type, nullable=nullable)
        return replace(key, both=ScopeColumn(key.name, f"using {self.context.fresh(key.name).name}", value))


@dataclass(frozen=True, slots=True)
class JoinKey:
    """A column of USING: the columns of the left and the right side, and their common value in a FULL JOIN."""

    name: str
    left: ScopeColumn
    right: ScopeColumn
    both: ScopeColumn | None = None

    def map_terms(self, function: Callable[[TypedTerm], TypedTerm]) -> JoinKey:
        """The key with the terms of both columns replaced."""
        left, right = (replace(column, typed=function(column.typed)) for column in (self.left, self.right))
        return JoinKey(self.name, left, right)


@dataclass(slots=True)
class _SemiJoinScope(Scope):
    """The scope of a semi join's condition: its own columns are the right side, the parent is the left side."""

    def find(self, name: str, table: str | None, span: Span) -> TypedTerm | None:
        found = Scope.find(self, name, table, span)
        # In a subquery the inner column would win. In a join both sides are equal, and Spark refuses the name.
        if found is not None and table is None and self.parent is not None and self.parent.find(name, None, span) is not None:
            raise ambiguous(name, [c.alias for side in (self.parent, self) for c in side.visible if c.name == name], span)
        return found


def merge_columns(keys: Sequence[JoinKey], left: Scope, right: Scope, side: str) -> list[ScopeColumn]:
    """The columns of a join in the order of Spark: the columns of USING once, the rest of both sides, then the hidden columns.

    The side whose rows are all in the result gives the value of a column of USING.
    """
    lefts, rights = [key.left.name for key in keys], [key.right.name for key in keys]
    rest = [c for c in left.visible if c.name not in lefts] + [c for c in right.visible if c.name not in rights]
    shown = [key.both or (key.right if side == "RIGHT" else key.left) for key in keys]
    hidden = [key.left for key in keys if side in ("RIGHT", "FULL")] + [key.right for key in keys if side != "RIGHT"]
    before = [c for c in (*left.columns, *right.columns) if c.hidden]
    return [*shown, *rest, *(replace(column, hidden=True) for column in hidden), *before]


def table_function(node: exp.Expr) -> exp.Expr | None:
    """The call of a table function that a source is; None for other sources."""
    return node.this if isinstance(node, exp.Table | exp.Lateral) and isinstance(node.this, exp.Anonymous) else None


def _is_parenthesised(node: exp.Expr) -> bool:
    """Whether this is a list of sources in parentheses, not a query in parentheses."""
    inner = node.this
    if not isinstance(node, exp.Subquery) or not isinstance(inner, exp.Table | exp.Subquery | exp.Values):
        return False
    named = inner.args.get("joins") or inner.args.get("alias")
    return isinstance(inner, exp.Table) or bool(named) or _is_parenthesised(inner)


def _bare(node: exp.Expr) -> exp.Expr:
    """The first source of a list, without the joins that follow it."""
    bare = node.copy()
    bare.set("joins", None)
    return bare


def define_hits(body: RuleBody, context: StatementContext) -> Atom:
    """Define the relation of the outer values for which a body has an answer; return its atom."""
    outer = tuple(body.outer.values())
    name = context.name("hit")
    # The outer query may have NULL in these columns; identity of NULL is what the atom compares by (decision 16).
    context.declare(name, [replace(context.columns[v.name], nullable=True) for v in outer])
    literals = body.finish()
    context.define(name, [body.representative(v) for v in outer], literals)
    return Atom(name, outer)


def computed_variables(body: RuleBody) -> list[Variable]:
    """The variables that atoms bind which are not sources, such as the values of subqueries."""
    atoms = [literal for literal in body.literals if isinstance(literal, Atom)]
    known = {t for rows in body.sources for t in rows.terms}
    return [t for atom in atoms for t in atom.terms if isinstance(t, Variable) and t not in known and t.name not in body.equal_to]
