"""Matching of texts with patterns in bounded time: a search that takes too long is stopped. Other threads run meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from rederive.limits import seconds_left
from rederive.scalar.failures import ScalarError, TooLong
from rederive.scalar.regex.ecmascript import compile_ecmascript
from rederive.scalar.regex.java import java_pattern

MOST_SECONDS: Final = 30.0  # seconds for one search: more than a usual budget, so that a store with such a row opens again


class TooSlow(TooLong):
    """A search takes longer than its limit."""


def is_match(pattern: str, text: str) -> bool:
    """Whether the whole text matches the pattern: `match` of Soufflé."""
    try:
        found = compile_ecmascript(pattern)
    except ValueError as error:
        raise ScalarError(f"not a regular expression: {pattern!r}: {error}") from None
    return _bounded(found.fullmatch, pattern, text) is not None


def has_match(text: str, pattern: str) -> bool:
    """Whether a part of the text matches the pattern: RLIKE of Spark."""
    return _bounded(_java_search(text, pattern), pattern, text) is not None


def java_matches(text: str, pattern: str) -> Iterator[Any]:
    """The matches of a pattern in a text, from left to right, as Java's `Matcher.find` gives them."""
    search, place = _java_search(text, pattern), 0
    while place <= len(text) and (match := _bounded(search, pattern, text, pos=place)) is not None:
        yield match
        # Java goes on one character after an empty match. Python would first try a longer match at the same place.
        place = match.end() + (match.end() == match.start())


def _java_search(text: str, pattern: str) -> Callable[..., Any]:
    try:
        found = java_pattern(pattern)
    except ValueError as error:
        raise ScalarError(f"not a supported regular expression: {pattern!r}: {error}") from None
    if found.has_boundary and not text.isascii():
        raise ScalarError(f"Java 17 and Java 21 disagree on \\b in a text that is not ASCII: {pattern!r}")
    return found.compiled.search


def _bounded(search: Callable[..., Any], pattern: str, text: str, **options: int) -> Any:
    seconds = min(MOST_SECONDS, seconds_left())
    try:
        return search(text, timeout=seconds, concurrent=True, **options)
    except (TimeoutError, MemoryError):
        raise TooSlow(f"the search for {pattern!r} in {len(text):,} characters was stopped after {seconds:.3g} s") from None


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str = "\\") -> re.Pattern[str]:
    """A pattern of LIKE. Each part between two % matches where it first occurs, so that the search never backtracks."""
    parts = [""]
    characters = iter(pattern)
    for character in characters:
        match character:
            case _ if character == escape:
                escaped = next(characters, "the end")
                if escaped not in ("%", "_", escape):
                    raise ScalarError(f"not a pattern of LIKE: {pattern!r}: an escape character comes before {escaped!r}")
                parts[-1] += re.escape(escaped)
            case "%":
                parts.append("")
            case "_":
                parts[-1] += "."
            case _:
                parts[-1] += re.escape(character)
    first, *middle, last = parts if len(parts) > 1 else (parts[0], "")
    # Law: if a part occurs early, the parts after it have only more room. So
    # its first occurrence is right, and an atomic group need not try another.
    found = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{found}{'.*' if len(parts) > 1 else ''}{last}", re.DOTALL)
