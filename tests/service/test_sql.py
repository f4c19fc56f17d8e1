"""Projects with SQL, alone and beside Datalog: bags tell their copies, and definitions are found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rederive.errors import Mismatch
from rederive.service.project import open_project, read_project
from tests.service.conftest import Serve

TABLES = """
CREATE TABLE stock (item STRING NOT NULL, shelf INT NOT NULL, n INT);
CREATE VIEW shelves AS SELECT shelf FROM stock WHERE n > 0;
CREATE VIEW total AS SELECT shelf, sum(n) AS n FROM stock GROUP BY shelf;
"""
RULES = """
.decl note(shelf: number)
.decl noted(shelf: number)
noted(s) :- note(s), s > 10.
"""


def project(folder: Path, tables: str = TABLES, rules: str = RULES) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tables.sql").write_text(tables)
    (folder / "rules.dl").write_text(rules)
    (folder / "rederive.toml").write_text('programs = ["tables.sql", "rules.dl"]\n')
    return folder


def test_a_bag_is_told_by_its_copies(serve: Serve) -> None:
    served = serve(RULES)
    for statement in TABLES.strip().split(";")[:-1]:
        made = served.request("POST", "/v1/views", json={"language": "sql", "text": statement})
        assert made.status_code == 201, made.text
    served.insert("stock", ["bolt", 1, 5], ["nut", 1, None])
    with served.events("/v1/views/shelves/changes") as events:
        assert next(events)["rows"] == [[1]]
        served.insert("stock", ["cog", 1, 2], ["pin", 1, 3], ["rod", 2, 1])
        change = next(events)
        assert (change["plus"], change["counts"]) == ([[1], [2]], {"plus": [2, 1], "minus": []})
        served.delete("stock", ["bolt", 1, 5])
        assert (next(events)["minus"], served.rows("shelves")) == ([[1]], [[1], [1], [2]])
    with served.events("/v1/views/shelves/changes", last=served.get("/v1/health").json()["version"] - 2) as events:
        assert next(events) == change
    assert served.rows("total") == [[1, 5], [2, 1]]


def test_a_replaced_view_with_other_columns_ends_its_subscriptions_and_resets_who_resumes(serve: Serve) -> None:
    served = serve(RULES)
    for statement in TABLES.strip().split(";")[:-1]:
        served.request("POST", "/v1/views", json={"language": "sql", "text": statement})
    version = served.insert("stock", ["bolt", 1, 5])
    other = "CREATE OR REPLACE VIEW total AS SELECT shelf, sum(n) AS n, count(*) AS k FROM stock GROUP BY shelf"
    with served.events("/v1/views/total/changes") as events:
        assert next(events)["rows"] == [[1, 5]]
        replaced = served.request("PUT", "/v1/views/total", json={"language": "sql", "text": other})
        assert replaced.status_code == 200, replaced.text
        assert [(event["event"], event["code"]) for event in events] == [("problem", "mismatch")]
    with served.events("/v1/views/total/changes", last=version) as events:
        reset, snapshot = next(events), next(events)
    assert (reset["event"], snapshot["columns"], snapshot["rows"]) == ("reset", ["shelf", "n", "k"], [[1, 5, 1]])


def test_a_put_that_does_not_replace(serve: Serve) -> None:
    served = serve(RULES)
    for text in ("CREATE VIEW noted AS SELECT 1", "CREATE OR REPLACE VIEW another AS SELECT shelf FROM note"):
        refused = served.request("PUT", "/v1/views/noted", json={"language": "sql", "text": text})
        assert refused.json()["code"] == "malformed", refused.text


def test_files_of_both_languages(tmp_path: Path) -> None:
    folder = project(tmp_path / "both")
    with open_project(read_project(folder)) as db:
        with db.transaction() as tx:
            tx.insert("stock", [("bolt", 1, 5)])
            tx.insert("note", [(11,)])
        assert (db.rows("total"), db.rows("noted")) == ([(1, 5)], [(11,)])
    with open_project(read_project(folder)) as db:
        assert (db.version, db.rows("total")) == (1, [(1, 5)])
    project(folder, TABLES + "CREATE VIEW empty AS SELECT item FROM stock WHERE n = 0;", RULES + ".decl more(x: number)")
    with open_project(read_project(folder)) as db:
        assert {"empty", "more"} <= set(db.pipeline.state.program.relations)
    project(folder, TABLES)
    with pytest.raises(Mismatch):
        open_project(read_project(folder))


def test_the_time_of_a_service_ticks(serve: Serve) -> None:
    served = serve(RULES, "tick = 0.1")
    for statement in (
        "CREATE TABLE e (k INT PRIMARY KEY, at TIMESTAMP)",
        "CREATE VIEW due AS SELECT k FROM e WHERE at < now()",
    ):
        made = served.request("POST", "/v1/views", json={"language": "sql", "text": statement})
        assert made.status_code == 201, made.text
    with served.events("/v1/views/due/changes") as events:
        assert next(events)["rows"] == []
        served.insert("e", [1, "2020-01-01T00:00:00"], [2, "2999-01-01T00:00:00"])
        assert next(events)["plus"] == [[1]]


def test_nested_values_are_lists_and_objects(serve: Serve) -> None:
    served = serve(RULES)
    for statement in (
        "CREATE TABLE o (k INT PRIMARY KEY, a ARRAY<INT>, s STRUCT<x: INT, y: STRING>, m MAP<STRING, DOUBLE>)",
        "CREATE VIEW v AS SELECT s.x, collect_list(a) AS l, max(struct(k, s)) AS last FROM o GROUP BY s.x",
    ):
        made = served.request("POST", "/v1/views", json={"language": "sql", "text": statement})
        assert made.status_code == 201, made.text
    row = [1, [1, None], {"x": 7, "y": "q"}, {"p": 1.5}]
    with served.events("/v1/views/v/changes") as events:
        assert next(events)["rows"] == []
        served.insert("o", row)
        assert next(events)["plus"] == [[7, [[1, None]], {"k": 1, "s": {"x": 7, "y": "q"}}]]
    assert served.rows("o") == [row]
    served.delete("o", row)
    assert served.rows("v") == []
    refused = served.request("POST", "/v1/transactions", json={"insert": {"o": [[2, ["x"], None, None]]}})
    assert refused.status_code == 422
    assert "is not a number" in refused.text
