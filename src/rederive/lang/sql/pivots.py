"""PIVOT and UNPIVOT as queries: aggregates with FILTER, and a UNION ALL with a branch for each column."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rederive.errors import UnknownName
from rederive.lang.sql.aggregate_calls import is_aggregate
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.lowered_relation import Field
from rederive.lang.sql.scope import identifier
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BOOL

_OF_VALUES = ("min", "max", "first", "last", "any_value", "mode", "max_by", "min_by")


def pivot_query(pivot: exp.Pivot, source: str, fields: Sequence[Field], context: StatementContext) -> exp.Expr:
    """The query that a PIVOT or UNPIVOT of a source means."""
    if len(pivot.args.get("fields") or ()) != 1:
        raise context.unsupported("PIVOT without one FOR ... IN (...)", pivot)
    return _unpivot(pivot, source, fields, context) if pivot.args.get("unpivot") else _pivot(pivot, source, fields, context)


def _pivot(pivot: exp.Pivot, source: str, fields: Sequence[Field], context: StatementContext) -> exp.Expr:
    (choice,) = pivot.args["fields"]
    keys = choice.this.expressions if isinstance(choice.this, exp.Tuple) else [choice.this]
    aggregates = [(part.unalias(), part.alias) for part in pivot.expressions]
    used = {identifier(column) for part in (*keys, *(a for a, _ in aggregates)) for column in part.find_all(exp.Column)}
    groups = [field.name for field in fields if field.name not in used]
    is_null = all(_is_plain(aggregate, fields) for aggregate, _ in aggregates)
    items: list[exp.Expr] = [_column(name) for name in groups]
    for option in choice.expressions:
        value, label = _option(option)
        if not label:
            raise context.unsupported("several values of PIVOT without a name", option, "write (...) AS name")
        values = value.expressions if isinstance(value, exp.Tuple) else [value]
        if len(values) != len(keys):
            raise context.unsupported(f"PIVOT by {len(keys)} columns with {len(values)} values", option)
        tests = [exp.NullSafeEQ(this=key.copy(), expression=one.copy()) for key, one in zip(keys, values, strict=True)]
        for aggregate, alias in aggregates:
            name = label if len(aggregates) == 1 else f"{label}_{alias or aggregate.sql('spark')}"
            items.append(exp.alias_(_filtered(aggregate, exp.and_(*tests), is_null=is_null), name.lower(), quoted=True))
    query = exp.Select(expressions=items, from_=exp.From(this=_table(source)))
    if groups:
        query.set("group", exp.Group(expressions=[_column(name) for name in groups]))
    return query


def _filtered(node: exp.Expr, test: exp.Expr, *, is_null: bool) -> exp.Expr:
    """An expression of aggregates, restricted to the rows of one value. Spark has NULL for a group without such rows."""

    def restrict(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Anonymous) or not is_aggregate(part):
            return part
        return _with_filter(part, test)

    found = node.copy().transform(restrict)
    counts = [part for part in node.find_all(exp.Anonymous) if function_name(part) in ("count", "count_if")]
    if not counts or not is_null:
        return found
    rows = _with_filter(exp.Anonymous(this="count", expressions=[exp.Star()]), test)
    some = exp.GT(this=rows, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=found)])


def _with_filter(call: exp.Expr, test: exp.Expr) -> exp.Expr:
    return exp.Filter(this=call.copy(), expression=exp.Where(this=test.copy()))


def _is_plain(node: exp.Expr, fields: Sequence[Field]) -> bool:
    """Whether Spark pivots in two steps, which gives NULL for a count of no rows: if aggregates are numbers or conditions."""
    types = {field.name: field.type for field in fields}
    for call in node.find_all(exp.Anonymous):
        name = function_name(call)
        first = call.expressions[0] if call.expressions else None
        type = types.get(identifier(first)) if isinstance(first, exp.Column) else None
        if name in ("listagg", "string_agg"):
            return False
        if name in _OF_VALUES and type is not None and not type.is_numeric and type != BOOL:
            return False
    return True


def _unpivot(pivot: exp.Pivot, source: str, fields: Sequence[Field], context: StatementContext) -> exp.Expr:
    (choice,) = pivot.args["fields"]
    (given,) = pivot.expressions
    names = given.expressions if isinstance(given, exp.Tuple) else [given]
    options = [_option(option) for option in choice.expressions]
    columns = [value.expressions if isinstance(value, exp.Tuple) else [value] for value, _ in options]
    used = {identifier(column) for chosen in columns for column in chosen}
    known = [field.name for field in fields]
    for column in (column for chosen in columns for column in chosen):
        if identifier(column) not in known:
            raise UnknownName("column", identifier(column), known, context.span(column))
    rest = [name for name in known if name not in used]
    query: exp.Expr | None = None
    for chosen, (_, label) in zip(columns, options, strict=True):
        text = label or "_".join(identifier(column) for column in chosen)
        items = [*map(_column, rest), exp.alias_(exp.Literal.string(text), identifier(choice.this), quoted=True)]
        items += [exp.alias_(c.copy(), identifier(n), quoted=True) for c, n in zip(chosen, names, strict=True)]
        branch = exp.Select(expressions=items, from_=exp.From(this=_table(source)))
        if not pivot.args.get("include_nulls"):
            # A row is left out only if all its values are NULL.
            known_values = [exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())) for column in chosen]
            branch.set("where", exp.Where(this=exp.or_(*known_values)))
        query = branch if query is None else exp.Union(this=query, expression=branch, distinct=False)
    if query is None:
        raise context.unsupported("UNPIVOT without columns", pivot)
    return query


def _option(node: exp.Expr) -> tuple[exp.Expr, str]:
    """A value of IN and its name: its alias, or the value itself; none for several values."""
    if isinstance(node, exp.PivotAlias):
        return node.this, node.args["alias"].name
    return node, "" if isinstance(node, exp.Tuple) else node.name


def _column(name: str) -> exp.Expr:
    return exp.column(name, quoted=True)


def _table(name: str) -> exp.Expr:
    return exp.Table(this=exp.to_identifier(name, quoted=True))
