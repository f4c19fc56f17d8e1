"""Plans and expressions as Spark SQL. No other module of the engine writes SQL text.

Nested nodes become one SELECT as long as SQL's order of clauses allows: FROM, WHERE, GROUP BY and HAVING, SELECT, DISTINCT,
ORDER BY, LIMIT. A node whose clause comes too late for the SELECT at hand reads that as a subquery. Spark plans both alike, but
parses and analyses the flat one sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from rederive.engines.spark.plan.expressions import (
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    FieldOf,
    FunctionCall,
    Infix,
    InList,
    LogicalNot,
    Named,
    NullTest,
    Output,
    SortKey,
    TypedValue,
    Window,
)
from rederive.engines.spark.plan.nodes import (
    Aliased,
    Distinct,
    Filter,
    GroupBy,
    Join,
    JoinKind,
    Limit,
    OneRow,
    Plan,
    Projection,
    Repartition,
    Scan,
    Sort,
    UnionAll,
    Values,
)
from rederive.engines.spark.session.types import columns, literal, sql_type
from rederive.ir.terms import BOOLEAN, Row, Type


def print_query(plan: Plan) -> str:
    """A plan as one SQL query.

    >>> print_query(Projection(Scan("v"), (ColumnRef("c0"),)))
    'SELECT c0 FROM v'
    """
    match plan:
        case UnionAll(parts):
            return " UNION ALL ".join(_branch(part) for part in parts)
        case Values(types, rows):
            return _values(types, rows)
        case _:
            return _select(plan).text()


def print_expression(expression: Output) -> str:
    """An expression as SQL.

    >>> print_expression(Infix("AND", (ColumnRef("c0"), LogicalNot(ColumnRef("c1", "a")))))
    '(c0 AND (NOT a.c1))'
    """
    match expression:
        case Named(value, name):
            return f"{print_expression(value)} AS {name}"
        case ColumnRef(name, alias):
            return f"{alias}.{name}" if alias else name
        case AllColumns(alias):
            return f"{alias}.*" if alias else "*"
        case TypedValue(value, type):
            return literal(value, type)
        case Cast(value, type):
            return f"CAST({print_expression(value)} AS {sql_type(type)})"
        case FunctionCall(function, arguments):
            return f"{function}({_list(arguments)})"
        # Always in parentheses: the text does not depend on the precedence of operators.
        case Infix(operator, operands):
            return f"({f' {operator} '.join(map(print_expression, operands))})"
        case LogicalNot(condition):
            return f"(NOT {print_expression(condition)})"
        case NullTest(value, is_null):
            return f"({print_expression(value)} {'IS NULL' if is_null else 'IS NOT NULL'})"
        case CaseWhen():
            return _case(expression)
        case InList(value, options):
            return f"({print_expression(value)} IN ({_list(options)}))"
        case FieldOf(value, name):
            return f"{print_expression(value)}.{name}"
        case Window():
            return _window(expression)
        case _:
            assert_never(expression)


def print_sort_key(key: SortKey) -> str:
    """A sort key as SQL."""
    order, nulls = "DESC" if key.descending else "ASC", "FIRST" if key.nulls_first else "LAST"
    return f"{print_expression(key.value)} {order} NULLS {nulls}"


def _list(expressions: Sequence[Output]) -> str:
    return ", ".join(map(print_expression, expressions))


def _case(case: CaseWhen) -> str:
    branches = " ".join(f"WHEN {print_expression(test)} THEN {print_expression(result)}" for test, result in case.branches)
    otherwise = f" ELSE {print_expression(case.otherwise)}" if case.otherwise is not None else ""
    return f"(CASE {branches}{otherwise} END)"


def _window(window: Window) -> str:
    clauses = [f"PARTITION BY {_list(window.partition)}"] if window.partition else []
    clauses += [f"ORDER BY {', '.join(map(print_sort_key, window.order))}"] if window.order else []
    return f"{print_expression(window.function)} OVER ({' '.join(clauses)})"


@dataclass(slots=True)
class _Select:
    """One SELECT that nodes fill, from the inside out. `outputs` is None until a node chooses columns."""

    source: str = ""
    hints: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    outputs: str | None = None
    group: str = ""
    distinct: bool = False
    order: str = ""
    limit: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the rows of FROM and WHERE are still as they are."""
        return self.outputs is None and not self.distinct and not self.is_ordered

    @property
    def is_ordered(self) -> bool:
        """Whether the rows are in order, or limited."""
        return bool(self.order or self.limit)

    def nested(self) -> _Select:
        """A SELECT that reads this one as a subquery."""
        return _Select(f"({self.text()})")

    def text(self) -> str:
        """The SELECT as SQL."""
        hint = f" /*+ {', '.join(self.hints)} */" if self.hints else ""
        distinct = " DISTINCT" if self.distinct else ""
        start = f" FROM {self.source}" if self.source else ""
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f"SELECT{hint}{distinct} {self.outputs or '*'}{start}{where}{self.group}{self.order}{self.limit}"


def _select(plan: Plan) -> _Select:
    """The SELECT of a plan, to which the node above can add its clause."""
    match plan:
        case OneRow():
            return _Select()
        case Scan() | Values() | UnionAll():
            return _Select(_item(plan))
        case Aliased(input, alias, hint):
            return _Select(f"{_item(input)} {alias}", [f"{hint.value}({alias})"] if hint is not None else [])
        case Join():
            return _join(plan)
        case Filter(input, conditions):
            found = _opened(input)
            # A WHERE sees the columns of FROM: it may only join a SELECT that has not chosen columns yet.
            found.where += map(print_expression, conditions)
            return found
        case Projection(input, outputs):
            found = _opened(input)
            found.outputs = _list(outputs)
            return found
        case GroupBy(input, keys, outputs, having):
            found = _opened(input)
            found.outputs = _list(outputs)
            found.group = f" GROUP BY {_list(keys)}" if keys else ""
            found.group += f" HAVING {print_expression(having)}" if having is not None else ""
            return found
        case Distinct(input):
            found = _unordered(input)
            found.distinct = True
            return found
        case Repartition(input, partitions, by):
            found = _unordered(input)
            # The hint is about the rows that the SELECT returns, so its columns are those of the list.
            found.hints.append(f"REPARTITION({partitions}, {_list(by)})")
            return found
        case Sort(input, keys):
            found = _unordered(input)
            found.order = f" ORDER BY {', '.join(map(print_sort_key, keys))}"
            return found
        case Limit(input, rows):
            found = _select(input)
            # A limit of a limit is the smaller one, but only as a subquery.
            found = found.nested() if found.limit else found
            found.limit = f" LIMIT {rows}"
            return found
        case _:
            assert_never(plan)


def _opened(plan: Plan) -> _Select:
    found = _select(plan)
    # A REPARTITION hint is about the rows that this SELECT returns: another clause would change them.
    return found if found.is_open and not _is_repartitioned(found) else found.nested()


def _unordered(plan: Plan) -> _Select:
    found = _select(plan)
    return found.nested() if found.is_ordered or found.distinct or _is_repartitioned(found) else found


def _is_repartitioned(select: _Select) -> bool:
    return any(hint.startswith("REPARTITION") for hint in select.hints)


def _join(join: Join) -> _Select:
    """A filter of the left side is a filter of the result: no kind of join here adds rows that the left side does not have."""
    found, right = _select(join.left), join.right
    # Semi and anti joins hide the right side's columns, as SQL does; the left side's stay visible under their aliases.
    on = f" ON {' AND '.join(map(print_expression, join.on))}" if join.kind is not JoinKind.CROSS else ""
    found.source += f" {join.kind.value} {_item(right.input)} {right.alias}{on}"
    found.hints += [f"{right.hint.value}({right.alias})"] if right.hint is not None else []
    return found


def _item(plan: Plan) -> str:
    """A plan as an item of a FROM clause."""
    return plan.view if isinstance(plan, Scan) else f"({print_query(plan)})"


def _branch(plan: Plan) -> str:
    """A plan as a part of a union; ORDER BY and LIMIT would be taken for those of the union."""
    if isinstance(plan, Sort | Limit):
        return _select(plan).nested().text()
    return print_query(plan)


def _values(types: tuple[Type, ...], rows: Sequence[Row]) -> str:
    shown, names = types or (BOOLEAN,), columns(types)
    # VALUES needs a row, so that an empty relation is a SELECT without any.
    if not rows:
        nothing = ", ".join(f"CAST(NULL AS {sql_type(t)}) AS {c}" for t, c in zip(shown, names, strict=True))
        return f"SELECT {nothing} WHERE FALSE"
    texts = (", ".join(literal(v, t) for v, t in zip(row or (True,), shown, strict=True)) for row in rows)
    return f"SELECT * FROM VALUES {', '.join(f'({text})' for text in texts)} AS v({', '.join(names)})"
