"""Functions of regular expressions, which are those of Java (`scalar.regex.java`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.regex.matching import java_matches
from rederive.scalar.sql.built_in import BuiltIn


def _replaced(text: str, pattern: str, by: str, start: int = 1) -> str:
    """regexp_replace: `$1` in the replacement is a group, and a backslash escapes."""
    if start < 1:
        raise ScalarError(f"the position {start} is not positive")
    # A start behind the text leaves it as it is.
    if start > len(text) + 1:
        return text
    # As in Spark, the pattern sees only the text from the start on: `^` matches there.
    parts, rest, end = [text[: start - 1]], text[start - 1 :], 0
    for match in java_matches(rest, pattern):
        parts += [rest[end : match.start()], _expanded(by, match)]
        end = match.end()
    parts.append(rest[end:])
    check_length(sum(map(len, parts)))
    return "".join(parts)


def _expanded(by: str, match: Any) -> str:
    found, characters = "", iter(range(len(by)))
    for i in characters:
        if by[i] == "\\" and i + 1 < len(by):
            found += by[next(characters)]
        elif by[i] == "$":
            number = by[i + 1 : i + 2]
            if not number.isdigit() or int(number) > match.re.groups:
                raise ScalarError(f"the replacement {by!r} names a group that the pattern does not have")
            # As in Java, a further digit belongs to the number if there is such a group.
            next(characters)
            while by[i + 1 + len(number) : i + 2 + len(number)].isdigit():
                longer = number + by[i + 1 + len(number)]
                if int(longer) > match.re.groups:
                    break
                number = longer
                next(characters)
            found += match.group(int(number)) or ""
        elif by[i] == "\\":
            raise ScalarError(f"the replacement {by!r} ends with an escape character")
        else:
            found += by[i]
    return found


def _first(text: str, pattern: str) -> Any:
    return next(java_matches(text, pattern), None)


def _extract(text: str, pattern: str, group: int = 1) -> str:
    match = _first(text, pattern)
    if match is None:
        return ""
    if not 0 <= group <= match.re.groups:
        raise ScalarError(f"the pattern {pattern!r} has {match.re.groups} groups, and no group {group}")
    return match.group(group) or ""


def _substr(text: str, pattern: str) -> str | None:
    match = _first(text, pattern)
    return match.group(0) or None if match is not None else None  # an empty match is NULL, too


def _instr(text: str, pattern: str, group: int = 0) -> int:
    match = _first(text, pattern)
    return match.start() + 1 if match is not None else 0


def _count(text: str, pattern: str) -> int:
    matches: Iterator[Any] = java_matches(text, pattern)
    return sum(1 for _ in matches)


PATTERNS: Final = (
    BuiltIn("regexp_replace", "string, string, string, [int] -> string", _replaced, fallible=True),
    BuiltIn("regexp_extract", "string, string, [int] -> string", _extract, fallible=True),
    BuiltIn("regexp_substr", "string, string -> string", _substr, maybe_null=True),
    BuiltIn("regexp_instr", "string, string, [int] -> int", _instr),
    BuiltIn("regexp_count", "string, string -> int", _count),
)
