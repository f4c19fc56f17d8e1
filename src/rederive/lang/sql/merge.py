"""MERGE INTO: up to three queries, for rows that match, rows of the source alone and rows of the table alone.

Each query computes the number of the first WHEN whose condition is true, and the new row by that number. A CASE evaluates only
the branch that it takes, so a clause that is not chosen cannot fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from rederive.errors import SyntaxProblem, UnknownName, WrongArity
from rederive.ir.rules import Relation
from rederive.lang.sql.column_defaults import Lowered, default_of, generate_columns, is_default, is_generated
from rederive.lang.sql.scope import identifier
from rederive.lang.sql.types import column_type

if TYPE_CHECKING:
    from rederive.lang.sql.dml import CompiledQuery, MergeRows, _DmlLowering

_ACTION = "merge_action"


def lower_merge(lowering: _DmlLowering, tree: exp.Merge) -> MergeRows:
    """The queries of a MERGE."""
    from rederive.lang.sql.dml import MergeRows

    table = lowering.table(tree.this)
    whens = list(enumerate(tree.args["whens"].expressions))
    deletes = frozenset(i for i, when in whens if _is_delete(when))

    def of(matched: bool, by_source: bool) -> list[tuple[int, exp.When]]:
        return [(i, w) for i, w in whens if bool(w.args.get("matched")) is matched and bool(w.args.get("source")) is by_source]

    target, source, on = tree.this, tree.args["using"], tree.args.get("on")
    if not isinstance(on, exp.Expr):
        hint = "write MERGE INTO t USING s ON t.id = s.id WHEN ..."
        raise SyntaxProblem("not SQL: MERGE has no condition", lowering.parsed.span, hint=hint)
    matched = _question(lowering, table, of(True, False), exp.Join(this=source.copy(), on=on.copy()), target, tree)
    by_source = _question(
        lowering, table, of(False, True), exp.Join(this=source.copy(), on=on.copy(), side="LEFT", kind="ANTI"), target, tree
    )
    by_target = _question(
        lowering, table, of(False, False), exp.Join(this=target.copy(), on=on.copy(), side="LEFT", kind="ANTI"), source, tree,
        inserts=True,
    )  # fmt: skip
    return MergeRows(table.name, matched, by_target, by_source, deletes)


def _is_delete(when: exp.When) -> bool:
    return isinstance(when.args["then"], exp.Var)


def _question(
    lowering: _DmlLowering,
    table: Relation,
    whens: Sequence[tuple[int, exp.When]],
    join: exp.Join,
    first: exp.Expr,
    tree: exp.Merge,
    *,
    inserts: bool = False,
) -> CompiledQuery | None:
    """The query of one kind of WHEN; None if the statement has none of the kind."""
    if not whens:
        return None
    own = lowering.fresh()
    columns = [column.name for column in table.columns]
    alias = tree.this.alias_or_name
    actions = {i: _values(own, when, table, tree) for i, when in whens if not _is_delete(when)}
    old = [] if inserts else [_column(name, alias) for name in columns]
    # A WHEN without a condition is the last one that can be chosen.
    chosen = exp.Case(ifs=[exp.If(this=_condition(when), true=exp.Literal.number(i)) for i, when in whens])
    new = [
        exp.Case(ifs=[exp.If(this=exp.EQ(this=chosen.copy(), expression=exp.Literal.number(i)), true=values[name].copy())
                      for i, values in actions.items()])
        if actions else exp.Null()
        for name in columns
    ]  # fmt: skip
    named = [exp.alias_(one, f"c{i}") for i, one in enumerate((*old, chosen, *new))]
    select = exp.Select(expressions=named).from_(first.copy(), copy=False)
    select.set("joins", [join])
    prepared = own.queries.prepare(select)
    outputs = [typed for _, typed in prepared.outputs]
    begin = len(old) + 1
    cast = [
        prepared.lower.cast(typed, column_type(column), tree)
        for typed, column in zip(outputs[begin:], table.columns, strict=True)
    ]
    cast = generate_columns(cast, table)
    renamed = tuple((f"c{i}", typed) for i, typed in enumerate((*outputs[:begin], *cast)))
    return own.compiled_query(replace(prepared, outputs=renamed))


def _condition(when: exp.When) -> exp.Expr:
    condition = when.args.get("condition")
    return condition.copy() if condition is not None else exp.true()


def _column(name: str, alias: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name), table=exp.to_identifier(alias))


def _values(lowering: _DmlLowering, when: exp.When, table: Relation, tree: exp.Merge) -> dict[str, exp.Expr]:
    """The new value of each column. An UPDATE keeps the columns that it does not set; an INSERT gives them their defaults."""
    columns = [column.name for column in table.columns]
    values = _written_values(lowering, when, columns, tree)
    generated = [column.name for column in table.columns if is_generated(column)]
    if values.keys() & generated:
        hint = f"omit {generated[0]}, and name the other columns instead of *"
        raise lowering.parsed.unsupported("setting a generated column in MERGE", when, hint)
    defaults: dict[str, exp.Expr] = {c.name: Lowered(typed=default_of(c)) for c in table.columns}
    kept = [name for name in columns if name not in generated] if isinstance(when.args["then"], exp.Update) else []
    others = defaults | {name: _column(name, tree.this.alias_or_name) for name in kept}
    return others | {name: defaults[name] if is_default(value) else value for name, value in values.items()}


def _written_values(lowering: _DmlLowering, when: exp.When, columns: list[str], tree: exp.Merge) -> dict[str, exp.Expr]:
    """The values that an action names, by column."""
    then, source = when.args["then"], tree.args["using"].alias_or_name
    if isinstance(then, exp.Update):
        if any(isinstance(one, exp.Star) for one in then.expressions):
            return {name: _column(name, source) for name in columns}
        lowering.check_once([identifier(update.this) for update in then.expressions])
        return {_known(lowering, identifier(update.this), columns): update.expression for update in then.expressions}
    if not isinstance(then, exp.Insert):
        raise lowering.parsed.unsupported("this action in MERGE", when, "use UPDATE SET, DELETE or INSERT")
    if isinstance(then.this, exp.Star):
        return {name: _column(name, source) for name in columns}
    given = [_known(lowering, identifier(one), columns) for one in then.this.expressions] if then.this else columns
    lowering.check_once(given)
    values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else [then.expression]
    if len(values) != len(given):
        raise WrongArity(f"expected {len(given)} values, but there are {len(values)}", lowering.parsed.span)
    return dict(zip(given, values, strict=True))


def _known(lowering: _DmlLowering, name: str, columns: list[str]) -> str:
    if name not in columns:
        raise UnknownName("column", name, columns, lowering.parsed.span)
    return name
