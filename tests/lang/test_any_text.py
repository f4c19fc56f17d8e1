"""The parsers take any text: it is a program, or an error of ours. Nothing else is raised."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rederive
from rederive.errors import RederiveError
from rederive.lang import compile_program

EXAMPLES = Path(__file__).parents[2] / "examples"
DATALOG = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.dl"))]
SQL = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.sql"))]
PIECES = """.decl ( ) :- ! , ; . " ' /* // { } _ -1 1e999 é $ ${x} SELECT JOIN ON NULL CAST( OVER( BEGIN; COMMIT; \\ `""".split()
PIECES += ["\x00", "count :", "WITH RECURSIVE", "CREATE RULE r WHEN", "DO CALL"]


def damaged(text: str, seed: int) -> str:
    """A text with pieces cut out, doubled, swapped and put in."""
    random = Random(seed)
    for _ in range(random.randint(1, 6)):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.randint(0, 20))
        piece = random.choice([text[start:end] * 2, "", random.choice(PIECES), text[: random.randint(0, 10)]])
        text = text[:start] + piece + text[end:]
    return text


def check_datalog(text: str) -> None:
    with suppress(RederiveError):
        compile_program(text)


def check_sql(text: str) -> None:
    with suppress(RederiveError):
        rederive.open().sql(text)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(DATALOG), seed=st.integers(0, 2**32))
def test_damaged_datalog(text: str, seed: int) -> None:
    check_datalog(damaged(text, seed))


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(text=st.sampled_from(SQL), seed=st.integers(0, 2**32))
def test_damaged_sql(text: str, seed: int) -> None:
    check_sql(damaged(text, seed))


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(text=st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map(" ".join))
@pytest.mark.parametrize("check", [check_datalog, check_sql])
def test_any_text(check: object, text: str) -> None:
    assert callable(check)
    check(text)
