"""Random histories of a database: transactions of several statements, definitions that change, and reopening in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tests.sql.grammar import TABLES, Names, condition, number, numbers, query, row, text


@dataclass(frozen=True)
class Transaction:
    """Statements that change data, together; taken back where `rollback`."""

    statements: tuple[str, ...]
    rollback: bool = False


@dataclass(frozen=True)
class Define:
    """CREATE OR REPLACE VIEW of the view of this number, or of the next one."""

    number: int
    query: str


@dataclass(frozen=True)
class Drop:
    """DROP VIEW of the last view, which no other one reads."""


@dataclass(frozen=True)
class Reopen:
    """Close the store, and open it again."""


Step: TypeAlias = Transaction | Define | Drop | Reopen


def literal(value: int | str | None) -> str:
    return "NULL" if value is None else repr(value)


def filled(table: str, one: str, two: str, three: str) -> str:
    """The values of a row, with none where the table allows no NULL."""
    return f"{f'coalesce({one}, 7)' if table == 't' else one}, {f'coalesce({two}, 0)' if table == 'w' else two}, {three}"


def statement(draw: Any) -> str:
    table = draw(st.sampled_from(list(TABLES)))
    taken = iter(range(1000))
    names = Names((table,), draw(st.sampled_from([0, 0, 1])), lambda: f"q{next(taken)}")
    match draw(st.sampled_from(["values", "values", "query", "update", "key", "delete"])):
        case "values":
            rows = draw(st.lists(row(table), min_size=1, max_size=3))
            listed = ", ".join("(" + ", ".join(map(literal, one)) + ")" for one in rows)
            return f"INSERT INTO {table} VALUES {listed}"
        case "query":
            other = draw(st.sampled_from(list(TABLES)))
            inside = Names(("o",), 0, names.fresh)
            values = filled(table, number(draw, inside, 1), number(draw, inside, 1), text(draw, inside))
            return f"INSERT INTO {table} SELECT DISTINCT {values} FROM {other} AS o WHERE {condition(draw, inside, 1)}"
        case "update":
            value = number(draw, names, 1)
            value = f"coalesce({value}, 0)" if table == "w" else value
            return f"UPDATE {table} SET y = {value}, s = {text(draw, names)} WHERE {condition(draw, names, 1)}"
        case "key":
            return f"UPDATE {table} SET x = x + {draw(numbers)} WHERE {condition(draw, names, 0)}"
        case _:
            return f"DELETE FROM {table} WHERE {condition(draw, names, 1)}"


@st.composite
def transaction(draw: Any) -> Transaction:
    statements = tuple(statement(draw) for _ in range(draw(st.sampled_from([1, 1, 2, 3]))))
    return Transaction(statements, draw(st.sampled_from([False, False, False, True])))


@st.composite
def unequal(draw: Any, sources: tuple[str, ...]) -> str:
    """Outer joins by an inequality, of columns that may be NULL on either side; grouped or not."""
    kind = draw(st.sampled_from(["LEFT", "RIGHT", "FULL"]))
    one, two = draw(st.sampled_from(sources)), draw(st.sampled_from(sources))
    names = Names(("l", "r"), 0, lambda: "q")
    left, right = draw(st.sampled_from(["l.x", "l.y"])), draw(st.sampled_from(["r.x", "r.y"]))
    on = f"{left} {draw(st.sampled_from(['<', '<=', '>', '<>']))} {right}"
    on += draw(st.sampled_from(["", " AND l.s = r.s", f" AND {condition(draw, names, 0)}"]))
    where = draw(st.sampled_from(["", "", f" WHERE {condition(draw, names, 1)}"]))
    clause = f"FROM {one} AS l {kind} JOIN {two} AS r ON {on}{where}"
    key = draw(st.sampled_from(["l.x", "r.y", "l.y"]))
    grouped = f"SELECT {key} AS x, CAST(count(r.x) AS INT) AS y, max(l.s) AS s {clause} GROUP BY {key}"
    plain = f"SELECT {number(draw, names, 1)} AS x, {key} AS y, {text(draw, names)} AS s {clause}"
    return str(draw(st.sampled_from([grouped, plain, plain.replace("SELECT", "SELECT DISTINCT", 1)])))


def defined(draw: Any, count: int) -> str:
    """The query of the view of this number: over the tables, and the views before it."""
    below = tuple(f"v{i}" for i in range(count))
    taken = iter(range(10_000))
    # one level of queries: deeper ones are those of test_differential, and cost more than a transaction does
    names = Names((), draw(st.sampled_from([0, 1])), lambda: f"q{next(taken)}")
    return str(draw(unequal((*TABLES, *below)))) if draw(st.integers(0, 2)) == 0 else query(draw, names, below)


@st.composite
def history(draw: Any) -> list[Step]:
    """It begins with a view."""
    count = 1
    steps: list[Step] = [Define(0, defined(draw, 0))]
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["transaction"] * 6 + ["replace", "create", "drop", "reopen"]))
        if kind == "replace":
            changed = draw(st.integers(0, count - 1))
            steps.append(Define(changed, defined(draw, changed)))
        elif kind == "create" and count < 3:
            steps.append(Define(count, defined(draw, count)))
            count += 1
        elif kind == "drop" and count > 1:
            steps.append(Drop())
            count -= 1
        elif kind == "reopen":
            steps.append(Reopen())
        else:
            steps.append(draw(transaction()))
    return steps
