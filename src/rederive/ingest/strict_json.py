"""JSON lines, read strictly: text that two JSON readers may understand differently is an error."""

from __future__ import annotations

import json
import math
import re
from typing import TypeAlias

from rederive.errors import MalformedInput

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_STRING = r'"(?:[^"\\]|\\.)*"'
# Strings come first in each pattern, so that words and braces inside of them do not count.
_WORD = re.compile(rf'{_STRING}|(?P<word>[^\s,:"\[\]{{}}]+)')
_KEY_OR_BRACE = re.compile(rf"(?P<key>{_STRING})\s*:|{_STRING}|(?P<brace>[{{}}])")
_HALF_PAIR = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


def parse_line(line: str, name: str, number: int) -> Json:
    """The JSON value of `line`, which is line `number` of the file called `name`.

    Duplicate keys, NaN, Infinity, numbers beyond a double, lone surrogates and anything after the value are errors.

    >>> parse_line('{"insert": {"edge": [["h", "d"]]}}', "changes.jsonl", 1)
    {'insert': {'edge': [['h', 'd']]}}
    >>> parse_line('{"insert": {}, "insert": {}}', "changes.jsonl", 7)
    Traceback (most recent call last):
    rederive.errors.MalformedInput: changes.jsonl:7:16: error[malformed]: the key 'insert' occurs twice in one object
    """
    try:
        value: Json = _DECODER.decode(line)
        # The line was decoded from UTF-8, so a lone surrogate can only come from an escape.
        if found := _HALF_PAIR.search(line):
            _encode(value, found.start() + 1)
    except json.JSONDecodeError as error:
        raise _malformed(f"not JSON: {error.msg}", name, number, error.colno) from None
    except _RefusedWord as error:
        raise _malformed(error.message, name, number, _word_column(line, error.word)) from None
    except _RepeatedKey as error:
        message = f"the key '{error.key}' occurs twice in one object"
        raise _malformed(message, name, number, _repetition_column(line, error.key)) from None
    except _HalfPair as error:
        raise _malformed("half of a surrogate pair is not a character", name, number, error.column) from None
    except RecursionError:
        raise _malformed("nested too deeply", name, number, 1) from None
    except ValueError:  # Python's own limit: reading a number takes time quadratic in its length
        longest = max((match["word"] or "" for match in _WORD.finditer(line)), key=len)
        raise _malformed(f"a number of {len(longest)} digits", name, number, _word_column(line, longest)) from None
    return value


def key_column(line: str, key: str) -> int:
    """The column of `key` in the outermost object of a line of JSON, counted from 1.

    >>> key_column('{"insert": {"edges": []}, "edges": {}}', "edges")
    27
    """
    depth = 0
    for match in _KEY_OR_BRACE.finditer(line):
        if match["brace"]:
            depth += 1 if match["brace"] == "{" else -1
        elif depth == 1 and match["key"] and json.loads(match["key"]) == key:
            return match.start() + 1
    raise KeyError(key)


def _malformed(message: str, name: str, number: int, column: int) -> MalformedInput:
    return MalformedInput(message).at(f"{name}:{number}:{column}")


class _RefusedWord(Exception):
    """A constant or number that Python's decoder accepts. The decoder's hooks do not know the column, which is found later."""

    def __init__(self, word: str, message: str) -> None:
        self.word, self.message = word, message


class _RepeatedKey(Exception):
    """A key that occurs twice in one object."""

    def __init__(self, key: str) -> None:
        self.key = key


class _HalfPair(Exception):
    """A lone surrogate at a column of the line."""

    def __init__(self, column: int) -> None:
        self.column = column


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # JSON leaves open what a repeated key means: Python takes the last value, other readers the first.
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for i, key in enumerate(keys) if key in keys[:i]))
    return found


def _constant(word: str) -> float:
    raise _RefusedWord(word, f"{word} is not JSON")


def _float(word: str) -> float:
    value = float(word)
    if math.isinf(value):
        raise _RefusedWord(word, "a number beyond a 64 bit float")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def _encode(value: Json, column: int) -> None:
    """Raise _HalfPair for strings without a UTF-8 form: nothing could write them later."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _HalfPair(column) from None


def _word_column(line: str, word: str) -> int:
    return next((match.start() + 1 for match in _WORD.finditer(line) if match["word"] == word), 1)


def _repetition_column(line: str, key: str) -> int:
    """The column at which `key` occurs for the second time in one object."""
    seen: list[bool] = []  # for each open object, whether it has had the key
    for match in _KEY_OR_BRACE.finditer(line):
        if match["brace"] == "{":
            seen.append(False)
        elif match["brace"] == "}":
            seen.pop()
        elif match["key"] and json.loads(match["key"]) == key:
            if seen[-1]:
                return match.start() + 1
            seen[-1] = True
    return 1
