"""Functions of texts. Each checks the length of its result before it makes it."""

from __future__ import annotations

from functools import partial
from typing import Final

from rederive.scalar.failures import check_length, join_texts
from rederive.scalar.regex.matching import has_match, like_pattern
from rederive.scalar.sql.numbers import Implementation


def _substring(text: str, start: int, length: int | None = None) -> str:
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


def _joined_by(by: str, texts: list[str]) -> str:
    check_length(sum(map(len, texts)) + len(by) * max(len(texts) - 1, 0))
    return by.join(texts)


def _replaced(text: str, old: str, new: str) -> str:
    check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _repeated(text: str, times: int) -> str:
    check_length(len(text) * times)
    return text * times


TEXT: Final[dict[str, Implementation]] = {
    "like": lambda text, pattern: like_pattern(pattern).fullmatch(text) is not None,
    "rlike": has_match,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "concat": join_texts,
    "concat_ws": lambda by, *texts: None if by is None else _joined_by(by, [text for text in texts if text is not None]),
    "length": len,
    "upper": str.upper,
    "lower": str.lower,
    "substring": _substring,
    # Spark trims spaces, and no other white space.
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    # An empty text is found nowhere: Python would find it between all characters.
    "replace": lambda text, old, new="": _replaced(text, old, new) if old else text,
    "instr": lambda text, part: text.find(part) + 1,
    "left": lambda text, count: text[: max(count, 0)],
    "right": lambda text, count: text[-count:] if count > 0 else "",
    "lpad": partial(_pad, left=True),
    "rpad": partial(_pad, left=False),
    "reverse": lambda text: text[::-1],
    "repeat": lambda text, times: _repeated(text, max(times, 0)),
}
