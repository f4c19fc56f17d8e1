"""GROUP BY and aggregates.

The rows that are aggregated are one relation: their groups, the arguments of all aggregates, and their identities, so that
equal rows count separately. Each aggregate is a relation by the groups, which the query reads:

    q.rows(g, x, identity) :- ...            q.sum1(g, s) :- s = sum x : { q.rows(g, x, identity) }.

Aggregates skip NULL. Without GROUP BY there is one group, even if there is no row: its counts are 0, the rest is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from sqlglot import exp

from rederive.errors import Span, TypeClash
from rederive.ir.rules import Aggregate, Atom, Column, Comparison, Function, Literal, Negation, Operator, Order
from rederive.ir.terms import NUMBER, Constant, Simple, Variable
from rederive.lang.sql.aggregate_calls import AggregateCall, AggregateCalls, is_aggregate, unwrap_call
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.grouping_sets import grouping_elements, has_grouping_sets
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.literals import numeric_literal
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.rule_body import SourceRows
from rederive.lang.sql.scope import Scope, identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BIGINT, BOOL, INT, TINYINT, SqlType

_MOST_JOINED = 10  # results of aggregates in one rule body; a body with more literals is slow to plan


def is_grouped(node: exp.Select) -> bool:
    """Whether a query has GROUP BY or an aggregate."""
    return node.args.get("group") is not None or any(True for _ in _aggregates(node))


def _aggregates(node: exp.Select) -> Iterator[exp.Expr]:
    """The aggregate calls of a query, without those of its subqueries."""
    parts = [*node.expressions, node.args.get("having"), node.args.get("qualify"), node.args.get("order")]
    for part in parts:
        if part is not None:
            yield from _calls(part)


def _calls(node: exp.Expr) -> Iterator[exp.Expr]:
    # An aggregate inside a subquery belongs to that one.
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        # The function of a window is not an aggregate of the query, but its arguments, partitions and order may be.
        inside = [*node.this.iter_expressions(), *(node.args.get("partition_by") or ()), node.args.get("order")]
        inner = unwrap_call(node.this)
        inside = [*inner.iter_expressions(), *(part for part in inside if part is not inner)]
        for part in inside:
            if part is not None:
                yield from _calls(part)
        return
    if is_aggregate(node):
        yield node
        return
    for child in node.iter_expressions():
        yield from _calls(child)


@dataclass(slots=True)
class GroupScope(Scope):
    """The scope of SELECT and HAVING in a grouped query: a name must be a grouped column, or inside an aggregate."""

    inner: Scope | None = None
    groups: dict[str, TypedTerm] = field(default_factory=dict)

    def find(self, name: str, table: str | None, span: Span) -> TypedTerm | None:
        """The column of the sources, grouped or not, or one that was bound above the grouping."""
        assert self.inner is not None
        return self.inner.find(name, table, span) or Scope.find(self, name, table, span)

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


class _GroupingLowering:
    """Lowers the grouping of one query."""

    def __init__(self, node: exp.Select, lower: ExpressionLowering, context: StatementContext) -> None:
        self.node = node
        self.lower = lower
        self.context = context
        self.body = lower.scope.body
        # By canonical form: `SELECT a + 1 ... GROUP BY a + 1` names one group twice.
        nodes = list(self.group_nodes())
        self.keys = [lower.canonical(group) for group in nodes]
        self.groups = [self.body.assign(lower.lower(group), f"group{i + 1}") for i, group in enumerate(nodes)]
        for group, found in zip(nodes, self.groups, strict=True):
            lower.check_comparable(found.type, group)
        self.sets = self.grouping_sets()
        calls = AggregateCalls(lower)
        self.aggregates = {lower.canonical(call): calls.call(call) for call in _aggregates(node)}
        # As in Spark, GROUPING SETS (()), or GROUP BY ALL of aggregates only, is as no GROUP BY: of no rows, there is one.
        self.by_group = bool(self.keys) or self.sets not in (None, [frozenset()])
        if not self.by_group and not self.aggregates:
            raise context.unsupported("a total without an aggregate", node.args["group"], "select count(*), too")

    # What is grouped, and by what

    def group_nodes(self) -> Iterator[exp.Expr]:
        group = self.node.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            # GROUP BY ALL: every item of the SELECT list that has no aggregate.
            items = (item.unalias() for item in self.node.expressions)
            yield from (item for item in items if not any(True for _ in _calls(item)))
        seen = set()
        # GROUP BY a, b GROUPING SETS (...): grouping_id counts all of the list, also what is in no set.
        listed = group.expressions if group.args.get("grouping_sets") else ()
        for item in (*listed, *(one for sets in grouping_elements(group) for one_set in sets for one in one_set)):
            found = self.group_node(item)
            # Grouping sets name a column many times. In a plain GROUP BY a repetition changes nothing.
            if (key := self.lower.canonical(found)) not in seen or not has_grouping_sets(group):
                seen.add(key)
                yield found

    def grouping_sets(self) -> list[frozenset[int]] | None:
        """The groupings of ROLLUP, CUBE and GROUPING SETS, as positions of the groups; None for a plain GROUP BY.

        Several elements of a GROUP BY are multiplied: `a, ROLLUP(b)` is the sets (a, b) and (a).
        """
        group = self.node.args.get("group")
        if group is None or not has_grouping_sets(group):
            return None
        return [
            frozenset(self.keys.index(self.lower.canonical(self.group_node(item))) for part in parts for item in part)
            for parts in product(*grouping_elements(group))
        ]

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

    # The relations

    def above(self) -> ExpressionLowering:
        # The query above the grouping starts with an empty body: only groups and results are visible there.
        body = self.context.body()
        body.domain = self.body.domain
        groups = [self.above_group(i) for i in range(len(self.groups))]
        if self.sets is not None and self.by_group:
            groups.append(self.above_set())
        outer = tuple(self.body.outer.values())
        results = self.define_aggregates(groups, outer)
        terms = (*(g.term for g in groups), *(r.term for r in results.values()))
        simple = tuple(t for t in terms if isinstance(t, Variable | Constant))
        body.mention(outer)
        # A group is one row, and its grouping columns identify it: above a grouping there are no copies.
        body.sources.append(SourceRows((*simple, *outer), (*(t for t in simple[: len(groups)]), *outer)))
        body.add(*self.read(groups, outer, results))
        inner = self.lower.scope
        by_term = {repr(self.body.representative(g.term)): above for g, above in zip(self.groups, groups, strict=False)}
        scope = GroupScope(body, inner.parent, [], inner, by_term)
        known = {**dict(zip(self.keys, groups, strict=False)), **results}
        found = ExpressionLowering(self.context, scope, self.lower.subqueries, known)
        if self.sets is not None:
            known.update(self.grouping_calls(groups[-1] if self.by_group else numeric_literal("1"), found))
        return found

    def above_set(self) -> TypedTerm:
        """The number of the grouping set, which tells its groups apart from those of the other sets."""
        variable = self.context.fresh("set")
        self.context.columns[variable.name] = Column("set", NUMBER)
        return TypedTerm(variable, INT, False)

    def grouping_calls(self, number: TypedTerm, lower: ExpressionLowering) -> dict[str, TypedTerm]:
        """The values of grouping(a) and grouping_id(a, ...): a bit for each argument, 1 if the set is without it."""
        assert self.sets is not None
        parts = [*self.node.expressions, *(self.node.args.get(part) for part in ("having", "qualify", "order"))]
        found = {}
        for call in (node for part in parts if part is not None for node in part.find_all(exp.Anonymous)):
            if (name := function_name(call)) not in ("grouping", "grouping_id"):
                continue
            arguments = [self.lower.canonical(argument) for argument in call.expressions]
            if any(argument not in self.keys for argument in arguments) or (name == "grouping" and len(arguments) != 1):
                raise TypeClash(f"the arguments of '{name}' must be in GROUP BY", self.context.span(call))
            # grouping_id() without arguments is about all groups, the first in the highest bit.
            places = [self.keys.index(argument) for argument in arguments] or range(len(self.keys))
            bits = [sum((i not in one) << (len(places) - 1 - n) for n, i in enumerate(places)) for one in self.sets]
            found[self.lower.canonical(call)] = self.by_set(number, bits, TINYINT if name == "grouping" else BIGINT, lower)
        return found

    @staticmethod
    def by_set(number: TypedTerm, values: Sequence[int], type: SqlType, lower: ExpressionLowering) -> TypedTerm:
        """The value that belongs to the number of a set."""
        parts = []
        for i, value in enumerate(values[:-1], 1):
            parts += [lower.call("=", [number, numeric_literal(str(i))], BOOL), TypedTerm(Constant(value, NUMBER), type, False)]
        return lower.call("case", [*parts, TypedTerm(Constant(values[-1], NUMBER), type, False)], type, nullable=False)

    def above_group(self, i: int) -> TypedTerm:
        typed = self.groups[i]
        if self.sets is not None and any(i not in one for one in self.sets):
            typed = replace(typed, nullable=True)
        variable = self.context.fresh(typed.term.name if isinstance(typed.term, Variable) else f"group{i + 1}")
        self.context.columns[variable.name] = column_of(typed, variable.name)
        absent = self.sets is not None and any(i not in one for one in self.sets)
        return replace(typed, term=variable, nullable=absent or not self.body.is_not_null(typed))

    def define_aggregates(self, groups: Sequence[TypedTerm], outer: Sequence[Variable]) -> dict[str, TypedTerm]:
        """Define the relations of the aggregates; return the terms of their results."""
        self.outer_columns = [replace(self.context.columns[v.name], nullable=True) for v in outer]
        self.group_columns = [column_of(typed, f"group{i + 1}") for i, typed in enumerate(groups)]
        self.rows = self.context.name("rows")
        arguments = [typed for call in self.aggregates.values() for typed in (*call.arguments, *(key for key, _ in call.keys))]
        #   rows(groups, outer, arguments, identity) :- body.
        # The identity keeps rows with equal groups and arguments apart, so that sums and counts include each of them.
        keys = [self.body.representative(typed.term) for typed in self.groups]
        values = [self.body.representative(typed.term) for typed in arguments]
        # With sets, a key is NULL in some of them, and cannot be part of what identifies a row.
        hidden = self.body.identity(values if self.sets is not None else (*keys, *values))
        columns = [*self.group_columns, *self.outer_columns, *(column_of(a, "value") for a in arguments)]
        columns += [self.context.columns[v.name] for v in hidden]
        self.context.declare(self.rows, columns)
        rest = (*map(self.body.representative, outer), *values, *hidden)
        for head in self.group_heads(keys):
            self.context.define(self.rows, (*head, *rest), self.body.finish())
        self.arity = len(columns)
        self.names: dict[str, str] = {}
        position = len(groups) + len(outer)
        results = {}
        for key, aggregate in self.aggregates.items():
            width = len(aggregate.arguments) + len(aggregate.keys)
            self.names[key] = self.define_aggregate(aggregate, tuple(range(position, position + width)))
            position += width
            results[key] = self.result_term(aggregate)
        return results

    def group_heads(self, keys: Sequence[Simple]) -> Iterator[Sequence[Simple]]:
        """The groups of a row: one, or one for each grouping set, in which the other columns are NULL."""
        #   rows(a, b, 1, ...) :- body.       rows(a, NULL, 2, ...) :- body.
        if self.sets is None or not self.by_group:
            yield keys
            return
        for number, chosen in enumerate(self.sets, 1):
            absent = [Constant(None, column.type) for column in self.group_columns]
            yield (*(key if i in chosen else absent[i] for i, key in enumerate(keys)), Constant(number, NUMBER))

    def result_term(self, aggregate: AggregateCall) -> TypedTerm:
        variable = self.context.fresh(aggregate.function.value)
        # A group of GROUP BY has at least one row. The only group of a query without GROUP BY may be empty.
        nullable = aggregate.may_be_null or (aggregate.function is not Function.COUNT and not self.by_group)
        typed = TypedTerm(variable, aggregate.gives, nullable)
        self.context.columns[variable.name] = column_of(typed, variable.name)
        return typed

    def define_aggregate(self, aggregate: AggregateCall, places: tuple[int, ...]) -> str:
        """Define the relation of an aggregate; `places` are the columns of its arguments, then of its keys."""
        width = len(self.group_columns) + len(self.outer_columns)
        source, group, count = self.rows, tuple(range(width)), len(aggregate.arguments)
        if aggregate.distinct and places:
            source = self.distinct(aggregate, places[:count], width)
            # The keys of distinct values are the values themselves.
            places = (*range(width, width + count), *range(width, width + len(aggregate.keys)))
        name = self.context.name(aggregate.function.value)
        #   sum1(group, result) :- result = sum argument : { rows(group, argument, identity) }.
        result = Column("result", aggregate.gives.type, True, 64)
        self.context.declare(name, [*self.group_columns, *self.outer_columns, result], group)
        keys = zip(places[count:], (node for _, node in aggregate.keys), strict=True)
        value, *others = (*places[:count], None) if not count or aggregate.function is Function.COUNT else places[:count]
        definition = Aggregate(
            name,
            aggregate.function,
            source,
            group,
            value,
            self.context.parsed.span,
            order=tuple(order_of(place, node) for place, node in keys),
            others=tuple(other for other in others if other is not None),
            parameters=aggregate.parameters,
        )
        self.context.builder.definitions.append(definition)
        return name

    def distinct(self, aggregate: AggregateCall, places: Sequence[int], width: int) -> str:
        """Define the relation of groups and distinct values: without identities, equal values are one row."""
        name = self.context.name("distinct")
        #   distinct(group, argument) :- rows(group, argument, _).
        values = [column_of(argument, "value") for argument in aggregate.arguments]
        # No key: several distinct values belong to one group.
        self.context.declare(name, [*self.group_columns, *self.outer_columns, *values])
        terms = tuple(self.context.fresh("c") for _ in range(self.arity))
        head, row = terms[:width], Atom(self.rows, terms)
        nullable = [i for i, column in zip(places, values, strict=True) if column.nullable] if len(places) > 1 else []
        types = {i: column.type for i, column in zip(places, values, strict=True)}
        known = [Comparison(Operator.NE, terms[i], Constant(None, types[i])) for i in nullable]
        self.context.define(name, (*head, *(terms[i] for i in places)), [row, *known])
        # count(DISTINCT a, b) counts the pairs without NULL. The others are one row of NULL, so that their group is not empty.
        for i in nullable:
            absent = [Constant(None, type) for type in types.values()]
            self.context.define(name, (*head, *absent), [row, Comparison(Operator.EQ, terms[i], Constant(None, types[i]))])
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
        # count gives 0 for nothing, every other aggregate NULL.
        defaults: list[Simple] = [aggregate.empty for aggregate in self.aggregates.values()]
        nothing: list[Literal] = [*self.domain(outer), Negation(Atom(some, tuple(outer)))]
        self.context.define(name, (*outer, *defaults), nothing)
        return Atom(name, (*outer, *(_variable(r) for r in results.values())))

    def domain(self, outer: Sequence[Variable]) -> list[Atom]:
        """The atoms of the enclosing query that bind the outer variables."""
        found = [self.body.domain(variable.name) for variable in outer]
        return list(dict.fromkeys(atom for atom in found if atom is not None))


def order_of(column: int, node: exp.Expr) -> Order:
    """The order of a column that ORDER BY states."""
    return Order(column, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _variable(typed: TypedTerm) -> Variable:
    assert isinstance(typed.term, Variable)
    return typed.term
