"""now() in WHERE is an input that advances; window() groups by intervals; differences of times are intervals."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

import rederive
from rederive.errors import UnknownTime, Unsupported
from rederive.maintain.program import Strategy

START = datetime(2026, 1, 1)
TABLE = "CREATE TABLE e (k INT PRIMARY KEY, at TIMESTAMP, v INT)"
VIEWS = """
CREATE VIEW recent AS SELECT k FROM e WHERE at > now() - INTERVAL 1 HOUR AND at <= now();
CREATE VIEW due AS SELECT count(*) AS n, sum(v) AS s FROM e WHERE at < current_timestamp() + INTERVAL 30 MINUTES;
CREATE VIEW today AS SELECT k, v FROM e WHERE date(at) = current_date;
"""


def expected(rows: dict[int, tuple[datetime, int]], now: datetime) -> dict[str, list[tuple[object, ...]]]:
    soon = [v for at, v in rows.values() if at < now + timedelta(minutes=30)]
    return {
        "recent": [(k,) for k, (at, _) in sorted(rows.items()) if now - timedelta(hours=1) < at <= now],
        "due": [(len(soon), sum(soon) if soon else None)],
        "today": [(k, v) for k, (at, v) in sorted(rows.items()) if at.date() == now.date()],
    }


@pytest.mark.parametrize("strategy", [Strategy.MATERIALIZED, Strategy.ON_DEMAND, Strategy.RECOMPUTE], ids=lambda s: s.value)
def test_rows_enter_and_leave_when_the_time_passes_them(strategy: Strategy) -> None:
    """Random inserts, deletes and advances: the views are the rows that a filter written in Python keeps."""
    chosen = random.Random(strategy.value)
    db = rederive.open(strategy=strategy.value)
    db.sql(f"{TABLE}; {VIEWS}")
    rows: dict[int, tuple[datetime, int]] = {}
    seen: dict[str, set[tuple[object, ...]]] = {view: set(db.rows(view)) for view in ("recent", "due", "today")}
    now = START
    for step in range(40):
        if chosen.random() < 0.4:
            now += timedelta(minutes=chosen.choice([1, 10, 30, 61, 1500]))
            result = db.advance(now)
        else:
            k = chosen.randrange(12)
            with db.transaction() as tx:
                if k in rows:
                    tx.delete("e", [(k, *rows.pop(k))])
                else:
                    rows[k] = (now + timedelta(minutes=chosen.randrange(-120, 120, 10)), step)
                    tx.insert("e", [(k, *rows[k])])
            result = tx.result
        for view, change in result.changes.items():
            seen[view] = (seen[view] - set(change.minus)) | set(change.plus)
        if db.rows("rederive_clock"):
            wanted = expected(rows, now)
            assert {view: db.rows(view) for view in wanted} == wanted
            assert seen == {view: set(found) for view, found in wanted.items()}


def test_the_time_is_stored(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLE}; {VIEWS}; INSERT INTO e VALUES (1, '2026-01-01 10:00:00', 5)")
        assert db.rows("recent") == []
        db.advance(datetime(2026, 1, 1, 11, 30, tzinfo=timezone(timedelta(hours=1))))
        assert db.rows("recent") == [(1,)]
    with rederive.open(tmp_path) as db:
        assert (db.rows("recent"), db.rows("rederive_clock")) == ([(1,)], [(datetime(2026, 1, 1, 10, 30),)])
        assert db.advance(datetime(2026, 1, 1, 11, tzinfo=UTC)).changes["recent"].minus == [(1,)]
        with pytest.raises(UnknownTime, match="does not go back"):
            db.advance(START)


def test_the_date_is_that_of_the_zone() -> None:
    db = rederive.open(zone="Europe/Berlin")
    db.sql("CREATE TABLE d (day DATE PRIMARY KEY); CREATE VIEW v AS SELECT day FROM d WHERE day = current_date()")
    db.load("d", [(date(2026, 7, 1),), (date(2026, 7, 2),)])
    db.advance(datetime(2026, 7, 1, 21, 30))
    assert db.rows("v") == [(date(2026, 7, 1),)]
    db.advance(datetime(2026, 7, 1, 22, 0))
    assert db.rows("v") == [(date(2026, 7, 2),)]


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("CREATE VIEW v AS SELECT now() AS x FROM e", "now\\(\\) - INTERVAL 1 HOUR"),
        ("CREATE VIEW v AS SELECT k FROM e GROUP BY k HAVING max(at) < current_timestamp", "now\\(\\) - INTERVAL 1 HOUR"),
        ("CREATE VIEW v AS SELECT unix_timestamp() AS x", "now\\(\\) - INTERVAL 1 HOUR"),
        ("DELETE FROM e WHERE at < now()", "TIMESTAMP '2024-01-31 12:00:00'"),
    ],
)
def test_the_time_elsewhere_is_refused_with_a_hint(statement: str, hint: str) -> None:
    db = rederive.open()
    db.sql(TABLE)
    with pytest.raises(Unsupported, match=hint):
        db.sql(statement)


def test_a_time_that_nobody_set_is_refused() -> None:
    db = rederive.open()
    with pytest.raises(UnknownTime, match="no view reads the time"):
        db.advance(START)
    db.sql(TABLE)
    with pytest.raises(UnknownTime):
        db.query("SELECT k FROM e WHERE at < now()")


def test_an_advance_touches_the_rows_that_it_lets_in_or_out() -> None:
    """5,000 rows, one each minute: the tuples that an advance touches do not follow their number."""
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW recent AS SELECT k FROM e WHERE at > now() - INTERVAL 1 HOUR AND at <= now()")
    db.load("e", [(k, START + timedelta(minutes=k), k) for k in range(5000)])
    db.advance(START + timedelta(hours=2))
    db.advance(START + timedelta(hours=2, minutes=1))
    result = db.advance(START + timedelta(hours=2, minutes=3))
    assert (result.changes["recent"].plus, result.changes["recent"].minus) == ([(122,), (123,)], [(62,), (63,)])
    assert result.touched < 1000


def test_a_filter_that_cannot_be_indexed_reads_the_clock() -> None:
    """A mixed comparison, one with a column of an outer query, and a NULL."""
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW late AS SELECT k FROM e WHERE datediff(now(), at) > v AND (k = 1 OR at < now())")
    db.sql("INSERT INTO e VALUES (1, '2026-01-01 00:00:00', 1), (2, NULL, 0), (3, '2026-01-09 00:00:00', 1)")
    db.advance(datetime(2026, 1, 5))
    assert db.rows("late") == [(1,)]
    db.advance(datetime(2026, 1, 12))
    assert db.rows("late") == [(1,), (3,)]


def test_windows_of_time() -> None:
    """The rows are those that Spark gives."""
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW w AS SELECT window.start, window.end, count(*) AS n FROM e GROUP BY window(at, '30 minutes')")
    db.sql("INSERT INTO e VALUES (1, '2026-01-01 10:00:00', 1), (2, '2026-01-01 10:40:00', 2), (3, NULL, 3)")
    first = datetime(2026, 1, 1, 10)
    half = timedelta(minutes=30)
    assert db.rows("w") == [(first, first + half, 1), (first + half, first + 2 * half, 1)]
    assert db.query("SELECT window(at, '1 hour', '1 hour', '15 minutes').start AS s, sum(v) AS n FROM e "
                    "GROUP BY window(at, '1 hour', '1 hour', '15 minutes')") == [
        (datetime(2026, 1, 1, 9, 15), 1), (datetime(2026, 1, 1, 10, 15), 2)]  # fmt: skip
    for refused in ("window(at, '1 hour', '2 hours')", "window(at, '1 month')", "window(at, at)"):
        with pytest.raises(Unsupported):
            db.query(f"SELECT count(*) FROM e GROUP BY {refused}")


def test_differences_of_times() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a TIMESTAMP, b TIMESTAMP, d DATE)")
    db.sql("INSERT INTO t VALUES (1, '2026-01-01 10:40:00', '2026-01-03 09:00:00', '2025-12-25'), (2, NULL, NULL, NULL)")
    assert db.query("SELECT k FROM t WHERE b - a > INTERVAL 1 DAY 22 HOURS") == [(1,)]
    assert db.query("SELECT k FROM t WHERE b - a > INTERVAL '1 22:20:00' DAY TO SECOND") == []
    parts = ", ".join(f"extract({part} FROM b - a) AS {part}" for part in ("DAY", "HOUR", "MINUTE"))
    assert db.query(f"SELECT {parts}, extract(DAY FROM d - DATE '2026-01-01') AS x, a + (b - a) = b AS y FROM t") == [
        (None,) * 5, (1, 22, 20, -7, True)]  # fmt: skip
    assert db.query("SELECT b - a AS x FROM t") == [(None,), (timedelta(days=1, hours=22, minutes=20),)]


def sessions(rows: list[tuple[int, str, datetime | None]], gap: timedelta) -> list[tuple[str, datetime, datetime, int]]:
    """The sessions of each user, one time after the other."""
    found: list[tuple[str, datetime, datetime, int]] = []
    for user in sorted({user for _, user, _ in rows}):
        for at in sorted(at for _, other, at in rows if other == user and at is not None):
            last = found[-1] if found and found[-1][0] == user else None
            if last is not None and at <= last[2]:
                found[-1] = (user, last[1], at + gap, last[3] + 1)
            else:
                found.append((user, at, at + gap, 1))
    return found


@pytest.mark.parametrize("strategy", [Strategy.MATERIALIZED, Strategy.RECOMPUTE], ids=lambda s: s.value)
def test_sessions_join_and_part_as_rows_come_and_go(strategy: Strategy) -> None:
    chosen = random.Random(3)
    db = rederive.open(strategy=strategy.value)
    db.sql("CREATE TABLE e (k INT PRIMARY KEY, u STRING NOT NULL, ts TIMESTAMP)")
    db.sql(
        "CREATE VIEW v AS SELECT u, session_window.start, session_window.end, count(*) AS n "
        "FROM e GROUP BY u, session_window(ts, '10 minutes')"
    )
    rows: dict[int, tuple[int, str, datetime | None]] = {}
    for _ in range(10):
        with db.transaction() as tx:
            for k in chosen.sample(range(8), 3):
                if k in rows:
                    tx.delete("e", [rows.pop(k)])
                else:
                    at = datetime(2026, 1, 1, 10) + timedelta(minutes=5 * chosen.randrange(12))
                    rows[k] = (k, chosen.choice("ab"), at if chosen.random() < 0.9 else None)
                    tx.insert("e", [rows[k]])
        assert db.rows("v") == sessions(list(rows.values()), timedelta(minutes=10))


def test_a_session_is_a_struct_too() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE e (k INT PRIMARY KEY, ts TIMESTAMP); INSERT INTO e VALUES (1, '2026-01-01 10:00:00')")
    found = db.query("SELECT session_window(ts, '1 hour') AS s, count(*) AS n FROM e GROUP BY session_window(ts, '1 hour')")
    assert found == [((datetime(2026, 1, 1, 10), datetime(2026, 1, 1, 11)), 1)]
    with pytest.raises(Unsupported, match="this use of session_window"):
        db.query("SELECT session_window(ts, '1 hour') FROM e")
    with pytest.raises(Unsupported, match="gap is not positive"):
        db.query("SELECT count(*) AS n FROM e GROUP BY session_window(ts, '0 minutes')")
