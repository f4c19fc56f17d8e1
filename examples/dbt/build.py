"""dbt with rederive: models with `materialized='rederive'` are maintained by rederive, all others are built by dbt.

    python build.py LAKE

Both work in one Spark session: dbt's method `session` takes the one that runs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import rederive
from rederive import Database
from rederive.lake.session import spark_session

PROJECT = Path(__file__).parent


def run_dbt(command: str, target: str) -> None:
    """Run a command of dbt in this process; what fails is printed by dbt."""
    from dbt.cli.main import dbtRunner

    places = ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT), "--target-path", target, "--log-path", target]
    if not dbtRunner().invoke([command, *places]).success:
        sys.exit(f"dbt {command} failed")


def maintained(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The models that rederive maintains, each after those that it refers to."""
    models = {id: node for id, node in manifest["nodes"].items() if node["config"]["materialized"] == "rederive"}
    ordered: dict[str, dict[str, Any]] = {}

    def add(id: str) -> None:
        for other in models[id]["depends_on"]["nodes"]:
            if other in models:
                add(other)
        ordered.setdefault(id, models[id])

    for id in models:
        add(id)
    return list(ordered.values())


def follow(db: Database, manifest: dict[str, Any]) -> None:
    """Attach the sources, define the models, and refresh them."""
    tables = {**manifest["sources"], **manifest["nodes"]}
    for model in maintained(manifest):
        query = model["compiled_code"]
        for id in model["depends_on"]["nodes"]:
            table = tables[id]
            if id in manifest["sources"]:
                db.attach(table["name"], table["relation_name"], key=table["meta"].get("key", ()))
            # dbt writes schema.name; a database of rederive has names without a schema.
            query = re.sub(rf"(?<![\w.`]){re.escape(table['relation_name'])}(?![\w.`])", table["name"], query)
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW {model['name']} AS {query}")
    db.refresh()
    db.settle()


def main(lake: str) -> None:
    """Compile, refresh, build."""
    target = f"{lake}_dbt"
    spark = spark_session()
    run_dbt("compile", target)
    manifest = json.loads(Path(target, "manifest.json").read_text(encoding="utf-8"))
    with rederive.open(lake=lake, schema="mart", spark=spark) as db:
        follow(db, manifest)
        print(f"rederive: version {db.version} follows {db.tables.versions}")
    run_dbt("build", target)


if __name__ == "__main__":
    main(sys.argv[1])
