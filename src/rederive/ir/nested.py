"""Arrays, structs and maps as values: tuples that know what they are.

Tuples are hashable and equal by their parts, NULL being equal to NULL, as Spark compares arrays and structs; NULL inside is less
than any value. The entries of a map have an order, which counts: Spark keeps it, and `map_keys` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar

from rederive.ir.floats import NaN, canonical
from rederive.ir.terms import Kind, Type


class Nested(tuple[Any, ...]):
    """A value with parts; some may be None."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return _order(self) < _order(other)

    def __le__(self, other: tuple[Any, ...]) -> bool:
        return _order(self) <= _order(other)

    def __gt__(self, other: tuple[Any, ...]) -> bool:
        return _order(self) > _order(other)

    def __ge__(self, other: tuple[Any, ...]) -> bool:
        return _order(self) >= _order(other)


def _order(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([(part is not None, part) for part in value])


class Array(Nested):
    """The elements of an array.

    >>> sorted([Array((1, 2)), Array((1, None)), Array((1,))])
    [(1,), (1, None), (1, 2)]
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (tuple(self),)


class Struct(Nested):
    """The fields of a struct in order; `names` are those of its type.

    >>> point = struct(("x", "y"), (1, 2))
    >>> point, point == (1, 2), point.as_dict()
    (Struct(x=1, y=2), True, {'x': 1, 'y': 2})
    """

    __slots__ = ()
    names: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in zip(self.names, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return struct, (self.names, tuple(self))


class Map(Nested):
    """The entries of a map, as pairs of key and value; `dict(map)` is a dictionary.

    >>> Map((("a", 1),)), dict(Map((("a", 1),)))["a"]
    (Map({'a': 1}), 1)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Map({{{', '.join(f'{key!r}: {value!r}' for key, value in self)}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Map, (tuple(self),)


@lru_cache(maxsize=4096)
def struct_class(names: tuple[str, ...]) -> type[Struct]:
    """The class of the structs with these fields."""
    return type("Struct", (Struct,), {"__slots__": (), "names": names})


def struct(names: tuple[str, ...], values: Iterable[Any]) -> Struct:
    """A struct with these fields."""
    return struct_class(names)(values)


def nested_class(type: Type) -> type[Nested]:
    """The class of the values of a nested type."""
    if type.kind is Kind.STRUCT:
        return struct_class(tuple(part.name for part in type.parts))
    return Array if type.kind is Kind.ARRAY else Map


@lru_cache(maxsize=4096)
def nested_reader(type: Type) -> Callable[[Any], Any]:
    """A function from the lists, dictionaries and rows by which Arrow and Spark give a nested value to the value.

    >>> from rederive.ir.terms import NUMBER, Part
    >>> nested_reader(Type(Kind.ARRAY, parts=(Part("element", NUMBER, 32),)))([1, None])
    (1, None)
    """
    if not type.parts:
        return {Kind.UNSIGNED: int_or_none, Kind.FLOAT: float_or_none}.get(type.kind, _itself)
    make, readers = nested_class(type), [nested_reader(part.type) for part in type.parts]
    if type.kind is Kind.ARRAY:
        return lambda value: None if value is None else make(map(readers[0], value))
    names = [part.name for part in type.parts]

    def fields(value: Any) -> Any:
        if value is None:
            return None
        found = map(value.get, names) if isinstance(value, dict) else value
        return make([read(one) for read, one in zip(readers, found, strict=True)])

    def entries(value: Any) -> Any:
        if value is None:
            return None
        pairs = value.items() if isinstance(value, dict) else (tuple(e.values()) if isinstance(e, dict) else e for e in value)
        return make([(readers[0](key), readers[1](one)) for key, one in pairs])

    return fields if type.kind is Kind.STRUCT else entries


def int_or_none(value: Any) -> int | None:
    """The whole number of a decimal."""
    return None if value is None else int(value)


def float_or_none(value: Any) -> float | None:
    """The one float of all that are equal."""
    return None if value is None else canonical(value)


def _itself(value: Any) -> Any:
    return value


def plain(value: Any) -> Any:
    """The value as tuples and floats of Python alone."""
    if isinstance(value, tuple):
        return tuple([plain(part) for part in value])
    return float(value) if isinstance(value, NaN) else value
