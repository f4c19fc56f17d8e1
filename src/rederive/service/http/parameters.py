"""Parameters of a URL that are numbers."""

from __future__ import annotations

from starlette.datastructures import QueryParams

from rederive.errors import UnknownOption


def number_parameter(parameters: QueryParams, name: str, default: int, most: int, least: int = 0) -> int:
    """Return a parameter that is a number in a range.

    >>> number_parameter(QueryParams("limit=5"), "limit", 100, 1000)
    5
    """
    text = parameters.get(name, str(default))
    if not text.isdecimal() or len(text) > 16 or not least <= int(text) <= most:
        raise UnknownOption(name, text, (f"{least} to {most}",))
    return int(text)
