"""GROUP BY and aggregates.

The rows that are aggregated are one relation: their groups, the arguments of all aggregates, and their identities, so that
equal rows count separately. Each aggregate is a relation by the groups, which the query reads:

    q.rows(g, x, identity) :- ...            q.sum1(g, s) :- s = sum x : { q.rows(g, x, identity) }.

Aggregates skip NULL. Without GROUP BY there is one group, even if there is no row: its counts are 0, the rest is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rederive.errors import Span, TypeClash, WrongArity
from rederive.ir.rules import Atom, Column, Function, Literal, Negation
from rederive.ir.terms import NUMBER, Constant, Simple, Variable, variables
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.invocation import AGGREGATES, function_name
from rederive.lang.sql.literals import numeric_literal
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.rule_body import RuleBody, SourceRows
from rederive.lang.sql.scope import Scope, identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BIGINT, BOOL, SqlType, mean_type, sum_type

# FALSE is less than TRUE: the least of conditions is their conjunction, the greatest their disjunction.
_FUNCTIONS = {
    "count": Function.COUNT,
    "count_if": Function.COUNT,
    "sum": Function.SUM,
    "avg": Function.MEAN,
    "mean": Function.MEAN,
    "min": Function.MIN,
    "max": Function.MAX,
    "bool_and": Function.MIN,
    "every": Function.MIN,
    "bool_or": Function.MAX,
    "some": Function.MAX,
}


_MOST_JOINED = 10  # results of aggregates in one rule body; a body with more literals is slow to plan


def is_grouped(node: exp.Select) -> bool:
    """Whether a query has GROUP BY or an aggregate."""
    return node.args.get("group") is not None or any(True for _ in _aggregates(node))


def _aggregates(node: exp.Select) -> Iterator[exp.Expr]:
    """The aggregate calls of a query, without those of its subqueries."""
    parts = [*node.expressions, node.args.get("having"), node.args.get("order")]
    for part in parts:
        if part is not None:
            yield from _calls(part)


def _calls(node: exp.Expr) -> Iterator[exp.Expr]:
    # An aggregate inside a subquery or a window belongs to that one.
    if isinstance(node, exp.Query | exp.Window):
        return
    if is_aggregate(node.this if isinstance(node, exp.Filter) else node):
        yield node
        return
    for child in node.iter_expressions():
        yield from _calls(child)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate. sqlglot reads `any(condition)` as ANY, which is `some(condition)`."""
    if isinstance(node, exp.Any):
        return not node.find(exp.Query)
    return isinstance(node, exp.Anonymous) and function_name(node) in AGGREGATES


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: its function, its argument (None for count(*)), and the type of its result."""

    function: Function
    argument: TypedTerm | None
    distinct: bool
    gives: SqlType

    @property
    def empty(self) -> Constant:
        """The result of a group without rows."""
        return Constant(0, NUMBER) if self.function is Function.COUNT else Constant(None, self.gives.type)


@dataclass(slots=True)
class GroupScope(Scope):
    """The scope of SELECT and HAVING in a grouped query: a name must be a grouped column, or inside an aggregate."""

    inner: Scope | None = None
    groups: dict[str, TypedTerm] = field(default_factory=dict)

    def find(self, name: str, table: str | None, span: Span) -> TypedTerm | None:
        """The column of the sources, grouped or not."""
        assert self.inner is not None
        return self.inner.find(name, table, span)

    def resolve(self, name: str, table: str | None, span: Span) -> TypedTerm:
        """The value of a grouped column; other columns of the sources are refused."""
        assert self.inner is not None
        found = self.inner.find(name, table, span)
        if found is None:
            return Scope.resolve(self, name, table, span)
        grouped = self.groups.get(repr(self.inner.body.term(found.term)))
        if grouped is None:
            raise TypeClash(
                f"'{name}' is neither grouped nor aggregated", span, hint="add it to GROUP BY, or use min or max of it"
            )
        return grouped


def lower_grouping(node: exp.Select, lower: ExpressionLowering, context: StatementContext) -> ExpressionLowering:
    """Define the aggregates of a query; return the lowering of its SELECT list and HAVING."""
    return _GroupingLowering(node, lower, context).above()


def window_aggregate(
    call: exp.Expr, lower: ExpressionLowering, context: StatementContext
) -> tuple[Function, TypedTerm | None, TypedTerm]:
    """An aggregate over a window: its function, its argument, and a term with the type of its result."""
    if not is_aggregate(call.this if isinstance(call, exp.Filter) else call):
        raise context.unsupported(
            f"the window function '{function_name(call)}'", call, "see docs/sql.md for the supported functions"
        )
    found = _GroupingLowering(exp.Select(), lower, context).aggregate_call(call)
    if found.distinct:
        raise context.unsupported("DISTINCT in a window function", call)
    nullable = found.function is not Function.COUNT and (found.argument is not None and found.argument.nullable)
    return found.function, found.argument, TypedTerm(found.empty, found.gives, nullable)


class _GroupingLowering:
    """Lowers the grouping of one query."""

    def __init__(self, node: exp.Select, lower: ExpressionLowering, context: StatementContext) -> None:
        self.node = node
        self.lower = lower
        self.context = context
        self.body = lower.scope.body
        nodes = list(self.group_nodes())
        self.keys = [lower.canonical(group) for group in nodes]
        self.groups = [self.body.assign(lower.lower(group), f"group{i + 1}") for i, group in enumerate(nodes)]
        self.aggregates = {lower.canonical(call): self.aggregate_call(call) for call in _aggregates(node)}
        self.by_group = node.args.get("group") is not None

    # What is grouped, and by what

    def group_nodes(self) -> Iterator[exp.Expr]:
        group = self.node.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            # GROUP BY ALL: every item of the SELECT list that has no aggregate.
            items = (item.unalias() for item in self.node.expressions)
            yield from (item for item in items if not any(True for _ in _calls(item)))
        for item in group.expressions:
            yield self.group_node(item)

    def group_node(self, item: exp.Expr) -> exp.Expr:
        """GROUP BY 1 and GROUP BY alias mean the expression in the SELECT list."""
        items = self.node.expressions
        if isinstance(item, exp.Literal) and not item.is_string:
            position = int(item.this)
            if not 1 <= position <= len(items):
                raise TypeClash(f"GROUP BY {position}: the query has {len(items)} columns", self.context.span(item))
            chosen: exp.Expr = items[position - 1].unalias()
            return chosen
        if isinstance(item, exp.Column) and not item.args.get("table"):
            name = identifier(item)
            # As in Spark, a column of the sources takes precedence over an alias of the SELECT list.
            if self.lower.scope.find(name, None, self.context.span(item)) is None:
                aliased = [i for i in items if isinstance(i, exp.Alias) and identifier(i.args["alias"]) == name]
                return aliased[0].this if aliased else item
        return item

    def aggregate_call(self, call: exp.Expr) -> AggregateCall:
        condition = call.expression.this if isinstance(call, exp.Filter) else None
        call = call.this if isinstance(call, exp.Filter) else call
        name, arguments = ("some", [call.this]) if isinstance(call, exp.Any) else (function_name(call), call.expressions)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        arguments = arguments[0].expressions if distinct else arguments
        if not arguments or (len(arguments) > 1 and name != "count"):
            raise WrongArity(f"'{name}' takes 1 argument, not {len(arguments)}", self.context.span(call))
        typed = self.argument(name, arguments, condition, distinct, call)
        function = _FUNCTIONS[name]
        if typed is not None and function is not Function.COUNT:
            typed = self.cast_argument(function, name, typed, call)
        return AggregateCall(function, typed, distinct, self.result_type(function, typed))

    def argument(
        self, name: str, nodes: Sequence[exp.Expr], condition: exp.Expr | None, distinct: bool, call: exp.Expr
    ) -> TypedTerm | None:
        lower = self.lower
        tests = [lower.boolean(condition)] if condition is not None else []
        if any(isinstance(node, exp.Star) for node in nodes):
            if name != "count" or distinct or len(nodes) > 1:
                raise self.context.unsupported("* in this aggregate", call, "name the columns")
            value = numeric_literal("1")
        elif len(nodes) > 1:
            if distinct:
                raise self.context.unsupported(
                    "count(DISTINCT ...) of several columns", call, "count the rows of a SELECT DISTINCT"
                )
            tests += [lower.call("is not null", [lower.lower(node)], BOOL, nullable=False) for node in nodes]
            value = numeric_literal("1")
        else:
            value = lower.lower(nodes[0])
        if name == "count_if":
            tests.append(lower.boolean(nodes[0]))
            value = numeric_literal("1")
        if tests:  # aggregates skip NULL, so a row that fails the FILTER gives NULL
            test = tests[0] if len(tests) == 1 else lower.call("and", tests, BOOL, nullable=any(t.nullable for t in tests))
            parts = [test, value, TypedTerm(Constant(None, value.type.type), value.type, True)]
            value = lower.call("case", parts, value.type, nullable=True)
        elif name == "count" and not value.nullable and not distinct:
            return None  # count(x) of a value that is never NULL is count(*)
        if any(variable.name in self.body.outer for variable in variables(self.body.term(value.term))):
            raise self.context.unsupported(
                "an aggregate of columns of an enclosing query", call, "join the table of that query instead"
            )
        return self.body.assign(value, f"{name}_of")

    def cast_argument(self, function: Function, name: str, typed: TypedTerm, call: exp.Expr) -> TypedTerm:
        """The argument in the type in which it is aggregated."""
        if name in ("bool_and", "bool_or", "every", "some") and typed.type != BOOL:
            raise TypeClash(f"'{name}' needs BOOLEAN, not {typed.type}", self.context.span(call))
        if function in (Function.SUM, Function.MEAN) and not typed.type.is_numeric:
            cast = self.lower.cast(typed, self.result_type(function, typed), call)
            return self.body.assign(cast, f"{name}_of")
        return typed

    def result_type(self, function: Function, typed: TypedTerm | None) -> SqlType:
        if function is Function.COUNT or typed is None:
            return BIGINT
        gives = (
            sum_type(typed.type)
            if function is Function.SUM
            else mean_type(typed.type)
            if function is Function.MEAN
            else typed.type
        )
        if gives is None:
            raise TypeClash(f"'{function.value}' does not accept {typed.type}", self.context.span(self.node))
        return gives

    # The relations

    def above(self) -> ExpressionLowering:
        # The query above the grouping starts with an empty body: only groups and results are visible there.
        body = self.context.body()
        body.domain = self.body.domain
        groups = [self.above_group(i, body) for i in range(len(self.groups))]
        outer = tuple(self.body.outer.values())
        results = self.define_aggregates(groups, outer)
        terms = (*(g.term for g in groups), *(r.term for r in results.values()))
        simple = tuple(t for t in terms if isinstance(t, Variable | Constant))
        body.mention(outer)
        # A group is one row, and its grouping columns identify it: above a grouping there are no copies.
        body.sources.append(SourceRows((*simple, *outer), (*(t for t in simple[: len(groups)]), *outer)))
        body.add(*self.read(groups, outer, results))
        inner = self.lower.scope
        by_term = {repr(self.body.representative(g.term)): above for g, above in zip(self.groups, groups, strict=True)}
        scope = GroupScope(body, inner.parent, [], inner, by_term)
        return ExpressionLowering(
            self.context, scope, self.lower.subqueries, {**dict(zip(self.keys, groups, strict=True)), **results}
        )

    def above_group(self, i: int, body: RuleBody) -> TypedTerm:
        typed = self.groups[i]
        variable = self.context.fresh(typed.term.name if isinstance(typed.term, Variable) else f"group{i + 1}")
        self.context.columns[variable.name] = column_of(typed, variable.name)
        return replace(typed, term=variable, nullable=not self.body.is_not_null(typed))

    def define_aggregates(self, groups: Sequence[TypedTerm], outer: Sequence[Variable]) -> dict[str, TypedTerm]:
        """Define the relations of the aggregates; return the terms of their results."""
        self.outer_columns = [replace(self.context.columns[v.name], nullable=True) for v in outer]
        self.group_columns = [column_of(typed, f"group{i + 1}") for i, typed in enumerate(groups)]
        self.rows = self.context.name("rows")
        arguments = [a.argument for a in self.aggregates.values() if a.argument is not None]
        #   rows(groups, outer, arguments, identity) :- body.
        # The identity keeps rows with equal groups and arguments apart, so that sums and counts include each of them.
        terms = [self.body.representative(typed.term) for typed in (*self.groups, *arguments)]
        hidden = self.body.identity(terms)
        columns = [*self.group_columns, *self.outer_columns, *(column_of(a, "value") for a in arguments)]
        columns += [self.context.columns[v.name] for v in hidden]
        self.context.declare(self.rows, columns)
        split = len(self.groups)
        head = (*terms[:split], *map(self.body.representative, outer), *terms[split:], *hidden)
        self.context.define(self.rows, head, self.body.finish())
        self.arity = len(columns)
        self.names: dict[str, str] = {}
        position = split + len(outer)
        results = {}
        for key, aggregate in self.aggregates.items():
            value = position if aggregate.argument is not None else None
            self.names[key] = self.define_aggregate(aggregate, value)
            position += aggregate.argument is not None
            results[key] = self.result_term(aggregate)
        return results

    def result_term(self, aggregate: AggregateCall) -> TypedTerm:
        variable = self.context.fresh(aggregate.function.value)
        counts = aggregate.function is Function.COUNT
        # A group of GROUP BY has at least one row. The only group of a query without GROUP BY may be empty.
        nullable = not counts and (not self.by_group or (aggregate.argument is not None and aggregate.argument.nullable))
        typed = TypedTerm(variable, aggregate.gives, nullable)
        self.context.columns[variable.name] = column_of(typed, variable.name)
        return typed

    def define_aggregate(self, aggregate: AggregateCall, value: int | None) -> str:
        width = len(self.group_columns) + len(self.outer_columns)
        source, group = self.rows, tuple(range(width))
        if aggregate.distinct and value is not None:
            source, value = self.distinct(aggregate, value, width), width
        name = self.context.name(aggregate.function.value)
        #   sum1(group, result) :- result = sum argument : { rows(group, argument, identity) }.
        result = Column("result", aggregate.gives.type, True, 64)
        self.context.declare(name, [*self.group_columns, *self.outer_columns, result], group)
        self.context.aggregate(name, aggregate.function, source, group, value)
        return name

    def distinct(self, aggregate: AggregateCall, value: int, width: int) -> str:
        """Define the relation of groups and distinct values: without identities, equal values are one row."""
        assert aggregate.argument is not None
        name = self.context.name("distinct")
        #   distinct(group, argument) :- rows(group, argument, _).
        self.context.declare(name, [*self.group_columns, *self.outer_columns, column_of(aggregate.argument, "value")])
        terms = tuple(self.context.fresh("c") for _ in range(self.arity))
        self.context.define(name, (*terms[:width], terms[value]), [Atom(self.rows, terms)])
        return name

    # What the query above reads

    def read(self, groups: Sequence[TypedTerm], outer: Sequence[Variable], results: dict[str, TypedTerm]) -> list[Literal]:
        key = (*(g.term for g in groups if isinstance(g.term, Variable)), *outer)
        if not results:
            return [self.only_groups(key)]
        if not self.by_group:
            return [self.with_default(outer, results)]
        return list(self.results(key, results))

    def results(self, key: Sequence[Variable], results: dict[str, TypedTerm]) -> list[Atom]:
        """The atoms of the results. If there are many aggregates, their results are joined in parts first."""
        atoms = [Atom(name, (*key, _variable(results[agg]))) for agg, name in self.names.items()]
        if len(atoms) <= _MOST_JOINED:
            return atoms
        return [self.part(key, atoms[i : i + _MOST_JOINED]) for i in range(0, len(atoms), _MOST_JOINED)]

    def part(self, key: Sequence[Variable], atoms: Sequence[Atom]) -> Atom:
        name, found = self.context.name("results"), [atom.terms[-1] for atom in atoms]
        columns = [self.context.columns[term.name] for term in found if isinstance(term, Variable)]
        self.context.declare(name, [*self.group_columns, *self.outer_columns, *columns], range(len(key)))
        self.context.define(name, (*key, *found), atoms)
        return Atom(name, (*key, *found))

    def only_groups(self, key: Sequence[Variable]) -> Atom:
        """GROUP BY without aggregates: define the relation of the groups."""
        name = self.context.name("groups")
        self.context.declare(name, [*self.group_columns, *self.outer_columns])
        terms = tuple(self.context.fresh("c") for _ in range(self.arity))
        self.context.define(name, terms[: len(key)], [Atom(self.rows, terms)])
        return Atom(name, tuple(key))

    def with_default(self, outer: Sequence[Variable], results: dict[str, TypedTerm]) -> Atom:
        """Without GROUP BY: one row, also if nothing is aggregated; in a correlated query, one row for each outer value.

        The aggregates have no row for an empty group. A second rule gives its default for the outer values without rows, which
        the atoms of the enclosing query enumerate.
        """
        name, some = self.context.name("total"), self.context.name("some")
        self.context.declare(name, [*self.outer_columns, *(column_of(r, "result") for r in results.values())])
        self.context.declare(some, self.outer_columns)
        #   some(outer) :- rows(outer, _).
        #   total(outer, results) :- sum1(outer, result1), ...
        #   total(outer, defaults) :- domain(outer), !some(outer).
        terms = tuple(self.context.fresh("c") for _ in range(self.arity))
        self.context.define(some, terms[: len(outer)], [Atom(self.rows, terms)])
        self.context.define(name, (*outer, *(_variable(r) for r in results.values())), self.results(outer, results))
        defaults: list[Simple] = [aggregate.empty for aggregate in self.aggregates.values()]
        nothing: list[Literal] = [*self.domain(outer), Negation(Atom(some, tuple(outer)))]
        self.context.define(name, (*outer, *defaults), nothing)
        return Atom(name, (*outer, *(_variable(r) for r in results.values())))

    def domain(self, outer: Sequence[Variable]) -> list[Atom]:
        """The atoms of the enclosing query that bind the outer variables."""
        found = [self.body.domain(variable.name) for variable in outer]
        return list(dict.fromkeys(atom for atom in found if atom is not None))


def _variable(typed: TypedTerm) -> Variable:
    assert isinstance(typed.term, Variable)
    return typed.term
