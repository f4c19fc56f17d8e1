"""Random views in SQL that Spark and DuckDB understand alike, over three small tables with NULLs and duplicates.

Every query has columns `x` (INT), `y` (INT) and `s` (STRING), so that queries nest anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

TABLES = {
    "t": "CREATE TABLE t (x INT PRIMARY KEY, y INT, s {text})",
    "u": "CREATE TABLE u (x INT, y INT, s {text})",
    "w": "CREATE TABLE w (x INT, y INT NOT NULL, s {text})",
}
COLUMNS = ("x", "y", "s")
numbers = st.integers(0, 3)
texts = st.sampled_from(["a", "b", "ab"])


@st.composite
def row(draw: Any, table: str) -> tuple[int | None, int | None, str | None]:
    x = draw(st.integers(0, 5)) if table == "t" else draw(st.none() | numbers)
    y = draw(numbers) if table == "w" else draw(st.none() | numbers)
    return x, y, draw(st.none() | texts)


@dataclass(frozen=True)
class Names:
    """The aliases in reach, and how many more levels of queries may be opened."""

    aliases: tuple[str, ...]
    depth: int
    fresh: Any

    def with_(self, *aliases: str) -> Names:
        return Names((*self.aliases, *aliases), self.depth, self.fresh)

    def inner(self) -> Names:
        return Names(self.aliases, self.depth - 1, self.fresh)


def literal_number(draw: Any) -> str:
    return str(draw(st.sampled_from(["0", "1", "2", "3", "NULL"])))


def number(draw: Any, names: Names, depth: int = 2) -> str:
    options = ["column"] * 4 + ["literal"]
    if depth:
        options += ["+", "-", "*", "case", "coalesce", "length", "nullif", "abs", "greatest", *NESTED]
    if names.depth > 0 and depth == 2:
        options += ["scalar"]
    match draw(st.sampled_from(options)):
        case "column":
            return f"{draw(st.sampled_from(names.aliases))}.{draw(st.sampled_from(['x', 'y']))}"
        case "literal":
            return f"CAST({literal_number(draw)} AS INT)"
        case "case":
            one, two = number(draw, names, depth - 1), number(draw, names, depth - 1)
            default = draw(st.sampled_from(["", f" ELSE {two}"]))
            return f"CASE WHEN {condition(draw, names, 0)} THEN {one}{default} END"
        case "coalesce":
            return f"coalesce({number(draw, names, depth - 1)}, {number(draw, names, depth - 1)})"
        case "greatest":
            return f"greatest({number(draw, names, depth - 1)}, {number(draw, names, depth - 1)})"
        case "nullif":
            return f"nullif({number(draw, names, depth - 1)}, {number(draw, names, depth - 1)})"
        case "abs":
            return f"abs({number(draw, names, depth - 1)})"
        case "length":
            return f"CAST(length({text(draw, names, depth - 1)}) AS INT)"
        case "scalar":
            return scalar(draw, names)
        case word if word in NESTED:
            return nested(draw, names, depth, word)
        case operator:
            return f"({number(draw, names, depth - 1)} {operator} {number(draw, names, depth - 1)})"


NESTED = ("element", "kept", "folded", "entry", "json", "split", "field")


def nested(draw: Any, names: Names, depth: int, kind: str) -> str:
    """A number that is taken out of an array, a map, a struct or a text."""
    match kind:
        case "element":
            one, two, three = (number(draw, names, depth - 1) for _ in range(3))
            return f"element_at(transform(array({one}, {two}), e -> e + {three}), {draw(st.sampled_from([1, 2]))})"
        case "kept":
            one, two, three = (number(draw, names, depth - 1) for _ in range(3))
            return f"CAST(size(filter(array({one}, {two}), e -> e > {three})) AS INT)"
        case "folded":
            one, two = (number(draw, names, 0) for _ in range(2))
            return f"aggregate(array({one}, {two}), 0, (c, e) -> c + e)"
        case "entry":
            return f"map('k', {number(draw, names, 0)})['k']"
        case "json":
            return f"CAST(get_json_object(to_json(named_struct('j', {number(draw, names, 0)})), '$.j') AS INT)"
        case "split":
            return f"CAST(size(split({text(draw, names, 0)}, 'a')) AS INT)"
        case _:
            return f"named_struct('a', {number(draw, names, depth - 1)}, 'f', {text(draw, names, depth - 1)}).a"


def scalar(draw: Any, names: Names) -> str:
    alias = names.fresh()
    inside = names.inner().with_(alias)
    function = draw(st.sampled_from(["count(*)", "count({n})", "sum({n})", "min({n})", "max({n})"]))
    call = function.format(n=number(draw, Names((alias,), 0, names.fresh), 1))
    where = draw(st.sampled_from(["", f" WHERE {condition(draw, inside, 1)}"]))
    if draw(st.integers(0, 3)) == 0:  # the first of the rows, instead of an aggregate
        first = f"SELECT {alias}.x FROM {draw(st.sampled_from(list(TABLES)))} AS {alias}{where}"
        return f"CAST(({first} ORDER BY {alias}.x NULLS LAST LIMIT 1) AS INT)"
    return f"CAST((SELECT {call} FROM {draw(st.sampled_from(list(TABLES)))} AS {alias}{where}) AS INT)"


def text(draw: Any, names: Names, depth: int = 1) -> str:
    match draw(st.sampled_from(["column", "column", "literal", *(["concat", "upper", "coalesce"] if depth else [])])):
        case "column":
            return f"{draw(st.sampled_from(names.aliases))}.s"
        case "literal":
            return str(draw(st.sampled_from(["'a'", "'b'", "CAST(NULL AS STRING)"])))
        case "concat":
            return f"({text(draw, names, depth - 1)} || {text(draw, names, depth - 1)})"
        case "upper":
            return f"upper({text(draw, names, depth - 1)})"
        case _:
            return f"coalesce({text(draw, names, depth - 1)}, 'z')"


CONSTANTS = ("1 = 0", "false", "true", "1 = 1", "CAST(NULL AS BOOLEAN)", "1 > NULL", "false = false")
TRUTHS = (
    "({p}) = false",
    "false = ({p})",
    "({p}) <> false",
    "true = ({p})",
    "({p}) IS NULL",
    "({p}) IS NOT TRUE",
    "({p}) IN (false)",
)


FURTHER = ("distinct", "exists in", "forall", "row", "ilike", "rows", "set")  # the last two have queries


def further_condition(draw: Any, names: Names, kind: str, negation: str) -> str:
    """Conditions that are never unknown, or about rows."""
    match kind:
        case "distinct":
            return f"{number(draw, names, 0)} IS {negation}DISTINCT FROM {number(draw, names, 0)}"
        case "exists in" | "forall" as word:
            one, two, three = (number(draw, names, 0) for _ in range(3))
            return f"{word.removesuffix(' in')}(array({one}, {two}), e -> e > {three}) IS TRUE"
        case "row":
            one, two = (number(draw, names, 0) for _ in range(2))
            return f"(coalesce({one}, 9), coalesce({two}, 9)) = (1, {draw(numbers)})"
        case "rows":
            # DuckDB finds rows equal whose parts are NULL, so none is.
            one, two = (number(draw, names, 0) for _ in range(2))
            rows = f"SELECT coalesce(z.x, 9), coalesce(z.y, 9) FROM {draw(st.sampled_from(list(TABLES)))} AS z"
            return f"(coalesce({one}, 9), coalesce({two}, 9)) {negation}IN ({rows})"
        case "set":
            alias, word = names.fresh(), draw(st.sampled_from(["UNION ALL", "INTERSECT", "EXCEPT"]))
            inside = Names((alias, *names.aliases), 0, names.fresh)
            tables = [draw(st.sampled_from(list(TABLES))) for _ in range(2)]
            parts = [f"SELECT {alias}.y FROM {table} AS {alias} WHERE {condition(draw, inside, 0)}" for table in tables]
            return f"{negation}EXISTS ({parts[0]} {word} {parts[1]})"
        case _:
            return f"{text(draw, names)} {negation}ILIKE 'A%'"


def condition(draw: Any, names: Names, depth: int = 2, *, is_value: bool = False) -> str:
    """A condition; where it is a value, DuckDB and Spark must agree on what is unknown, too."""
    options = ["compare"] * 3 + ["null", "between", "in", "like", "texts", *FURTHER[:5]]
    options += ["constant"]
    if depth:
        options += ["and", "or", "not"] * 2 + ["truth"]
    if names.depth > 0 and depth:
        options += ["exists", "subquery", "exists", "subquery", *FURTHER[5:]]
    negation = draw(st.sampled_from(["", "NOT "]))
    match draw(st.sampled_from(options)):
        case "compare":
            operator = draw(st.sampled_from(["=", "=", "<>", "<", "<=", ">", ">="]))
            return f"{number(draw, names, 1)} {operator} {number(draw, names, 1)}"
        case "texts":
            operator = draw(st.sampled_from(["=", "<>", "<"]))
            return f"{text(draw, names)} {operator} {text(draw, names)}"
        case "constant":
            return str(draw(st.sampled_from(CONSTANTS)))
        case "truth":
            return str(draw(st.sampled_from(TRUTHS))).format(p=condition(draw, names, depth - 1, is_value=True))
        case "null":
            return f"{number(draw, names, 1)} IS {negation}NULL"
        case "between":
            return f"{number(draw, names, 0)} {negation}BETWEEN {number(draw, names, 0)} AND {number(draw, names, 0)}"
        case "in":
            listed = ", ".join(draw(st.lists(st.sampled_from(["0", "1", "2", "NULL"]), min_size=1, max_size=3)))
            return f"{number(draw, names, 0)} {negation}IN ({listed})"
        case word if word in FURTHER:
            return further_condition(draw, names, word, negation)
        case "like":
            return f"{text(draw, names)} {negation}LIKE '{draw(st.sampled_from(['a%', '_', '%b']))}'"
        case "and" | "or" as connective:
            sides = [condition(draw, names, depth - 1, is_value=is_value) for _ in range(2)]
            return f"({sides[0]} {connective.upper()} {sides[1]})"
        case "not":
            return f"NOT ({condition(draw, names, depth - 1, is_value=is_value)})"
        case "exists":
            alias = names.fresh()
            inside = names.inner().with_(alias)
            where = f" WHERE {condition(draw, inside, 1)}"
            return f"{negation}EXISTS (SELECT 1 FROM {draw(st.sampled_from(list(TABLES)))} AS {alias}{where})"
        case _:
            alias = names.fresh()
            inside = names.inner().with_(alias)
            where = draw(st.sampled_from(["", f" WHERE {condition(draw, inside, 1)}"]))
            table = draw(st.sampled_from(list(TABLES)))
            found = f"{number(draw, names, 0)} {negation}IN (SELECT {number(draw, inside, 0)} FROM {table} AS {alias}{where})"
            return f"({found}) IS TRUE" if is_value else found


def source(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    """A table, an earlier view, or a query in parentheses; without what surrounds it."""
    if names.depth > 0 and draw(st.integers(0, 4)) == 0:
        return f"({query(draw, Names((), names.depth - 1, names.fresh), views)})"
    return str(draw(st.sampled_from((*TABLES, *views))))


JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "USING", "LEFT USING", "FULL USING", "SEMI", "ANTI")


def from_clause(draw: Any, names: Names, views: tuple[str, ...]) -> tuple[str, Names]:
    first = names.fresh()
    clause, inside = f"{source(draw, names, views)} AS {first}", Names((first,), names.depth, names.fresh)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        alias, kind = names.fresh(), draw(st.sampled_from(JOINS))
        other = f"{source(draw, names, views)} AS {alias}"
        both = inside.with_(alias)
        if kind == "CROSS JOIN":
            clause += f" CROSS JOIN {other}"
        elif kind.endswith("USING"):
            if len(inside.aliases) > 1:
                continue
            clause += f" {kind.removesuffix('USING')} JOIN {other} USING (y)"
        else:
            # what an outer join joins by is kept simple: DuckDB refuses subqueries there
            on = condition(draw, Names(both.aliases, 0, names.fresh), 1)
            on = draw(st.sampled_from([on, f"{inside.aliases[0]}.x = {alias}.y"]))
            word = {"SEMI": "LEFT SEMI JOIN", "ANTI": "LEFT ANTI JOIN"}.get(kind, kind)
            clause += f" {word} {other} ON {on}"
            if kind in ("SEMI", "ANTI"):
                continue
        inside = both
    return clause, inside


def select(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    clause, inside = from_clause(draw, names, views)
    where = draw(st.sampled_from(["", f" WHERE {condition(draw, inside)}"]))
    kind = draw(st.sampled_from(["plain", "plain", "distinct", "group", "global", "ranked"]))
    if kind in ("plain", "distinct"):
        items = f"{number(draw, inside)} AS x, {number(draw, inside)} AS y, {text(draw, inside)} AS s"
        return f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{items} FROM {clause}{where}"
    narrow = Names(inside.aliases, 0, names.fresh)
    one, two = aggregate(draw, narrow), aggregate(draw, narrow)
    alias = draw(st.sampled_from(inside.aliases))
    if kind == "global":
        listed = f"listagg({alias}.s, '-') WITHIN GROUP (ORDER BY {alias}.s)"
        largest = draw(st.sampled_from([f"max({text(draw, narrow)})", listed]))
        return f"SELECT {one} AS x, {two} AS y, {largest} AS s FROM {clause}{where}"
    if kind == "ranked":
        over = draw(st.sampled_from(["rank() OVER (ORDER BY {n} NULLS FIRST)", "sum({n}) OVER (ORDER BY {a}.y NULLS LAST)"]))
        ranked = f"CAST({over.format(n=one, a=alias)} AS INT)"
        return f"SELECT {alias}.y AS x, {ranked} AS y, {alias}.s AS s FROM {clause}{where} GROUP BY {alias}.y, {alias}.s"
    having = draw(st.sampled_from(["", f" HAVING {aggregate(draw, narrow)} > 1", " HAVING count(*) > 1"]))
    # Without rows, DuckDB has the grand total of a ROLLUP and a CUBE, and Spark has none.
    group, having = draw(
        st.sampled_from(
            [
                (f"{alias}.y, {alias}.s", having),
                (f"{alias}.y, {alias}.s", having),
                (f"ROLLUP ({alias}.y, {alias}.s)", " HAVING count(*) > 0"),
                (f"CUBE ({alias}.y, {alias}.s)", " HAVING count(*) > 0"),
                (f"GROUPING SETS (({alias}.y, {alias}.s), ({alias}.s))", having),
            ]
        )
    )
    return f"SELECT {alias}.y AS x, {one} AS y, {alias}.s AS s FROM {clause}{where} GROUP BY {group}{having}"


def aggregate(draw: Any, names: Names) -> str:
    calls = ["count(*)", "count({n})", "count(DISTINCT {n})", "sum({n})", "sum(DISTINCT {n})", "min({n})", "max({n})"]
    calls += ["bit_and({n})", "bit_or({n})", "bit_xor({n})", "median({n}) * 2", "regr_count({n}, {m})", "regr_sxx({n}, 1)"]
    calls += ["size(collect_list({n})) * 1"]
    calls += [f"{call} FILTER (WHERE {{c}})" for call in ("count(*)", "sum({n})", "count(DISTINCT {n})", "max({n})")]
    call = draw(st.sampled_from(calls)).format(n=number(draw, names, 1), m=number(draw, names, 1), c=condition(draw, names, 0))
    return f"CAST({call} AS INT)"


WINDOWS = (
    "row_number() OVER (PARTITION BY {q}.y ORDER BY {q}.x NULLS FIRST, {q}.s DESC NULLS LAST)",
    "rank() OVER (PARTITION BY {q}.s ORDER BY {q}.y DESC NULLS LAST)",
    "dense_rank() OVER (ORDER BY {q}.y NULLS FIRST)",
    "lag({q}.x) OVER (PARTITION BY {q}.y ORDER BY {q}.x NULLS FIRST, {q}.s NULLS FIRST)",
    "lead({q}.y, 2, 7) OVER (ORDER BY {all})",
    "sum({q}.x) OVER (PARTITION BY {q}.y)",
    "count(*) OVER ()",
    "sum({q}.x) OVER (PARTITION BY {q}.s ORDER BY {q}.y NULLS FIRST)",
    "sum({q}.x) OVER (ORDER BY {all} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "min({q}.x) OVER (PARTITION BY {q}.s ORDER BY {all} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "count({q}.x) OVER (PARTITION BY {q}.s ORDER BY {all} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "first_value({q}.x) OVER (PARTITION BY {q}.s ORDER BY {all})",
    "last_value({q}.x) OVER (ORDER BY {all} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
    "nth_value({q}.x, 2) OVER (ORDER BY {all} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "ntile(2) OVER (ORDER BY {all})",
    "lag({q}.x, 1, {q}.y) OVER (ORDER BY {all})",
    "sum({q}.x) OVER (PARTITION BY {q}.s ORDER BY {q}.y NULLS FIRST RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "max({q}.y) OVER (ORDER BY {q}.x DESC NULLS LAST RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (ORDER BY {q}.y NULLS LAST RANGE BETWEEN CURRENT ROW AND 1 FOLLOWING)",
    "sum({q}.y) OVER (PARTITION BY {q}.s ORDER BY {all} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
    "min({q}.x) OVER (ORDER BY {all} ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "max({q}.x) OVER (PARTITION BY {q}.y ORDER BY {all} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "max({q}.x) OVER (PARTITION BY {q}.s ORDER BY {q}.y NULLS FIRST)",
    "floor(1000 * percent_rank() OVER (ORDER BY {q}.y NULLS FIRST))",
    "floor(1000 * cume_dist() OVER (PARTITION BY {q}.s ORDER BY {q}.y DESC NULLS LAST))",
    "lag({q}.x) IGNORE NULLS OVER (PARTITION BY {q}.s ORDER BY {all})",
    "lead({q}.y, 2) IGNORE NULLS OVER (ORDER BY {all})",
    "first_value({q}.y) IGNORE NULLS OVER (ORDER BY {all} ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
    "last_value({q}.x) IGNORE NULLS OVER (PARTITION BY {q}.y ORDER BY {all})",
)
QUALIFIED = (
    "row_number() OVER (PARTITION BY {q}.y ORDER BY {all}) <= 2",
    "rank() OVER (PARTITION BY {q}.s ORDER BY {q}.y NULLS FIRST) = 1",
    "count(*) OVER (PARTITION BY {q}.y) > 1",
    "{q}.x > min({q}.x) OVER (PARTITION BY {q}.s)",
    "sum({q}.y) OVER (ORDER BY {all} ROWS 2 PRECEDING) < 4 OR {q}.s = 'a'",
)
ALL_COLUMNS = "{q}.x NULLS FIRST, {q}.y NULLS FIRST, {q}.s NULLS FIRST"


def window(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    """What rows that are equal in the order get must not matter: they are equal in all that is selected."""
    alias = names.fresh()
    call = draw(st.sampled_from(WINDOWS)).format(q=alias, all=ALL_COLUMNS.format(q=alias))
    where = draw(st.sampled_from(["", f" WHERE {condition(draw, Names((alias,), 0, names.fresh), 1)}"]))
    sources = f"FROM {source(draw, names.inner(), views)} AS {alias}{where}"
    if draw(st.integers(0, 3)) == 0:
        test = draw(st.sampled_from(QUALIFIED)).format(q=alias, all=ALL_COLUMNS.format(q=alias))
        return f"SELECT {alias}.x AS x, {alias}.y AS y, {alias}.s AS s {sources} QUALIFY {test}"
    if draw(st.integers(0, 5)) == 0:
        named = f"WINDOW n AS (PARTITION BY {alias}.s ORDER BY {ALL_COLUMNS.format(q=alias)})"
        calls = f"CAST(sum({alias}.x) OVER n AS INT) AS x, CAST(row_number() OVER n AS INT) AS y"
        return f"SELECT {calls}, {alias}.s AS s {sources} {named}"
    return f"SELECT CAST({call} AS INT) AS x, {alias}.y AS y, {alias}.s AS s {sources}"


def top(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    limit = draw(st.sampled_from(["LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1"]))
    order = draw(
        st.sampled_from(
            [
                "x NULLS FIRST, y DESC NULLS LAST, s NULLS FIRST",
                "3 DESC NULLS FIRST, 2 NULLS LAST, 1 NULLS LAST",
                "ALL DESC NULLS FIRST",
            ]
        )
    )
    return f"{select(draw, names, views)} ORDER BY {order} {limit}"


SETS = ("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")


def query(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    kind = draw(st.sampled_from(["select"] * 5 + [*SETS, "with", "window", "window", "top", "explode", "lateral", "pivot"]))
    if kind == "select" or names.depth == 0:
        return select(draw, names, views)
    inner = names.inner()
    if kind == "window":
        return window(draw, names, views)
    if kind == "top":
        return top(draw, inner, views)
    if kind == "explode":
        return exploded(draw, names)
    if kind == "lateral":
        return lateral(draw, names)
    if kind == "pivot":
        return pivoted(draw, names, views)
    if kind == "with":
        name = names.fresh()
        return f"WITH {name} AS ({query(draw, inner, views)}) {select(draw, inner, (*views, name))}"
    return f"({select(draw, inner, views)}) {kind} ({select(draw, inner, views)})"


def exploded(draw: Any, names: Names) -> str:
    """A row for each element of an array."""
    alias, other = names.fresh(), names.fresh()
    inside = Names((alias,), 0, names.fresh)
    parts = ", ".join(number(draw, inside, 0) for _ in range(draw(st.integers(1, 3))))
    where = draw(st.sampled_from(["", f" WHERE {condition(draw, inside, 1)}"]))
    table = f"{draw(st.sampled_from(list(TABLES)))} AS {alias}"
    joined = [f", LATERAL explode(array({parts})) AS {other}(c)", f" LATERAL VIEW explode(array({parts})) {other} AS c"]
    source = table + draw(st.sampled_from(joined))
    return f"SELECT {alias}.x AS x, {other}.c AS y, {alias}.s AS s FROM {source}{where}"


def lateral(draw: Any, names: Names) -> str:
    """A query for each row of a table, which may have no row."""
    alias, other, inner = names.fresh(), names.fresh(), names.fresh()
    tables = [draw(st.sampled_from(list(TABLES))) for _ in range(2)]
    inside = Names((inner, alias), 0, names.fresh)
    what = draw(st.sampled_from([f"{inner}.y", f"CAST(count({inner}.y) AS INT)", f"max({inner}.y)"]))
    query = f"SELECT {what} AS m FROM {tables[1]} AS {inner} WHERE {condition(draw, inside, 1)}"
    join = draw(st.sampled_from([", LATERAL", " LEFT JOIN LATERAL"]))
    on = " ON TRUE" if "LEFT" in join else ""
    return f"SELECT {alias}.x AS x, {other}.m AS y, {alias}.s AS s FROM {tables[0]} AS {alias}{join} ({query}) AS {other}{on}"


def pivoted(draw: Any, names: Names, views: tuple[str, ...]) -> str:
    """Rows that become columns, or columns that become rows. Of no rows, DuckDB counts 0 and Spark has NULL: no pivot counts."""
    inner, outer = names.fresh(), names.fresh()
    where = draw(st.sampled_from(["", f" WHERE {condition(draw, Names((inner,), 0, names.fresh), 1)}"]))
    rows = f"(SELECT {inner}.x, {inner}.y, {inner}.s FROM {source(draw, names.inner(), views)} AS {inner}{where})"
    if draw(st.booleans()):
        call = draw(st.sampled_from(["sum(x)", "min(x)", "max(x)", "sum(x * x)"]))
        columns = f"{outer}.y AS x, CAST({outer}.one AS INT) AS y, CAST({outer}.two AS STRING) AS s"
        return f"SELECT {columns} FROM {rows} PIVOT ({call} FOR s IN ('a' AS one, 'b' AS two)) AS {outer}"
    nulls = draw(st.sampled_from(["", "INCLUDE NULLS ", "EXCLUDE NULLS "]))
    columns = f"{outer}.v AS x, CAST(length({outer}.n) AS INT) AS y, {outer}.s || {outer}.n AS s"
    return f"SELECT {columns} FROM {rows} UNPIVOT {nulls}(v FOR n IN (x, y)) AS {outer}"


@st.composite
def thirds(draw: Any) -> tuple[str, str]:
    """A query, and the same in three parts: where a condition is true, where it is false, and where it is unknown."""
    taken = iter(range(10_000))
    names = Names((), 1, lambda: f"q{next(taken)}")
    clause, inside = from_clause(draw, names, ())
    whole = f"SELECT {inside.aliases[0]}.x AS x, {inside.aliases[-1]}.y AS y, {inside.aliases[0]}.s AS s FROM {clause}"
    one = condition(draw, inside)
    return whole, f"{whole} WHERE {one} UNION ALL {whole} WHERE NOT ({one}) UNION ALL {whole} WHERE ({one}) IS NULL"


@st.composite
def conditional_change(draw: Any) -> str:
    """A change of data by a condition, which may be constant. The table without a key takes anything."""
    taken = iter(range(10_000))
    names = Names(("u",), 1, lambda: f"q{next(taken)}")
    match draw(st.sampled_from(["insert", "delete", "update"])):
        case "insert":
            inside = Names(("q",), 1, names.fresh)
            where = condition(draw, inside)
            return f"INSERT INTO u SELECT {number(draw, inside)}, q.y, {text(draw, inside)} FROM u AS q WHERE {where}"
        case "delete":
            return f"DELETE FROM u WHERE {condition(draw, names)}"
        case _:
            return f"UPDATE u SET y = {number(draw, names, 1)}, s = {text(draw, names)} WHERE {condition(draw, names)}"


@st.composite
def view(draw: Any, views: tuple[str, ...] = ()) -> str:
    """The query of a view over the tables and these views."""
    taken = iter(range(10_000))
    return query(draw, Names((), 2, lambda: f"q{next(taken)}"), views)


RECURSIONS = (
    "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM u UNION SELECT r.x, u.y FROM r JOIN u ON r.y = u.x)"
    " SELECT x, y, 's' AS s FROM r",
    "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM u WHERE s = 'a'"
    " UNION SELECT u.x, r.y FROM u JOIN r ON u.y = r.x WHERE u.s <> 'b')"
    " SELECT x, CAST(count(*) AS INT) AS y, 'n' AS s FROM r GROUP BY x",
    "WITH RECURSIVE r(x, n) AS (SELECT y, 0 FROM u UNION ALL SELECT u.y, r.n + 1 FROM r JOIN u ON u.x = r.x WHERE r.n < 2)"
    " SELECT x, n AS y, 's' AS s FROM r",
)


@st.composite
def transaction(draw: Any) -> list[tuple[str, str, tuple[int | None, int | None, str | None]]]:
    """Rows to insert and to delete, table by table."""
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        table = draw(st.sampled_from(list(TABLES)))
        steps.append((draw(st.sampled_from(["insert", "insert", "delete"])), table, draw(row(table))))
    return steps
