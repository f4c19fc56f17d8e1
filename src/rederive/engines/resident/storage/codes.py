"""Values as small integers: coded once when they come in, decoded when they leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rederive.ir.floats import canonical
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.limits import Watch

Code = int
CodedRow = tuple[Code, ...]
Encode = Callable[[Iterable[Row]], list[CodedRow]]
# The one code that is false in Python: compiled rules test `if code` for "is not NULL".
NULL: Code = 0


class TooManyValues(Exception):
    """A recursion has made more new values than it may."""


class _Codes(dict[Value, Code]):
    """A value's code, made at its first use."""

    __slots__ = ("ceiling", "values_in_order")

    def __init__(self, values: list[Value]) -> None:
        super().__init__({None: NULL})
        self.values_in_order = values
        # A bitmap of pyroaring holds unsigned integers of 32 bits.
        self.ceiling = 2**32

    def __missing__(self, value: Value) -> Code:
        code = len(self.values_in_order)
        if code >= self.ceiling:
            raise TooManyValues
        self[value] = code
        self.values_in_order.append(value)
        return code


class Codec:
    """The codes of one type, numbered by arrival; 0 is NULL. Identical values, and only they, share a code.

    >>> codec = Codec()
    >>> codec.encode("a"), codec.encode("b"), codec.encode("a"), codec.values[2]
    (1, 2, 1, 'b')
    """

    __slots__ = ("codes", "encode", "values")

    def __init__(self) -> None:
        self.values: list[Value] = [None]
        self.codes = _Codes(self.values)
        self.encode: Callable[[Value], Code] = self.codes.__getitem__

    def find(self, value: Value) -> Code | None:
        """The code of a value that has been seen, without making one."""
        return self.codes.get(value)

    def restore(self, values: Sequence[Value]) -> None:
        """Take in all values of an earlier codec, in the order of their codes. This one must be new."""
        assert len(self.values) == 1, "codes would change"
        self.values.extend(values[1:])
        # From the end: a value may have several entries, and its code is the first of them.
        self.codes.update(zip(reversed(values), range(len(values) - 1, -1, -1), strict=True))


class FloatCodec(Codec):
    """-0.0 has the code of 0.0, and every NaN the same, as in SQL's grouping."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.encode = lambda value: self.codes[canonical(value) if isinstance(value, float) else value]


class NestedCodec(Codec):
    """Codes of values with floats inside."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.encode = lambda value: self.codes[_canonical_parts(value)]


def _canonical_parts(value: Any) -> Any:
    if isinstance(value, float):
        return canonical(value)
    return type(value)(map(_canonical_parts, value)) if isinstance(value, tuple) else value


class Codes:
    """One codec for each type, and the watch over the work with them."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._codecs: dict[Type, Codec] = {}
        self.units: dict[Type, Any] = {}  # `batch.vectors.UnitValues`: the values of a type as numbers, by code

    def codec(self, type_: Type) -> Codec:
        """Return the codec of a type, made at its first use."""
        if type_ not in self._codecs:
            plain = FloatCodec if type_.kind is Kind.FLOAT else Codec
            self._codecs[type_] = NestedCodec() if type_.parts and type_.contains(Kind.FLOAT) else plain()
        return self._codecs[type_]

    def codecs(self) -> Collection[Codec]:
        """Return the codecs made so far."""
        return self._codecs.values()

    def by_type(self) -> Iterable[tuple[Type, Codec]]:
        """Return the codecs made so far, with their types."""
        return self._codecs.items()

    @contextmanager
    def at_most(self, more: int) -> Iterator[None]:
        """While this lasts, no type may gain more than this many values. An inner limit ends no later than the one around it."""
        codecs = tuple(self._codecs.values())
        before = [codec.codes.ceiling for codec in codecs]
        for codec in codecs:
            codec.codes.ceiling = min(codec.codes.ceiling, len(codec.values) + more)
        try:
            yield
        finally:
            for codec, ceiling in zip(codecs, before, strict=True):
                codec.codes.ceiling = ceiling

    def encode_rows(self, types: Sequence[Type], rows: Iterable[Row]) -> list[CodedRow]:
        """Return the coded rows; a value without a code gets one."""
        return self.encoder(types)(rows)

    def encoder(self, types: Sequence[Type]) -> Encode:
        """A function that codes rows of these types, for repeated use."""
        encoders = [self.codec(type_).encode for type_ in types]

        def encode(rows: Iterable[Row]) -> list[CodedRow]:
            # Column by column: `map` over a dictionary's method makes no Python call for a value that has a code, floats aside.
            coded = [map(code, column) for code, column in zip(encoders, zip(*rows, strict=True), strict=False)]
            return list(zip(*coded, strict=True)) if encoders else [() for _ in rows]

        return encode

    def decode_columns(self, types: Sequence[Type], columns: Sequence[Any]) -> list[Row]:
        """Return the rows of values behind arrays of codes."""
        values = [self.codec(type_).values for type_ in types]
        decoded = [map(found.__getitem__, column.tolist()) for found, column in zip(values, columns, strict=True)]
        return list(zip(*decoded, strict=True))

    def decode_rows(self, types: Sequence[Type], rows: Iterable[CodedRow]) -> list[Row]:
        """Return the rows of values behind coded rows."""
        columns = [self.codec(type_).values for type_ in types]
        # Most relations have two columns; naming them saves the inner loop.
        if len(columns) == 2:
            first, second = columns
            return [(first[a], second[b]) for a, b in rows]
        return [tuple([values[code] for values, code in zip(columns, row, strict=True)]) for row in rows]
