"""Patterns of `match` mean what `std::regex_match` of C++ makes of them, which Soufflé calls, or are refused.

The table was compared with libstdc++, as were 20,000 random patterns.
"""

from __future__ import annotations

import pytest

import rederive
from rederive.errors import EvaluationError, SyntaxProblem
from rederive.scalar.regex.ecmascript import compile_ecmascript

MATCHES = [
    ("[[:digit:]]+", "123"),
    ("[^[:space:][:punct:]]+", "a1"),
    ("[[:alpha:]_-]+", "a-_b"),
    ("[[:xdigit:]]{2,}", "fF09"),
    ("[[:w:]]+", "a_1"),
    ("a|b", "b"),
    ("(a)\\1", "aa"),
    ("(?:ab)+?", "abab"),
    ("(?=a)\\w", "a"),
    ("(?!b).", "a"),
    ("^a$", "a"),
    ("\\B", ""),
    ("\\x41\\u0042", "AB"),
    ("[\\]-a]", "]"),
    ("a]}", "a]}"),
    ("[a&&b]+", "&b"),
    ("[+--]", ","),
    ("[\\b]", "\b"),
    ("\\/\\-", "/-"),
    ("\\0", "\0"),
    ("[^a]", "\n"),
    ("a{0}", ""),
]
DIFFERS = [
    ("[[:digit:]]+", "12a"),
    ("[[:digit:]]+", "٣"),
    ("\\d", "٣"),
    ("\\w", "é"),
    (".", "\r"),
    (".", "\n"),
    ("a$", "a\n"),
    ("a$\\n", "a\n"),
    ("a", "xa"),
    ("[[:alpha:]]", "1"),
]
REFUSED = [
    "(?i)a", "(?P<x>a)", "(?<=a)b", "(?>a)", "a++", "a{,2}", "a{", "{2}", "*a", "(a", "a)", "[]", "[a", "[[.a.]]", "[[=a=]]",
    "[[:nope:]]", "[[:alpha:]-z]", "[z-a]", "\\A", "\\Z", "\\p", "\\cJ", "\\1", "\\", "\\x4", "(?=a)*", "\\b+", "\\01",
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), MATCHES)
def test_patterns_that_match(pattern: str, text: str) -> None:
    assert compile_ecmascript(pattern).fullmatch(text)


@pytest.mark.parametrize(("pattern", "text"), DIFFERS)
def test_patterns_that_do_not_match(pattern: str, text: str) -> None:
    assert not compile_ecmascript(pattern).fullmatch(text)


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        compile_ecmascript(pattern)


def test_a_pattern_is_checked_where_it_is_written() -> None:
    db = rederive.open()
    db.define(".decl t(p: symbol, s: symbol) .decl v(s: symbol) v(s) :- t(p, s), match(p, s).")
    with pytest.raises(SyntaxProblem, match="not a regular expression: at 1"):
        db.define('.decl w(s: symbol) w(s) :- t(_, s), match("(?i)a", s).')
    with pytest.raises(EvaluationError, match="not a regular expression"), db.transaction() as tx:
        tx.insert("t", [("a{", "a")])
    with db.transaction() as tx:
        tx.insert("t", [("[[:digit:]]+", "123"), ("[[:digit:]]+", "x")])
    assert db.rows("v") == [("123",)]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ('substr("abc", 1, 1)', "b"),
        ('substr("abc", 1, -1)', "bc"),
        ('substr("abc", 1, 99)', "bc"),
        ('substr("abc", 3, 1)', ""),
        ('substr("abc", 4, 1)', ""),
        ('substr("abc", -1, 2)', ""),
        ('substr("abc", 1, 0)', ""),
        ('substr("äöü", 1, 1)', "ö"),
        ('cat("a", "", "b")', "ab"),
        ('to_string(strlen("äö"))', "2"),
        ('to_string(ord("ä"))', "228"),
        ('to_string(to_number("-7"))', "-7"),
    ],
)
def test_functors_of_text(call: str, value: str) -> None:
    db = rederive.open()
    db.define(f".decl one(x: number) .decl v(s: symbol) one(1). v({call}) :- one(_).")
    assert db.rows("v") == [(value,)]
