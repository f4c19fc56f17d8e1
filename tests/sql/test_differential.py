"""Views of SQL against DuckDB: after every transaction the view, as a bag, is DuckDB's answer, and the change leads there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import rederive
from rederive.engines.resident.run import window_groups
from tests.duck import empty_duckdb
from tests.selection import examples
from tests.sql.grammar import COLUMNS, RECURSIONS, TABLES, conditional_change, thirds, transaction, view

Row = tuple[Any, ...]
STRATEGIES = ("auto", "materialized", "counting", "on_demand", "filtration", "differencing", "recompute")
Transactions = Sequence[Sequence[tuple[str, str, Row]]]


def is_taken(strategy: str, query: str) -> bool:
    """Whether a strategy takes a query: `explode` is a recursion (decision 86)."""
    return strategy not in ("counting", "differencing") or "explode(" not in query


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of few rows are stored in order, too."""
    monkeypatch.setattr(window_groups, "_SMALL", 2)
    monkeypatch.setattr(window_groups, "_MANY", 1)


class Both:
    """The same tables and views in rederive and in DuckDB."""

    def __init__(self, views: Sequence[str], strategy: str) -> None:
        self.db = rederive.open(strategy=strategy)
        self.duck = empty_duckdb()
        self.keys: dict[Any, Row] = {}
        for table in TABLES.values():
            self.db.sql(table.format(text="STRING"))
            self.duck.execute(table.format(text="VARCHAR").replace(" PRIMARY KEY", ""))
        self.views = {f"v{i}": query for i, query in enumerate(views)}
        for name, query in self.views.items():
            if not is_taken(strategy, query):
                reject()
            self.db.sql(f"CREATE VIEW {name} AS {query}")
            self.duck.execute(f"CREATE VIEW {name} AS {as_duck(query)}")
        self.bags = {name: self.answer(name) for name in self.views}
        self.check({})

    def answer(self, name: str) -> Counter[Row]:
        return Counter(self.duck.execute(f"SELECT * FROM {name}").fetchall())

    def commit(self, steps: Sequence[tuple[str, str, Row]]) -> None:
        with self.db.transaction() as tx:
            for action, table, row in self.feasible(steps):
                if action == "insert":
                    tx.insert(table, [row])
                    self.duck.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row)
                else:
                    tx.delete(table, [row])
                    same = " AND ".join(f"{column} IS NOT DISTINCT FROM ?" for column in COLUMNS)
                    one = f"SELECT rowid FROM {table} WHERE {same} LIMIT 1"
                    self.duck.execute(f"DELETE FROM {table} WHERE rowid IN ({one})", row)
        self.check(tx.result.changes)

    def feasible(self, steps: Sequence[tuple[str, str, Row]]) -> list[tuple[str, str, Row]]:
        """A row of `t` replaces the one with its key."""
        done: list[tuple[str, str, Row]] = []
        for action, table, row in steps:
            if table == "t":
                old = self.keys.pop(row[0], None)
                done += [("delete", "t", old)] if old is not None else []
                if action == "delete":
                    continue
                self.keys[row[0]] = row
            done.append((action, table, row))
        return done

    def check(self, changes: Any) -> None:
        for name in self.views:
            new = self.answer(name)
            assert Counter(self.db.rows(name)) == new
            moved = Counter(self.bags[name])
            if name in changes:
                change = changes[name]
                counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
                for rows, sign in (("plus", 1), ("minus", -1)):
                    for row, count in zip(getattr(change, rows), counts[rows], strict=True):
                        moved[row] += sign * count
                        assert count > 0
            assert {r: n for r, n in moved.items() if n} == dict(new)
            self.bags[name] = new


REWRITTEN = (
    (r"LATERAL explode\(array\((.+?)\)\) AS", r"LATERAL (SELECT unnest(list_value(\1))) AS"),
    (r" LATERAL VIEW explode\(array\((.+?)\)\) (\w+) AS c", r", LATERAL (SELECT unnest(list_value(\1))) AS \2(c)"),
    (r"(\w+)\(([^()]*)\) IGNORE NULLS OVER", r"\1(\2 IGNORE NULLS) OVER"),
    (r"aggregate\(array\((.*?)\), 0, \(c, e\) -> c \+ e\)", r"list_reduce(list_value(0, \1), lambda c, e: c + e)"),
    (r"map\('k', (.*?)\)\['k'\]", r"(MAP {'k': \1})['k']"),
    (r"CAST\(get_json_object\(to_json\(named_struct\('j', (.*?)\)\), '\$\.j'\) AS INT\)", r"(\1)"),
    (r"size\(split\(", r"len(string_split("),
    (r"size\(collect_list\((.*?)\)\) \* 1", r"count(\1)"),
    (r"listagg\((\w+\.s), '-'\) WITHIN GROUP \(ORDER BY (\w+\.s)\)", r"string_agg(\1, '-' ORDER BY \2)"),
    # The arguments of these are plain: columns, and literals with their type.
    (r"exists\(array\((.*?)\), e -> e > (.*?)\) IS TRUE", r"len(list_filter(list_value(\1), lambda e: e > \2)) > 0"),
    (r"forall\(array\((.*?)\), e -> e > (.*?)\) IS TRUE", r"len(list_filter(list_value(\1), lambda e: e > \2)) = 2"),
)


def as_duck(query: str) -> str:
    for pattern, replacement in REWRITTEN:
        query = re.sub(pattern, replacement, query)
    for ours, theirs in (
        ("named_struct('a', ", "struct_pack(a := "),
        (", 'f', ", ", f := "),  # no text of the grammar is 'f'
        ("element_at(", "list_extract("),
        ("transform(", "list_transform("),
        ("size(filter(", "len(list_filter("),
    ):
        query = query.replace(ours, theirs)
    query = query.replace(" array(", " list_value(").replace("(array(", "(list_value(").replace(", e -> e", ", lambda e: e")
    return query.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN").replace("AS STRING", "AS VARCHAR")


def run(views: Sequence[str], transactions: Transactions, strategy: str) -> None:
    both = Both(views, strategy)
    for steps in transactions:
        both.commit(steps)


@examples(150)
@given(st.data(), st.sampled_from(STRATEGIES))
def test_views_are_what_duckdb_answers(data: st.DataObject, strategy: str) -> None:
    first = data.draw(view())
    views = [first, data.draw(view(("v0",)))] if data.draw(st.booleans()) else [first]
    transactions = data.draw(st.lists(transaction(), min_size=1, max_size=4))
    run(views, transactions, strategy)


def test_a_column_that_may_be_null_is_not_compared_before_it_is_tested() -> None:
    """Found: the rule that starts from a change of the joined side met the comparison first."""
    query = "SELECT q1.x, q1.y, q2.s FROM t AS q1 JOIN t AS q2 ON q1.x = q2.y WHERE q1.x BETWEEN q1.x AND q1.x"
    run([query], [[("insert", "t", (0, None, None))]], "auto")


@examples(60)
@given(st.sampled_from(RECURSIONS), st.lists(transaction(), min_size=1, max_size=5), st.sampled_from(STRATEGIES))
def test_recursive_views_are_what_duckdb_answers(query: str, transactions: Transactions, strategy: str) -> None:
    if strategy not in ("counting", "differencing"):
        run([query], transactions, strategy)


CHOSEN = {
    "using, unqualified": "SELECT y, t.x AS a, u.x AS b FROM t JOIN u USING (y)",
    "full using": "SELECT y, t.s AS a, u.s AS b FROM t FULL JOIN u USING (y)",
    "right using": "SELECT y, u.s AS b FROM t RIGHT JOIN u USING (y)",
    "natural": "SELECT x, y, s FROM t NATURAL JOIN u",
    "three outer": "SELECT t.x, u.y, w.s FROM t LEFT JOIN u ON t.y = u.x FULL JOIN w ON w.y = u.y AND t.s = w.s",
    "self join": "SELECT a.x, b.x AS z FROM u AS a, u AS b WHERE a.y = b.y AND a.x < b.x",
    "values": "SELECT t.x, n.name FROM t JOIN (VALUES (1, 'one'), (2, 'two'), (2, 'zwei')) AS n(v, name) ON t.y = n.v",
    "values twice": "SELECT v FROM (VALUES (1), (1), (2)) AS n(v)",
    "tuples in": "SELECT x, s FROM t WHERE (y, s) IN (SELECT y, s FROM u)",
    "with and union": "WITH a AS (SELECT x FROM t), b AS (SELECT y AS x FROM u) SELECT x FROM a UNION ALL SELECT x FROM b",
    "nested with": "SELECT n FROM (WITH a AS (SELECT y, count(*) AS n FROM u GROUP BY y) SELECT n FROM a WHERE n > 1) AS q",
    "correlated in select": "SELECT x, (SELECT max(u.x) FROM u WHERE u.y = t.y AND u.s <> t.s) AS m FROM t",
    "twice correlated": "SELECT x FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.y = t.y AND NOT EXISTS"
    " (SELECT 1 FROM w WHERE w.x = u.x AND w.y = t.x))",
    "exists under or": "SELECT x FROM u WHERE x = 1 OR EXISTS (SELECT 1 FROM t WHERE t.y = u.y)",
    "not in under case": "SELECT CASE WHEN y NOT IN (SELECT x FROM u) THEN 'out'"
    " WHEN y IN (SELECT x FROM u) THEN 'in' END AS c FROM t",
    "subquery in having": "SELECT y, count(*) AS n FROM u GROUP BY y HAVING count(*) > (SELECT count(*) FROM t WHERE t.y = u.y)",
    "group by expression": "SELECT coalesce(y, 0) + 1 AS g, bool_and(x > 1) AS b, avg(x) AS m FROM u GROUP BY coalesce(y, 0) + 1",
    "group by alias": "SELECT upper(s) AS g, count(DISTINCT y) AS n FROM u GROUP BY g",
    "aggregate of nothing": "SELECT count(*) AS n, sum(x) AS t, count(x) AS c FROM u WHERE y = 99",
    "windows over groups": "SELECT y, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM u GROUP BY y",
    "limit inside": "SELECT q.x FROM (SELECT x, s FROM t ORDER BY x DESC LIMIT 2) AS q JOIN u ON q.s = u.s",
    "limit of a union": "SELECT x FROM t UNION SELECT y FROM u ORDER BY x NULLS FIRST LIMIT 3",
}


@pytest.mark.parametrize("query", CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("strategy", ["auto", "on_demand"])
def test_chosen_views_are_what_duckdb_answers(query: str, strategy: str) -> None:
    steps: list[list[tuple[str, str, Row]]] = [
        [("insert", "t", (i, i % 3, "ab"[i % 2])) for i in range(4)] + [("insert", "t", (5, None, None))],
        [("insert", "u", (i % 3, i % 2, "ab"[i % 2])) for i in range(5)] + [("insert", "u", (None, 1, "a"))] * 2,
        [("insert", "w", (1, 2, None)), ("insert", "w", (0, 1, "b")), ("delete", "u", (None, 1, "a"))],
        [("delete", "t", (1, 1, "b")), ("delete", "u", (0, 0, "a")), ("insert", "u", (2, None, "a"))],
        [("insert", "t", (2, 0, "b")), ("delete", "w", (1, 2, None))],
    ]
    run([query], steps, strategy)


@pytest.mark.parametrize("strategy", ["auto", "on_demand", "filtration", "recompute"])
def test_recursion_beyond_duckdb(strategy: str) -> None:
    """Non-linear and mutual recursion, against their linear forms."""
    db = rederive.open(strategy=strategy)
    db.sql("CREATE TABLE e (x INT, y INT, PRIMARY KEY (x, y))")
    linear = "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM e UNION SELECT r.x, e.y FROM r JOIN e ON r.y = e.x) SELECT x, y FROM r"
    twice = linear.replace("SELECT r.x, e.y FROM r JOIN e ON r.y = e.x", "SELECT a.x, b.y FROM r AS a JOIN r AS b ON a.y = b.x")
    odd = (
        "WITH RECURSIVE odd(x, y) AS (SELECT x, y FROM e UNION SELECT even.x, e.y FROM even JOIN e ON even.y = e.x),"
        " even(x, y) AS (SELECT odd.x, e.y FROM odd JOIN e ON odd.y = e.x) SELECT x, y FROM odd UNION SELECT x, y FROM even"
    )
    for name, query in (("a", linear), ("b", twice), ("c", odd)):
        db.sql(f"CREATE VIEW {name} AS {query}")
    for statement in (
        "INSERT INTO e VALUES (1, 2), (2, 3), (3, 1), (3, 4)",
        "DELETE FROM e WHERE x = 3 AND y = 1",
        "INSERT INTO e VALUES (4, 2), (5, 1)",
        "DELETE FROM e WHERE x = 2",
    ):
        (result,) = db.sql(statement)
        assert db.rows("a") == db.rows("b") == db.rows("c") != []
        assert result.changes["a"].plus == result.changes["b"].plus == result.changes["c"].plus
        assert result.changes["a"].minus == result.changes["b"].minus == result.changes["c"].minus


# Conditions


@examples(60)
@given(thirds(), st.lists(transaction(), min_size=1, max_size=3), st.sampled_from(STRATEGIES))
def test_a_condition_parts_a_view_in_three(queries: tuple[str, str], transactions: Transactions, strategy: str) -> None:
    both = Both(queries, strategy)
    for steps in transactions:
        both.commit(steps)
        assert Counter(both.db.rows("v0")) == Counter(both.db.rows("v1"))


@examples(60)
@given(st.data(), st.sampled_from(STRATEGIES))
def test_changes_of_data_by_conditions_are_duckdb_s(data: st.DataObject, strategy: str) -> None:
    both = Both(["SELECT x, y, s FROM u", data.draw(view())], strategy)
    both.commit(data.draw(transaction()))
    for _ in range(data.draw(st.integers(1, 3))):
        text = data.draw(conditional_change())
        both.duck.execute(as_duck(text))
        (result,) = both.db.sql(text)
        both.check(result.changes)
