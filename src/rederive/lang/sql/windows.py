"""Window functions and LIMIT: the rows of each partition are numbered. A partition is recomputed if one of its rows changes.

The body of the query becomes one relation, and each window a relation with one answer for each of its rows:

    q.window(columns)        q.rank1(partition, rest, n) :- n = row_number by (order) : { q.window(columns) }.

rank is the least number among equals, dense_rank numbers the distinct values, lag and lead look up the row with another number,
and an aggregate over a partition is the aggregate grouped by the columns of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from rederive.errors import TypeClash, WrongArity
from rederive.ir.rules import Atom, Column, Comparison, Function, Negation, Operator, Order
from rederive.ir.terms import NUMBER, Call, Constant, Simple, Variable
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.grouping import window_aggregate
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.rule_body import RuleBody, SourceRows
from rederive.lang.sql.scope import identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import INT

_NUMBERS: Final = ("row_number", "rank", "dense_rank")
_SHIFTS: Final = {"lag": 1, "lead": -1}  # number of this row minus number of the row that is looked up, for an offset of 1


def lower_windows(node: exp.Select, lower: ExpressionLowering, context: StatementContext) -> ExpressionLowering:
    """Define the windows of a query; return the lowering of its SELECT list, in which each window has a term."""
    found = [window for item in node.expressions for window in _windows(item)]
    if not found:
        return lower
    return _WindowLowering(found, lower, context).above()


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
    most = _whole_number(node.args.get("limit"), lower, context)
    skipped = _whole_number(node.args.get("offset"), lower, context) or 0
    order = node.args.get("order")
    items = order.expressions if order is not None else ()
    keys = [(named.get(_plain_name(o)) or _ordered_by(o, lower, outputs, context), o) for o in items]
    terms = [(lower.scope.body.assign(typed, "key"), o) for typed, o in keys]
    frozen = FrozenBody.of(lower.scope.body, context)
    by = [_order(place, o) for typed, o in terms if (place := frozen.position(typed.term)) is not None]
    name = context.name("first")
    # Equal rows in the order are numbered by their other columns, so that the result does not depend on the engine.
    #   first(columns, n) :- n = row_number by (order) : { window(columns) }, n <= limit + offset.
    #   query :- first(columns, n), n > offset.
    context.ranking(name, frozen.name, (), by, most + skipped if most is not None else None)
    number = context.fresh("number")
    frozen.join(Atom(name, (*frozen.variables, number)))
    if skipped:
        lower.scope.body.add(Comparison(Operator.GT, number, Constant(skipped, NUMBER)))


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


def _order(column: int, node: exp.Expr) -> Order:
    return Order(column, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


@dataclass(slots=True)
class FrozenBody:
    """The body of a query as one relation over all its variables. What is joined to it has one answer for each of its rows."""

    name: str
    variables: tuple[Variable, ...]
    body: RuleBody

    @classmethod
    def of(cls, body: RuleBody, context: StatementContext) -> FrozenBody:
        """Define the relation of a body, and let the body read it."""
        if body.outer:
            raise context.unsupported("a window function in a correlated query", None, "define the query as a view")
        # All variables of the body are columns, so that the relation has one row for each binding, and the identities of the
        # sources stay among them.
        literals = body.finish()
        atoms = [literal for literal in literals if isinstance(literal, Atom)]
        tests = [literal for literal in literals if isinstance(literal, Comparison) and literal.operator is Operator.EQ]
        sides = [side for test in tests for side in (test.left, test.right)]
        found = [t for atom in atoms for t in atom.terms if isinstance(t, Variable)]
        found += [side for side in sides if isinstance(side, Variable)]
        variables = tuple(dict.fromkeys(found))
        name = context.name("window")
        context.declare(name, [context.columns[v.name] for v in variables])
        context.define(name, variables, literals)
        rows = [
            SourceRows(tuple(map(body.representative, r.terms)), tuple(map(body.representative, r.key))) for r in body.sources
        ]
        body.sources = rows
        body.literals = [Atom(name, variables)]
        return cls(name, variables, body)

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
        self.arguments = {key: self.argument(node) for key, node in self.nodes.items()}

    def value(self, node: exp.Expr, name: str) -> TypedTerm:
        return self.column(self.lower.lower(node), name)

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

    def argument(self, node: exp.Window) -> TypedTerm | None:
        """The value that lag and lead look up; None for other functions."""
        name, arguments = function_name(node.this), node.this.expressions
        least, most = (1, 3) if name in _SHIFTS else (0, 0) if name in _NUMBERS else (0, len(arguments))
        if not least <= len(arguments) <= most:
            takes = f"{least} to {most}" if most else "no"
            raise WrongArity(f"'{name}' takes {takes} arguments, not {len(arguments)}", self.context.span(node))
        if name in _NUMBERS:
            if node.args.get("order") is None:
                raise self.context.unsupported(f"{name} without ORDER BY", node, "add ORDER BY to OVER (...)")
            return None
        if name in _SHIFTS:
            return self.value(arguments[0], "value")
        if node.args.get("order") is not None:
            raise self.context.unsupported("a running aggregate: OVER with ORDER BY", node, "omit ORDER BY, or use a self-join")
        return None

    def above(self) -> ExpressionLowering:
        aggregated = {k: self.aggregated(n) for k, n in self.nodes.items() if self.is_aggregate(n)}
        self.frozen = FrozenBody.of(self.body, self.context)
        known = dict(self.lower.known)
        for key, node in self.nodes.items():
            self.group = [self.at(part) for part in self.parts[key]]
            known[key] = self.aggregate(*aggregated[key]) if key in aggregated else self.numbered(key, node)
        return replace(self.lower, known=known)

    @staticmethod
    def is_aggregate(node: exp.Window) -> bool:
        return function_name(node.this) not in (*_NUMBERS, *_SHIFTS)

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

    # Aggregates over a partition

    def aggregated(self, node: exp.Window) -> tuple[Function, TypedTerm | None, TypedTerm]:
        function, argument, gives = window_aggregate(node.this, self.lower, self.context)
        return function, self.column(argument, "value") if argument is not None else None, gives

    def aggregate(self, function: Function, argument: TypedTerm | None, gives: TypedTerm) -> TypedTerm:
        name = self.context.name(function.value)
        columns = [self.context.columns[v.name] for v in self.variables(self.group)]
        #   sum(partition, s) :- s = sum value : { window(columns) }.
        self.context.declare(name, [*columns, Column("result", gives.type.type, True)], range(len(columns)))
        value = self.at(argument) if argument is not None else None
        self.context.aggregate(name, function, self.frozen.name, self.group, value)
        result = self.fresh(function.value, gives)
        assert isinstance(result.term, Variable)
        self.body.add(Atom(name, (*self.variables(self.group), result.term)))
        return result

    # Numbers

    def numbered(self, key: str, node: exp.Window) -> TypedTerm:
        order = [_order(self.at(typed), o) for typed, o in self.orders[key]]
        match function_name(node.this):
            case "row_number":
                return self.row_number(order)
            case "rank":
                return self.rank(order)
            case "dense_rank":
                return self.dense_rank(order)
        argument = self.arguments[key]
        assert argument is not None
        return self.shifted(node.this, order, argument)

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

    def shifted(self, call: exp.Expr, order: Sequence[Order], argument: TypedTerm) -> TypedTerm:
        """lag and lead: the value of the row that many places before or after, or the default if there is none."""
        _, offset, other, *_ = (*call.expressions, None, None)
        steps = self.constant(offset, 1, call) * _SHIFTS[function_name(call)]
        default = self.default(other, argument, call)
        ranked, columns = self.ranked(order)
        number, place = self.context.fresh("number"), self.context.fresh("place")
        group = self.variables(self.group)
        # A row with number n gives its value to the row with number n + steps of the same partition.
        there, value = self.context.name("shifted"), self.variables([self.at(argument)])[0]
        keys = [*(self.context.columns[v.name] for v in group), Column("number", NUMBER)]
        held = replace(self.context.columns[value.name], nullable=True)
        self.context.declare(there, [*keys, held])
        moved = Comparison(Operator.EQ, place, Call("+", (number, Constant(steps, NUMBER)), gives=NUMBER))
        self.context.define(there, (*group, place, value), [Atom(ranked, (*columns, number)), moved])
        #   shifted(partition, n + steps, value) :- rank(partition, rest, n).
        #   some(partition, n) :- shifted(partition, n, _).
        #   looked(partition, n, value) :- rank(partition, rest, n), shifted(partition, n, value).
        #   looked(partition, n, default) :- rank(partition, rest, n), !some(partition, n).
        # A row whose value is NULL is in `some`: its neighbour gets NULL, and not the default.
        some, found = self.context.name("some"), self.context.name("looked")
        self.context.declare(some, keys)
        self.context.define(some, (*group, place), [Atom(there, (*group, place, value))])
        self.context.declare(found, [*keys, held])
        row = Atom(ranked, (*columns, number))
        other = self.context.fresh("other")
        self.context.define(found, (*group, number, other), [row, Atom(there, (*group, number, other))])
        self.context.define(found, (*group, number, default), [row, Negation(Atom(some, (*group, number)))])
        result = self.fresh("shifted", replace(argument, nullable=True))
        assert isinstance(result.term, Variable)
        again = self.context.fresh("number")
        self.body.add(Atom(ranked, (*columns, again)), Atom(found, (*group, again, result.term)))
        return result

    def constant(self, node: exp.Expr | None, otherwise: int, call: exp.Expr) -> int:
        if node is None:
            return otherwise
        typed = self.lower.lower(node)
        if not isinstance(typed.term, Constant) or not isinstance(typed.term.value, int):
            raise self.context.unsupported("an offset that is not an integer literal", call)
        return typed.term.value

    def default(self, node: exp.Expr | None, argument: TypedTerm, call: exp.Expr) -> Simple:
        typed = self.lower.cast(self.lower.lower(node if node is not None else exp.Null()), argument.type, call)
        if not isinstance(typed.term, Constant):
            raise self.context.unsupported("a default that is not a literal", call)
        return typed.term
