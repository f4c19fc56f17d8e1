"""The thresholds of the Spark engine: one value of this class is passed to everything that decides by size.

The defaults were measured with pyspark 4.2 and 4.3 on two cores (`local[2]`), by `benchmarks/spark.py`; the decisions that are
cited tell what was compared. A threshold of -1 rows switches the way that it guards off.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Tuning:
    """Where rows are processed, and how, by their number.

    Rows have three places: up to `driver_rows` are Python rows in the driver, up to `arrow_rows` are Arrow tables in the driver,
    and more are Spark's (decision 44).
    """

    # Places of rows

    # rows: a query over so many literal rows takes 60 to 80 ms, one that shuffles them 180 ms (decision 12)
    driver_rows: int = 2_000
    # rows: below it, planning a job takes longer than the work itself (decision 44)
    arrow_rows: int = 400_000
    # rows that a rule reads: it is derived from Python rows in the driver sooner than a job starts (decision 67)
    python_rows: int = 5_000
    # rows of an answer: they come with the job that finds them, and all that follows is worked out in the driver (decision 68)
    collected_rows: int = 50_000
    # groups whose totals change: Python adds them sooner than five jobs do, at about 10 us each (decision 68)
    python_totals: int = 20_000
    # rows of a group that are stored behind those that a view shows: so many can leave before the group is read (decision 223)
    first_rows_margin: int = 32
    # times `arrow_rows`: a join that finds more is left to Spark (decision 44)
    arrow_join_factor: int = 4
    # rows that one job sends at most, of all partitions together, on the chance that they are all (decision 229)
    sent_rows: int = 800_000
    # partitions of a user's data frame: more are not collected on the chance that they hold few rows (decision 44)
    collected_partitions: int = 16

    # Joins

    # rows: a smaller side of a join is sent to every executor (SPARK.md: broadcast join 70 to 100 ms)
    broadcast_rows: int = 200_000
    # rows of codes alone, 4 bytes a column: they still fit (decision 43)
    broadcast_code_rows: int = 1_000_000
    # rows of the requests of one transaction (decision 41)
    broadcast_request_rows: int = 1_000_000
    # rows that every executor holds besides its partition of a recursion (SPARK.md, "Recursion on Spark")
    broadcast_recursion_rows: int = 5_000_000
    # rows of one partition: a hash table of so many surely fits an executor's memory (decision 39)
    hashed_rows: int = 4_000_000
    # values that are pushed into a scan of files; `IN` prunes batches up to about 200 values (SPARK.md, "Traps")
    pushed_values: int = 200
    # of the rows that a view reads: where more change, it is evaluated from scratch (decision 68)
    recomputed_fraction: float = 0.5
    # views of one version that run at the same time (decision 68)
    parallel_views: int = 4
    # times: rows are few next to known ones that are so many times as many; then they are sent there (decision 43)
    sparse_factor: int = 8

    # Recursion over codes

    # rows read: for fewer, coding takes longer than it saves (decision 43)
    coded_rows: int = 20_000
    # rows of an Arrow batch that an executor returns from a decomposed recursion
    batch_rows: int = 100_000

    # Files and stored relations

    # rows: Spark reads a Parquet file of more sooner than it takes them from the driver (SPARK.md: 0.5 s against 11 s)
    file_rows: int = 100_000
    # bytes of a row group, which a scan reads or skips as a whole
    file_block_bytes: int = 8 << 20
    # rows of local files of a table in place that this process opens, a row group at a time, to find a change (decision 185)
    local_file_rows: int = 40_000_000
    # rows of them that it holds: about 32 bytes each for four numbers (decision 185)
    local_rows: int = 4_000_000
    # deltas of a stored relation that wait to be summed (decision 41)
    pending_deltas: int = 16
    # rows of waiting deltas of one relation in the driver
    pending_rows: int = 2_000_000
    # of a relation's rows: so many changed ones are worked into its files (decision 41)
    compacted_fraction: float = 0.3
    # rows of a key range for each requested row: a range that holds no more is read whole (decision 41)
    dense_factor: int = 4

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < -1:
                raise ValueError(f"Tuning.{field.name} is {getattr(self, field.name)}; help: give -1 or more")
