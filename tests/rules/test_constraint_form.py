"""A constraint view and a plain view of the same query are different definitions, also where a store compares texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import rederive
from rederive.errors import Redefined, Violated

TABLE = "CREATE TABLE t (x INT NOT NULL PRIMARY KEY);"


def test_a_view_does_not_become_a_constraint_by_being_stated_again(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(TABLE + "CREATE VIEW negative AS SELECT x FROM t WHERE x < 0;")
        with pytest.raises(Redefined):
            db.sql("CREATE CONSTRAINT REJECT VIEW negative AS SELECT x FROM t WHERE x < 0;")


def test_a_constraint_survives_reopening(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(TABLE + "CREATE CONSTRAINT REJECT VIEW negative AS SELECT x FROM t WHERE x < 0;")
    with rederive.open(tmp_path) as db, pytest.raises(Violated):
        db.sql("INSERT INTO t VALUES (-1)")
