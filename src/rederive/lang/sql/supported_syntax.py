"""The syntax that the lowering supports: the kinds of sqlglot's nodes and the parts of each that it reads.

sqlglot parses the languages of thirty databases. A part that nobody reads would be ignored silently: `LIMIT 50 PERCENT` would
mean `LIMIT 50`. So a statement is refused, before it is lowered, if it has a kind of node that is not listed, or a part that
is not listed with its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

_BINARY: Final = "this expression"
_QUERY: Final = "this expression distinct with_ order limit offset"

_READ: Final[dict[type[exp.Expr], str]] = {
    # statements
    exp.Create: "this kind expression replace exists properties",
    exp.Drop: "kind tables exists materialized",
    exp.Alter: "this kind actions",
    exp.AddConstraint: "expressions",
    exp.RenameColumn: "this to",
    exp.AlterColumn: "this dtype default allow_null drop comment",
    exp.ColumnPosition: "this position",
    exp.Comment: "this kind expression",
    exp.Transaction: "",
    exp.Commit: "",
    exp.Rollback: "",
    exp.Insert: "this expression overwrite where by_name with_ partition",
    exp.Partition: "expressions",
    exp.Update: "this expressions where from_",
    exp.TruncateTable: "expressions",
    exp.Merge: "this using on whens",
    exp.Whens: "expressions",
    exp.When: "matched source condition then",
    exp.Describe: "this kind style",
    exp.Delete: "this where",
    exp.Refresh: "this kind",
    exp.Schema: "this expressions",
    exp.ColumnDef: "this kind constraints position",
    exp.ColumnConstraint: "this kind",
    exp.NotNullColumnConstraint: "allow_null",
    exp.PrimaryKeyColumnConstraint: "include",
    exp.CommentColumnConstraint: "this",
    exp.DefaultColumnConstraint: "this",
    exp.ComputedColumnConstraint: "this",
    exp.CheckColumnConstraint: "this enforced",
    exp.Constraint: "this expressions",
    exp.UniqueColumnConstraint: "this options",
    exp.ForeignKey: "expressions reference",
    exp.Reference: "this options",
    exp.PrimaryKey: "expressions include",
    exp.IndexParameters: "",  # sqlglot puts it after every primary key; whatever it holds is refused
    exp.Properties: "expressions",
    exp.TemporaryProperty: "",
    exp.MaterializedProperty: "",
    exp.SchemaCommentProperty: "this",
    exp.FileFormatProperty: "this",
    exp.LocationProperty: "this",
    exp.OptionsProperty: "expressions",  # of USING remote alone; `ddl` reads them
    # queries; a hint says how to run a query, not what it means
    exp.Select: "expressions from_ joins laterals where group having distinct order with_ limit offset hint qualify windows",
    exp.Lateral: "this view outer alias",
    exp.Aliases: "this expressions",
    exp.Bracket: "this expressions",
    exp.Subquery: "this alias joins with_ order limit offset pivots",
    exp.Union: _QUERY,
    exp.Intersect: _QUERY,
    exp.Except: _QUERY,
    exp.Values: "expressions alias",
    exp.With: "expressions recursive",
    exp.CTE: "this alias",
    exp.TableAlias: "this columns",
    exp.From: "this",
    exp.Join: "this on using side kind method",
    exp.Table: "this alias joins pivots",
    exp.Pivot: "expressions fields unpivot include_nulls alias columns pivot_column_naming",  # the last two are sqlglot's own
    exp.PivotAlias: "this alias",
    exp.Where: "this",
    exp.Group: "expressions all rollup cube grouping_sets",
    exp.Rollup: "expressions",
    exp.Cube: "expressions",
    exp.GroupingSets: "expressions",
    exp.Qualify: "this",
    exp.Having: "this",
    exp.Order: "expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Offset: "expression",
    exp.Distinct: "expressions",
    exp.Star: "except_ assigned",
    exp.Alias: "this alias",
    # names, literals and types
    exp.Column: "this table db catalog",
    exp.Identifier: "this quoted",
    exp.Literal: "this is_string",
    exp.HexString: "this",
    exp.Lambda: "this expressions",
    exp.Boolean: "this",
    exp.Null: "",
    exp.Var: "this",
    exp.Interval: "this unit",
    exp.IntervalSpan: "this expression",
    exp.DataType: "this expressions",
    exp.DataTypeParam: "this",
    # expressions
    exp.Paren: "this",
    exp.Tuple: "expressions",
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _BINARY),
    **dict.fromkeys((exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod), _BINARY),
    exp.Div: "this expression",
    exp.Not: "this",
    exp.Neg: "this",
    exp.Is: "this expression",
    exp.Between: "this low high",
    exp.In: "this expressions query",
    exp.Exists: "this",
    exp.Any: "this",
    exp.All: "this",
    exp.Case: "this ifs default",
    exp.If: "this true",
    exp.Cast: "this to",
    exp.TryCast: "this to",
    exp.DPipe: "this expression",
    exp.Concat: "expressions",
    exp.Like: "this expression negate",
    exp.ILike: "this expression negate",
    exp.RegexpLike: "this expression",
    exp.Escape: "this expression",
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift), _BINARY),
    exp.BitwiseNot: "this",
    # calls: those with a syntax of their own, and all others as they are written
    exp.Extract: "this expression",
    exp.Trim: "this position expression",
    exp.Substring: "this start length",
    exp.Anonymous: "this expressions",
    exp.Dot: "this expression",
    exp.CurrentDate: "",
    exp.CurrentTimestamp: "",
    exp.Filter: "this expression",
    exp.Window: "this partition_by order over alias spec",
    exp.WindowSpec: "kind start start_side end end_side",
    exp.WithinGroup: "this expression",
    exp.IgnoreNulls: "this",
    exp.RespectNulls: "this",
}
PARTS: Final = {kind: frozenset(parts.split()) for kind, parts in _READ.items()}

# Flags that sqlglot sets for every text of the dialect: they say how Spark behaves.
_DIALECT: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Div: frozenset({"typed", "safe"}),
    exp.TryCast: frozenset({"safe"}),
    exp.DPipe: frozenset({"safe"}),
    exp.Concat: frozenset({"safe", "coalesce"}),
    exp.DataType: frozenset({"nested"}),
}
# Parts that hold one of several words, and the words that the lowering supports.
_KNOWN: Final[dict[tuple[type[exp.Expr], str], tuple[str, ...]]] = {
    (exp.Join, "method"): ("NATURAL",),
    (exp.Window, "over"): ("OVER",),
    (exp.Describe, "style"): ("EXTENDED", "FORMATTED"),
}

_NAMES: Final[dict[tuple[type[exp.Expr], str], tuple[str, str | None]]] = {
    (exp.Table, "db"): ("a name with a schema other than default", "omit the schema: a database has one, default"),
    (exp.Insert, "alternative"): ("INSERT OR ...", "DELETE the rows with these keys, then INSERT, between BEGIN and COMMIT"),
    (exp.Insert, "using"): ("INSERT ... REPLACE USING", "DELETE the rows, then INSERT, between BEGIN and COMMIT"),
    (exp.Insert, "conflict"): ("ON CONFLICT", "DELETE the rows with these keys, then INSERT, between BEGIN and COMMIT"),
    (exp.Insert, "default"): ("DEFAULT VALUES", "write VALUES (DEFAULT, ...)"),
    (exp.Transaction, "modes"): ("a transaction mode", "write BEGIN"),
    (exp.Delete, "tables"): ("DELETE without FROM", "write DELETE FROM t"),
    (exp.Table, "sample"): ("TABLESAMPLE", None),
    (exp.Table, "version"): ("VERSION AS OF or TIMESTAMP AS OF", "use db.rows(view, as_of=VERSION)"),
    (exp.Table, "only"): ("ONLY", "omit it"),
    (exp.Subquery, "sample"): ("TABLESAMPLE", None),
    (exp.Join, "method"): ("an ASOF join", "join by the condition, and keep the newest row with QUALIFY row_number() ... = 1"),
    (exp.Select, "cluster"): ("CLUSTER BY", "omit it"),
    (exp.Select, "distribute"): ("DISTRIBUTE BY", "omit it"),
    (exp.Select, "sort"): ("SORT BY", "omit it"),
    (exp.Select, "locks"): ("FOR UPDATE or FOR SHARE", "omit it"),
    (exp.Limit, "limit_options"): ("LIMIT with PERCENT or WITH TIES", "use LIMIT with a number of rows"),
    (exp.Limit, "expressions"): ("LIMIT ... BY", "number the rows with row_number() OVER (PARTITION BY ...)"),
    (exp.Between, "symmetric"): ("BETWEEN SYMMETRIC", "use BETWEEN least(a, b) AND greatest(a, b)"),
    (exp.Distinct, "on"): ("DISTINCT ON", "use GROUP BY with min or max"),
    (exp.Star, "replace"): ("* REPLACE", "list the columns"),
    (exp.Star, "rename"): ("* RENAME", "list the columns"),
    (exp.DataType, "collate"): ("a collation", None),
    (exp.ForeignKey, "options"): ("an option of FOREIGN KEY", "omit it: the reference is enforced"),
    (exp.ForeignKey, "delete"): ("ON DELETE", "delete the rows that refer to it first"),
    (exp.ForeignKey, "update"): ("ON UPDATE", "update the rows that refer to it in the same transaction"),
}
_KINDS: Final[dict[type[exp.Expr], tuple[str, str | None]]] = {
    exp.Fetch: ("FETCH with PERCENT or WITH TIES", "use FETCH FIRST n ROWS ONLY or LIMIT n"),
    exp.Collate: ("COLLATE", None),
    exp.AlterSet: ("ALTER TABLE ... SET", "omit it: properties of a table do not affect its rows"),
    exp.AlterRename: ("ALTER TABLE ... RENAME TO", "create another table, and insert the rows into it"),
    exp.JSONExtract: ("the operator ->", None),
    exp.JSONExtractScalar: ("the operator ->>", None),
    exp.Placeholder: ("a parameter", "write its value"),
    exp.Parameter: ("a parameter", "write its value"),
    exp.GeneratedAsIdentityColumnConstraint: ("an identity column", None),
    exp.Property: ("a property that restricts changes", "use CHECK, or CREATE CONSTRAINT VIEW"),
    exp.Kwarg: ("an argument by name", "write the arguments in their order"),
    exp.LikeProperty: ("CREATE TABLE ... LIKE", "list the columns"),
}


# Constructs whose class is not called as SQL calls them.
_WORDS: Final[dict[type[exp.Expr], str]] = {
    exp.CTE: "WITH",
    exp.WindowSpec: "OVER",
    exp.Cluster: "CLUSTER BY",
}


@dataclass(frozen=True, slots=True)
class UnsupportedPart:
    """A part of a statement that the lowering would ignore: its name, its place, and what to write instead."""

    what: str
    node: exp.Expr
    hint: str | None = None


def unsupported_parts(tree: exp.Expr) -> Iterator[UnsupportedPart]:
    """The parts of a statement that are not supported, from the outside inwards.

    >>> import sqlglot
    >>> next(unsupported_parts(sqlglot.parse_one("SELECT a FROM t LIMIT 5 PERCENT"))).what
    'LIMIT with PERCENT or WITH TIES'
    """
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Hint | exp.OptionsProperty) or type(node) not in PARTS):
        if isinstance(node, exp.Hint):
            continue
        if type(node) not in PARTS:
            yield UnsupportedPart(*_kind(node))
            continue
        if (misplaced := _misplaced(node)) is not None:
            yield UnsupportedPart(misplaced, node)
        yield from (_part(node, name) for name, value in node.args.items() if _is_set(value) and not _is_read(node, name))


def _misplaced(node: exp.Expr) -> str | None:
    """What sqlglot accepts and nothing lowers: other objects than tables and views, and parts without a meaning there."""
    match node:
        case exp.Create() if (kind := str(node.args.get("kind")).upper()) not in ("TABLE", "VIEW"):
            return f"CREATE {kind}"
        case exp.Select(expressions=[]):
            return "SELECT without columns"
        case exp.ColumnDef() if not isinstance(node.parent, exp.Schema | exp.Alter | exp.DataType):
            return "a type or a constraint in a column alias"
        case exp.ColumnPosition() if node.find_ancestor(exp.Create):
            return "FIRST or AFTER in CREATE"
    return None


def _is_set(value: object) -> bool:
    return value is not None and value is not False and value != []


def _is_read(node: exp.Expr, name: str) -> bool:
    kind = type(node)
    if name in _DIALECT.get(kind, ()) and node.args[name] is True:
        return True
    known = _KNOWN.get((kind, name))
    return name in PARTS[kind] and (known is None or str(node.args[name]).upper() in known)


def _part(node: exp.Expr, name: str) -> UnsupportedPart:
    value = node.args[name]
    place = value if isinstance(value, exp.Expr) else node
    known = _NAMES.get((type(node), name))
    if known is not None:
        return UnsupportedPart(known[0], place, known[1])
    word = value if isinstance(value, str) else name.rstrip("_")
    return UnsupportedPart(f"{word.upper().replace('_', ' ')} in {construct_name(node)}", place)


def _kind(node: exp.Expr) -> tuple[str, exp.Expr, str | None]:
    what, hint = _KINDS.get(type(node), ("", None))
    if not what and isinstance(node, exp.Func):
        return f"'{construct_name(node).lower().replace(' ', '_')}'", node, "see docs/sql.md for the supported functions"
    return what or construct_name(node), node, hint


def construct_name(node: exp.Expr) -> str:
    """The words of SQL for a node that has no entry: `PartitionedByProperty` is PARTITIONED BY."""
    if (words := _WORDS.get(type(node))) is not None:
        return words
    name = re.sub(r"(?<=[a-z])(?:ColumnConstraint|Property|Properties)$", "", type(node).__name__)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()
