r"""Records of CSV as Spark reads and writes them: a backslash escapes a quote, and a doubled quote is not one of them."""

from __future__ import annotations

import re
from typing import Final

from rederive.scalar.failures import ScalarError

MOST_COLUMNS: Final = 20_480
BLANK: Final = "".join(map(chr, range(33)))
"""What counts as white space."""
_SPACE: Final = re.compile(r"[\x00-\x20]*")
_QUOTED: Final = '"\n\r'
_QUOTES: Final = re.compile('"+')


def read_record(text: str, separator: str) -> list[str | None]:
    r"""The fields of a text, which is one record; None for an empty one without quotes. A line break is white space.

    >>> read_record(r'a,,"b,\"c"', ","), read_record('"a"b,""', ",")
    (['a', None, 'b,"c'], ['"a"b', ''])
    """
    if "\0" in text or "\uffff" in text:  # what Spark's reader ends values and records with
        raise ScalarError("a CSV text with the character U+0000 or U+FFFF")
    fields: list[str | None] = []
    place = 0
    while True:
        if text.startswith('"', place):
            value, end = _quoted(text, place + 1, separator)
            fields.append(value)
        else:
            end = _field_end(text, place, separator)
            fields.append(text[place:end] or None)
        if len(fields) > MOST_COLUMNS:
            raise ScalarError(f"a CSV text with more than {MOST_COLUMNS} columns")
        if end == len(text):
            return fields
        place = end + 1


def _field_end(text: str, place: int, separator: str) -> int:
    end = text.find(separator, place)
    return end if end >= 0 else len(text)


def _quoted(text: str, start: int, separator: str) -> tuple[str, int]:
    """The value after an opening quote, and where its field ends."""
    content: list[str] = []
    place = start
    while place < len(text):
        match text[place]:
            case "\\":
                # A backslash stands for itself before other characters, and for nothing at the end of the text.
                escaped = text[place + 1 : place + 2]
                content.append(escaped if escaped in '"\\' else "\\")
                place += 2 if escaped in '"\\' else 1
            case '"':
                quotes = _QUOTES.match(text, place)
                assert quotes is not None
                content.append('"' * (len(quotes[0]) - 1))
                return _closed("".join(content), text, quotes.end(), separator)
            case character:
                content.append(character)
                place += 1
    return "".join(content) if start < len(text) else '"', len(text)


def _closed(content: str, text: str, place: int, separator: str) -> tuple[str, int]:
    """The value where a quote may close it: if the field goes on, all of it counts, with its quotes."""
    if text.startswith("\\", place):
        raise ScalarError("a CSV text with a backslash after a closing quote")
    space = _SPACE.match(text, place)
    assert space is not None
    if space[0] and separator <= " " and not text.startswith(separator, place):
        raise ScalarError("a CSV text with white space after a closing quote, and a separator that is white space")
    more = space.end() if separator > " " else place
    end = _field_end(text, place, separator)
    if more >= end:
        return content, end
    # Spark doubles a quote at this place of the last field.
    again = '"' if more > place and end == len(text) and text[more] != '"' and text.startswith('"', more + 1) else ""
    return f'"{content}"{text[place:end]}{again}', end


def written_field(value: str | None, separator: str, null: str, *, is_first: bool) -> str:
    r"""A field as it is written, without white space around it; it is quoted where it must be.

    >>> written_field('x"y', ",", "", is_first=True), written_field(" ", ",", "", is_first=True)
    ('"x\\"y"', '""')
    """
    given = null if value is None else value
    text = given.strip(BLANK)
    if not text:
        return "" if value is None else '""'
    begun = given.lstrip(BLANK)
    if any(character in begun for character in (separator, *_QUOTED)) or (is_first and given.startswith("#")):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
