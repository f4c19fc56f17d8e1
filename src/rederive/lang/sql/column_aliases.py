"""Names of the SELECT list that other expressions use: lateral column aliases, HAVING and QUALIFY by alias."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.lang.sql.aggregate_calls import is_aggregate
from rederive.lang.sql.scope import Scope, identifier
from rederive.lang.sql.statement_context import StatementContext

Replace = Callable[[exp.Column], exp.Expr | None]


def expand_aliases(node: exp.Select, scope: Scope, context: StatementContext) -> exp.Select:
    """The query in which a name of the SELECT list is replaced by its expression.

    A column of the sources takes precedence, but in HAVING only if it is grouped. An item of the list sees those before it.
    """
    items = node.expressions
    aliases = {identifier(item.args["alias"]) for item in items if isinstance(item, exp.Alias)}
    clauses = [part for part in ("having", "qualify") if node.args.get(part) is not None]
    if not aliases or not (len(items) > 1 or clauses):
        return node

    def is_column(column: exp.Column) -> bool:
        try:
            return scope.find(identifier(column), identifier(column.args.get("table")) or None, context.span(column)) is not None
        except TypeClash:
            return True  # The name is ambiguous; lowering it raises the error.

    known: dict[str, exp.Expr] = {}

    def of_list(column: exp.Column) -> exp.Expr | None:
        return None if column.args.get("table") or is_column(column) else known.get(identifier(column))

    found = []
    for item in items:
        found.append(_replaced(item, of_list))
        if isinstance(item, exp.Alias):
            known.setdefault(identifier(item.args["alias"]), found[-1].this)
    group = node.args.get("group")
    grouped = {identifier(part) for part in group.expressions if isinstance(part, exp.Column)} if group is not None else set()

    def of_clause(column: exp.Column) -> exp.Expr | None:
        name = identifier(column)
        inside = column.find_ancestor(exp.Anonymous)
        if column.args.get("table") or (is_column(column) and (name in grouped or (inside and is_aggregate(inside)))):
            return None
        return known.get(name)

    replaced = {part: _replaced(node.args[part], of_clause) for part in clauses}
    if all(new is old for new, old in zip(found, items, strict=True)) and all(replaced[p] is node.args[p] for p in clauses):
        return node
    expanded = node.copy()
    expanded.set("expressions", found)
    for part, clause in replaced.items():
        expanded.set(part, clause)
    return expanded


def _replaced(node: exp.Expr, replace: Replace) -> exp.Expr:
    """The expression with some columns replaced, except in its subqueries; the node itself if there are none."""
    if not any(replace(column) is not None for column in _columns(node)):
        return node
    copied = node.copy()
    # The copy has no parent: a column is judged by its place in the original.
    for column, original in zip(list(_columns(copied)), list(_columns(node)), strict=True):
        if (value := replace(original)) is not None:
            column.replace(exp.Paren(this=value.copy()))
    return copied


def _columns(node: exp.Expr) -> list[exp.Column]:
    found = node.walk(prune=lambda part: isinstance(part, exp.Query | exp.Column))
    return [part for part in found if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star)]
