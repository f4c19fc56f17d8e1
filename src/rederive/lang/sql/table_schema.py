"""The items of CREATE TABLE: columns, the key, and the conditions that every row must fulfil.

A condition is a query for the rows that violate it, and becomes a constraint (`ir.rules.Constraint`). So it holds whatever way
rows enter by, on every engine, also where a row of another table leaves that a foreign key needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rederive.errors import Redefined, TypeClash, UnknownName
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Kind
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.query import QueryLowering
from rederive.lang.sql.scope import Scope, identifier, identifiers
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.type_names import named_type, text_length
from rederive.lang.sql.types import column_of_type, column_type

_TIMES = (exp.CurrentTimestamp, exp.CurrentDate)
_TIME_NAMES = ("now", "current_timestamp", "current_date", "localtimestamp", "curdate")


@dataclass(frozen=True, slots=True)
class RowCondition:
    """What every row of a table must fulfil: `violation` is true for a row that does not. `text`: how the table states it."""

    word: str
    text: str
    violation: exp.Expr
    name: str | None = None


@dataclass(slots=True)
class TableSchema:
    """The items of one CREATE TABLE, as they are read."""

    table: str
    columns: list[Column] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    conditions: list[RowCondition] = field(default_factory=list)
    references: list[tuple[str | None, list[str], exp.Expr]] = field(default_factory=list)
    uniques: list[tuple[str | None, list[str], exp.Expr]] = field(default_factory=list)
    generated: dict[str, exp.Expr] = field(default_factory=dict)


def read_schema(schema: exp.Schema, table: str, context: StatementContext) -> TableSchema:
    """The columns, the key and the conditions of a table."""
    found = TableSchema(table)
    for item in schema.expressions:
        _read_item(item, None, found, context)
    known = [column.name for column in found.columns]
    if missing := [name for name in found.key if name not in known]:
        raise UnknownName("column", missing[0], known, context.span(schema))
    # PRIMARY KEY implies NOT NULL.
    found.columns = [replace(c, nullable=c.nullable and c.name not in found.key) for c in found.columns]
    if of_map := next((c for c in found.columns if c.name in found.key and c.type.contains(Kind.MAP)), None):
        raise TypeClash(f"'{of_map.name}' cannot be in a key: maps cannot be compared", context.span(schema))
    for name, tree in found.generated.items():
        _generate(name, tree, found, context)
    found.conditions += [_foreign_key(*reference, found, context) for reference in found.references]
    found.conditions += [_unique(*stated, found, context) for stated in found.uniques]
    return found


def _read_item(item: exp.Expr, name: str | None, found: TableSchema, context: StatementContext) -> None:
    match item:
        case exp.ColumnDef():
            _read_column(item, found, context)
        case exp.PrimaryKey():
            found.key += [identifier(part.this if isinstance(part, exp.Ordered) else part) for part in item.expressions]
        case exp.CheckColumnConstraint():
            found.conditions.append(_check(item, name, context))
        case exp.ForeignKey() if _is_enforced(item.args["reference"], context):
            found.references.append((name, identifiers(item.expressions), item.args["reference"]))
        case exp.ForeignKey():
            pass
        case exp.UniqueColumnConstraint() if _is_enforced(item, context):
            found.uniques.append((name, identifiers(item.this.expressions), item))
        case exp.UniqueColumnConstraint():
            pass
        case exp.Constraint(expressions=[stated]):
            _read_item(stated, identifier(item), found, context)
        case _:
            raise context.unsupported(f"{item.sql('spark')} in CREATE TABLE", item)


def _read_column(item: exp.ColumnDef, found: TableSchema, context: StatementContext) -> None:
    name = identifier(item)
    if name in [column.name for column in found.columns]:
        raise Redefined(f"two columns have the name '{name}'", context.span(item))
    kind = item.args.get("kind")
    if not isinstance(kind, exp.DataType):
        raise context.unsupported("a column without a type", item, "write a type after the name, such as name STRING")
    type = named_type(kind, context, is_column=True)
    column = column_of_type(name, type, True)
    if (length := text_length(kind)) is not None:
        # Spark counts characters.
        longer = exp.GT(this=_function("length", exp.column(name)), expression=exp.Literal.number(length))
        found.conditions.append(RowCondition("varchar", f"{name} VARCHAR({length})", longer))
    for constraint in item.args.get("constraints") or ():
        called = identifier(constraint.this) if constraint.this is not None else None
        match constraint.args["kind"]:
            case exp.NotNullColumnConstraint() as stated:
                column = replace(column, nullable=bool(stated.args.get("allow_null")))
            case exp.PrimaryKeyColumnConstraint():
                found.key.append(name)
            case exp.CommentColumnConstraint():
                pass
            case exp.DefaultColumnConstraint(this=value):
                column = replace(column, default=_default(value, column, context).term)
            case exp.ComputedColumnConstraint(this=value):
                found.generated[name] = value
            case exp.CheckColumnConstraint() as stated:
                found.conditions.append(_check(stated, called, context))
            case exp.UniqueColumnConstraint() as stated if _is_enforced(stated, context):
                found.uniques.append((called, [name], stated))
            case exp.UniqueColumnConstraint():
                pass
            case exp.Reference() as stated if _is_enforced(stated, context):
                found.references.append((called, [name], stated))
            case exp.Reference():
                pass
            case stated:
                raise context.unsupported(f"the constraint {stated.sql('spark')}", item)
    found.columns.append(column)


def _function(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _check_of_row(tree: exp.Expr, what: str, context: StatementContext) -> None:
    """Refuse what is not a function of the row alone: it would change without the row."""
    if tree.find(exp.Query) is not None:
        raise context.unsupported(f"a subquery in {what}", tree, "use CREATE CONSTRAINT VIEW")
    if any(isinstance(node, _TIMES) or identifier(node) in _TIME_NAMES for node in tree.find_all(*_TIMES, exp.Anonymous)):
        raise context.unsupported(f"the current time in {what}", tree, "store the time in a column")


def _check(item: exp.CheckColumnConstraint, name: str | None, context: StatementContext) -> RowCondition:
    # As in SQL, a row for which the condition is unknown passes.
    _check_of_row(item.this, "CHECK", context)
    violation = exp.Not(this=exp.Paren(this=item.this.copy()))
    return RowCondition("check", f"CHECK ({item.this.sql('spark')})", violation, name)


def _lowering(columns: Sequence[tuple[str, TypedTerm]], table: str, context: StatementContext) -> ExpressionLowering:
    scope = Scope(context.body())
    scope.bind(table, columns)
    return ExpressionLowering(context, scope, QueryLowering(context).subqueries)


def _default(tree: exp.Expr, column: Column, context: StatementContext) -> TypedTerm:
    _check_of_row(tree, "DEFAULT", context)
    lower = _lowering((), "", context)
    return lower.cast(lower.lower(tree), column_type(column), tree)


def _generate(name: str, tree: exp.Expr, found: TableSchema, context: StatementContext) -> None:
    """A generated column: what a missing value is, and the condition that a given value equals it."""
    _check_of_row(tree, "GENERATED ALWAYS AS", context)
    if other := next((c for c in tree.find_all(exp.Column) if identifier(c) in found.generated), None):
        what = f"the generated column '{identifier(other)}' in GENERATED ALWAYS AS"
        raise context.unsupported(what, other, "repeat its expression")
    at = next(i for i, column in enumerate(found.columns) if column.name == name)
    column = found.columns[at]
    lower = _lowering(context.row_columns(found.columns), found.table, context)
    typed = lower.lower(tree)
    if not typed.type.is_numeric and typed.type != column_type(column):
        raise TypeClash(f"'{name}' is {column_type(column)}, but its expression is {typed.type}", context.span(tree))
    found.columns[at] = replace(column, default=lower.cast(typed, column_type(column), tree).term)
    kind = str(column_type(column))
    value = exp.Cast(this=exp.Paren(this=tree.copy()), to=exp.DataType.build(kind, dialect="spark"))
    differs = exp.Not(this=exp.Paren(this=exp.NullSafeEQ(this=exp.column(name), expression=value)))
    text = f"{name} GENERATED ALWAYS AS ({tree.sql('spark')})"
    found.conditions.append(RowCondition("generated", text, differs))


def _foreign_key(
    name: str | None, columns: Sequence[str], reference: exp.Expr, found: TableSchema, context: StatementContext
) -> RowCondition:
    target = reference.this.this if isinstance(reference.this, exp.Schema) else reference.this
    other = identifier(target)
    known = [column.name for column in found.columns]
    if missing := [column for column in columns if column not in known]:
        raise UnknownName("column", missing[0], known, context.span(reference))
    own = Relation(found.table, tuple(found.columns), tuple(known.index(key) for key in found.key))
    key = _key_of(own if other == found.table else _referenced(other, target, context))
    given = identifiers(reference.this.expressions) if isinstance(reference.this, exp.Schema) else key
    if sorted(given) != sorted(key) or len(given) != len(columns):
        hint = f"reference its key ({', '.join(key)})" if key else f"give '{other}' a PRIMARY KEY"
        raise context.unsupported(f"a foreign key that does not reference the primary key of '{other}'", reference, hint)
    present = [exp.Not(this=exp.Is(this=exp.column(c, found.table), expression=exp.Null())) for c in columns]
    pairs = zip(given, columns, strict=True)
    equal = [exp.EQ(this=exp.column(key, "referenced"), expression=exp.column(c, found.table)) for key, c in pairs]
    matching = exp.select(exp.Literal.number(1)).from_(exp.alias_(exp.to_table(other), "referenced", table=True))
    violation = exp.and_(*present, exp.Not(this=exp.Exists(this=matching.where(exp.and_(*equal, wrap=False)))), wrap=False)
    text = f"FOREIGN KEY ({', '.join(columns)}) REFERENCES {other} ({', '.join(given)})"
    return RowCondition("foreign_key", text, violation, name)


def _unique(
    name: str | None, columns: Sequence[str], stated: exp.Expr, found: TableSchema, context: StatementContext
) -> RowCondition:
    """UNIQUE: as in SQL, rows in which one of the columns is NULL differ from all others."""
    known = [column.name for column in found.columns]
    if missing := [column for column in columns if column not in known]:
        raise UnknownName("column", missing[0], known, context.span(stated))
    present = [exp.Not(this=exp.Is(this=exp.column(c), expression=exp.Null())) for c in columns]
    several = exp.GT(this=_function("count", exp.Star()), expression=exp.Literal.number(1))
    repeated = exp.select(*map(exp.column, columns)).from_(exp.to_table(found.table)).where(*present, copy=False)
    repeated = repeated.group_by(*map(exp.column, columns), copy=False).having(several, copy=False)
    value: exp.Expr = exp.Tuple(expressions=list(map(exp.column, columns))) if len(columns) > 1 else exp.column(columns[0])
    violation = exp.In(this=value, query=exp.Subquery(this=repeated))
    return RowCondition("unique", f"UNIQUE ({', '.join(columns)})", violation, name)


def _is_enforced(reference: exp.Expr, context: StatementContext) -> bool:
    """Whether a foreign key is enforced. As in Spark, NOT ENFORCED only informs readers."""
    options = [str(option).upper() for option in reference.args.get("options") or ()]
    if other := next((option for option in options if option not in ("ENFORCED", "NOT ENFORCED", "RELY", "NORELY")), None):
        raise context.unsupported(f"{other} in REFERENCES", reference, "change the rows that refer to it in the same transaction")
    return "NOT ENFORCED" not in options


def _referenced(name: str, node: exp.Expr, context: StatementContext) -> Relation:
    relations = context.builder.relations
    if name not in relations:
        raise UnknownName("table", name, [known for known in relations if "." not in known], context.span(node))
    return relations[name]


def _key_of(relation: Relation) -> list[str]:
    if relation.bag is not None:
        return []
    # A key of all columns is not written down: the relation is a set anyway.
    places = relation.key or range(relation.arity)
    return [relation.columns[i].name for i in places]


def enforced_conditions(schema: TableSchema, taken: Sequence[str]) -> Iterator[tuple[str, RowCondition, exp.Select]]:
    """The name, the condition and the query of violating rows of each constraint; the names are none of those `taken`."""
    names = set(taken)
    for condition in schema.conditions:
        stem, number = f"{schema.table}.{condition.name or condition.word}", 1
        name = stem if condition.name else f"{stem}1"
        if condition.name and name in names:
            raise Redefined(f"'{schema.table}' has two constraints with the name '{condition.name}'")
        while name in names:
            number += 1
            name = f"{stem}{number}"
        names.add(name)
        # DISTINCT: copies of a row violate a condition once.
        select = exp.select(exp.Star()).from_(exp.to_table(schema.table)).where(condition.violation.copy()).distinct()
        yield name, condition, select
