"""Regular expressions of `match`: ECMAScript with POSIX classes, as `std::regex` and so Soufflé read them, for Python.

What both read alike is passed on, what they write differently is translated, and what only one of them has is refused.
Classes such as \\d and [:alpha:] are those of ASCII; a character is a code point.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar, Final

import regex

POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "d": "0-9",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "s": " \\t-\\r",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "w": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CLASSES: Final = frozenset("dDwWsS")
_CONTROLS: Final = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_COUNT: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_HEXADECIMAL: Final = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}")
_REFERENCE: Final = re.compile(r"[1-9][0-9]*")
_BOUNDARIES: Final = {"\\b": "\\b", "\\B": "(?!\\b)"}  # Python's own \B is not in the empty text
_QUANTIFIERS: Final = ("*", "+", "?", "{")


@lru_cache(maxsize=1024)
def compile_ecmascript(pattern: str) -> regex.Pattern[str]:
    """The pattern compiled for Python; ValueError if it is not a pattern, or not supported.

    >>> bool(compile_ecmascript("[[:digit:]]+(a|b)?").fullmatch("123b")), bool(compile_ecmascript(r"\\\\w$").fullmatch("é"))
    (True, False)
    >>> compile_ecmascript("(?i)a")
    Traceback (most recent call last):
    ...
    ValueError: at 1: '(?i' is not supported
    """
    return compile_checked(Translation(pattern).text())


def compile_checked(translated: str, *, ignores_case: bool = False) -> regex.Pattern[str]:
    """A pattern that both `re` and `regex` read, compiled for `regex`, whose searches have a time limit and release the lock."""
    try:
        # VERSION0 is the syntax of `re`, without the set operations
        # of `regex`. What only one of both modules reads is refused.
        re.compile(translated, re.ASCII | (re.IGNORECASE if ignores_case else 0))
        return regex.compile(translated, regex.VERSION0 | regex.ASCII | (regex.IGNORECASE if ignores_case else 0))
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


class Translation:
    """Translates one pattern, from left to right. A subclass says which signs and groups its dialect has."""

    # Python's `$` also matches before a last line feed, and ECMAScript's does not: \Z is the end alone.
    signs: ClassVar = {".": "[^\\n\\r]", "^": "\\A", "$": "\\Z"}
    groups: ClassVar[tuple[str, ...]] = ("(?:", "(?=", "(?!")
    assertions: ClassVar[tuple[str, ...]] = ("(?=", "(?!")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.open: list[str] = []

    def text(self) -> str:
        """The pattern as Python writes it."""
        parts: list[str] = []
        while self.place < len(self.pattern):
            parts.append(self._part())
        return "".join(parts)

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"at {self.place + 1}: {what}")

    def _ahead(self, length: int = 1) -> str:
        return self.pattern[self.place : self.place + length]

    def _take(self, length: int = 1) -> str:
        found = self._ahead(length)
        self.place += length
        return found

    def _part(self) -> str:
        match self._ahead():
            case "\\":
                return self._escape()
            case "[":
                return self._set()
            case "(":
                return self._group()
            case quantifier if quantifier in _QUANTIFIERS:
                return self._quantifier()
            case "." | "^" | "$":
                return self._sign()
            case "|":
                return self._take()
            case ")":
                return self._close()
            case _:
                return re.escape(self._take())

    def _group(self) -> str:
        opened = next((group for group in self.groups if self.pattern.startswith(group, self.place)), "(")
        if self._ahead(2) == "(?" and opened == "(":
            raise self._refused(f"'{self._ahead(3)}' is not supported")
        self.open.append(self._take(len(opened)))
        return opened

    def _sign(self) -> str:
        return self.signs[self._take()]

    def _close(self) -> str:
        if not self.open:
            raise self._refused("')' closes nothing")
        found = self._take()
        return self._asserted(found) if self.open.pop() in self.assertions else found

    def _asserted(self, found: str) -> str:
        """Refuse a quantifier after an assertion, which matches no text."""
        if self._ahead() in _QUANTIFIERS:
            raise self._refused("an assertion is repeated")
        return found

    def _quantifier(self) -> str:
        if self._ahead() == "{":
            counted = _COUNT.match(self.pattern, self.place)
            if counted is None:
                raise self._refused("'{' does not start a count such as {2,3}")
            found = self._take(len(counted[0]))
        else:
            found = self._take()
        found += self._suffix()
        if self._ahead() in _QUANTIFIERS:
            raise self._refused("a quantifier is repeated")
        return found

    def _suffix(self) -> str:
        """The sign that makes a quantifier lazy, if there is one."""
        return self._take() if self._ahead() == "?" else ""

    def _escape(self) -> str:
        """Translate an escape outside of a set."""
        if number := _REFERENCE.match(self.pattern, self.place + 1):
            self._take(1 + len(number[0]))
            # In a group of its own, so that a digit after it does not become a part of the number.
            return f"(?:\\{number[0]})"
        if self._ahead(2) in _BOUNDARIES:
            return self._asserted(_BOUNDARIES[self._take(2)])
        found = self._escaped()
        return found if len(found) == 2 and found[1] in _CLASSES else re.escape(found)

    def _escaped(self) -> str:
        """The character that an escape means, or the escape itself if it is a class."""
        self._take()
        letter = self._ahead()
        if hexadecimal := _HEXADECIMAL.match(self.pattern, self.place):
            self._take(len(hexadecimal[0]))
            return chr(int(hexadecimal[0][1:], 16))
        if letter in _CLASSES and letter:
            return "\\" + self._take()
        if letter in _CONTROLS and not (letter == "0" and self._ahead(2)[1:].isdigit()):
            return _CONTROLS[self._take()]
        if not letter or letter.isalnum():
            raise self._refused(f"'\\{letter}' is not supported")
        return self._take()

    def _set(self) -> str:
        """Translate `[...]` member by member, so that nothing in it has a meaning that only Python knows."""
        start = self._take()
        if self._ahead() == "^":
            start += self._take()
        if self._ahead() == "]":
            raise self._refused("the set is empty")
        parts = []
        while self._ahead() != "]":
            parts.append(self._member())
        self._take()
        return f"{start}{''.join(parts)}]"

    def _member(self) -> str:
        """Translate a class, a character or a range of characters."""
        first = self._one()
        if self._ahead() != "-" or self._ahead(2)[1:] in ("]", ""):
            return first if len(first) > 1 else _literal(first)
        self._take()
        last = self._one()
        if len(first) > 1 or len(last) > 1:
            raise self._refused("a class cannot be the end of a range")
        return f"{_literal(first)}-{_literal(last)}"

    def _one(self) -> str:
        """One character, or a class as Python writes it in a set."""
        match self._ahead(2):
            case "":
                raise self._refused("a set is not closed")
            case "[:":
                return self._posix()
            case "[." | "[=" as opened:
                raise self._refused(f"'{opened}' is not supported")
            case "\\b":
                self._take(2)
                return "\b"
            case escape if escape[0] == "\\":
                return self._escaped()
            case _:
                return self._take()

    def _posix(self) -> str:
        name, closed, _ = self.pattern[self.place + 2 :].partition(":]")
        if not closed or name not in POSIX:
            raise self._refused(f"'[:{name if closed else ''}' is not a class; the classes are {', '.join(sorted(POSIX))}")
        self._take(len(name) + 4)
        return POSIX[name]


def _literal(character: str) -> str:
    return character if character.isalnum() else f"\\x{ord(character):02x}" if ord(character) < 128 else character
