"""Writes docs/sql_support.md: the queries that are compared with Spark, from tests/sql/fixtures/analytics."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sql_support.md"
LONGEST = 110  # characters of a query in the table
HEAD = """# Queries that are compared with Spark

Each of the {count} queries below is a view over tables with NULLs and duplicates. After each of several random transactions its
rows equal those that Spark 4.2 answers to the same text (`tests/sql/test_analytics.py`; the slow test runs each query on
every strategy, and computes Spark's rows again). The texts are in `tests/sql/fixtures/analytics`. A query of your own
that is refused says so when it is defined.

{areas}

| area | query | text |
|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    from tests.sql.analytics import queries

    found = queries()
    counts = Counter(query.area for query in found)
    lines = [f"| {query.area} | {query.title} | `{_short(query.text)}` |" for query in found]
    areas = "By area: " + ", ".join(f"{area.replace('_', ' ')} ({number})" for area, number in counts.items()) + "."
    return HEAD.format(count=len(found), areas=areas) + "\n".join(lines) + "\n"


def _short(text: str) -> str:
    """The first characters of a query, in one line of a table."""
    line = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
