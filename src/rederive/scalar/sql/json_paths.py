"""get_json_object: the value at a path of a JSON text, as text."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from rederive.ir.terms import SYMBOL
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import to_text
from rederive.scalar.sql.json_text import no_constant

_STEP: Final = re.compile(r"\.([^.\[\]*]+)|\[(\d+)\]|\['([^']*)'\]")


@lru_cache(maxsize=256)
def path_steps(path: str) -> tuple[str | int, ...] | None:
    """The names and indexes of a path such as $.a[0].b; None if it has other steps.

    >>> path_steps("$.a[0].b"), path_steps("$.*")
    (('a', 0, 'b'), None)
    """
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        name = found[1] if found[1] is not None else found[3]
        steps.append(int(found[2]) if name is None else name)
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
    for step in steps:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        elif isinstance(step, str) and isinstance(value, _JsonObject) and any(name == step for name, _ in value):
            value = next(part for name, part in value if name == step)
        else:
            return None
    return value if isinstance(value, str) else None if value is None else _json(value)


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
