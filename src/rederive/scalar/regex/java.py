"""Regular expressions of RLIKE: those of `java.util.regex`, which Spark calls, for Python.

What Java and Python read alike is passed on, what they write differently is translated, and everything else is refused. Classes
such as \\d and \\p{Alpha} are those of ASCII; a character is a code point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import regex

from rederive.scalar.regex.ecmascript import POSIX, Translation, compile_checked

# Java's line terminators: `.` matches none of them, and `$` also matches before the last one.
_ENDINGS: Final = "\\n\\r\\x85\\u2028\\u2029"
_END: Final = "(?:\\Z|(?=\\r\\n\\Z)|(?=[\\r\\x85\\u2028\\u2029]\\Z)|(?<!\\r)(?=\\n\\Z))"  # also before the last line's ending
_ANCHORS: Final = {"\\A": "\\A", "\\z": "\\Z", "\\Z": _END, "\\b": "\\b", "\\B": "(?!\\b)"}
_BOUNDARIES: Final = ("\\b", "\\B")
_CONTROLS: Final = {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CLASS: Final = re.compile(r"[pP]\{(\w+)\}", re.ASCII)
_NAMED_GROUP: Final = re.compile(r"\(\?<[a-zA-Z][a-zA-Z0-9]*>")
_CLASSES: Final = {
    name: POSIX[name.lower()]
    for name in ("Alnum", "Alpha", "Blank", "Cntrl", "Digit", "Graph", "Lower", "Print", "Punct", "Space", "Upper", "XDigit")
} | {"ASCII": "\\x00-\\x7f"}


@dataclass(frozen=True, slots=True)
class JavaPattern:
    """A compiled pattern. `has_boundary`: it contains \\b, which Java 17 and 21 read differently next to letters beyond ASCII."""

    compiled: regex.Pattern[str]
    has_boundary: bool


@lru_cache(maxsize=1024)
def java_pattern(pattern: str) -> JavaPattern:
    """The pattern compiled for Python; ValueError if it is not a pattern, or not supported.

    >>> [bool(java_pattern(p).compiled.search(t)) for p, t in ((r"\\d$", "x7\\r\\n"), (r"^\\w", "é"), ("(?i)B", "abc"))]
    [True, False, True]
    >>> java_pattern("[a[b]]")
    Traceback (most recent call last):
    ...
    ValueError: at 3: '[' inside of a set is not supported
    """
    # Java's (?i) ignores the case of ASCII letters alone, as the flag ASCII does here.
    ignores_case = pattern.startswith("(?i)")
    translation = _JavaTranslation(pattern)
    translation.place = 4 if ignores_case else 0
    found = compile_checked(translation.text(), ignores_case=ignores_case)
    return JavaPattern(found, translation.has_boundary)


class _JavaTranslation(Translation):
    signs: ClassVar = {".": f"[^{_ENDINGS}]", "^": "\\A", "$": _END}
    groups: ClassVar = ("(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!")
    assertions: ClassVar = ("(?=", "(?!", "(?<=", "(?<!")
    has_boundary: bool = False

    def _group(self) -> str:
        """A named group is a group with a number: what could refer to it by its name is refused."""
        if named := _NAMED_GROUP.match(self.pattern, self.place):
            if len(re.findall(re.escape(named[0]), self.pattern)) > 1:
                raise self._refused(f"two groups are called '{named[0][3:-1]}'")
            self._take(len(named[0]))
            self.open.append("(")
            return "("
        return super()._group()

    def _sign(self) -> str:
        found = self._take()
        return self.signs[found] if found == "." else self._asserted(self.signs[found])

    def _quantifier(self) -> str:
        if any(opened.startswith("(?<") for opened in self.open):
            raise self._refused("a quantifier in a look-behind is not supported")
        return super()._quantifier()

    def _suffix(self) -> str:
        return self._take() if self._ahead() in ("?", "+") else ""

    def _escape(self) -> str:
        if (anchor := self._ahead(2)) in _ANCHORS:
            self.has_boundary |= anchor in _BOUNDARIES
            self._take(2)
            return self._asserted(_ANCHORS[anchor])
        # Whether \11 is group 11, or group 1 and the digit 1, depends
        # in Java on the number of groups. \0 begins an octal number.
        if self._ahead(2)[1:].isdigit() and (self._ahead(3)[2:].isdigit() or self._ahead(2) == "\\0"):
            raise self._refused(f"'{self._ahead(3)}' is not supported")
        if named := _CLASS.match(self.pattern, self.place + 1):
            return self._named(named)
        return super()._escape()

    def _escaped(self) -> str:
        letter = self._ahead(2)[1:]
        if letter in _CONTROLS:
            self._take(2)
            return _CONTROLS[letter]
        if letter in ("v", "0"):
            raise self._refused(f"'\\{letter}' is not supported")
        found = super()._escaped()
        if "\ud800" <= found <= "\udfff":
            raise self._refused("half of a surrogate pair is not supported")
        return found

    def _named(self, named: re.Match[str]) -> str:
        if named[1] not in _CLASSES:
            raise self._refused(f"'\\{named[0]}' is not supported; known classes are {', '.join(sorted(_CLASSES))}")
        self._take(1 + len(named[0]))
        return f"[{'^' if named[0][0] == 'P' else ''}{_CLASSES[named[1]]}]"

    def _one(self) -> str:
        if self._ahead() == "[":
            raise self._refused("'[' inside of a set is not supported")
        if self._ahead(2) in ("&&", "\\b"):
            raise self._refused(f"'{self._ahead(2)}' inside of a set is not supported")
        if named := _CLASS.match(self.pattern, self.place + 1) if self._ahead() == "\\" else None:
            found = self._named(named)
            if found.startswith("[^"):
                raise self._refused(f"'\\{named[0]}' inside of a set is not supported")
            return found[1:-1]
        return super()._one()
