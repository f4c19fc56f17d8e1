"""`--zone` and `zone` of a project: the time zone of a database, kept with its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rederive.errors import Mismatch, ProjectError
from rederive.service.project import init, open_project, read_project
from tests.cli.conftest import Cli, Write
from tests.cli.test_bad_input import refused

PROGRAM = """
CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP);
CREATE VIEW v AS SELECT k, hour(ts) AS h, ts FROM t;
"""
INSERT = "INSERT INTO t VALUES (1, '2026-07-01 00:30:00');"


def test_a_run_in_a_zone(cli: Cli, write: Write) -> None:
    """Timestamps in JSON are in UTC whatever the zone."""
    file = write("p.sql", PROGRAM + INSERT)
    ran = cli("run", file, "--zone", "Europe/Berlin", "--store", "s")
    assert ran.lines == [{"version": 1, "view": "v", "plus": [[1, 0, "2026-06-30T22:30:00"]], "minus": []}]
    changes = write("c.jsonl", '{"insert": {"t": [[2, "2026-07-01T00:30:00"], [3, "2026-07-01T00:30:00+02:00"]]}}')
    later = write("p.sql", PROGRAM)
    again = cli("run", later, "--store", "s", "--changes", changes)
    assert again.lines[0]["plus"] == [[2, 2, "2026-07-01T00:30:00"], [3, 0, "2026-06-30T22:30:00"]]
    refused(cli("run", later, "--store", "s", "--zone", "UTC"), "mismatch", "zone 'Europe/Berlin', not 'UTC'")
    refused(cli("run", later, "--zone", "Europe/Berln"), "unknown_option", "unknown time zone 'Europe/Berln'", "Europe/Berlin")


def test_a_project_in_a_zone(tmp_path: Path) -> None:
    init(tmp_path)
    (tmp_path / "views.sql").write_text(PROGRAM)
    project = tmp_path / "rederive.toml"
    project.write_text('programs = ["views.sql"]\nzone = "Asia/Kolkata"\n')
    with open_project(read_project(tmp_path)) as db:
        db.sql(INSERT)
        assert (db.pipeline.state.program.zone, [row[:2] for row in db.rows("v")]) == ("Asia/Kolkata", [(1, 0)])
    project.write_text('programs = ["views.sql"]\n')
    with open_project(read_project(tmp_path)) as db:
        assert db.pipeline.state.program.zone == "Asia/Kolkata"
    project.write_text('programs = ["views.sql"]\nzone = "UTC"\n')
    with pytest.raises(Mismatch, match="zone 'Asia/Kolkata', not 'UTC'"):
        open_project(read_project(tmp_path))
    project.write_text('programs = ["views.sql"]\nzone = "India"\n')
    with pytest.raises(ProjectError, match=r"zone: error\[project\]: unknown time zone 'India'"):
        read_project(tmp_path)
