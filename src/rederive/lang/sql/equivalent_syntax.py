"""Constructs that mean the same as others: the parser replaces them, and nothing behind it knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

# They arrange rows in partitions and files; a view has neither. With LIMIT they would decide which rows are kept.
_PLACEMENT: Final = ("sort", "distribute", "cluster")
_FORMATS: Final = ("delta", "parquet", "orc", "iceberg")  # of the files of a table, which change nothing about its rows
_RESTRICTING: Final = ("delta.appendonly", "delta.constraints", "delta.invariants")  # properties that refuse changes


def replace_equivalent(tree: exp.Expr) -> exp.Expr:
    """The statement without FETCH FIRST, LIMIT ALL, SORT BY, DISTRIBUTE BY, CLUSTER BY, regressions and the default schema.

    >>> import sqlglot
    >>> replace_equivalent(sqlglot.parse_one("SELECT a FROM t SORT BY a LIMIT ALL", read="spark")).sql("spark")
    'SELECT a FROM t'
    """
    for fetch in list(tree.find_all(exp.Fetch)):
        options = fetch.args.get("limit_options")
        if options is None or not (options.args.get("percent") or options.args.get("with_ties")):
            fetch.replace(exp.Limit(expression=fetch.args.get("count") or exp.Literal.number(1)))
    for limit in list(tree.find_all(exp.Limit)):
        if isinstance(limit.expression, exp.Var) and limit.expression.name.upper() == "ALL":
            limit.pop()
    for select in tree.find_all(exp.Select):
        if select.args.get("limit") is None and select.args.get("offset") is None:
            for part in _PLACEMENT:
                select.set(part, None)
    for named in tree.find_all(exp.Table, exp.Column):
        _drop_default_schema(named)
    if isinstance(tree, exp.Create) and tree.args.get("properties"):
        _drop_arrangement(tree)
    if isinstance(tree, exp.Insert):
        # sqlglot has the partition of INSERT INTO t PARTITION (...) at the table.
        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        partition = table.args.get("partition") if isinstance(table, exp.Table) else None
        tree.set("partition", partition.pop() if partition is not None else None)
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == "percentile" and len(call.expressions) == 2 and _elements(call.expressions[1]):
            _replace_percentiles(call)
        elif (regression := _REGRESSIONS.get(call.name.lower())) is not None and len(call.expressions) == 2:
            _replace_regression(call, regression)
    return tree


def _drop_default_schema(node: exp.Expr) -> None:
    """`spark_catalog.default.t` and `default.t` are t: a database has one schema."""
    schema, catalog = node.args.get("db"), node.args.get("catalog")
    if schema is not None and schema.name.lower() == "default" and (catalog is None or catalog.name.lower() == "spark_catalog"):
        node.set("db", None)
        node.set("catalog", None)


def _drop_arrangement(tree: exp.Create) -> None:
    """Drop what arranges the rows of a table in files: its format, its partitions and properties that restrict nothing."""
    found = tree.args["properties"]
    items = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
    columns = {item.name.lower() for item in items if isinstance(item, exp.ColumnDef)}
    is_elsewhere = any(isinstance(one, exp.LocationProperty | exp.OptionsProperty) for one in found.expressions)

    def is_arrangement(one: exp.Expr) -> bool:
        match one:
            case exp.FileFormatProperty():
                return not is_elsewhere and one.name.lower() in _FORMATS
            case exp.PartitionedByProperty() | exp.ClusterProperty():
                parts = one.this.expressions if isinstance(one.this, exp.Schema) else one.expressions
                named = all(isinstance(part, exp.Identifier | exp.Column) for part in parts)
                return bool(parts) and named and (not columns or columns.issuperset(part.name.lower() for part in parts))
            case exp.Property() if type(one) is exp.Property:
                return not one.this.name.lower().startswith(_RESTRICTING)
        return False

    kept = [one for one in found.expressions if not is_arrangement(one)]
    tree.set("properties", exp.Properties(expressions=kept) if kept else None)


def _elements(node: exp.Expr) -> list[exp.Expr]:
    """The elements of an array that is written out."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "array":
        return list(node.expressions)
    return list(node.expressions) if isinstance(node, exp.Array) else []


def _replace_percentiles(call: exp.Anonymous) -> None:
    """percentile(x, array(p, q)) as array(percentile(x, p), percentile(x, q)), which is NULL where no x is there."""
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    if isinstance(whole.parent, exp.Window):
        return
    value, several = call.expressions

    def among(one: exp.Expr) -> exp.Expr:
        return exp.Filter(this=one, expression=whole.expression.copy()) if isinstance(whole, exp.Filter) else one

    each = [among(_call("percentile", value.copy(), one.copy())) for one in _elements(several)]
    is_none = exp.EQ(this=among(_call("count", value.copy())), expression=exp.Literal.number(0))
    found = exp.paren(exp.Case(ifs=[exp.If(this=is_none, true=exp.Null())], default=_call("array", *each)), copy=False)
    for node in found.walk():
        node.meta.update(call.meta)
    whole.replace(found)


def _replace_regression(call: exp.Anonymous, regression: Callable[[_Pairs], exp.Expr]) -> None:
    """A function of pairs as other aggregates of the pairs in which nothing is NULL; in a window it stays as it is."""
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    if isinstance(whole.parent, exp.Window):
        return
    y, x = call.expressions
    condition = whole.expression.this if isinstance(whole, exp.Filter) else None
    found = exp.paren(regression(_Pairs(y, x, condition)), copy=False)
    # The place of the call, for errors.
    for node in found.walk():
        node.meta.update(call.meta)
    whole.replace(found)


class _Pairs:
    """The pairs of two expressions in which neither is NULL, among the rows that fulfil a condition."""

    def __init__(self, y: exp.Expr, x: exp.Expr, condition: exp.Expr | None) -> None:
        self._y, self._x, self._condition = y, x, condition

    @property
    def _test(self) -> exp.Expr:
        tests = [exp.Not(this=exp.Is(this=one.copy(), expression=exp.Null())) for one in (self._y, self._x)]
        return exp.and_(*tests, *([self._condition.copy()] if self._condition is not None else []))

    def _value(self, of: exp.Expr) -> exp.Expr:
        return exp.Case(ifs=[exp.If(this=self._test, true=of.copy())])

    @property
    def count(self) -> exp.Expr:
        return _call("count_if", self._test)

    def of_x(self, name: str) -> exp.Expr:
        return _call(name, self._value(self._x))

    def of_y(self, name: str) -> exp.Expr:
        return _call(name, self._value(self._y))

    def of_both(self, name: str) -> exp.Expr:
        return _call(name, self._value(self._y), self._value(self._x))

    @property
    def slope(self) -> exp.Expr:
        return exp.Div(this=self.of_both("covar_pop"), expression=_nonzero(self.of_x("var_pop")))

    @property
    def intercept(self) -> exp.Expr:
        return exp.Sub(this=self.of_y("avg"), expression=exp.Paren(this=exp.Mul(this=self.slope, expression=self.of_x("avg"))))

    @property
    def determination(self) -> exp.Expr:
        """The square of the correlation; 1 where y is constant and x is not."""
        zero, one = exp.Literal.number("0.0"), exp.Literal.number("1.0")
        is_flat = (exp.EQ(this=self.of_x("var_pop"), expression=zero), exp.EQ(this=self.of_y("var_pop"), expression=zero.copy()))
        ifs = [exp.If(this=is_flat[0], true=exp.Null()), exp.If(this=is_flat[1], true=exp.cast(one, "double"))]
        square = _call("power", self.of_both("corr"), exp.Literal.number(2))
        return exp.Case(ifs=ifs, default=square)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _nonzero(value: exp.Expr) -> exp.Expr:
    return _call("nullif", value, exp.Literal.number("0.0"))


_REGRESSIONS: Final[dict[str, Callable[[_Pairs], exp.Expr]]] = {
    "regr_count": lambda pairs: pairs.count,
    "regr_avgx": lambda pairs: pairs.of_x("avg"),
    "regr_avgy": lambda pairs: pairs.of_y("avg"),
    "regr_sxx": lambda pairs: exp.Mul(this=pairs.of_x("var_pop"), expression=pairs.count),
    "regr_syy": lambda pairs: exp.Mul(this=pairs.of_y("var_pop"), expression=pairs.count),
    "regr_sxy": lambda pairs: exp.Mul(this=pairs.of_both("covar_pop"), expression=pairs.count),
    "regr_slope": lambda pairs: pairs.slope,
    "regr_intercept": lambda pairs: pairs.intercept,
    "regr_r2": lambda pairs: pairs.determination,
}
