"""Generators: explode, posexplode, inline, stack and json_tuple, in LATERAL VIEW, in FROM or in the SELECT list.

The positions of an array are a recursion that ends with the array, so that every strategy and engine maintains them. It doubles
the positions in each round:

    positions(x, a, 0) :- body, a = array(x), size(a) > 0.
    positions(x, a, 2 * i + 1) :- positions(x, a, i), 2 * i + 1 < size(a).
    positions(x, a, 2 * i + 2) :- positions(x, a, i), 2 * i + 2 < size(a).

The query joins the positions; an element is `a[i]`. OUTER adds the position NULL where the array is NULL or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash, WrongArity
from rederive.ir.rules import Atom, Column, Comparison, Literal, Operator
from rederive.ir.terms import BOOLEAN, NUMBER, Call, Constant, Variable, variables
from rederive.lang.sql.array_functions import array
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.nested_values import field_of, struct_value
from rederive.lang.sql.rule_body import TRUE, SourceRows
from rederive.lang.sql.scope import identifier, identifiers
from rederive.lang.sql.types import BIGINT, INT, STRING, array_of, struct_of

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_OF_ARRAYS: Final = ("explode", "posexplode", "inline")
GENERATORS: Final = (*_OF_ARRAYS, *(f"{name}_outer" for name in _OF_ARRAYS), "stack", "json_tuple")
TABLE_FUNCTIONS: Final = (*GENERATORS, "range", "sequence")
"""What FROM may call: generators, range, and sequence, whose elements are rows."""
_ZERO, _ONE, _TWO = (Constant(i, NUMBER) for i in range(3))
_Columns = list[tuple[str, TypedTerm]]


def add_lateral_views(laterals: Sequence[exp.Lateral], lower: ExpressionLowering) -> None:
    """Join the rows of each LATERAL VIEW; a later one sees the columns of those before it."""
    for lateral in laterals:
        add_generator(lateral.this, lateral, lower, outer=bool(lateral.args.get("outer")))


def add_generator(call: exp.Expr, source: exp.Expr, lower: ExpressionLowering, *, outer: bool) -> None:
    """Join the rows of a generator, under the alias of a source."""
    name, columns = _generate(call, lower, outer=outer)
    alias = source.args.get("alias")
    given = identifiers(alias.args.get("columns") or ()) if alias is not None else []
    if given and len(given) != len(columns):
        raise lower.context.unsupported(f"{len(given)} names for the columns of {name}", source, f"give {len(columns)} names")
    names = given or [column for column, _ in columns]
    known = identifier(alias) or f"source {len(lower.scope.columns)}"
    lower.scope.bind(known, list(zip(names, (typed for _, typed in columns), strict=True)))


def replace_generators(node: exp.Select, lower: ExpressionLowering) -> exp.Select:
    """The query with columns in the place of a generator in its SELECT list."""
    found = [i for i, item in enumerate(node.expressions) if _is_generator(_inner(item))]
    if not found:
        return node
    if len(found) > 1:
        raise lower.context.unsupported("two generators in one SELECT list", node.expressions[found[1]], "use LATERAL VIEW")
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


def _generate(node: exp.Expr, lower: ExpressionLowering, *, outer: bool) -> tuple[str, _Columns]:
    """Join the rows of a generator with the body; its name, and its columns."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in TABLE_FUNCTIONS:
        hint = f"use one of {', '.join(TABLE_FUNCTIONS)}"
        raise lower.context.unsupported(f"{node.sql('spark')} as a generator", node, hint)
    name = node.name.lower()
    outer = outer or name.endswith("_outer")
    match name.removesuffix("_outer"):
        case "json_tuple":
            return name, _json_tuple(node, lower)
        case "stack":
            return name, _inline(_stack(node, lower), lower, outer=outer)
        case "range":
            return name, [("id", _elements(_range(node, lower), lower, outer=outer)[1])]
        case "sequence":
            return name, [("col", _elements(lower.lower(node), lower, outer=outer)[1])]
    _check_arity(node, 1, lower)
    typed = lower.lower(node.expressions[0])
    if name.startswith("inline"):
        return name, _inline(typed, lower, outer=outer)
    if (entry := typed.type.entry) is not None:
        typed = lower.call("map_entries", [typed], array_of(struct_of((("key", entry[0]), ("value", entry[1])))))
        position, value = _elements(typed, lower, outer=outer)
        columns = [(part, field_of(lower, value, part, node)) for part in ("key", "value")]
    else:
        array(lower, node.expressions[0])  # refuses what is not an array
        position, value = _elements(typed, lower, outer=outer)
        columns = [("col", value)]
    return name, [*([("pos", position)] if name.startswith("pos") else []), *columns]


def _check_arity(node: exp.Anonymous, least: int, lower: ExpressionLowering, most: int | None = None) -> None:
    count = len(node.expressions)
    if not least <= count <= (most or least):
        takes = f"{least} to {most}" if most else str(least)
        raise WrongArity(f"'{node.name.lower()}' takes {takes} arguments, not {count}", lower.context.span(node))


def _inline(typed: TypedTerm, lower: ExpressionLowering, *, outer: bool) -> _Columns:
    element = typed.type.element
    if element is None or not element.is_struct:
        raise TypeClash(f"inline takes an array of structs, not {typed.type}", None)
    _, value = _elements(typed, lower, outer=outer)
    return [(name, field_of(lower, value, name, exp.null())) for name, _ in element.fields]


def _stack(node: exp.Anonymous, lower: ExpressionLowering) -> TypedTerm:
    """stack(n, ...): the arguments as n rows, as an array of structs. The last row is filled up with NULL."""
    count = lower.lower(node.expressions[0]).term if node.expressions else None
    if not isinstance(count, Constant) or type(count.value) is not int or count.value <= 0 or len(node.expressions) < 2:
        raise lower.context.unsupported("stack without a number of rows", node, "write stack(2, 'a', x, 'b', y)")
    rows = count.value
    typed = [lower.lower(part) for part in node.expressions[1:]]
    width = -(-len(typed) // rows)
    typed += [lower.lower(exp.Null())] * (rows * width - len(typed))
    columns = [lower.to_common_type(typed[i::width], node) for i in range(width)]
    structs = [struct_value(lower, [(f"col{i}", column[row]) for i, column in enumerate(columns)]) for row in range(rows)]
    return lower.call("array", structs, array_of(structs[0].type), nullable=False)


def _json_tuple(node: exp.Anonymous, lower: ExpressionLowering) -> _Columns:
    if len(node.expressions) < 2:
        raise WrongArity("'json_tuple' takes a text and at least one name", lower.context.span(node))
    text, *names = (lower.cast(lower.lower(part), STRING, node) for part in node.expressions)
    return [(f"c{i}", lower.call("json_field", [text, name], STRING, nullable=True)) for i, name in enumerate(names)]


def _range(node: exp.Anonymous, lower: ExpressionLowering) -> TypedTerm:
    """range([start,] end [, step [, partitions]])."""
    _check_arity(node, 1, lower, 4)
    given = [lower.cast(lower.lower(part), BIGINT, node) for part in node.expressions[:3]]
    zero, one = (TypedTerm(number, BIGINT, False) for number in (_ZERO, _ONE))
    start, end, step = (zero, given[0], one) if len(given) == 1 else (*given, one)[:3]
    return lower.call("range values", [start, end, step], array_of(BIGINT))


def _elements(typed: TypedTerm, lower: ExpressionLowering, *, outer: bool) -> tuple[TypedTerm, TypedTerm]:
    """Join the positions of an array with the body; a position and the element at it."""
    body, context = lower.scope.body, lower.context
    element, given = typed.type.element, typed.term
    assert element is not None
    # The array is computed once for what it is computed from, which the query joins by.
    term = body.term(typed.term)
    read = list(dict.fromkeys(variables(term)))
    literals = body.finish()
    if isinstance(term, Call):
        variable = context.fresh("array")
        context.columns[variable.name] = column_of(typed, "array")
        literals = (*literals, Comparison(Operator.EQ, variable, term))
        read, term, typed = [*read, variable], variable, replace(typed, term=variable)
    relation, position = context.name("positions"), context.fresh("pos")
    place = Column("pos", NUMBER, outer, 32)
    context.declare(relation, (*(context.columns[v.name] for v in read), place))
    size = Call("size", (term,), gives=NUMBER)
    has_some = Call(">", (size, _ZERO), gives=BOOLEAN)
    context.define(relation, (*read, _ZERO), (*literals, Comparison(Operator.EQ, has_some, TRUE)))
    if outer:
        none = Call("case", (has_some, Constant(False, BOOLEAN), TRUE), gives=BOOLEAN)
        context.define(relation, (*read, Constant(None, NUMBER)), (*literals, Comparison(Operator.EQ, none, TRUE)))
    for more in (_ONE, _TWO):
        before, after = context.fresh("pos"), context.fresh("pos")
        step: tuple[Literal, ...] = (
            Atom(relation, (*read, before)),
            *((Comparison(Operator.NE, before, Constant(None, NUMBER)),) if outer else ()),
            Comparison(Operator.EQ, after, _doubled(before, more)),
            Comparison(Operator.EQ, Call("<", (_doubled(before, more), size), gives=BOOLEAN), TRUE),
        )
        context.define(relation, (*read, after), step)
    context.columns[position.name] = place
    body.add(Atom(relation, (*read, position)))
    origin = read[:-1] if isinstance(given, Call) else read
    body.sources.append(SourceRows((*read, position), (*origin, position)))
    number = TypedTerm(position, INT, outer)
    value = lower.call("get", [typed, number], element, nullable=True)
    # In a correlated query the array may be of the enclosing one; its elements are rows of this query.
    return number, body.assign(value, "element") if body.outer else value


def _doubled(place: Variable, more: Constant) -> Call:
    """2 * place + more."""
    twice = Call("*", (place, _TWO), gives=NUMBER)
    return Call("+", (twice, more), gives=NUMBER)
