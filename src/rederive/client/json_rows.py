"""Rows of JSON as rows that can be compared and counted: lists are tuples, and objects are dictionaries that have a hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class JsonObject(dict[str, Any]):
    """A struct or a map of a row. Nobody changes it.

    >>> {JsonObject(x=1)} == {JsonObject(x=1)}
    True
    """

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def json_row(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of JSON values.

    >>> json_row([1, [2, 3], {"x": [4]}])
    (1, (2, 3), {'x': (4,)})
    """
    return tuple([_frozen(value) if isinstance(value, list | dict) else value for value in row])


def json_rows(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    """Rows of JSON values."""
    return map(json_row, rows)


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return json_row(value)
    return JsonObject((name, _frozen(part)) for name, part in value.items()) if isinstance(value, dict) else value
