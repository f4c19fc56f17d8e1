"""An Airflow DAG: each hour, after the jobs that write the tables, rederive refreshes the views over them.

Copy it into the folder of DAGs, and set REDERIVE_LAKE and REDERIVE_SCHEMA for the workers. The views were defined once, by
`rederive.open(lake=..., schema=...)`, `db.attach` and `CREATE MATERIALIZED VIEW` (docs/in_place.md).

A refresh may be retried at any time: the version and the commits that it follows are written together, so nothing is applied
twice. One run at a time: a lake has one writer.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

REFRESH = 'rederive refresh "$REDERIVE_LAKE" --schema "${REDERIVE_SCHEMA:-mart}"'

with DAG(
    "mart",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    doc_md=__doc__,
):
    # The jobs that write the tables: SparkSubmitOperator, a sensor, or a DAG of another team.
    write = BashOperator(task_id="write", bash_command="${WRITE_TABLES:-true}")
    # The last line of its output, {"version": ..., "commits": ..., "changes": ...}, is the task's XCom.
    refresh = BashOperator(task_id="refresh", bash_command=REFRESH)
    write >> refresh
