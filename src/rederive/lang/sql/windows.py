"""Window functions and LIMIT: the rows of each partition are numbered. A partition is recomputed if one of its rows changes.

The body of the query becomes one relation, and each window a relation with one answer for each of its rows:

    q.window(columns)        q.rank1(partition, rest, n) :- n = row_number by (order) : { q.window(columns) }.

rank is the least number among equals, and dense_rank numbers the distinct values. An aggregate over a whole partition is the
aggregate grouped by the columns of the partition. Every other function has a relation of its own, like row_number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rederive.errors import SyntaxProblem, TypeClash, WrongArity
from rederive.ir.rules import Aggregate, Atom, Column, Comparison, Function, Operator, Order
from rederive.ir.terms import NUMBER, Constant, Variable
from rederive.lang.sql.aggregate_calls import call_arguments, unwrap_call
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.grouping import order_of
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.rule_body import RuleBody, SourceRows
from rederive.lang.sql.scope import identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import INT
from rederive.lang.sql.window_calls import NUMBERS, ROW_FUNCTIONS, WindowCall, lower_window_call


def lower_windows(node: exp.Select, lower: ExpressionLowering, context: StatementContext) -> ExpressionLowering:
    """Define the windows of a query; return the lowering of its SELECT list, in which each window has a term."""
    found = _own_windows(node)
    if not found:
        return lower
    return _WindowLowering(found, lower, context).above()


def expand_named_windows(node: exp.Select, context: StatementContext) -> exp.Select:
    """The query in which `OVER w` has the parts of the window that `WINDOW w AS (...)` names."""
    if not node.args.get("windows") and not any(window.args.get("alias") for window in _own_windows(node)):
        return node
    node = node.copy()
    named = {identifier(window.this): window for window in node.args.get("windows") or []}
    bases = {name: _base(window) for name, window in named.items()}
    for window in [*_own_windows(node), *named.values()]:
        name, seen = _base(window), set[str]()
        while name is not None:
            # A cycle of names has no parts to inherit.
            if name not in named or name in seen:
                problem = "is not defined" if name not in named else "is defined by itself"
                raise SyntaxProblem(f"the window '{name}' {problem}", context.span(node), hint=f"write WINDOW {name} AS (...)")
            seen.add(name)
            # A named window may be based on another one; its own parts win over inherited ones.
            for part in ("partition_by", "order", "spec"):
                if not window.args.get(part) and (value := named[name].args.get(part)):
                    window.set(part, [one.copy() for one in value] if isinstance(value, list) else value.copy())
            name = bases[name]
        window.set("alias", None)
    node.set("windows", None)
    return node


def _base(window: exp.Expr) -> str | None:
    alias = window.args.get("alias")
    return identifier(alias) if alias is not None else None


def _own_windows(node: exp.Select) -> list[exp.Window]:
    """The windows of a query, without those of its subqueries, which see their own clause WINDOW."""
    parts = [*node.expressions, node.args.get("qualify"), node.args.get("order")]
    return [window for item in parts if item is not None for window in _windows(item)]


def _windows(node: exp.Expr) -> Iterator[exp.Window]:
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        yield node
        return
    for child in node.iter_expressions():
        yield from _windows(child)


def keep_first_rows(
    node: exp.Expr,
    lower: ExpressionLowering,
    named: Mapping[str, TypedTerm],
    outputs: Sequence[TypedTerm],
    context: StatementContext,
) -> None:
    """Keep the rows of a body that ORDER BY, LIMIT and OFFSET select. A name in ORDER BY means an output if there is one."""
    # NULL or an expression over columns would make the number of rows depend on data.
    most = _whole_number(node.args.get("limit"), lower, context)
    skipped = _whole_number(node.args.get("offset"), lower, context) or 0
    order = node.args.get("order")
    items = _ordered_items(order, len(outputs))
    keys = [(named.get(_plain_name(o)) or _ordered_by(o, lower, outputs, context), o) for o in items]
    for typed, o in keys:
        lower.check_comparable(typed.type, o)
    terms = [(lower.scope.body.assign(typed, "key"), o) for typed, o in keys]
    frozen = FrozenBody.of(lower.scope.body, context)
    by = [order_of(place, o) for typed, o in terms if (place := frozen.position(typed.term)) is not None]
    name = context.name("first")
    # Equal rows in the order are numbered by their other columns, so that the result does not depend on the engine.
    #   first(columns, n) :- n = row_number by (order) : { window(columns) }, n <= limit + offset.
    #   query :- first(columns, n), n > offset.
    # In a correlated query, each value of the outer variables has first rows of its own.
    context.ranking(name, frozen.name, frozen.outer, by, most + skipped if most is not None else None)
    number = context.fresh("number")
    places = (*frozen.outer, *(i for i in range(len(frozen.variables)) if i not in frozen.outer))
    frozen.join(Atom(name, (*(frozen.variables[i] for i in places), number)))
    if skipped:
        lower.scope.body.add(Comparison(Operator.GT, number, Constant(skipped, NUMBER)))


def _ordered_items(order: exp.Expr | None, outputs: int) -> list[exp.Expr]:
    """What a query is ordered by. ORDER BY ALL means all outputs, from left to right."""
    items = list(order.expressions) if order is not None else []
    if len(items) != 1 or not isinstance(items[0].this, exp.Var):
        return items
    directions = {name: value for name, value in items[0].args.items() if name != "this"}
    return [exp.Ordered(this=exp.Literal.number(i + 1), **directions) for i in range(outputs)]


def _whole_number(node: exp.Expr | None, lower: ExpressionLowering, context: StatementContext) -> int | None:
    if node is None:
        return None
    typed = lower.lower(node.expression)
    if not isinstance(typed.term, Constant) or not isinstance(typed.term.value, int) or typed.term.value < 0:
        raise context.unsupported(f"{node.key.upper()} that is not a literal of at least 0", node)
    return typed.term.value


def _plain_name(node: exp.Expr) -> str:
    column = node.this
    return identifier(column) if isinstance(column, exp.Column) and not column.args.get("table") else ""


def _ordered_by(node: exp.Expr, lower: ExpressionLowering, outputs: Sequence[TypedTerm], context: StatementContext) -> TypedTerm:
    """ORDER BY 1 means the first output."""
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        position = int(node.this.this)
        if not 1 <= position <= len(outputs):
            raise TypeClash(f"ORDER BY {position}: the query has {len(outputs)} columns", context.span(node))
        return outputs[position - 1]
    return lower.lower(node.this)


@dataclass(slots=True)
class FrozenBody:
    """The body of a query as one relation over all its variables. What is joined to it has one answer for each of its rows."""

    name: str
    variables: tuple[Variable, ...]
    body: RuleBody
    outer: tuple[int, ...] = ()  # positions of the variables of enclosing queries: each of their values has rows of its own

    @classmethod
    def of(cls, body: RuleBody, context: StatementContext) -> FrozenBody:
        """Define the relation of a body, and let the body read it."""
        # All variables of the body are columns, so that the relation has one row for each binding, and the identities of the
        # sources stay among them.
        literals = body.finish()
        atoms = [literal for literal in literals if isinstance(literal, Atom)]
        tests = [literal for literal in literals if isinstance(literal, Comparison) and literal.operator is Operator.EQ]
        sides = [side for test in tests for side in (test.left, test.right)]
        found = [t for atom in atoms for t in atom.terms if isinstance(t, Variable)]
        found += [side for side in sides if isinstance(side, Variable)]
        variables = tuple(dict.fromkeys(found))
        outer = [v for v in map(body.representative, body.outer.values()) if isinstance(v, Variable)]
        name = context.name("window")
        columns = [replace(context.columns[v.name], nullable=True) if v in outer else context.columns[v.name] for v in variables]
        context.declare(name, columns)
        context.define(name, variables, literals)
        rows = [
            SourceRows(tuple(map(body.representative, r.terms)), tuple(map(body.representative, r.key))) for r in body.sources
        ]
        body.sources = rows
        body.literals = [Atom(name, variables)]
        return cls(name, variables, body, tuple(dict.fromkeys(variables.index(v) for v in outer)))

    def position(self, term: object) -> int | None:
        """The position of a variable among the columns; None for a constant, which orders nothing."""
        found = self.body.representative(term) if isinstance(term, Variable | Constant) else term
        return self.variables.index(found) if isinstance(found, Variable) else None

    def join(self, atom: Atom) -> None:
        """Read another relation, which has all columns of the frozen one, instead of it."""
        self.body.literals = [literal for literal in self.body.literals if literal != Atom(self.name, self.variables)]
        self.body.literals.append(atom)


class _WindowLowering:
    """Lowers the windows of one SELECT list."""

    def __init__(self, nodes: Sequence[exp.Window], lower: ExpressionLowering, context: StatementContext) -> None:
        self.lower = lower
        self.context = context
        self.body = lower.scope.body
        self.nodes = {lower.canonical(node): node for node in nodes}
        self.parts = {
            key: [self.value(p, "part") for p in node.args.get("partition_by") or ()] for key, node in self.nodes.items()
        }
        self.orders = {key: self.order_terms(node) for key, node in self.nodes.items()}

    def value(self, node: exp.Expr, name: str) -> TypedTerm:
        typed = self.lower.lower(node)
        self.lower.check_comparable(typed.type, node)
        return self.column(typed, name)

    def column(self, value: TypedTerm, name: str) -> TypedTerm:
        """A value as a variable, and so as a column of the frozen body, even if it is constant."""
        typed = self.body.assign(value, name)
        if isinstance(typed.term, Variable):
            return typed
        variable = self.context.fresh(name)
        self.context.columns[variable.name] = column_of(typed, name)
        self.body.add(Comparison(Operator.EQ, variable, typed.term))
        return replace(typed, term=variable)

    def order_terms(self, node: exp.Window) -> list[tuple[TypedTerm, exp.Expr]]:
        order = node.args.get("order")
        return [(self.value(o.this, "key"), o) for o in order.expressions] if order is not None else []

    def above(self) -> ExpressionLowering:
        calls = {key: self.call(key, node) for key, node in self.nodes.items()}
        self.frozen = FrozenBody.of(self.body, self.context)
        known = dict(self.lower.known)
        for key, node in self.nodes.items():
            self.group = [*self.frozen.outer, *(self.at(part) for part in self.parts[key])]
            order = [order_of(self.at(typed), o) for typed, o in self.orders[key]]
            call = calls[key]
            match call:
                case None:
                    known[key] = self.numbered(node, order)
                # Without a frame all rows of a partition have one answer, so one row for each partition suffices.
                case WindowCall(frame=None, function=function) if function not in ROW_FUNCTIONS:
                    known[key] = self.aggregate(call)
                case _:
                    known[key] = self.windowed(call, order)
        return replace(self.lower, known=known)

    def call(self, key: str, node: exp.Window) -> WindowCall | None:
        """The function of a window with its arguments as columns; None for those that number rows."""
        name = function_name(unwrap_call(node.this))
        if name in NUMBERS:
            if call_arguments(unwrap_call(node.this)):
                raise WrongArity(f"'{name}' takes no arguments", self.context.span(node))
            if node.args.get("order") is None:
                raise self.context.unsupported(f"{name} without ORDER BY", node, "add ORDER BY to OVER (...)")
            return None
        found = lower_window_call(node, self.lower, [typed for typed, _ in self.orders[key]])
        return replace(found, arguments=tuple(self.column(a, "value") for a in found.arguments), keys=self.key_columns(found))

    def key_columns(self, call: WindowCall) -> tuple[tuple[TypedTerm, exp.Expr], ...]:
        return tuple((self.column(typed, "key"), node) for typed, node in call.keys)

    def at(self, typed: TypedTerm) -> int:
        position = self.frozen.position(typed.term)
        assert position is not None
        return position

    def fresh(self, name: str, typed: TypedTerm) -> TypedTerm:
        variable = self.context.fresh(name)
        self.context.columns[variable.name] = column_of(typed, name)
        return replace(typed, term=variable)

    def variables(self, positions: Sequence[int]) -> tuple[Variable, ...]:
        return tuple(self.frozen.variables[i] for i in positions)

    # Aggregates over a partition, and functions of frames

    def definition(self, name: str, call: WindowCall, order: Sequence[Order]) -> Aggregate:
        places = [self.at(argument) for argument in call.arguments]
        if call.keys:
            order = [order_of(self.at(typed), node) for typed, node in call.keys]
        return Aggregate(
            name,
            call.function,
            self.frozen.name,
            tuple(self.group),
            places[0] if places else None,
            self.context.parsed.span,
            tuple(order),
            None,
            tuple(places[1:]),
            call.parameters,
            call.frame,
        )

    def aggregate(self, call: WindowCall) -> TypedTerm:
        """An aggregate of the whole partition: one result for each group."""
        name = self.context.name(call.function.value)
        columns = [self.context.columns[v.name] for v in self.variables(self.group)]
        #   sum(partition, s) :- s = sum value : { window(columns) }.
        self.context.declare(name, [*columns, Column("result", call.gives.type, True)], range(len(columns)))
        self.context.builder.definitions.append(self.definition(name, call, ()))
        return self.result(call, name, self.variables(self.group))

    def windowed(self, call: WindowCall, order: Sequence[Order]) -> TypedTerm:
        """A function that gives each row of a partition a result of its own."""
        name = self.context.name(call.function.value)
        rest = [i for i in range(len(self.frozen.variables)) if i not in self.group]
        columns = self.variables((*self.group, *rest))
        #   sum1(partition, rest, s) :- s = sum value by (order) rows unbounded to 0 : { window(columns) }.
        declared = [self.context.columns[v.name] for v in columns]
        self.context.declare(name, [*declared, Column("result", call.gives.type, True)], range(len(columns)))
        self.context.builder.definitions.append(self.definition(name, call, order))
        return self.result(call, name, columns)

    def result(self, call: WindowCall, name: str, columns: Sequence[Variable]) -> TypedTerm:
        result = self.fresh(call.function.value, TypedTerm(Constant(None, call.gives.type), call.gives, call.nullable))
        assert isinstance(result.term, Variable)
        self.body.add(Atom(name, (*columns, result.term)))
        return result

    # Numbers

    def numbered(self, node: exp.Window, order: Sequence[Order]) -> TypedTerm:
        match function_name(node.this):
            case "row_number":
                return self.row_number(order)
            case "rank":
                return self.rank(order)
            case _:
                return self.dense_rank(order)

    def ranked(self, order: Sequence[Order]) -> tuple[str, tuple[Variable, ...]]:
        """Define the relation that numbers the rows; return its name and the variables of its columns."""
        name = self.context.name("rank")
        self.context.ranking(name, self.frozen.name, self.group, order)
        rest = [i for i in range(len(self.frozen.variables)) if i not in self.group]
        return name, self.variables((*self.group, *rest))

    def row_number(self, order: Sequence[Order]) -> TypedTerm:
        name, columns = self.ranked(order)
        result = self.fresh("number", TypedTerm(Constant(0, NUMBER), INT, False))
        assert isinstance(result.term, Variable)
        self.body.add(Atom(name, (*columns, result.term)))
        return result

    def rank(self, order: Sequence[Order]) -> TypedTerm:
        """rank: the least number among the rows that are equal in the order."""
        name, columns = self.ranked(order)
        equal = [*self.group, *(o.column for o in order if o.column not in self.group)]
        least = self.context.name("least")
        declared = [self.context.columns[v.name] for v in self.variables(equal)]
        #   least(partition, order, m) :- m = min n : { rank(partition, order, rest, n) }.
        self.context.declare(least, [*declared, Column("result", NUMBER)], range(len(equal)))
        places = [columns.index(v) for v in self.variables(equal)]
        self.context.aggregate(least, Function.MIN, name, places, len(columns))
        return self.joined(least, equal, "rank")

    def dense_rank(self, order: Sequence[Order]) -> TypedTerm:
        """dense_rank: the number among the distinct values of the order."""
        equal = [*self.group, *(o.column for o in order if o.column not in self.group)]
        distinct, name = self.context.name("distinct"), self.context.name("dense")
        #   distinct(partition, order) :- window(columns).
        #   dense(partition, order, n) :- n = row_number by (order) : { distinct(partition, order) }.
        self.context.declare(distinct, [self.context.columns[v.name] for v in self.variables(equal)])
        self.context.define(distinct, self.variables(equal), [Atom(self.frozen.name, self.frozen.variables)])
        by = [replace(o, column=equal.index(o.column)) for o in order]
        self.context.ranking(name, distinct, range(len(self.group)), by)
        return self.joined(name, equal, "dense_rank")

    def joined(self, name: str, columns: Sequence[int], word: str) -> TypedTerm:
        result = self.fresh(word, TypedTerm(Constant(0, NUMBER), INT, False))
        assert isinstance(result.term, Variable)
        self.body.add(Atom(name, (*self.variables(columns), result.term)))
        return result
