"""TPC-DS in small: the schema and the queries of DuckDB's extension, and random rows with the values that the queries look for.

The texts of the queries are not ours, so they are not here: `benchmark` asks the extension, which a package brings, for them.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5")  # an extension belongs to one version of DuckDB
FACTS = ("store_sales", "catalog_sales", "web_sales", "store_returns", "catalog_returns", "web_returns", "inventory")
DIMENSION_ROWS, FACT_ROWS = 8, 300
_READ = """
import glob, json, sys
sys.path.insert(0, sys.argv[1])
import duckdb
(extension,) = glob.glob(sys.argv[1] + "/**/tpcds.duckdb_extension", recursive=True)
db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
db.execute(f"LOAD '{extension}'")
db.execute("CALL dsdgen(sf = 0)")
queries = dict(db.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
names = [name for (name,) in db.execute("SHOW TABLES").fetchall()]
tables = {name: [row[:2] for row in db.execute(f"DESCRIBE {name}").fetchall()] for name in names}
print(json.dumps({"queries": queries, "tables": tables}))
"""

Row = tuple[Any, ...]


class Benchmark(NamedTuple):
    """The queries by number, and the names and types of the columns of each table."""

    queries: dict[int, str]
    tables: dict[str, list[tuple[str, str]]]

    def schema(self, text: str) -> str:
        """The CREATE TABLE statements, with the type of texts."""
        columns = {name: ", ".join(f"{c} {t.replace('VARCHAR', text)}" for c, t in found) for name, found in self.tables.items()}
        return "; ".join(f"CREATE TABLE {name} ({listed})" for name, listed in columns.items())


def benchmark(folder: Path) -> Benchmark | None:
    """What the extension says; None where it cannot be fetched."""
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *PACKAGES],
        capture_output=True,
        check=False,
    )
    if fetched.returncode:
        return None
    said = subprocess.run([sys.executable, "-c", _READ, str(folder)], capture_output=True, check=True, text=True)
    found = json.loads(said.stdout)
    queries = {int(number): re.sub(r"[\s;]+$", "", text) for number, text in found["queries"].items()}
    return Benchmark(queries, {name: [tuple(column) for column in columns] for name, columns in found["tables"].items()})


class RandomRows:
    """Rows whose columns mostly hold values that some query compares them with."""

    def __init__(self, found: Benchmark, seed: int) -> None:
        self.tables = found.tables
        self.pick = random.Random(seed)
        self.literals: dict[str, set[str]] = {}
        for text in found.queries.values():
            for node in sqlglot.parse_one(text, read="duckdb").find_all(
                exp.EQ, exp.In, exp.Between, exp.GTE, exp.LTE, exp.GT, exp.LT
            ):
                columns = [part.name.lower() for part in node.find_all(exp.Column)]
                values = [part.name for part in node.find_all(exp.Literal)]
                for column in columns:
                    self.literals.setdefault(column, set()).update(values)
        first = datetime.date(1998, 1, 1)
        self.days = [first + datetime.timedelta(days=5 * i + self.pick.randrange(5)) for i in range(365)]
        # Most facts are of few days, so that queries about a month find some.
        self.usual = self.pick.sample(range(len(self.days)), 20)

    def rows(self, table: str, count: int, start: int = 0) -> list[Row]:
        """So many rows of a table; the keys of a dimension are counted from `start`."""
        if table == "date_dim":
            return [self._day(i) for i in range(len(self.days))]
        return [self._row(table, start + i) for i in range(count)]

    def _row(self, table: str, number: int) -> Row:
        columns = self.tables[table]
        own = table not in FACTS
        return tuple(number if own and i == 0 else self._value(column, kind) for i, (column, kind) in enumerate(columns))

    def _value(self, column: str, kind: str) -> Any:
        pick = self.pick
        if pick.random() < 0.04:
            return None
        if column.endswith("_sk"):
            is_day = "date" in column
            return (
                pick.choice(self.usual)
                if is_day and pick.random() < 0.8
                else pick.randrange(len(self.days) if is_day else DIMENSION_ROWS)
            )
        known = sorted(self.literals.get(column, ()))
        match kind:
            case "VARCHAR":
                return pick.choice(known) if known else f"{column[:4]}{pick.randrange(3)}"
            case "DATE":
                return pick.choice(self.days)
            case "BIGINT" | "INTEGER":
                numbers = [int(text) for text in known if re.fullmatch(r"\d{1,9}", text)]
                return pick.choice(numbers) if numbers and pick.random() < 0.8 else pick.randrange(1, 30)
        return Decimal(pick.randrange(100, 20000)).scaleb(-2)

    def _day(self, number: int) -> Row:
        day = self.days[number]
        weeks = (day - datetime.date(1900, 1, 1)).days // 7 + 1
        months = (day.year - 1900) * 12 + day.month - 1
        known: dict[str, Any] = {
            "d_date_sk": number, "d_date": day, "d_month_seq": months, "d_week_seq": weeks, "d_quarter_seq": months // 3,
            "d_year": day.year, "d_dow": (day.weekday() + 1) % 7, "d_moy": day.month, "d_dom": day.day,
            "d_qoy": (day.month + 2) // 3,
            "d_fy_year": day.year, "d_fy_quarter_seq": months // 3, "d_fy_week_seq": weeks, "d_day_name": day.strftime("%A"),
            "d_quarter_name": f"{day.year}Q{(day.month + 2) // 3}",
        }  # fmt: skip
        return tuple(known[column] if column in known else self._value(column, kind) for column, kind in self.tables["date_dim"])
