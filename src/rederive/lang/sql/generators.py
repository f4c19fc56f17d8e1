"""Generators: explode and posexplode, in LATERAL VIEW or in the SELECT list.

The positions of an array are a recursion that ends with the array, so that every strategy and engine maintains them:

    positions(x, 0) :- body, size(array(x)) > 0.
    positions(x, i + 1) :- positions(x, i), i + 1 < size(array(x)).

The query joins the positions; an element is `array(x)[i]`. OUTER adds the position NULL where the array is NULL or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.ir.rules import Atom, Column, Comparison, Literal, Operator
from rederive.ir.terms import BOOLEAN, NUMBER, Call, Constant, variables
from rederive.lang.sql.array_functions import array
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.rule_body import TRUE, SourceRows
from rederive.lang.sql.scope import identifier, identifiers
from rederive.lang.sql.types import INT

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

GENERATORS: Final = ("explode", "posexplode", "explode_outer", "posexplode_outer")
_ZERO, _ONE = Constant(0, NUMBER), Constant(1, NUMBER)


def add_lateral_views(laterals: Sequence[exp.Lateral], lower: ExpressionLowering) -> None:
    """Join the rows of each LATERAL VIEW; a later one sees the columns of those before it."""
    for lateral in laterals:
        name, columns = _generate(lateral.this, lower, outer=bool(lateral.args.get("outer")))
        alias = lateral.args.get("alias")
        given = identifiers(alias.args.get("columns") or ()) if alias is not None else []
        if given and len(given) != len(columns):
            raise lower.context.unsupported(
                f"{len(given)} names for the columns of {name}", lateral, f"give {len(columns)} names"
            )
        names = given or [column for column, _ in columns]
        lower.scope.bind(identifier(alias), list(zip(names, (typed for _, typed in columns), strict=True)))


def replace_generators(node: exp.Select, lower: ExpressionLowering) -> exp.Select:
    """The query with columns in the place of a generator in its SELECT list."""
    found = [i for i, item in enumerate(node.expressions) if _is_generator(_inner(item))]
    if not found:
        return node
    if len(found) > 1:
        raise lower.context.unsupported("two generators in one SELECT list", node.expressions[found[1]], "use LATERAL VIEW")
    if node.args.get("group") is not None or node.args.get("having") is not None:
        raise lower.context.unsupported("a generator with GROUP BY", node.expressions[found[0]], "use LATERAL VIEW")
    item = node.expressions[found[0]]
    _, columns = _generate(_inner(item), lower, outer=False)
    alias = " generated"  # a name that no text can have
    lower.scope.bind(alias, columns)
    if isinstance(item, exp.Aliases):
        names = identifiers(item.expressions)
    else:
        names = [identifier(item.args["alias"])] if isinstance(item, exp.Alias) else [name for name, _ in columns]
    if len(names) != len(columns):
        raise lower.context.unsupported("this number of names for a generator", item, f"give {len(columns)} names")
    outputs = [
        exp.alias_(exp.Column(this=exp.to_identifier(column), table=exp.to_identifier(alias, quoted=True)), name)
        for name, (column, _) in zip(names, columns, strict=True)
    ]
    copied = node.copy()
    copied.set("expressions", [*copied.expressions[: found[0]], *outputs, *copied.expressions[found[0] + 1 :]])
    return copied


def _inner(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def _is_generator(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in GENERATORS


def _generate(node: exp.Expr, lower: ExpressionLowering, *, outer: bool) -> tuple[str, list[tuple[str, TypedTerm]]]:
    """Join the positions of an array with the body; the name of the generator, and its columns."""
    if not _is_generator(node) or len(node.expressions) != 1:
        raise lower.context.unsupported(f"{node.sql('spark')} as a generator", node, "use explode or posexplode of an array")
    name = node.name.lower()
    outer = outer or name.endswith("_outer")
    typed, element = array(lower, node.expressions[0])
    body, context = lower.scope.body, lower.context
    if body.outer:
        raise context.unsupported("a generator in a correlated subquery", node, "use it in a WITH query")
    term = body.term(typed.term)
    read = list(dict.fromkeys(variables(term)))
    relation, position = context.name("positions"), context.fresh("pos")
    place = Column("pos", NUMBER, outer, 32)
    context.declare(relation, (*(context.columns[v.name] for v in read), place))
    size = Call("size", (term,), gives=NUMBER)
    literals = body.finish()
    some = Comparison(Operator.EQ, Call(">", (size, _ZERO), gives=BOOLEAN), TRUE)
    context.define(relation, (*read, _ZERO), (*literals, some))
    if outer:
        none = Call("case", (Call(">", (size, _ZERO), gives=BOOLEAN), Constant(False, BOOLEAN), TRUE), gives=BOOLEAN)
        context.define(relation, (*read, Constant(None, NUMBER)), (*literals, Comparison(Operator.EQ, none, TRUE)))
    before, after = context.fresh("pos"), context.fresh("pos")
    step: tuple[Literal, ...] = (
        Atom(relation, (*read, before)),
        Comparison(Operator.NE, before, Constant(None, NUMBER)),
        Comparison(Operator.EQ, Call("<", (Call("+", (before, _ONE), gives=NUMBER), size), gives=BOOLEAN), TRUE),
        Comparison(Operator.EQ, after, Call("+", (before, _ONE), gives=NUMBER)),
    )
    context.define(relation, (*read, after), step if outer else (step[0], *step[2:]))
    context.columns[position.name] = place
    body.add(Atom(relation, (*read, position)))
    body.sources.append(SourceRows((*read, position), (*read, position)))
    number = TypedTerm(position, INT, outer)
    value = lower.call("get", [typed, number], element, nullable=True)
    return name, [*([("pos", number)] if name.startswith("pos") else []), ("col", value)]
