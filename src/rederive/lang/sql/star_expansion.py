"""SELECT *: replaced by the columns that it means."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rederive.errors import SyntaxProblem, UnknownName
from rederive.lang.sql.scope import Scope, ScopeColumn, ambiguous, identifier
from rederive.lang.sql.statement_context import StatementContext


def expand_stars(node: exp.Select, scope: Scope, context: StatementContext) -> exp.Select:
    """The query in which `*` and `table.*` are replaced by their columns."""
    node = _expand_calls(node, scope, context)
    items = [found for item in node.expressions for found in _columns(item, scope, context)]
    if not items:
        raise SyntaxProblem("not SQL: SELECT has no columns", context.span(node), hint="name a column, or write *")
    if items == node.expressions:
        return node
    group = node.args.get("group")
    if group is not None and any(isinstance(part, exp.Literal) for part in group.expressions):
        raise context.unsupported("GROUP BY a position together with *", group, "group by the names of the columns")
    expanded = node.copy()
    expanded.set("expressions", items)
    return expanded


def _expand_calls(node: exp.Select, scope: Scope, context: StatementContext) -> exp.Select:
    """Calls such as struct(*), count(DISTINCT *) and count(t.*) with the columns that they mean; count(*) counts rows."""
    if not any(_starred(call) for call in node.find_all(exp.Anonymous)):
        return node
    expanded = node.copy()
    for call in list(expanded.find_all(exp.Anonymous)):
        if (holder := _starred(call)) is not None and call.find_ancestor(exp.Select) is expanded:
            holder.set("expressions", [found for item in holder.expressions for found in _columns(item, scope, context)])
    return expanded


def _starred(call: exp.Anonymous) -> exp.Expr | None:
    """The node whose expressions hold the star of such a call."""
    if call.name.lower() != "count" or len(call.expressions) != 1:
        return call if any(_is_star(item) for item in call.expressions) else None
    (argument,) = call.expressions
    if isinstance(argument, exp.Distinct):
        return argument if any(_is_star(item) for item in argument.expressions) else None
    return call if isinstance(argument, exp.Column) and _is_star(argument) else None


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


def _columns(item: exp.Expr, scope: Scope, context: StatementContext) -> list[exp.Expr]:
    star = item.this if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) else item
    if not isinstance(star, exp.Star):
        return [item]
    table = identifier(item.args.get("table")) or None
    if table is not None and table not in scope.aliases and (fields := _fields(table, scope, context, item)):
        return fields
    found = scope.star(table, context.span(item))
    for left_out in star.args.get("except_") or ():
        found = _left_out(left_out, found, context)
    columns: list[exp.Expr] = [exp.column(column.name, column.alias, quoted=True) for column in found]
    if (assigned := star.args.get("assigned")) is not None:
        # |> SET: the expression takes the place of the column.
        others = _left_out(assigned.this, found, context)
        place = next(i for i, column in enumerate(found) if column not in others)
        columns[place] = exp.alias_(assigned.expression, identifier(assigned.this), quoted=True)
    return columns


def _fields(name: str, scope: Scope, context: StatementContext, item: exp.Expr) -> list[exp.Expr]:
    """The fields of a struct: `s.*` means them if s is a column."""
    found = scope.find(name, None, context.span(item))
    if found is None or not found.type.is_struct:
        return []
    column = exp.column(name, quoted=True)
    return [
        exp.alias_(exp.Dot(this=column.copy(), expression=exp.to_identifier(field, quoted=True)), field, quoted=True)
        for field, _ in found.type.fields
    ]


def _left_out(node: exp.Expr, columns: Sequence[ScopeColumn], context: StatementContext) -> list[ScopeColumn]:
    name, table, span = identifier(node), identifier(node.args.get("table")) or None, context.span(node)
    found = [column for column in columns if column.matches(name, table)]
    if not found:
        raise UnknownName("column", name, (column.name for column in columns), span)
    if len(found) > 1:
        raise ambiguous(name, [column.alias for column in found], span)
    return [column for column in columns if column != found[0]]
