"""Functions of texts. Each checks the length of its result before it makes it. A character is a code point."""

from __future__ import annotations

import base64
import unicodedata
import urllib.parse
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from rederive.scalar.failures import ScalarError, check_length, join_texts
from rederive.scalar.regex.matching import has_match, like_pattern
from rederive.scalar.sql.built_in import BuiltIn

_SOUNDS: Final = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))  # 7: does not end a run


def substring(text: str, start: int, length: int | None = None) -> str:
    """substring, which counts from 1, or from the end if the start is negative. Without a length, it goes to the end."""
    size = len(text)
    # As in Spark, a start before the text shortens the result, substring('abc', -5, 3) is 'a', and 0 means 1.
    begin = start - 1 if start > 0 else size + start if start < 0 else 0
    end = begin + (2**31 - 1 if length is None else length)
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


def _pad(text: str, length: int, fill: str, *, left: bool) -> str:
    if length <= len(text) or not fill:
        return text[: max(length, 0)]
    check_length(length)
    missing = length - len(text)
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


def joined_by(by: str, texts: list[str]) -> str:
    """The texts with a separator between them."""
    check_length(sum(map(len, texts)) + len(by) * max(len(texts) - 1, 0))
    return by.join(texts)


def _replaced(text: str, old: str, new: str) -> str:
    check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _repeated(text: str, times: int) -> str:
    check_length(len(text) * times)
    return text * times


def _elements(parts: Iterable[str | tuple[str | None, ...] | None]) -> Iterator[str]:
    """The texts of a list of texts and arrays of texts, without NULL."""
    for part in parts:
        if isinstance(part, tuple):
            yield from _elements(part)
        elif part is not None:
            yield part


def _locate(part: str | None, text: str | None, start: int | None = 1) -> int | None:
    """locate: where a part begins, from 1; 0 if it is not there, and if the start is NULL."""
    if start is not None and (part is None or text is None):
        return None
    if start is None or part is None or text is None or start < 1:
        return 0
    # As in Spark, the empty text is found at 1, wherever the search begins.
    return text.find(part, start - 1) + 1 if part else 1


def _initcap(text: str) -> str:
    """initcap: words end at spaces, and at no other character."""
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _levenshtein(one: str, two: str, most: int | None = None) -> int:
    """The edit distance; -1 if it exceeds `most`."""
    before = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(two, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1] if most is None or before[-1] <= most else -1


def _soundex(text: str) -> str:
    first = text[:1].upper()
    if first not in _SOUNDS:
        return text  # also an empty one
    code, last = first, _SOUNDS[first]
    for character in text[1:].upper():
        sound = _SOUNDS.get(character)
        # H and W do not separate equal sounds; vowels and other characters do.
        if sound is None:
            last = "0"
        elif sound != "7":
            if sound not in ("0", last):
                code += sound
                if len(code) == 4:
                    break
            last = sound
    return code.ljust(4, "0")


def _translate(text: str, old: str, new: str) -> str:
    # The first of equal characters counts; characters without a counterpart are removed.
    table = {ord(a): new[i] if i < len(new) else None for i, a in reversed(list(enumerate(old)))}
    return text.translate(table)


def _split_part(text: str, by: str, number: int) -> str:
    if number == 0:
        raise ScalarError("the number of a part is 0; the first part has number 1")
    parts = text.split(by) if by else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _substring_index(text: str, by: str, count: int) -> str:
    """What comes before the count-th separator; from the end if the count is negative."""
    if not by or count == 0:
        return ""
    place = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        # Separators may overlap: each search begins one character after the last one.
        place = text.find(by, place + 1) if count > 0 else text.rfind(by, 0, max(place + len(by) - 1, 0)) if place else -1
        if place < 0:
            return text
    return text[:place] if count > 0 else text[place + len(by) :]


def _overlay(text: str, new: str, start: int, length: int = -1) -> str:
    length = len(new) if length < 0 else length
    return join_texts(substring(text, 1, start - 1), new, substring(text, start + length))


def _find_in_set(text: str, listed: str) -> int:
    parts = listed.split(",")
    return parts.index(text) + 1 if text in parts else 0


def _elt(number: int, *texts: str | None) -> str | None:
    if number is None:
        return None
    if not 1 <= number <= len(texts):
        raise ScalarError(f"the index {number} is out of bounds; there are {len(texts)} texts")
    return texts[number - 1]


def _luhn_check(text: str) -> bool:
    if not text or not (text.isascii() and text.isdigit()):
        return False
    digits = [int(digit) for digit in reversed(text)]
    return (sum(digits[::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])) % 10 == 0


def _url_decode(text: str) -> str:
    try:
        for i, character in enumerate(text):
            if character == "%":
                int(text[i + 1 : i + 3].ljust(2, "x"), 16)
        return urllib.parse.unquote_plus(text, errors="replace")
    except ValueError:
        raise ScalarError(f"not an encoded URL: {text!r}") from None


def _mask(text: str | None, upper: str | None, lower: str | None, digit: str | None, other: str | None) -> str | None:
    """mask: NULL in the place of a character keeps the characters of that kind."""
    if text is None:
        return None

    def masked(character: str) -> str:
        kind = unicodedata.category(character)
        by = upper if kind == "Lu" else lower if kind == "Ll" else digit if kind == "Nd" else other
        return character if by is None else by

    return "".join(map(masked, text))


def _base64(text: str) -> str:
    encoded = base64.b64encode(text.encode()).decode()
    return "\r\n".join(encoded[i : i + 76] for i in range(0, len(encoded), 76))  # lines of MIME


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_pattern(pattern, escape).fullmatch(text) is not None


TEXT: Final = (
    BuiltIn("length", "string -> int", len, aliases=("len", "char_length", "character_length")),
    BuiltIn("upper", "string -> string", str.upper, aliases=("ucase",)),
    BuiltIn("lower", "string -> string", str.lower, aliases=("lcase",)),
    BuiltIn("substring", "string, int, [int] -> string", substring, aliases=("substr",)),
    BuiltIn("left", "string, int -> string", lambda text, count: text[: max(count, 0)]),
    BuiltIn("right", "string, int -> string", lambda text, count: text[-count:] if count > 0 else ""),
    # An empty text is found nowhere: Python would find it between all characters.
    BuiltIn(
        "replace", "string, string, [string] -> string", lambda text, old, new="": _replaced(text, old, new) if old else text
    ),
    BuiltIn("reverse", "string -> string", lambda text: text[::-1]),
    BuiltIn("repeat", "string, int -> string", lambda text, times: _repeated(text, max(times, 0))),
    BuiltIn("space", "int -> string", lambda times: _repeated(" ", max(times, 0))),
    BuiltIn("startswith", "string, string -> boolean", str.startswith),
    BuiltIn("endswith", "string, string -> boolean", str.endswith),
    BuiltIn("contains", "string, string -> boolean", lambda text, part: part in text),
    BuiltIn("like", "string, string, [string] -> boolean", _like),
    BuiltIn("rlike", "string, string -> boolean", has_match, aliases=("regexp", "regexp_like")),
    BuiltIn("concat", "string ... -> string", join_texts),
    # concat_ws skips arguments that are NULL; only a separator that is NULL gives NULL.
    BuiltIn(
        "concat_ws",
        "string, string ... -> string",
        lambda by, *texts: None if by is None else joined_by(by, list(_elements(texts))),
        strict=False,
    ),
    # Spark trims spaces, and no other white space.
    BuiltIn("trim", "string, [string] -> string", lambda text, characters=" ": text.strip(characters) if characters else text),
    BuiltIn("ltrim", "string, [string] -> string", lambda text, characters=" ": text.lstrip(characters) if characters else text),
    BuiltIn("rtrim", "string, [string] -> string", lambda text, characters=" ": text.rstrip(characters) if characters else text),
    BuiltIn("instr", "string, string -> int", lambda text, part: text.find(part) + 1),
    BuiltIn("locate", "string, string, [int] -> int", _locate, strict=False, aliases=("position",)),
    BuiltIn("lpad", "string, int, string -> string", partial(_pad, left=True)),
    BuiltIn("rpad", "string, int, string -> string", partial(_pad, left=False)),
    BuiltIn("ascii", "string -> int", lambda text: ord(text[0]) if text else 0),
    BuiltIn("chr", "bigint -> string", lambda code: "" if code < 0 else chr(code & 0xFF), aliases=("char",)),
    BuiltIn("bit_length", "string -> int", lambda text: 8 * len(text.encode())),
    BuiltIn("octet_length", "string -> int", lambda text: len(text.encode())),
    BuiltIn("initcap", "string -> string", _initcap),
    BuiltIn("levenshtein", "string, string, [int] -> int", _levenshtein),
    BuiltIn("soundex", "string -> string", _soundex),
    BuiltIn("translate", "string, string, string -> string", _translate),
    BuiltIn("split_part", "string, string, int -> string", _split_part, fallible=True),
    BuiltIn("substring_index", "string, string, int -> string", _substring_index),
    BuiltIn("overlay", "string, string, int, [int] -> string", _overlay),
    BuiltIn("find_in_set", "string, string -> int", _find_in_set),
    BuiltIn("elt", "int, string ... -> string", _elt, strict=False, fallible=True),
    BuiltIn("luhn_check", "string -> boolean", _luhn_check),
    BuiltIn("url_encode", "string -> string", lambda text: urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")),
    BuiltIn("url_decode", "string -> string", _url_decode, fallible=True),
    BuiltIn("mask", "string, string, string, string, string -> string", _mask, strict=False),
    BuiltIn("base64", "string -> string", _base64),
    BuiltIn("quote", "string -> string", lambda text: "'" + text.replace("'", "\\'") + "'"),
)
