"""RLIKE means what `java.util.regex` of Spark makes of it, or is refused; no pattern stops the process."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

import rederive
from rederive.errors import LimitExceeded, Unsupported
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import has_match, is_match, like_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDLESS = "(a|aa)+$"
DIFFER_IN_PYTHON = [
    ("\\d", "٣", False),
    ("\\w", "é", False),
    ("^\\s$", "\u00a0", False),
    ("a$", "a\r\n", True),
    ("a$", "a\u2028", True),
    ("a\\Z", "a\n", True),
    ("a\\z", "a\n", False),
    ("^.$", "\r", False),
    ("^.$", "\u0085", False),
    ("\\p{Alpha}\\P{Digit}", "ab", True),
    ("[\\p{Upper}1]", "1", True),
    ("\\x41\\u0042\\t\\e", "AB\t\x1b", True),
    ("(?i)k", "\u212a", False),
    ("(?i)ß|É", "é", False),
    ("a++b", "aab", True),
    ("(?<=a)b", "ab", True),
    ("(?<letter>a)b", "ab", True),
    ("[+--]", ",", True),
    ("[a-]", "-", True),
    ("[^a]", "\n", True),
    ("a]}", "a]}", True),
]
REFUSED = [
    "[a[b]]", "[a&&b]", "[[:alpha:]]", "(?s)a", "a(?i)b", "(?<n>a)(?<n>b)", "(?<n>a)\\k<n>",
    "(?P<n>a)", "(?<=a+)b", "\\R", "\\X", "\\h", "\\v", "\\p{L}",
    "\\Qa\\E", "\\G", "\\01", "(a)\\11", "\\cJ", "\\x{41}", "\\ud83d", "[\\b]", "a{", "a{,2}", "*a", "(a", "a)", "a**", "^*",
    "[]a]",
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "expected"), DIFFER_IN_PYTHON)
def test_a_pattern_of_rlike_is_one_of_java(pattern: str, text: str, expected: bool) -> None:
    assert has_match(text, pattern) is expected


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_of_rlike_that_is_refused(pattern: str) -> None:
    with pytest.raises(ScalarError, match="not a supported regular expression"):
        has_match("a", pattern)


def test_a_pattern_is_refused_where_it_is_written() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (s STRING)")
    for condition in (r"s RLIKE '(?P<x>a)'", r"NOT regexp_like(s, '[a[b]]')", r"s RLIKE '*'"):
        with pytest.raises(Unsupported, match="this regular expression: ") as refused:
            db.sql(f"CREATE VIEW v AS SELECT s FROM t WHERE {condition}")
        assert refused.value.span is not None


def test_a_word_boundary_beyond_ascii_depends_on_the_version_of_java() -> None:
    assert has_match("a b", "\\bb")
    with pytest.raises(ScalarError, match="Java 17 and Java 21 disagree"):
        has_match("é b", "\\bb")


ATOMS = "a b c . [ab] [^a] \\w \\d ^ $ \\Z \\z \\A [\\w-] \\s \\S - A é [a-c] \\p{Upper} \\P{Alpha} \\D \\W \\n \\r \\x61".split()
ENDS = ("", "", "", "\n", "\r", "\r\n", "\n\r", "\u0085", "\u2028")


def _random_pattern(random: random.Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice(ATOMS)
    part = _random_pattern(random, depth - 1)
    if kind < 0.6:
        return part + _random_pattern(random, depth - 1)
    if kind < 0.7:
        return f"({part}|{random.choice(('', _random_pattern(random, depth - 1)))})"
    if kind < 0.76:
        return f"({part})\\1"
    if kind < 0.85:
        return random.choice(("(?:", "(?=", "(?!", "(?>")) + part + ")"
    return f"({part})" + random.choice(("*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,2}?", "*+", "++", "?+"))


def test_random_patterns_of_rlike(spark: SparkSession) -> None:
    """Every pair of a pattern and a text that is accepted gives what Spark gives."""
    source = random.Random(20)
    pairs: list[tuple[str, str, bool]] = list(DIFFER_IN_PYTHON)
    while len(pairs) < 3000:
        pattern = source.choice(("", "", "(?i)")) + _random_pattern(source, 4)
        text = "".join(source.choices("aabbcA-é1 \n", k=source.randrange(7))) + source.choice(ENDS)
        try:
            pairs.append((pattern, text, has_match(text, pattern)))
        except ScalarError:
            continue
    frame = spark.createDataFrame(pairs, "pattern STRING, text STRING, found BOOLEAN")
    wrong = frame.where("(text RLIKE pattern) <> found").collect()
    assert wrong == []


def test_an_endless_search_is_stopped_and_other_threads_run() -> None:
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.01):
            ticks.append(time.monotonic())

    db = rederive.open()
    db.sql("CREATE TABLE t (s STRING, p STRING)")
    db.sql("CREATE VIEW v AS SELECT s FROM t WHERE s RLIKE p")
    db.define(".decl u(s: symbol, p: symbol) .decl w(s: symbol) w(s) :- u(s, p), match(p, s).")
    db.pipeline.state.limits = rederive.Limits(seconds=0.2)
    text = "a" * 100 + "b"
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with pytest.raises(LimitExceeded, match="stopped after"):
            db.sql(f"INSERT INTO t VALUES ('{text}', '{ENDLESS}')")
        with pytest.raises(LimitExceeded, match="stopped after"), db.transaction() as tx:
            tx.insert("u", [(text, ENDLESS)])
    finally:
        stop.set()
        thread.join()
    assert len(ticks) > 10
    assert db.rows("t") == []
    db.sql("INSERT INTO t VALUES ('aa', '(a|aa)+$')")
    assert db.rows("v") == [("aa",)]


def test_one_search_has_a_bound_without_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rederive.scalar.regex.matching.MOST_SECONDS", 0.05)
    with pytest.raises(ScalarError, match="characters was stopped after") as refused:
        has_match("a" * 100 + "b", ENDLESS)
    assert refused.value.kind is LimitExceeded
    with pytest.raises(ScalarError, match="characters was stopped after"):
        is_match("(a|aa)+c?", "a" * 100 + "b")


def test_like_does_not_backtrack() -> None:
    before = time.monotonic()
    assert not like_pattern("%a" * 30 + "%b").fullmatch("a" * 3000)
    assert time.monotonic() - before < 1


def test_like_takes_the_first_place_of_each_part() -> None:
    """Against the definition: % stands for any text, _ for one character."""
    source = random.Random(5)
    for _ in range(3000):
        pattern, text = ("".join(source.choices(signs, k=source.randrange(7))) for signs in ("ab%_%", "ab"))
        assert bool(like_pattern(pattern).fullmatch(text)) is _is_like(text, pattern), (pattern, text)


def _is_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(_is_like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and _is_like(text[1:], pattern[1:])
