"""SQL expressions to typed terms: literals, columns, operators, CASE, CAST and functions.

A term that may be NULL says so. SQL has three truth values; `and`, `or`, `not` and the comparisons of the IR follow them, so a
condition under another operator is an ordinary value. Only `predicates` requires a condition to be true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Final, Protocol, cast

from sqlglot import exp

from rederive.errors import SyntaxProblem, TypeClash, WrongArity
from rederive.ir.terms import BOOLEAN, NUMBER, SYMBOL, UTC, Call, Constant, Kind, Type
from rederive.lang.sql.array_functions import subscript
from rederive.lang.sql.column_defaults import Lowered
from rederive.lang.sql.functions import FUNCTIONS, WRITTEN_BY_REWRITINGS
from rederive.lang.sql.intervals import interval_parts, is_interval, is_mixed
from rederive.lang.sql.invocation import AGGREGATES, WINDOW_FUNCTIONS, Invocation, invocation_of
from rederive.lang.sql.literals import cast_constant, hex_bytes, numeric_literal
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.nested_values import as_printed, cast_nested, field_of
from rederive.lang.sql.number_functions import bits
from rederive.lang.sql.refused_functions import refusal
from rederive.lang.sql.scope import Scope, identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.type_names import named_type
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    BYTES,
    DAY,
    DOUBLE,
    DURATION,
    MOMENT,
    SINGLE,
    STRING,
    VOID,
    WALL_TIME,
    SqlType,
    arithmetic_type,
    as_decimal,
    common_type,
    decimal,
)
from rederive.scalar.sql.calendar_steps import MICROSECONDS, MONTH_UNITS
from rederive.scalar.sql.signatures import SCALARS, ZONED
from rederive.time_zones import names_zone

NULL: Final = TypedTerm(Constant(None, SYMBOL), VOID, True)
COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
}
_BITS: Final[dict[type[exp.Expr], str]] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseNot: "~",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
TIME_FUNCTIONS: Final = frozenset({"now", "current_timestamp", "current_date", "curdate", "localtimestamp"})
LISTED: Final = 8  # An IN with at least so many constants is a set lookup; with fewer, an OR of equalities.
_CONNECTIVES: Final = {exp.And: "and", exp.Or: "or"}
_CALLS: Final = (exp.Func, exp.DPipe, exp.Like, exp.ILike, exp.Escape, exp.Window)


class LowersSubqueries(Protocol):
    """Lowers the queries inside expressions."""

    def value(self, node: exp.Expr, lower: ExpressionLowering) -> TypedTerm:
        """The value of a subquery."""

    def require(self, node: exp.Expr, lower: ExpressionLowering, *, positive: bool) -> None:
        """Keep the bindings for which EXISTS or IN, or its negation, is true."""


@dataclass(slots=True)
class ExpressionLowering:
    """Lowers the expressions of one scope. `known` are nodes that already have a term, such as the aggregates of a grouping."""

    context: StatementContext
    scope: Scope
    subqueries: LowersSubqueries
    known: Mapping[str, TypedTerm] = field(default_factory=dict)
    # The parameters of the lambdas around the expression.
    parameters: Mapping[str, TypedTerm] = field(default_factory=dict)

    def lower(self, node: exp.Expr) -> TypedTerm:
        """The term of an expression."""
        if isinstance(node, Lowered):
            return cast(TypedTerm, node.args["typed"])
        if self.known and (found := self.known.get(self.canonical(node))) is not None:
            return found
        match node:
            case exp.Paren():
                return self.lower(node.this)
            case exp.Alias() if isinstance(node.parent, exp.Select):
                return self.lower(node.this)
            case exp.Column():
                return self.column(node)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.HexString():
                return self.literal(node)
            case exp.Identifier() | exp.Dot() | exp.Lambda():
                return self._nested(node)
            case exp.Cast():
                return self.cast_to(node)
            case exp.Neg():
                return self.negative(node)
            case exp.Case():
                return self.case(node)
            case exp.In(args={"query": exp.Expr()}) | exp.Exists() | exp.Subquery() | exp.Any() | exp.All():
                return self.subqueries.value(node, self)
            case exp.Interval():
                return self.duration(node)
            case exp.Bracket():
                return subscript(self, node)
        return self.truth(node)

    def _nested(self, node: exp.Expr) -> TypedTerm:
        """A parameter of a lambda, or a field of a value."""
        match node:
            case exp.Identifier() if (parameter := self.parameters.get(identifier(node))) is not None:
                return parameter
            case exp.Dot(expression=exp.Identifier()):
                return field_of(self, self.lower(node.this), node.expression.name, node)
            case exp.Lambda():
                raise self.context.unsupported("a lambda here", node, "give it to transform, filter, exists or another function")
        return self.function(node)

    def truth(self, node: exp.Expr) -> TypedTerm:
        """The truth value of a predicate: true, false or NULL; other expressions are operators or calls."""
        match node:
            case exp.And() | exp.Or():
                return self.connective(node)
            case exp.Not():
                return self.negation(node)
            case exp.NullSafeNEQ():
                # a IS DISTINCT FROM b is NOT (a <=> b). `<=>` takes NULL for a value, so the answer is never NULL.
                equal = self.comparison("<=>", self.lower(node.this), self.lower(node.expression), node)
                return self.call("not", [equal], BOOL)
            case exp.Is():
                return self.is_(node)
            case exp.Between():
                return self.between(node)
            case exp.In():
                return self.in_list(node)
        return self.operator(node)

    def negation(self, node: exp.Not) -> TypedTerm:
        """NOT. As in Spark, it moves to the queries below it: `NOT x IN (query)` is not the negation of the value of IN."""
        inner = node.this.unnest()
        match inner:
            case exp.In(args={"query": exp.Expr()}):
                return self.subqueries.value(exp.Not(this=inner), self)
            case exp.Not():
                return self.boolean(inner.this)
            case exp.And() | exp.Or() if inner.find(exp.Query):
                connective = exp.Or if isinstance(inner, exp.And) else exp.And
                return self.lower(connective(this=exp.Not(this=inner.left), expression=exp.Not(this=inner.right)))
        return self.call("not", [self.boolean(inner)], BOOL)

    def operator(self, node: exp.Expr) -> TypedTerm:
        """A comparison, an arithmetic operator or a call."""
        kind = type(node)
        if kind in COMPARISONS:
            return self.comparison(COMPARISONS[kind], self.lower(node.this), self.lower(node.expression), node)
        if kind in _ARITHMETIC:
            return self.arithmetic(_ARITHMETIC[kind], node)
        if kind in _BITS:
            operands = [node.this, *([node.expression] if kind is not exp.BitwiseNot else [])]
            return bits(_BITS[kind])(self, Invocation(_BITS[kind], operands, node))
        return self.function(node)

    def canonical(self, node: exp.Expr) -> str:
        """A text that is the same for equal expressions: a column is written as the term that it resolves to."""
        if isinstance(node, exp.Literal | exp.Star) or node.find(exp.Query):
            return f"{type(node).__name__}:{node.sql('spark')}"

        def named(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
                return part.this if isinstance(part, exp.Paren) else part
            try:
                found = self.scope.find(identifier(part), identifier(part.args.get("table")) or None, self.context.span(part))
            except TypeClash:
                return part  # The name is ambiguous; lowering it raises the error.
            return exp.column(repr(found.term)) if found is not None else part

        return node.transform(named).sql("spark")

    # Leaves

    def column(self, node: exp.Column) -> TypedTerm:
        """The term of a column."""
        if isinstance(node.this, exp.Star):
            raise self.context.unsupported("* in an expression", node, "name the columns")
        parts = [part.name for name in ("catalog", "db", "table", "this") if (part := node.args.get(name)) is not None]
        first, *fields = parts
        if (parameter := self.parameters.get(first.lower())) is not None:
            return self._fields(parameter, fields, node)
        table = None
        # As in Spark, `a.b` is the column b of the source a, or else the field b of the column a.
        if fields and (self.scope.knows(fields[0].lower(), first.lower()) or not self.scope.knows(first.lower(), None)):
            table, first, *fields = first.lower(), *fields
        found = self.scope.resolve(first.lower(), table, self.context.span(node))
        # A null test in the body makes a nullable column NOT NULL for whatever is lowered after it.
        return self._fields(replace(found, nullable=not self.scope.body.is_not_null(found)), fields, node)

    def _fields(self, typed: TypedTerm, names: Sequence[str], node: exp.Expr) -> TypedTerm:
        for name in names:
            typed = field_of(self, typed, name, node)
        return typed

    def literal(self, node: exp.Literal | exp.Boolean | exp.Null | exp.HexString) -> TypedTerm:
        """The constant of a literal."""
        match node:
            case exp.Null():
                return NULL
            case exp.Boolean():
                return TypedTerm(Constant(bool(node.this), BOOLEAN), BOOL, False)
            case exp.HexString():
                return TypedTerm(Constant(hex_bytes(node, self.context), BYTES.type), BYTES, False)
            case exp.Literal() if node.is_string:
                return TypedTerm(Constant(node.this, SYMBOL), STRING, False)
        return self.number(node.this, node)

    def number(self, text: str, node: exp.Expr) -> TypedTerm:
        """The constant of a numeric literal."""
        try:
            return numeric_literal(text)
        except ValueError as error:
            raise SyntaxProblem(f"not SQL: {error}", self.context.span(node)) from None

    # Types

    def cast_to(self, node: exp.Cast) -> TypedTerm:
        """CAST and TRY_CAST."""
        typed, to = self.lower(node.this), named_type(node.args["to"], self.context)
        if node.args["to"].this is exp.DType.TIMESTAMPNTZ:
            self.check_without_zone(typed, node)
        return self.cast(typed, to, node, attempt=isinstance(node, exp.TryCast))

    def check_without_zone(self, typed: TypedTerm, node: exp.Expr) -> None:
        """Refuse a text that may name a zone: Spark ignores it in a TIMESTAMP_NTZ. A text without one is a TIMESTAMP in UTC."""
        value = typed.term.value if isinstance(typed.term, Constant) else None
        if typed.type == STRING and not (isinstance(value, str) and not names_zone(value.strip())):
            what = "a text with a zone as TIMESTAMP_NTZ" if isinstance(value, str) else "a cast of STRING to TIMESTAMP_NTZ"
            raise self.context.unsupported(what, node, "cast to TIMESTAMP, which applies the zone")

    def cast(self, typed: TypedTerm, to: SqlType, node: exp.Expr, *, attempt: bool = False) -> TypedTerm:
        """The value cast to another type; a literal is cast now."""
        # Integers of all widths have one representation, and floats too, so widening is only a change of type.
        if typed.type.widens_to(to):
            return replace(typed, type=to)
        if typed.type == VOID or (isinstance(typed.term, Constant) and typed.term.value is None):
            return TypedTerm(Constant(None, to.type), to, True)
        if typed.type.type.parts and to != STRING:
            return cast_nested(self, typed, to, node, lambda part, into: self.cast(part, into, node, attempt=attempt))
        if (typed.type.is_numeric and to == MOMENT) or (typed.type == MOMENT and to.is_numeric):
            return self._cast_seconds(typed, to, node, attempt=attempt)
        self._check_cast(typed.type, to, node)
        zone = self.context.builder.zone
        if isinstance(typed.term, Constant) and (constant := cast_constant(typed.term, typed.type, to, zone)) is not None:
            return TypedTerm(constant, to, False)
        # In ANSI mode CAST fails on a value that it cannot cast; TRY_CAST gives NULL. NaN as a DECIMAL is NULL in both.
        name = f"try_{to.functor}" if attempt and to not in (STRING, BYTES) else to.functor
        nullable = typed.nullable or attempt or (typed.type.is_float and to.is_decimal)
        return self.call(name, [as_printed(self, typed, node) if to == STRING else typed], to, nullable=nullable)

    def _cast_seconds(self, typed: TypedTerm, to: SqlType, node: exp.Expr, *, attempt: bool) -> TypedTerm:
        """A timestamp as the seconds since 1970, or the other way around."""
        if attempt or (typed.type.is_decimal or to.is_decimal):
            what = "TRY_CAST" if attempt else "CAST"
            raise self.context.unsupported(f"{what} of {typed.type} to {to}", node, "use timestamp_seconds or unix_micros")
        if to == MOMENT:
            return self.call("timestamp_seconds", [typed], MOMENT)
        if to == DOUBLE:
            micros = self.cast(self.call("unix_micros", [typed], BIGINT), DOUBLE, node)
            return self.call("/", [micros, TypedTerm(Constant(1e6, DOUBLE.type), DOUBLE, False)], DOUBLE)
        seconds = self.call(BIGINT.functor, [typed], BIGINT)
        return seconds if to == BIGINT else self.cast(seconds, to, node)

    def _check_cast(self, one: SqlType, to: SqlType, node: exp.Expr) -> None:
        # The casts that Spark allows in ANSI mode; whether a value fits is found when it is cast.
        if (STRING in (one, to) and not to.type.parts) or (one.is_numeric and to.is_numeric) or {one, to} == {DAY, MOMENT}:
            return
        if (one == BOOL and to.is_numeric) or (one.is_numeric and to == BOOL):
            return
        raise TypeClash(f"{one} cannot be cast to {to}", self.context.span(node))

    def common_type_of(self, typed: Sequence[TypedTerm], node: exp.Expr) -> SqlType:
        """The common type of values."""
        found = typed[0].type
        for other in typed[1:]:
            both = common_type(found, other.type)
            if both is None:
                raise TypeClash(f"{found} and {other.type} have no common type", self.context.span(node), hint="cast one of them")
            found = both
        return found

    def to_common_type(self, typed: Sequence[TypedTerm], node: exp.Expr) -> list[TypedTerm]:
        """The values cast to their common type."""
        shared = self.common_type_of(typed, node)
        return [self.cast(one, shared, node) for one in typed]

    def boolean(self, node: exp.Expr) -> TypedTerm:
        """The term of a condition, which must be BOOLEAN."""
        typed = self.lower(node)
        if typed.type not in (BOOL, VOID):
            raise TypeClash(f"expected a condition, not {typed.type}", self.context.span(node))
        return self.cast(typed, BOOL, node)

    # Operators

    def call(self, name: str, arguments: Sequence[TypedTerm], gives: SqlType, *, nullable: bool | None = None) -> TypedTerm:
        """A call of a scalar function. By default, a strict function is nullable if one of its arguments is."""
        if nullable is None:
            nullable = SCALARS[name].strict and any(argument.nullable for argument in arguments)
        terms = [argument.term for argument in arguments]
        # A term is self-contained: the zone of the database is a constant in it, so that both engines compute the same.
        zone = self.context.builder.zone
        types = (gives, *(argument.type for argument in arguments))
        if zone != UTC and name in ZONED and any(found.type.contains(Kind.TIMESTAMP) for found in types):
            terms.append(Constant(zone, SYMBOL))
        return TypedTerm(Call(name, tuple(terms), gives=gives.type), gives, nullable)

    def comparison(self, name: str, left: TypedTerm, right: TypedTerm, node: exp.Expr) -> TypedTerm:
        """A comparison of values in their common type."""
        sides = self.to_common_type([left, right], node)
        self.check_comparable(sides[0].type, node)
        return self.call(name, sides, BOOL)

    def check_comparable(self, type: SqlType, node: exp.Expr) -> None:
        """Refuse a map where values are compared: Spark defines no equality and no order of maps."""
        if not type.is_comparable:
            hint = "compare map_entries(...), or its values"
            raise TypeClash(f"values of {type} cannot be compared or grouped", self.context.span(node), hint=hint)

    def connective(self, node: exp.And | exp.Or) -> TypedTerm:
        """A chain of AND or OR as one call."""
        # Neither connective is strict: FALSE AND NULL is FALSE, TRUE OR NULL is TRUE. Operands are evaluated from left to
        # right until one decides, so that an earlier one can guard a division.
        parts = [self.boolean(part) for part in node.flatten()]
        return self.call(_CONNECTIVES[type(node)], parts, BOOL, nullable=any(part.nullable for part in parts))

    def is_(self, node: exp.Is) -> TypedTerm:
        """IS NULL, IS TRUE and IS FALSE, which never are NULL."""
        typed, other = self.lower(node.this), node.expression
        if isinstance(other, exp.Null):
            return self.call("is null", [typed], BOOL, nullable=False)
        if isinstance(other, exp.Boolean):
            # x IS TRUE is x <=> TRUE: FALSE where x is NULL.
            return self.call("<=>", [self.boolean(node.this), self.literal(other)], BOOL, nullable=False)
        raise self.context.unsupported(f"IS {other.sql('spark')}", node, "use IS NULL, IS TRUE or IS FALSE")

    def between(self, node: exp.Between) -> TypedTerm:
        """BETWEEN, as two comparisons."""
        value, low, high = (self.lower(part) for part in (node.this, node.args["low"], node.args["high"]))
        # One bound can decide although the other one is NULL: FALSE AND NULL is FALSE.
        parts = [self.comparison(">=", value, low, node), self.comparison("<=", value, high, node)]
        return self.call("and", parts, BOOL, nullable=any(part.nullable for part in parts))

    def in_list(self, node: exp.In) -> TypedTerm:
        """IN with a list of values."""
        if not node.expressions:
            raise self.context.unsupported("IN without values", node, "write FALSE instead")
        value, *options = self.to_common_type([self.lower(part) for part in (node.this, *node.expressions)], node)
        self.check_comparable(value.type, node)
        if len(options) >= LISTED and all(isinstance(option.term, Constant) for option in options):
            return self.call("in", [value, *options], BOOL, nullable=any(one.nullable for one in (value, *options)))
        # x IN (a, b) is x = a OR x = b: TRUE if one is equal, otherwise NULL if x or an option is NULL.
        tests = [self.call("=", [value, option], BOOL) for option in options]
        return tests[0] if len(tests) == 1 else self.call("or", tests, BOOL, nullable=any(t.nullable for t in tests))

    def case(self, node: exp.Case) -> TypedTerm:
        """CASE; without ELSE, the default is NULL."""
        branches, default = node.args["ifs"], node.args.get("default")
        conditions = [self._condition(branch.this, node.this) for branch in branches]
        results = [self.lower(branch.args["true"]) for branch in branches]
        return self.choice(conditions, [*results, self.lower(default) if default is not None else NULL], node)

    def choice(self, conditions: Sequence[TypedTerm], results: Sequence[TypedTerm], node: exp.Expr) -> TypedTerm:
        """The first result whose condition is true; the last result has no condition."""
        results = self.to_common_type(results, node)
        # A condition that is NULL is not true, so the next branch is tried. NULL conditions do not make the result nullable.
        parts = [part for pair in zip(conditions, results, strict=False) for part in pair] + [results[-1]]
        return self.call("case", parts, results[-1].type, nullable=any(result.nullable for result in results))

    def _condition(self, node: exp.Expr, operand: exp.Expr | None) -> TypedTerm:
        if operand is None:
            return self.boolean(node)
        return self.comparison("=", self.lower(operand), self.lower(node), node)

    def arithmetic(self, operator: str, node: exp.Expr) -> TypedTerm:
        """An arithmetic operator, also between a date and an interval."""
        if operator in "+-" and (moment := self.add_interval(node, 1 if operator == "+" else -1)) is not None:
            return moment
        return self.combine(operator, self.lower(node.this), self.lower(node.expression), node)

    def combine(self, operator: str, left: TypedTerm, right: TypedTerm, node: exp.Expr, *, attempt: bool = False) -> TypedTerm:
        """`left operator right` in the type that Spark gives it; an attempt gives NULL where the operator fails."""
        if operator in "+-" and (found := self.time_arithmetic(operator, left, right, node)) is not None:
            return found
        if (scaled := self.scaled_interval(operator, left, right, node)) is not None:
            return scaled
        if DAY in (left.type, right.type) and operator in "+-":
            return self.add_days(operator, left, right, node)
        left, right = (self.narrow(one, other) for one, other in ((left, right), (right, left)))
        gives = arithmetic_type(operator, left.type, right.type)
        if gives is None:
            message = f"'{operator}' does not accept {left.type} and {right.type}"
            raise TypeClash(message, self.context.span(node), hint="cast one of them")
        if gives.is_decimal:
            sides = [self.cast(side, as_decimal(side.type), node) for side in (left, right)]
        else:
            operands = common_type(left.type, right.type) if operator == "div" else gives
            sides = [self.cast(side, operands or gives, node) for side in (left, right)]
        # The IR computes with 64 bits. In ANSI mode an integer that exceeds a narrower type is an error; a FLOAT is rounded.
        name = "pmod of floats" if operator == "pmod" and gives == SINGLE else operator
        result = self.call(f"try_{name}" if attempt else name, sides, gives, nullable=attempt or None)
        if gives.width < 64:
            check = f"try_{gives.functor}" if attempt else gives.functor
            return TypedTerm(Call(check, (result.term,), gives=gives.type), gives, result.nullable)
        return result

    def narrow(self, typed: TypedTerm, other: TypedTerm) -> TypedTerm:
        """An integer literal next to a DECIMAL is a DECIMAL with as many digits as it is written with."""
        if other.type.is_decimal and typed.type.is_integer and isinstance(typed.term, Constant):
            value = typed.term.value
            assert isinstance(value, int)
            return TypedTerm(
                Constant(Decimal(value), Type(Kind.DECIMAL, len(str(abs(value))), 0)), decimal(len(str(abs(value))), 0), False
            )
        return typed

    def negative(self, node: exp.Neg) -> TypedTerm:
        """A minus sign. The literal with its sign may fit a type that the literal alone does not."""
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self.number(f"-{node.this.this}", node)
        typed = self.lower(node.this)
        if typed.type == DURATION:
            return self.call("interval times", [typed, numeric_literal("-1")], DURATION)
        if not typed.type.is_numeric:
            raise TypeClash(f"'-' does not accept {typed.type}", self.context.span(node))
        result = self.call("negative", [typed], typed.type)
        if typed.type.is_integer and typed.type.bits < 64:
            return TypedTerm(Call(typed.type.functor, (result.term,), gives=NUMBER), typed.type, typed.nullable)
        return result

    # Dates

    def add_interval(self, node: exp.Expr, sign: int) -> TypedTerm | None:
        """A date or timestamp plus or minus an interval; None if neither operand is an interval."""
        interval, other = node.expression, node.this
        if sign == 1 and is_interval(other):
            interval, other = other, interval
        if not is_interval(interval) or is_interval(other):
            return None
        moment = self.lower(other)
        if moment.type == DURATION:
            return self.time_arithmetic("+" if sign == 1 else "-", moment, self.duration(interval), node)
        parts = list(interval_parts(interval, self.context))
        has_time = any(part.unit == "MICROSECOND" for part in parts)
        if is_mixed(interval) and moment.type != MOMENT and (has_time or moment.type != DAY):
            hint = "cast it to TIMESTAMP"
            raise self.context.unsupported(f"{moment.type} and make_interval with a time of day", node, hint)
        for part in parts:
            amount = numeric_literal(str(part.amount * sign))
            if part.factor is not None:
                factor = self.lower(part.factor)
                if not factor.type.is_integer:
                    hint = "multiply it by an integer"
                    raise TypeClash(f"an interval cannot be multiplied by {factor.type}", self.context.span(node), hint=hint)
                amount = self.call("*", [self.cast(factor, BIGINT, node), amount], BIGINT)
            moment = self.plus(moment, amount, part.unit, node)
        return moment

    def plus(self, moment: TypedTerm, amount: TypedTerm, unit: str, node: exp.Expr) -> TypedTerm:
        """A date or timestamp plus an amount of months, days or microseconds."""
        if moment.type == STRING and unit != "MONTH":
            # Spark casts the text to a timestamp, adds, and casts the result to text.
            return self.cast(self.plus(self.cast(moment, MOMENT, node), amount, unit, node), STRING, node)
        if moment.type not in (DAY, MOMENT):
            hint = "cast it to DATE or TIMESTAMP"
            raise TypeClash(f"an interval cannot be added to {moment.type}", self.context.span(node), hint=hint)
        return self.step(self.cast(moment, _moment(moment), node) if unit == "MICROSECOND" else moment, amount, unit)

    def step(self, moment: TypedTerm, amount: TypedTerm, unit: str) -> TypedTerm:
        """A date or timestamp plus so many units; a unit of the clock needs a timestamp."""
        if unit in MONTH_UNITS:
            name, times = "add_months", MONTH_UNITS[unit]
        elif unit in ("DAY", "WEEK"):
            name, times = "add_days", 7 if unit == "WEEK" else 1
        else:
            name, times = "add_micros", MICROSECONDS[unit]
            # Whole seconds are added as such: `explain` and older stores show them so.
            if isinstance(amount.term, Constant) and isinstance(amount.term.value, int):
                micros = amount.term.value * times
                if micros % 1_000_000 == 0:
                    return self.call("add_seconds", [moment, numeric_literal(str(micros // 1_000_000))], moment.type)
        if isinstance(amount.term, Constant) and isinstance(amount.term.value, int):
            return self.call(name, [moment, numeric_literal(str(amount.term.value * times))], moment.type)
        scaled = self.call("*", [amount, numeric_literal(str(times))], BIGINT) if times != 1 else amount
        return self.call(name, [moment, scaled], moment.type)

    def duration(self, node: exp.Expr) -> TypedTerm:
        """An interval of days and parts of a day by itself, in microseconds, as the difference of two times is."""
        parts = list(interval_parts(node, self.context))
        if any(part.unit == "MONTH" or part.factor is not None for part in parts):
            hint = "compare with add_months, or use an interval of days, hours, minutes or seconds"
            raise self.context.unsupported("an interval of months or years by itself", node, hint)
        micros = sum(part.amount * MICROSECONDS[part.unit] for part in parts)
        return TypedTerm(Constant(timedelta(microseconds=micros), DURATION.type), DURATION, False)

    def time_arithmetic(self, operator: str, left: TypedTerm, right: TypedTerm, node: exp.Expr) -> TypedTerm | None:
        """`time - time` is a duration; a time plus or minus a duration is a time; None for other operands."""
        types = {left.type, right.type}
        if operator == "-" and types <= {DAY, MOMENT}:
            sides = [self.cast(side, MOMENT, node) if MOMENT in types else side for side in (left, right)]
            return self.call("time difference", sides, DURATION)
        if types == {DURATION}:
            return self.call("interval plus" if operator == "+" else "interval minus", [left, right], DURATION)
        if DURATION in types and types & {DAY, MOMENT}:
            moment, shift = (right, left) if left.type == DURATION and operator == "+" else (left, right)
            if moment.type not in (DAY, MOMENT):
                return None
            shift = self.call("interval times", [shift, numeric_literal("-1")], DURATION) if operator == "-" else shift
            return self.call("time plus", [self.cast(moment, _moment(moment), node), shift], _moment(moment))
        return None

    def scaled_interval(self, operator: str, left: TypedTerm, right: TypedTerm, node: exp.Expr) -> TypedTerm | None:
        """An interval times or divided by a number; None for other operands."""
        interval, factor = (right, left) if right.type == DURATION and operator == "*" else (left, right)
        if interval.type != DURATION or operator not in "*/" or not factor.type.is_numeric:
            return None
        return self.call("interval times" if operator == "*" else "interval by", [interval, factor], DURATION)

    def add_days(self, operator: str, left: TypedTerm, right: TypedTerm, node: exp.Expr) -> TypedTerm:
        """`date + n` and `date - n`: n counts days."""
        if operator == "+" and right.type == DAY:
            left, right = right, left
        if left.type != DAY or not right.type.is_integer:
            raise self.context.unsupported(f"{left.type} {operator} {right.type}", node, "use datediff(end, start) to count days")
        days = right if operator == "+" else self.call("negative", [right], right.type)
        return self.call("add_days", [left, days], DAY)

    # Functions

    def function(self, node: exp.Expr) -> TypedTerm:
        """A call of a function of `lang.sql.functions`."""
        if not isinstance(node, _CALLS):
            raise self.context.unsupported(f"{node.sql('spark')} in an expression", node)
        call = invocation_of(node)
        if call.name in TIME_FUNCTIONS:
            return self.current_time(call)
        if call.name in AGGREGATES or isinstance(node, exp.Window):
            what = "a window function" if isinstance(node, exp.Window) else f"the aggregate {call.name}"
            raise self.context.unsupported(f"{what} in this clause", node, "use it in SELECT, HAVING or ORDER BY")
        found = FUNCTIONS.get(call.name) or WRITTEN_BY_REWRITINGS.get(call.name)
        if found is None:
            if call.name in WINDOW_FUNCTIONS:
                raise self.context.unsupported(f"'{call.name}' without OVER", node, "add OVER (ORDER BY ...)")
            raise self.context.unsupported(f"'{call.name}'", node, refusal(call.name))
        found.check(call, self)
        typed = found.lower(self, call)
        return self.call("not", [typed], BOOL) if node.args.get("negate") else typed

    def current_time(self, call: Invocation) -> TypedTerm:
        """now() and its like: the row of the clock, which advances; only in the WHERE of a query."""
        node = call.node
        where = node.find_ancestor(exp.Where, exp.Query)
        if not isinstance(where, exp.Where) or not isinstance(where.parent, exp.Select):
            hint = "compare it with a column in WHERE: ts > now() - INTERVAL 1 HOUR; the time is that of db.advance"
            if self.context.parsed.kind == "change":
                hint = "write the time as a value: TIMESTAMP '2024-01-31 12:00:00', DATE '2024-01-31'"
            raise self.context.unsupported(f"{call.name} outside of the WHERE of a query", node, hint)
        if call.arguments:
            raise WrongArity(f"'{call.name}' takes 0 arguments, not {len(call.arguments)}", self.context.span(node))
        now = self.context.clock(self.scope.body)
        return self.cast(now, DAY, node) if call.name in ("current_date", "curdate") else now


def _moment(typed: TypedTerm) -> SqlType:
    """The type of a time to which a duration was added."""
    return WALL_TIME if typed.type.without_zone else MOMENT
