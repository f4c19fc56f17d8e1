"""Programs and transactions on which an engine once went wrong, as small as they could be made."""

from __future__ import annotations

import pytest

from tests.properties.programs import Change
from tests.properties.test_maintained_equals_recomputed import RATIO, STRATEGIES, Session

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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, strategy: str) -> None:
    text, changes = FOUND[name]
    session = Session(text, strategy)
    for change in changes:
        session.commit(change)
