"""JSON texts as Spark reads them: single quotes are quotes, and a number is its text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_NOT_FINITE: Final = re.compile(r"NaN|Infinity|[+-]INF|[+-]Infinity")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DEEPEST: Final = 200  # levels of a JSON text


class JsonKind(Enum):
    """What a JSON value is."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FRACTION = "fraction"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value of a JSON text: a string, a bool, the text of a number, the values of an array, or the pairs of an object."""

    kind: JsonKind
    value: Any


def read_json(text: str, *, not_finite: bool = False) -> JsonValue:
    """The first value of a JSON text; ValueError if there is none. `not_finite`: whether NaN and Infinity are numbers.

    >>> read_json("{'a': [1, 2.50]}").value[0][1].value[1].value
    '2.50'
    """
    return _Reader(text, not_finite).value(_skip(text, 0), 0)[0]


def no_constant(word: str) -> float:
    """Refuse NaN and Infinity, which `json` reads by default."""
    raise ValueError(f"{word} is not JSON")


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


class _Reader:
    def __init__(self, text: str, not_finite: bool) -> None:
        self.text = text
        self.not_finite = not_finite

    def value(self, place: int, level: int) -> tuple[JsonValue, int]:
        if level > _DEEPEST or place >= len(self.text):
            raise ValueError("not JSON")
        match self.text[place]:
            case "{":
                return self.items(place, level, "}", JsonKind.OBJECT)
            case "[":
                return self.items(place, level, "]", JsonKind.ARRAY)
            case '"' | "'":
                found, end = self.string(place)
                return JsonValue(JsonKind.STRING, found), end
        for name, value in _WORDS.items():
            if self.text.startswith(name, place):
                kind = JsonKind.NULL if value is None else JsonKind.BOOLEAN
                return JsonValue(kind, value), place + len(name)
        if self.not_finite and (word := _NOT_FINITE.match(self.text, place)) is not None:
            return JsonValue(JsonKind.FRACTION, word[0]), word.end()
        if (number := _NUMBER.match(self.text, place)) is None:
            raise ValueError("not JSON")
        is_fraction = number[1] is not None or number[2] is not None
        return JsonValue(JsonKind.FRACTION if is_fraction else JsonKind.INTEGER, number[0]), number.end()

    def items(self, start: int, level: int, close: str, kind: JsonKind) -> tuple[JsonValue, int]:
        found: list[Any] = []
        place = _skip(self.text, start + 1)
        while not self.text.startswith(close, place) or found:
            name = ""
            if kind is JsonKind.OBJECT:
                name, place = self.string(place)
                place = self.expect(":", _skip(self.text, place))
            one, place = self.value(place, level + 1)
            found.append((name, one) if kind is JsonKind.OBJECT else one)
            place = _skip(self.text, place)
            if self.text.startswith(close, place):
                break
            place = self.expect(",", place)
        return JsonValue(kind, tuple(found)), place + 1

    def expect(self, character: str, place: int) -> int:
        if not self.text.startswith(character, place):
            raise ValueError("not JSON")
        return _skip(self.text, place + 1)

    def string(self, place: int) -> tuple[str, int]:
        found = _STRING.match(self.text, place)
        if found is None:
            raise ValueError("not JSON")
        if found[1] is not None:
            return json.loads(found[0], strict=False), found.end()
        inside = found[2].replace("\\'", "'").replace('"', '\\"')
        return json.loads(f'"{inside}"', strict=False), found.end()
