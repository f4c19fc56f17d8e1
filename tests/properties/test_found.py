"""Programs and transactions on which an engine once went wrong, as small as they could be made."""

from __future__ import annotations

import pytest

from tests.properties.programs import Change
from tests.properties.test_maintained_equals_recomputed import GENERAL, RATIO, STRATEGIES, Session

TRIPLE = ".decl b(x: symbol, n: number, y: symbol)\n"

FOUND: dict[str, tuple[str, list[list[Change]]]] = {
    "a constant after a column that nobody asks for": (
        TRIPLE + ".decl v(y: symbol)  v(y) :- b(_, 2, y).",
        [[("insert", "b", [("a", 2, "c"), ("b", 2, "c"), ("b", 1, "d")])], [("delete", "b", [("a", 2, "c")])]],
    ),
    "the same under a negation": (
        TRIPLE + ".decl w(y: symbol)  .decl v(y: symbol)  v(y) :- b(_, 2, y), !w(y).",
        [[("insert", "b", [("a", 2, "c"), ("b", 2, "d")]), ("insert", "w", [("c",)])], [("delete", "w", [("c",)])]],
    ),
    "a divisor that leaves as the dividend comes": (
        RATIO,
        [[("insert", "d", [("a", 0)])], [("delete", "d", [("a", 0)]), ("insert", "n", [("a", 1)])]],
    ),
    "a divisor that comes as the dividend leaves": (
        RATIO,
        [[("insert", "n", [("a", 1)])], [("insert", "d", [("a", 0)]), ("delete", "n", [("a", 1)])]],
    ),
    "a change that is narrowed first, and then goes to two rows": (
        ".decl e(x: symbol, y: symbol)  .decl f(x: symbol, y: symbol)  .decl n(x: symbol)  .decl v(x: symbol, y: symbol)\n"
        "v(x, y) :- e(x, z), f(z, y), n(y).",
        [
            [("insert", "e", [("a", "c"), ("b", "c"), ("a", "k")]), ("insert", "n", [("d",), ("e",)])],
            [("insert", "f", [("c", "d"), ("k", "e")])],
            [("delete", "f", [("c", "d"), ("k", "e")])],
        ],
    ),
}

# With recursion.
FOUND_IN_RECURSION: dict[str, tuple[str, list[list[Change]]]] = {
    # Older rows of w were looked up without testing whether w still has them: a row stayed, or the lookup failed.
    "a row that an older row would prove, had it not left before": (
        ".decl b(x: symbol)  .decl v(x: symbol)  .decl w(x: symbol)\n"
        'v(x) :- b(x), x != "b".  v(x) :- w(x), b("a").  w(x) :- b(x).  w(x) :- v(x), b(y).',
        [[("insert", "b", [("a",), ("b",), ("c",)])], [("delete", "b", [("a",)])], [("delete", "b", [("b",)])]],
    ),
    # Whether there is any older row was answered by the view, whatever the age of its rows: a row proved itself.
    "a row that any row of its own view would prove": (
        '.decl b(x: symbol)  .decl v(x: symbol)\nv(x) :- b(x).  v("a") :- v(x).',
        [[("insert", "b", [("a",), ("b",)])], [("delete", "b", [("a",), ("b",)])]],
    ),
    "the same, from a view that is empty by then": (
        '.decl b(x: symbol)  .decl v(x: symbol)  .decl w(x: symbol)\nv(x) :- w(x), b("a").  w(x) :- b(x).  w(x) :- v(x), b(y).',
        [[("insert", "b", [("a",), ("b",), ("c",)])], [("delete", "b", [("a",)])], [("delete", "b", [("b",)])]],
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, strategy: str) -> None:
    play(strategy, *FOUND[name])


@pytest.mark.parametrize("strategy", GENERAL)
@pytest.mark.parametrize("name", FOUND_IN_RECURSION)
def test_found_in_recursion(name: str, strategy: str) -> None:
    play(strategy, *FOUND_IN_RECURSION[name])


def play(strategy: str, text: str, changes: list[list[Change]]) -> None:
    session = Session(text, strategy)
    for change in changes:
        session.commit(change)
