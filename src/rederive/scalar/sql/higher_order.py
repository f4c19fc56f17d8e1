"""Functions that call a lambda: it is a function of Python here, and takes the values that it captures as further arguments.

None of them is strict, because a captured value may be NULL; an array or a map that is NULL gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any, Final

from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation
from rederive.scalar.sql.maps import checked_map

_Function = Callable[..., Any]


def _filter(array: Any, function: _Function, *more: Any) -> Any:
    return tuple(value for value in array if function(value, *more) is True)


def _filter_by_index(array: Any, function: _Function, *more: Any) -> Any:
    return tuple(value for i, value in enumerate(array) if function(value, i, *more) is True)


def _exists(array: Any, function: _Function, *more: Any) -> bool | None:
    found = [function(value, *more) for value in array]
    return True if True in found else None if None in found else False


def _forall(array: Any, function: _Function, *more: Any) -> bool | None:
    found = [function(value, *more) for value in array]
    return False if False in found else None if None in found else True


def _reduce(array: Any, start: Any, function: _Function, *more: Any) -> Any:
    for value in array:
        start = function(start, value, *more)
    return start


def _zip_with(one: Any, two: Any, function: _Function, *more: Any) -> Any:
    return None if two is None else tuple(function(a, b, *more) for a, b in zip_longest(one, two))


def _map_zip_with(one: Any, two: Any, function: _Function, *more: Any) -> Any:
    if two is None:
        return None
    first, second = dict(one), dict(two)
    return tuple((key, function(key, first.get(key), second.get(key), *more)) for key in dict.fromkeys((*first, *second)))


def _sort(array: Any, function: _Function, *more: Any) -> Any:
    def compare(one: Any, two: Any) -> int:
        found = function(one, two, *more)
        if found is None:
            raise ScalarError("the comparison of array_sort is NULL")
        return int(found)

    return tuple(sorted(array, key=cmp_to_key(compare)))


def _of_value(compute: Implementation) -> Implementation:
    """The function that gives NULL if its first argument is NULL."""
    return lambda value, *more: None if value is None else compute(value, *more)


def _function(name: str, signature: str, compute: Implementation) -> BuiltIn:
    return BuiltIn(name, signature, _of_value(compute), strict=False, fallible=True, maybe_null=True)


HIGHER_ORDER: Final = (
    _function("transform", "array, x -> any -> array", lambda array, f, *more: tuple(f(x, *more) for x in array)),
    _function("transform with index", "", lambda array, f, *more: tuple(f(x, i, *more) for i, x in enumerate(array))),
    _function("filter", "array, x -> boolean -> array", _filter),
    _function("filter with index", "", _filter_by_index),
    _function("exists", "array, x -> boolean -> boolean", _exists),
    _function("forall", "array, x -> boolean -> boolean", _forall),
    _function("aggregate", "array, any, (sum, x) -> any, [sum -> any] -> any", _reduce),
    # The end of an aggregate: not of an array, and also of NULL.
    BuiltIn("apply lambda", "", lambda value, f, *more: f(value, *more), strict=False, fallible=True),
    _function("zip_with", "array, array, (x, y) -> any -> array", _zip_with),
    _function("sort with", "", _sort),
    _function("map_filter", "map, (k, v) -> boolean -> map", lambda m, f, *a: tuple(e for e in m if f(*e, *a) is True)),
    _function("transform_keys", "map, (k, v) -> any -> map", lambda m, f, *a: checked_map(tuple((f(k, v, *a), v) for k, v in m))),
    _function("transform_values", "map, (k, v) -> any -> map", lambda m, f, *a: tuple((k, f(k, v, *a)) for k, v in m)),
    _function("map_zip_with", "map, map, (k, v, w) -> any -> map", _map_zip_with),
)
