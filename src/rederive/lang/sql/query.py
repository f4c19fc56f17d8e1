"""Queries to relations: SELECT, set operations, VALUES and WITH."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from rederive.errors import Redefined, TypeClash, WrongArity
from rederive.ir.rules import Atom, Column, Literal, Negation
from rederive.ir.terms import NUMBER, Constant, Simple, Variable
from rederive.lang.sql.column_aliases import expand_aliases
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.generators import add_lateral_views, replace_generators
from rederive.lang.sql.grouping import is_grouped, lower_grouping
from rederive.lang.sql.joins import JoinLowering
from rederive.lang.sql.lowered_relation import Field, LoweredRelation, TypedTerm
from rederive.lang.sql.predicates import require
from rederive.lang.sql.recursion import define_recursive_queries, recursive_names
from rederive.lang.sql.rule_body import RuleBody
from rederive.lang.sql.scope import Scope, identifier, identifiers
from rederive.lang.sql.session_windows import lower_session_windows
from rederive.lang.sql.star_expansion import expand_stars
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.subqueries import SubqueryLowering
from rederive.lang.sql.supported_syntax import construct_name
from rederive.lang.sql.time_windows import replace_time_windows
from rederive.lang.sql.typed_aggregates import replace_typed_aggregates
from rederive.lang.sql.types import STRING, VOID, SqlType, common_type
from rederive.lang.sql.windows import expand_named_windows, keep_first_rows, lower_windows


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query whose body and outputs are lowered, but which defines no relation yet."""

    lower: ExpressionLowering
    outputs: tuple[tuple[str, TypedTerm], ...]
    distinct: bool

    @property
    def body(self) -> RuleBody:
        """The body that binds the outputs."""
        return self.lower.scope.body

    def cast(self, types: Sequence[SqlType], node: exp.Expr) -> PreparedQuery:
        """The same query with its outputs cast to these types."""
        pairs = zip(self.outputs, types, strict=True)
        return replace(self, outputs=tuple((name, self.lower.cast(typed, type, node)) for (name, typed), type in pairs))


class QueryLowering:
    """Lowers the queries of one statement."""

    def __init__(self, context: StatementContext) -> None:
        self.context = context
        self.subqueries = SubqueryLowering(self, context)
        self.joins = JoinLowering(self, context)

    def query(self, node: exp.Expr, around: Scope | None = None, target: str | None = None) -> LoweredRelation:
        """The relation of a query. `around` is the scope of the enclosing query, `target` the view that the query defines."""
        with self.with_queries(node):
            return self._lower_query(node, around, target)

    @contextmanager
    def with_queries(self, node: exp.Expr) -> Iterator[None]:
        """Within this context, the names of the query's WITH are in scope."""
        before = dict(self.context.ctes)
        if (with_ := node.args.get("with_")) is not None:
            self.with_(with_)
        yield
        self.context.ctes = before

    def _lower_query(self, node: exp.Expr, around: Scope | None, target: str | None) -> LoweredRelation:
        match node:
            case exp.Subquery() | exp.Paren():
                if found := next((part for part in ("joins", "alias") if node.args.get(part)), None):
                    raise self.context.unsupported(f"{found.upper()} of a query in parentheses", node, "write the query in FROM")
                rel = self.query(node.this, around, target if _is_unlimited(node) else None)
                return self._keep_first(node, rel, target, around)
            case exp.Union(args={"distinct": False}):
                rel = self.union_all(node, around, target if _is_unlimited(node) else None)
                return self._keep_first(node, rel, target, around)
            case exp.Union() | exp.Intersect() | exp.Except():
                rel = self.set_operation(node, around, target if _is_unlimited(node) else None)
                return self._keep_first(node, rel, target, around)
            case exp.Values():
                return self.values(node, target)
            case exp.Select():
                return self.project(self._lower_select(node, around), target)
        what = "the name of a table" if isinstance(node, exp.Table) else construct_name(node)
        raise self.context.unsupported(f"{what} as a query", node, "write SELECT ... FROM ...")

    def _keep_first(self, node: exp.Expr, rel: LoweredRelation, target: str | None, around: Scope | None) -> LoweredRelation:
        """The relation, or its first rows if the query has LIMIT or OFFSET."""
        if _is_unlimited(node):
            return rel
        return self.project(self.limited(node, self._read_relation(rel, around), around), target)

    # SELECT

    def prepare(self, node: exp.Expr, around: Scope | None = None) -> PreparedQuery:
        """The body and the outputs of a query. Any query but a SELECT becomes a relation, which the body reads."""
        if not isinstance(node, exp.Select):
            return self._read_relation(self.query(node, around), around)
        with self.with_queries(node):
            return self._lower_select(node, around)

    def _lower_select(self, node: exp.Select, around: Scope | None) -> PreparedQuery:
        # SQL evaluates FROM, WHERE, GROUP BY, HAVING, windows, SELECT, DISTINCT, LIMIT, in this order.
        node = replace_time_windows(node, self.context)
        scope = Scope(self.context.body(around.body if around else None), around)
        lower = ExpressionLowering(self.context, scope, self.subqueries)
        if (from_ := node.args.get("from_")) is not None:
            self.joins.from_clause(from_.this, node.args.get("joins") or (), scope)
        add_lateral_views(node.args.get("laterals") or (), lower)
        node = expand_aliases(expand_named_windows(expand_stars(node, scope, self.context), self.context), scope, self.context)
        if (where := node.args.get("where")) is not None:
            require(where.this, lower)
        node = replace_typed_aggregates(lower_session_windows(node, lower), lower)
        if is_grouped(node):
            lower = lower_grouping(node, lower, self.context)
            if (having := node.args.get("having")) is not None:
                require(having.this, lower)
        elif node.args.get("having") is not None:
            raise self.context.unsupported("HAVING without aggregates", node.args["having"], "use WHERE")
        node = replace_generators(node, lower)
        lower = lower_windows(node, lower, self.context)
        if (qualify := node.args.get("qualify")) is not None:
            require(qualify.this, lower)
        prepared = PreparedQuery(lower, tuple(self.outputs(node, lower)), bool(node.args.get("distinct")))
        return self.limited(node, prepared, around) if node.args.get("limit") or node.args.get("offset") else prepared

    def limited(self, node: exp.Expr, prepared: PreparedQuery, around: Scope | None) -> PreparedQuery:
        """Keep the first rows of a query: they are numbered in its order. DISTINCT applies before LIMIT."""
        if prepared.distinct:  # SQL removes duplicates before it counts rows.
            prepared = self._read_relation(self.project(prepared, None), around)
        named = tuple((name, prepared.body.assign(typed, name)) for name, typed in prepared.outputs)
        keep_first_rows(node, prepared.lower, dict(reversed(named)), [typed for _, typed in named], self.context)
        return replace(prepared, outputs=named)

    def _read_relation(self, rel: LoweredRelation, around: Scope | None) -> PreparedQuery:
        scope = Scope(self.context.body(around.body if around else None), around)
        columns = scope.body.read(rel)
        named = tuple((field.name, typed) for field, typed in zip(rel.fields, columns, strict=True))
        return PreparedQuery(ExpressionLowering(self.context, scope, self.subqueries), named, False)

    def outputs(self, node: exp.Select, lower: ExpressionLowering) -> list[tuple[str, TypedTerm]]:
        """The names and terms of the SELECT list."""
        return [(self._output_name(item, i), lower.lower(item)) for i, item in enumerate(node.expressions)]

    @staticmethod
    def _output_name(item: exp.Expr, position: int) -> str:
        item = item.unnest() if isinstance(item, exp.Paren) else item
        if isinstance(item, exp.Alias | exp.Column):
            return identifier(item.args["alias"] if isinstance(item, exp.Alias) else item)
        if isinstance(item, exp.Dot):
            return identifier(item.expression)
        return f"col{position + 1}"

    def project(self, prepared: PreparedQuery, target: str | None) -> LoweredRelation:
        """Define the relation of a prepared query; hidden columns tell the copies of a row apart."""
        named = self._assigned_outputs(prepared)
        if prepared.distinct:
            self._check_comparable((typed.type for _, typed in named), prepared.lower)
        body = prepared.body
        terms = [body.representative(typed.term) for _, typed in named]
        outer = tuple(body.outer.values())
        # Two derivations of a row that differ in a source row differ in `hidden`: the relation has a row for each copy.
        hidden = [] if prepared.distinct else body.identity(terms)
        fields = tuple(Field(name, typed.type, typed.nullable) for name, typed in named)
        columns = [self.context.columns[variable.name] for variable in hidden]
        name = self.context.into(target, "query", columns)
        key = _key(terms, hidden, body) if not prepared.distinct else ()
        rel = LoweredRelation(name, fields, tuple(columns), key, outer)
        self._declare(rel)
        self.context.define(name, (*terms, *hidden, *map(body.representative, outer)), body.finish())
        return rel

    def _assigned_outputs(self, prepared: PreparedQuery) -> list[tuple[str, TypedTerm]]:
        known = [(name, replace(typed, type=STRING) if typed.type == VOID else typed) for name, typed in prepared.outputs]
        return [(name, prepared.body.assign(typed, name)) for name, typed in known]

    def _check_comparable(self, types: Iterable[SqlType], lower: ExpressionLowering) -> None:
        for type in types:
            lower.check_comparable(type, exp.null())

    def _declare(self, rel: LoweredRelation) -> None:
        # An outer value may be NULL, whatever the inner query says about it.
        correlated = [replace(self.context.columns[v.name], nullable=True) for v in rel.outer]
        columns = [*(field.column() for field in rel.fields), *rel.hidden, *correlated]
        key = (*rel.key, *range(len(rel.own), len(columns))) if rel.key else ()
        self.context.declare(rel.name, columns, key)

    # Set operations

    def _with_common_types(
        self, branches: Sequence[PreparedQuery], node: exp.Expr
    ) -> tuple[list[PreparedQuery], tuple[Field, ...]]:
        """The branches cast to common types, and the columns of their union, which the first branch names."""
        first = branches[0].outputs
        for branch in branches[1:]:
            if len(branch.outputs) != len(first):
                raise WrongArity(f"different numbers of columns: {len(first)} and {len(branch.outputs)}", self.context.span(node))
        types = [self._shared([b.outputs[i][1].type for b in branches], node) for i in range(len(first))]
        cast = [branch.cast(types, node) for branch in branches]
        nullable = [any(b.outputs[i][1].nullable for b in cast) for i in range(len(first))]
        fields = (Field(name, type, null) for (name, _), type, null in zip(first, types, nullable, strict=True))
        return cast, tuple(fields)

    def _shared(self, types: Sequence[SqlType], node: exp.Expr) -> SqlType:
        found = types[0]
        for type in types[1:]:
            both = common_type(found, type)
            if both is None:
                raise TypeClash(f"{found} and {type} have no common type", self.context.span(node), hint="cast one of them")
            found = both
        # A column that is NULL in every branch has no type, and counts as STRING.
        return STRING if found == VOID else found

    def union_all(self, node: exp.Union, around: Scope | None, target: str | None) -> LoweredRelation:
        """UNION ALL: one relation whose hidden columns are the number of the branch and the identities of all branches.

        The identities of the other branches are NULL in a row, so that rows of different branches never are one row.
        """
        self._check_branch_order(node)
        branches, fields = self._with_common_types([self.prepare(b, around) for b in _branches(node, all_=True)], node)
        rows = [self._branch_rows(branch, around) for branch in branches]
        outer = _share_outer([branch for branch, _, _ in rows])
        hidden = [Column("branch", NUMBER)]
        offsets = []
        for _, _, identity in rows:
            offsets.append(len(hidden))
            hidden += [replace(self.context.columns[v.name], nullable=True) for v in identity]
        rel = LoweredRelation(self.context.into(target, "union", hidden), fields, tuple(hidden), outer=outer)
        self._declare(rel)
        #   union(columns, 1, identity1, NULL) :- branch1.
        #   union(columns, 2, NULL, identity2) :- branch2.
        for number, ((branch, terms, identity), offset) in enumerate(zip(rows, offsets, strict=True), 1):
            padded: list[Simple] = [Constant(None, column.type) for column in hidden]
            padded[0] = Constant(number, NUMBER)
            padded[offset : offset + len(identity)] = identity
            body = branch.body.finish()
            self.context.define(rel.name, (*terms, *padded, *map(branch.body.representative, outer)), body)
        return rel

    def _branch_rows(self, branch: PreparedQuery, around: Scope | None) -> tuple[PreparedQuery, list[Simple], list[Variable]]:
        """A branch, the terms of its columns, and what identifies its rows."""
        # A DISTINCT branch is a set of its own first: its rows are identified by their values.
        if branch.distinct:
            branch = self._read_relation(self.project(branch, None), around)
        terms = [branch.body.representative(typed.term) for _, typed in self._assigned_outputs(branch)]
        return branch, terms, branch.body.identity(terms)

    def set_operation(self, node: exp.SetOperation, around: Scope | None, target: str | None) -> LoweredRelation:
        """UNION, INTERSECT and EXCEPT, of sets or with ALL of bags."""
        self._check_branch_order(node)
        is_bag = not node.args.get("distinct", True)
        parts = _branches(node, all_=False) if isinstance(node, exp.Union) else [node.this, node.expression]
        branches, fields = self._with_common_types([self.prepare(part, around) for part in parts], node)
        self._check_comparable((field.type for field in fields), branches[0].lower)
        outer = _share_outer(branches)
        hidden = (Column("copy", NUMBER),) if is_bag else ()
        rel = LoweredRelation(self.context.into(target, node.key, hidden), fields, hidden, outer=outer)
        self._declare(rel)
        if isinstance(node, exp.Union):
            for branch in branches:
                self.define_into(rel.name, branch, outer)
        else:
            self._combine(rel, branches, negated=isinstance(node, exp.Except))
        return rel

    def define_into(self, name: str, branch: PreparedQuery, outer: Sequence[Variable] = ()) -> None:
        """Define a rule of a declared relation, which is a set."""
        terms = [branch.body.representative(typed.term) for _, typed in self._assigned_outputs(branch)]
        body = branch.body.finish()
        self.context.define(name, (*terms, *map(branch.body.representative, outer)), body)

    def _combine(self, rel: LoweredRelation, branches: Sequence[PreparedQuery], *, negated: bool) -> None:
        """The rows of both sides, or of the first only. A shared variable matches NULL with NULL, as set operations of SQL do."""
        # The sides are relations, because a negated body must be a single atom.
        sides = [self._numbered_copies(b) if rel.hidden else self.project(replace(b, distinct=True), None).name for b in branches]
        #   intersect(x) :- one(x), two(x).       except(x) :- one(x), !two(x).
        # With ALL, x includes the number of the copy: INTERSECT ALL has the copies that both sides have.
        variables = (*(self.context.fresh(column.name) for column in rel.own), *rel.outer)
        other = Atom(sides[1], variables)
        literals: list[Literal] = [Atom(sides[0], variables), Negation(other) if negated else other]
        self.context.define(rel.name, variables, literals)

    def _numbered_copies(self, branch: PreparedQuery) -> str:
        """Define the relation of the rows of a branch, each with the number of its copy; return its name."""
        rel = self.project(branch, None)
        shown, own = len(rel.fields), len(rel.own)
        ranked, name = self.context.name("rank"), self.context.name("copies")
        places = (*range(shown), *range(own, own + len(rel.outer)))
        #   rank(x, outer, identity, n) :- n = row_number : { query(x, identity, outer) }.
        #   copies(x, n, outer) :- rank(x, outer, _, n).
        self.context.ranking(ranked, rel.name, places, ())
        columns = self.context.builder.relations[ranked].columns
        terms = tuple(self.context.fresh("c") for _ in columns)
        row = (*terms[:shown], terms[-1], *terms[shown : len(places)])
        number = Column("copy", NUMBER)
        self.context.declare(name, (*columns[:shown], number, *columns[shown : len(places)]))
        self.context.define(name, row, [Atom(ranked, terms)])
        return name

    def _check_branch_order(self, node: exp.SetOperation) -> None:
        """Refuse ORDER BY and LIMIT of a branch without parentheses: SQL reads them as those of the whole query."""
        first = node.this
        if not isinstance(first, exp.Subquery) and any(first.args.get(part) for part in ("order", "limit", "offset")):
            raise self.context.unsupported("ORDER BY or LIMIT inside a set operation", first, "put the branch into parentheses")

    # Scalar subqueries

    def count_and_value(self, rel: LoweredRelation, around: Scope) -> LoweredRelation:
        """The number of rows of a relation with one column, and the greatest of its values, for each outer value."""
        scope = Scope(self.context.body(around.body), around)
        scope.bind("only", [("value", scope.body.read(rel)[0])])
        calls = [
            exp.Anonymous(this="count", expressions=[exp.Star()]),
            exp.Anonymous(this="max", expressions=[exp.column("value")]),
        ]
        lower = ExpressionLowering(self.context, scope, self.subqueries)
        lower = lower_grouping(exp.Select(expressions=calls), lower, self.context)
        outputs = (("number", lower.lower(calls[0])), (rel.fields[0].name, lower.lower(calls[1])))
        return self.project(PreparedQuery(lower, outputs, False), None)

    # VALUES and WITH

    def values(self, node: exp.Values, target: str | None = None) -> LoweredRelation:
        """Rows of constants; the number of the row tells equal rows apart."""
        prepared = [self._constants(row) for row in node.expressions]
        branches, fields = self._with_common_types(prepared, node)
        terms = [[branch.body.representative(typed.term) for _, typed in self._assigned_outputs(branch)] for branch in branches]
        # A computed value may equal another one, which is known only when it is evaluated.
        copies = len(set(map(tuple, terms))) < len(terms) or any(isinstance(t, Variable) for row in terms for t in row)
        hidden = (Column("row", NUMBER),) if copies else ()
        rel = LoweredRelation(self.context.into(target, "values", hidden), fields, hidden)
        self._declare(rel)
        for number, (branch, row) in enumerate(zip(branches, terms, strict=True), 1):
            ordinal = (Constant(number, NUMBER),) if copies else ()
            self.context.define(rel.name, (*row, *ordinal), branch.body.finish())
        return rel

    def _constants(self, row: exp.Expr) -> PreparedQuery:
        lower = ExpressionLowering(self.context, Scope(self.context.body()), self.subqueries)
        parts = row.expressions if isinstance(row, exp.Tuple) else [row]
        return PreparedQuery(lower, tuple((f"col{i + 1}", lower.lower(part)) for i, part in enumerate(parts)), False)

    def with_(self, node: exp.With) -> None:
        """Define the queries of a WITH and bring their names into scope."""
        called = [identifier(cte.args["alias"]) for cte in node.expressions]
        if double := next((i for i, name in enumerate(called) if name in called[:i]), None):
            span = self.context.span(node.expressions[double])
            raise Redefined(f"two WITH queries are called '{called[double]}'", span, hint="rename one of them")
        # A WITH query sees those before it. Only RECURSIVE lets it see itself and those after it.
        recursive = recursive_names(node) if node.args.get("recursive") else frozenset()
        for cte in node.expressions:
            name = identifier(cte.args["alias"])
            if name in recursive:
                if name not in self.context.ctes:
                    define_recursive_queries(self, node, name)
                continue
            self.context.ctes[name] = rename_columns(self.query(cte.this), cte.args["alias"], self.context)


def rename_columns(rel: LoweredRelation, alias: exp.Expr | None, context: StatementContext) -> LoweredRelation:
    """The relation with the column names that its alias gives."""
    columns = identifiers(alias.args.get("columns") or ()) if alias is not None else []
    if not columns:
        return rel
    if len(columns) != len(rel.fields):
        raise WrongArity(f"the alias names {len(columns)} columns, but the query has {len(rel.fields)}", context.span(alias))
    return replace(rel, fields=tuple(replace(field, name=name) for field, name in zip(rel.fields, columns, strict=True)))


def _is_unlimited(node: exp.Expr) -> bool:
    """Whether a query has neither LIMIT nor OFFSET."""
    return not node.args.get("limit") and not node.args.get("offset")


def _branches(node: exp.SetOperation, *, all_: bool) -> list[exp.Expr]:
    """The branches of a chain of UNION, or of UNION ALL, from left to right."""
    return [branch for side in (node.this, node.expression) for branch in _chain(side, all_=all_)]


def _chain(node: exp.Expr, *, all_: bool) -> list[exp.Expr]:
    if not isinstance(node, exp.Union) or bool(node.args.get("distinct")) is all_:
        return [node]
    # LIMIT and WITH of an inner union are its own, so it stays one branch.
    return _branches(node, all_=all_) if _is_unlimited(node) and not node.args.get("with_") else [node]


def _share_outer(branches: Sequence[PreparedQuery]) -> tuple[Variable, ...]:
    """The outer variables that the branches of a set operation mention; every branch has all of them as columns."""
    outer = {name: variable for branch in branches for name, variable in branch.body.outer.items()}
    for branch in branches:
        branch.body.outer = dict(outer)
    return tuple(outer.values())


def _key(terms: Sequence[Simple], hidden: Sequence[Variable], body: RuleBody) -> tuple[int, ...]:
    """The positions of the identity of a row; empty if a part of it is not among the columns."""
    columns = [*terms, *hidden]
    identity = body.identity(())
    return tuple(columns.index(v) for v in identity) if identity and all(v in columns for v in identity) else ()
