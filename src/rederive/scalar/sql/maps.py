"""Functions of structs and maps. A map is the tuple of its entries, in the order in which they were given."""

from __future__ import annotations

from typing import Any, Final

from rederive.ir.nested import nested_class, nested_reader
from rederive.ir.terms import Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import java_matches
from rederive.scalar.sql.built_in import BuiltIn

_Map = tuple[tuple[Any, Any], ...]


def checked_map(entries: _Map) -> _Map:
    """The entries, unless a key is NULL or there twice."""
    keys = [key for key, _ in entries]
    if None in keys:
        raise ScalarError("NULL cannot be a key of a map")
    if len(set(keys)) < len(keys):
        double = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ScalarError(f"the key {double!r} is twice in a map")
    return entries


def _map(*parts: Any) -> _Map:
    return checked_map(tuple(zip(parts[::2], parts[1::2], strict=True)))


def _from_arrays(keys: tuple[Any, ...], values: tuple[Any, ...]) -> _Map:
    if len(keys) != len(values):
        raise ScalarError(f"map_from_arrays of {len(keys)} keys and {len(values)} values")
    return checked_map(tuple(zip(keys, values, strict=True)))


def _from_entries(entries: tuple[Any, ...]) -> _Map | None:
    return None if None in entries else checked_map(tuple((entry[0], entry[1]) for entry in entries))


def _entries(gives: Type, found: _Map) -> tuple[Any, ...]:
    make = nested_class(gives.parts[0].type)
    return tuple(make(entry) for entry in found)


def _str_to_map(text: str, pairs: str, values: str) -> _Map:
    entries: list[tuple[str, str | None]] = []
    for part in _split(text, pairs):
        key, *value = _split(part, values, 2)
        entries.append((key, value[0] if value else None))
    return checked_map(tuple(entries))


def _split(text: str, pattern: str, limit: int = -1) -> list[str]:
    parts: list[str] = []
    end = 0
    for match in java_matches(text, pattern):
        if limit > 0 and len(parts) == limit - 1:
            break
        if match.end() == 0:
            continue
        parts.append(text[end : match.start()])
        end = match.end()
    return [*parts, text[end:]]


def _value(found: _Map, key: Any) -> Any:
    return next((value for known, value in found if known == key), None)


# The types `struct`, `map`, `key` and `value` follow from the arguments (`lang.sql.map_functions`).
MAPS: Final = (
    BuiltIn("named_struct", "string, any, ... -> struct", lambda *values: values, strict=False),
    BuiltIn("struct field", "struct, int -> any", lambda struct, place: struct[place], maybe_null=True),
    BuiltIn("as type", "any -> any", lambda gives, value: nested_reader(gives)(value), typed=True),
    BuiltIn("map", "key, value, ... -> map", _map, strict=False, fallible=True),
    BuiltIn("map_from_arrays", "array, array -> map", _from_arrays, fallible=True),
    BuiltIn("map_from_entries", "array<struct> -> map", _from_entries, fallible=True, maybe_null=True),
    BuiltIn("map_keys", "map -> array", lambda found: tuple(key for key, _ in found)),
    BuiltIn("map_values", "map -> array", lambda found: tuple(value for _, value in found)),
    BuiltIn("map_entries", "map -> array<struct>", _entries, typed=True),
    BuiltIn("map_concat", "map ... -> map", lambda *maps: checked_map(tuple(e for one in maps for e in one)), fallible=True),
    BuiltIn("map_contains_key", "map, key -> boolean", lambda found, key: any(known == key for known, _ in found)),
    BuiltIn("map value", "map, key -> value", _value, maybe_null=True),
    BuiltIn("str_to_map", "string, [string], [string] -> map<string, string>", _str_to_map, fallible=True),
)
