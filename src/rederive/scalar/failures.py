"""How a scalar function fails, and how long a text it may make. The engines turn a failure into an error about the rule."""

from __future__ import annotations

from typing import Final

from rederive.errors import EvaluationError, LimitExceeded

MOST_TEXT: Final = 2**24
"""Characters of one text that a function makes: 16 million take at most 64 MiB, and a tenth of a second."""


class ScalarError(Exception):
    """A function is not defined for its arguments. The rule that calls it raises an error of this `kind`."""

    kind: type[EvaluationError] = EvaluationError


class TooLong(ScalarError):
    """A text would have more than `MOST_TEXT` characters."""

    kind = LimitExceeded


def check_length(characters: int) -> None:
    """Refuse a text that is too long, before it is made.

    >>> check_length(10)
    """
    if characters > MOST_TEXT:
        raise TooLong(f"a text of {characters:,} characters; at most {MOST_TEXT:,}")


def join_texts(*texts: str) -> str:
    """The concatenation of texts, which Datalog calls `cat` and SQL calls `concat`."""
    check_length(sum(map(len, texts)))
    return "".join(texts)
