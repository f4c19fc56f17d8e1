"""get_json_object: the value at a path of a JSON text, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from rederive.ir.terms import SYMBOL
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import to_text
from rederive.scalar.sql.json_text import no_constant

_STEP: Final = re.compile(r"\.(\*)|\[(\*)\]|\.([^.\[\]*]+)|\[(\d+)\]|\['([^'?]*)'\]")


class _Wildcard(Enum):
    """A step to all elements of an array, or to all fields of an object, which Spark accepts and never finds."""

    ELEMENTS = "[*]"
    FIELDS = ".*"


PathStep: TypeAlias = str | int | _Wildcard


class _Style(Enum):
    """How a value is written: a text as it is, as JSON, or the elements of an array without the array."""

    RAW = "raw"
    QUOTED = "quoted"
    FLAT = "flat"


@lru_cache(maxsize=256)
def path_steps(path: str) -> tuple[PathStep, ...] | None:
    """The names, indexes and wildcards of a path such as $.a[0].b; None if it has other steps.

    >>> path_steps("$.a[0].b"), path_steps("$..a")
    (('a', 0, 'b'), None)
    """
    if not path.startswith("$"):
        return None
    steps: list[PathStep] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        name = found[3] if found[3] is not None else found[5]
        wildcard = _Wildcard.FIELDS if found[1] else _Wildcard.ELEMENTS if found[2] else None
        steps.append(wildcard or (int(found[4]) if name is None else name))
        place = found.end()
    return tuple(steps)


class _JsonObject(tuple[tuple[str, Any], ...]):
    """The names and values of a JSON object, in order. Of equal names the first one counts, as in Spark."""

    __slots__ = ()


def _get(text: str, path: str) -> str | None:
    steps = path_steps(path)
    try:
        value = json.loads(text, object_pairs_hook=_JsonObject, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return None
    if steps is None:
        return None
    found = _at(value, steps, _Style.RAW)
    return ",".join(found) if found and value is not None else None


def _at(value: Any, steps: Sequence[PathStep], style: _Style) -> list[str]:
    """What a path writes: no text if it has no value there, as Hive and Spark define it."""
    match steps:
        case []:
            if style is _Style.FLAT and isinstance(value, list):
                return [text for one in value for text in _at(one, (), style)]
            return [value if style is _Style.RAW and isinstance(value, str) else _json(value)]
        case [_Wildcard.ELEMENTS, *rest] if isinstance(value, list):
            return _at_elements(value, rest, style)
        case [int() as index, *rest] if isinstance(value, list) and index < len(value):
            return _at(value[index], rest, _Style.QUOTED if rest[:1] == [_Wildcard.ELEMENTS] else style)
        case [str() as name, *rest] if isinstance(value, _JsonObject):
            fields = (part for key, part in value if key == name and part is not None)
            return next((found for part in fields if (found := _at(part, rest, style))), [])
    return []


def _at_elements(value: list[Any], rest: Sequence[PathStep], style: _Style) -> list[str]:
    """All elements as one array; two wildcards make one flat array, and of a single match the array is left out."""
    if rest[:1] == [_Wildcard.ELEMENTS]:
        flat = [text for one in value for text in _at(one, rest[1:], _Style.FLAT)]
        return [f"[{','.join(flat)}]"] if flat else []
    inner = _Style.QUOTED if style is _Style.RAW else style
    found = [text for one in value if (text := ",".join(_at(one, rest, inner)))]
    if style is _Style.QUOTED:
        return [f"[{','.join(found)}]"] if found else []
    return [f"[{','.join(found)}]"] if len(found) > 1 else found


def _json(value: Any) -> str:
    """A value as Jackson writes it: no spaces, and numbers as Java prints them."""
    match value:
        case float():
            return to_text(SYMBOL, value)
        case _JsonObject():
            return "{" + ",".join(f"{_json(name)}:{_json(part)}" for name, part in value) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


JSON: Final = (BuiltIn("get_json_object", "string, string -> string", _get, maybe_null=True),)
