"""Functions of arrays, which are tuples; a NULL element is None."""

from __future__ import annotations

import datetime
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from rederive.ir.nested import nested_class
from rederive.ir.terms import UTC, Type
from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.regex.matching import java_matches
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.dates import DATES
from rederive.scalar.sql.text import joined_by

_Array = tuple[Any, ...]
_STEPS: Final = {found.name: found.compute for found in DATES}
_MOST: Final = 1_000_000  # elements of an array that a function makes


def _split(text: str, pattern: str, limit: int = -1) -> _Array:
    """split by a regular expression, as Java's String.split with this limit."""
    if pattern == "":
        # Spark gives the characters; a limit keeps the rest in the last one.
        if not text or (limit > 0 and limit == 1):
            return (text,)
        return tuple(text) if limit <= 0 or limit >= len(text) else (*text[: limit - 1], text[limit - 1 :])
    parts: list[str] = []
    end = 0
    for match in java_matches(text, pattern):
        if limit > 0 and len(parts) == limit - 1:
            break
        if match.end() == 0:
            continue  # as in Java, an empty match at the beginning makes no empty part
        parts.append(text[end : match.start()])
        end = match.end()
    return (*parts, text[end:])


def _get(array: _Array, place: int) -> Any:
    if not 0 <= place < len(array):
        raise ScalarError(f"the index {place} is out of bounds; the array has {len(array)} elements")
    return array[place]


def _element_at(array: _Array, place: int) -> Any:
    if place == 0:
        raise ScalarError("the index 0 is invalid; the first element has index 1")
    if abs(place) > len(array):
        raise ScalarError(f"the index {place} is out of bounds; the array has {len(array)} elements")
    return array[place - 1 if place > 0 else place]


def _try_element_at(array: _Array, place: int) -> Any:
    if place == 0:
        raise ScalarError("the index 0 is invalid; the first element has index 1")
    return array[place - 1 if place > 0 else place] if abs(place) <= len(array) else None


def _contains(array: _Array, value: Any) -> bool | None:
    return True if value in array else None if None in array else False


def _overlap(one: _Array, two: _Array) -> bool | None:
    if any(value is not None and value in two for value in one):
        return True
    return None if one and two and (None in one or None in two) else False


def _join(array: _Array, by: str, null: str | None = None) -> str:
    texts = [null if element is None else element for element in array]
    return joined_by(by, [text for text in texts if text is not None])


def _distinct(array: _Array) -> _Array:
    return tuple(dict.fromkeys(array))


def _sorted(array: _Array, *, ascending: bool = True, nulls_first: bool = True) -> _Array:
    values = tuple(sorted((value for value in array if value is not None), reverse=not ascending))
    nulls = (None,) * (len(array) - len(values))
    return (*nulls, *values) if nulls_first else (*values, *nulls)


def _slice(array: _Array, start: int, length: int) -> _Array:
    if start == 0 or length < 0:
        raise ScalarError(f"slice({start}, {length}): the start is not 0, and the length is not negative")
    begin = start - 1 if start > 0 else len(array) + start
    return array[begin : begin + length] if 0 <= begin < len(array) else ()


def _sequence(start: int, stop: int, step: int | None = None) -> _Array:
    step = step if step is not None else (1 if start <= stop else -1)
    if (step == 0 and start != stop) or (stop - start) * step < 0:
        raise ScalarError(f"sequence({start}, {stop}, {step}) does not end")
    count = (stop - start) // step + 1 if step else 1
    if count > _MOST:
        raise ScalarError(f"a sequence of {count:,} elements; at most {_MOST:,}")
    return tuple(range(start, stop + (1 if step > 0 else -1), step)) if step else (start,)


def _range(start: int, end: int, step: int) -> _Array:
    """The values of the table function range; the end is not one of them."""
    if step == 0:
        raise ScalarError("the step of range is 0")
    if len(found := range(start, end, step)) > _MOST:
        raise ScalarError(f"a range of {len(found):,} values; at most {_MOST:,}")
    return tuple(found)


def _repeat(value: Any, times: int) -> _Array | None:
    if times is None:
        return None
    check_length(times)
    return (value,) * max(times, 0)


def _extract_all(text: str, pattern: str, group: int = 1) -> _Array:
    found = []
    for match in java_matches(text, pattern):
        if not 0 <= group <= match.re.groups:
            raise ScalarError(f"the pattern {pattern!r} has {match.re.groups} groups, and no group {group}")
        found.append(match.group(group) or "")
    return tuple(found)


def _insert(array: _Array, place: int, value: Any) -> _Array | None:
    """array_insert: at a position that counts from 1, or from the end if it is negative; gaps are NULL."""
    if array is None or place is None:
        return None
    if place == 0:
        raise ScalarError("the index 0 is invalid; the first element has index 1")
    check_length(abs(place))
    if place > 0:
        return (*array[: place - 1], *(None,) * (place - 1 - len(array)), value, *array[place - 1 :])
    end = len(array) + place + 1
    return (*array[:end], value, *array[end:]) if end >= 0 else (value, *(None,) * -end, *array)


def _flatten(arrays: _Array) -> _Array | None:
    return None if None in arrays else tuple(value for array in arrays for value in array)


def _concat(*arrays: _Array) -> _Array:
    check_length(sum(map(len, arrays)))
    return tuple(value for array in arrays for value in array)


def _zip(gives: Type, *arrays: _Array) -> _Array:
    """arrays_zip: structs of the elements at each position, NULL where an array is shorter."""
    make = nested_class(gives.parts[0].type)
    return tuple(make(row) for row in zip_longest(*arrays))


def _time_sequence(start: Any, stop: Any, amount: int, unit: str, zone: str = UTC) -> _Array:
    """sequence of dates or timestamps, in steps of so many months, days or microseconds."""
    step = partial(_STEPS[{"MONTH": "add_months", "DAY": "add_days", "MICROSECOND": "add_micros"}[unit]], start)
    # A date is in no zone.
    place = (zone,) if isinstance(start, datetime.datetime) else ()
    if start == stop:
        return (start,)
    if amount == 0 or (amount > 0) != (stop > start):
        raise ScalarError(f"sequence({start}, {stop}) in steps of {amount} {unit} does not end")
    found = [start]
    # Each one is computed from the start: the 31st of a month is not lost by a shorter month in between.
    while len(found) <= _MOST:
        following = step(amount * len(found), *place)
        if (following > stop) if amount > 0 else (following < stop):
            return tuple(found)
        found.append(following)
    raise ScalarError(f"a sequence of more than {_MOST:,} elements")


def _extreme(function: Any) -> Any:
    return lambda array: function((value for value in array if value is not None), default=None)


# The types `array` and `element` follow from the arguments (`lang.sql.array_functions`).
ARRAYS: Final = (
    BuiltIn("time_sequence", "any, any, bigint, string -> array", _time_sequence, fallible=True, zoned=True),
    BuiltIn("range values", "bigint, bigint, bigint -> array", _range, fallible=True),
    BuiltIn("array_append", "array, element -> array", lambda a, v: None if a is None else (*a, v), strict=False),
    BuiltIn("array_prepend", "array, element -> array", lambda a, v: None if a is None else (v, *a), strict=False),
    BuiltIn("array_insert", "array, int, element -> array", _insert, strict=False, fallible=True),
    BuiltIn("array_concat", "array ... -> array", _concat),
    BuiltIn("flatten", "array<array> -> array", _flatten, maybe_null=True),
    BuiltIn("arrays_zip", "array ... -> array<struct>", _zip, typed=True),
    BuiltIn("array", "any ... -> array", lambda *values: values, strict=False),
    BuiltIn("split", "string, string, [int] -> array<string>", _split),
    BuiltIn("regexp_extract_all", "string, string, [int] -> array<string>", _extract_all, fallible=True),
    BuiltIn("sequence", "integer, integer, [integer] -> array", _sequence, fallible=True),
    BuiltIn("array_repeat", "any, int -> array", _repeat, strict=False, fallible=True),
    BuiltIn("size", "array -> int", len, aliases=("cardinality", "array_size")),
    BuiltIn("subscript", "array, int -> element", _get, fallible=True, maybe_null=True),
    BuiltIn("get", "array, int -> element", lambda array, i: array[i] if 0 <= i < len(array) else None, maybe_null=True),
    BuiltIn("element_at", "array, int -> element", _element_at, fallible=True, maybe_null=True),
    BuiltIn("try_element_at", "array, int -> element", _try_element_at, fallible=True, maybe_null=True),
    BuiltIn("array_contains", "array, element -> boolean", _contains, maybe_null=True),
    BuiltIn("array_position", "array, element -> bigint", lambda array, value: array.index(value) + 1 if value in array else 0),
    BuiltIn("array_join", "array, string, [string] -> string", _join),
    BuiltIn("array_max", "array -> element", _extreme(max), maybe_null=True),
    BuiltIn("array_min", "array -> element", _extreme(min), maybe_null=True),
    BuiltIn("sort_array", "array, [boolean] -> array", lambda a, up=True: _sorted(a, ascending=up, nulls_first=up)),
    BuiltIn("array_sort", "array -> array", lambda array: _sorted(array, nulls_first=False)),
    BuiltIn("array_distinct", "array -> array", _distinct),
    BuiltIn("array_reverse", "array -> array", lambda array: array[::-1]),
    BuiltIn("array_compact", "array -> array", lambda array: tuple(value for value in array if value is not None)),
    BuiltIn("slice", "array, int, int -> array", _slice, fallible=True),
    BuiltIn("array_remove", "array, element -> array", lambda array, value: tuple(one for one in array if one != value)),
    BuiltIn("array_union", "array, array -> array", lambda one, two: _distinct((*one, *two))),
    BuiltIn("array_intersect", "array, array -> array", lambda one, two: _distinct(tuple(v for v in one if v in two))),
    BuiltIn("array_except", "array, array -> array", lambda one, two: _distinct(tuple(v for v in one if v not in two))),
    BuiltIn("arrays_overlap", "array, array -> boolean", _overlap, maybe_null=True),
)
