"""Values as small integers: coded once when they come in, decoded when they leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rederive.ir.floats import canonical
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.limits import Watch

Code = int
CodedRow = tuple[Code, ...]
Encode = Callable[[Iterable[Row]], list[CodedRow]]
Array: TypeAlias = NDArray[Any]
# The one code that is false in Python: compiled rules test `if code` for "is not NULL".
NULL: Code = 0
_SAMPLE: Final = 20  # values that tell whether most are new


class TooManyValues(Exception):
    """A recursion has made more new values than it may."""


class Dictionary(dict[Value, Code]):
    """Codes by value, made at their first use: the code of the n-th value is `first` + n."""

    __slots__ = ("ceiling", "first", "listed")

    def __init__(self, listed: list[Value], first: Code = 0) -> None:
        super().__init__({None: NULL})
        self.listed = listed
        self.first = first
        # A bitmap of pyroaring holds unsigned integers of 32 bits.
        self.ceiling = 2**32

    def __missing__(self, value: Value) -> Code:
        code = self.first + len(self.listed)
        if code >= self.ceiling:
            raise TooManyValues
        self[value] = code
        self.listed.append(value)
        return code

    @property
    def room(self) -> int:
        """How many more values there may be."""
        return self.ceiling - self.first - len(self.listed)

    def limit(self, more: int) -> int:
        """Allow so many more values, if that is fewer than before. Returns the ceiling before."""
        before, self.ceiling = self.ceiling, min(self.ceiling, self.first + len(self.listed) + more)
        return before


class Codec:
    """The codes of one type, numbered by arrival; 0 is NULL. Identical values, and only they, share a code.

    >>> codec = Codec()
    >>> codec.encode("a"), codec.encode("b"), codec.encode("a"), codec.values[2]
    (1, 2, 1, 'b')
    """

    __slots__ = ("codes", "encode", "listed", "values")

    def __init__(self) -> None:
        self.listed: list[Value] = [None]
        self.codes = Dictionary(self.listed)
        self.values: Mapping[Code, Value] | Sequence[Value] = self.listed
        self.encode: Callable[[Value], Code] = self.codes.__getitem__

    @property
    def nbytes(self) -> int:
        """The bytes of arrays."""
        return 0

    def find(self, value: Value) -> Code | None:
        """The code of a value that has been seen, without making one."""
        return self.codes.get(value)

    def restore(self, listed: Sequence[Value]) -> None:
        """Take in the listed values of an earlier codec. This one must be new."""
        codes, known = self.codes, len(self.listed)
        assert len(codes) == 1, "codes would change"
        self.listed.extend(listed[known:])
        # From the end: a value may have several entries, and its code is the first of them.
        codes.update(zip(reversed(listed), range(codes.first + len(listed) - 1, codes.first - 1, -1), strict=True))

    def encode_many(self, values: Collection[Value]) -> Array:
        """The codes of values."""
        return np.fromiter(map(self.encode, values), np.uint32, len(values))

    def encode_distinct(self, values: Sequence[Value]) -> Array:
        """The codes of distinct values."""
        codes, start = self.codes, self.codes.first + len(self.listed)
        if len(values) > codes.room:
            raise TooManyValues
        # Evenly spaced: what is known already is often at one end.
        sample = values[:: max(len(values) // _SAMPLE, 1)]
        if 4 * sum(value in codes for value in sample) >= len(sample):
            return np.fromiter(map(self.encode, values), np.uint32, len(values))
        # Most are new: each gets an entry in the list of values, and only the first entry of a value is ever used.
        self.listed.extend(values)
        return np.fromiter(map(codes.setdefault, values, count(start)), np.uint32, len(values))

    def decode_many(self, codes: Array) -> list[Value]:
        """The values of codes."""
        return list(map(self.values.__getitem__, codes.tolist()))

    def compact(self, codes: Array) -> tuple[Array, Sequence[Value]]:
        """The same column by numbers that start at 0, which is NULL, and the values by these numbers."""
        return codes, self.listed


class FloatCodec(Codec):
    """-0.0 has the code of 0.0, and every NaN the same, as in SQL's grouping."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.encode = lambda value: self.codes[canonical(value) if isinstance(value, float) else value]

    def encode_distinct(self, values: Sequence[Value]) -> Array:
        """The codes of distinct values, two of which may be zeros."""
        return self.encode_many(values)


class NestedCodec(Codec):
    """Codes of values with floats inside."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.encode = lambda value: self.codes[_canonical_parts(value)]

    def encode_distinct(self, values: Sequence[Value]) -> Array:
        """The codes of distinct values, some of which may differ in the signs of zeros alone."""
        return self.encode_many(values)


def _canonical_parts(value: Any) -> Any:
    if isinstance(value, float):
        return canonical(value)
    return type(value)(map(_canonical_parts, value)) if isinstance(value, tuple) else value


class Codes:
    """One codec for each type, and the watch over the work with them."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._codecs: dict[Type, Codec] = {}

    def codec(self, type_: Type) -> Codec:
        """Return the codec of a type, made at its first use."""
        if type_ not in self._codecs:
            self._codecs[type_] = _new_codec(type_)
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
        before = [codec.codes.limit(more) for codec in codecs]
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
        return list(
            zip(*(self.codec(type_).decode_many(codes) for type_, codes in zip(types, columns, strict=True)), strict=True)
        )

    def decode_rows(self, types: Sequence[Type], rows: Iterable[CodedRow]) -> list[Row]:
        """Return the rows of values behind coded rows."""
        columns = [self.codec(type_).values for type_ in types]
        # Most relations have two columns; naming them saves the inner loop.
        if len(columns) == 2:
            first, second = columns
            return [(first[a], second[b]) for a, b in rows]
        return [tuple([values[code] for values, code in zip(columns, row, strict=True)]) for row in rows]


def _new_codec(type_: Type) -> Codec:
    from rederive.engines.resident.storage.unit_codes import UnitCodec, units_of

    if units_of(type_) is not None:
        return UnitCodec(type_)
    if type_.kind is Kind.FLOAT:
        return FloatCodec()
    return NestedCodec() if type_.parts and type_.contains(Kind.FLOAT) else Codec()
