"""Codes of integers, decimals, dates and times: a value of few units is its own code, all others are numbered by arrival.

A unit is the smallest part of one that a type can hold: 1 of an integer, 10^-s of a decimal of scale s, a day of a date, a
microsecond of a timestamp. The 32 bits of a code are divided so:

    0 NULL | 1 + units, from 0 units on | 2^31 + number of arrival | 2^32 + units, below 0 units

A value that is its own code needs no memory, and a column of them is coded by one addition.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np

from rederive.engines.resident.storage.codes import NULL, Array, Code, Codec, Dictionary, TooManyValues
from rederive.ir.terms import Kind, Type, Value

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_WIDE: Final = Context(prec=100)
_FIRST: Final = 2**31  # the code of the first value that is numbered
_END: Final = 3 * 2**30  # of the codes of these
_REMEMBERED: Final = 2**16  # decoded values, for rules that read row by row

# The units whose values are their own codes, from the least to below the most. A bitmap takes some 75 bytes for each 2^16 codes
# that it touches, so node numbers that are far apart are better numbered by arrival; no graph has prices for nodes.
_OWN_CODES: Final = {
    Kind.NUMBER: (-(2**24), 2**24),
    Kind.UNSIGNED: (0, 2**24),
    Kind.BOOLEAN: (0, 2),
    Kind.DATE: (0, 2**31 - 1),
    Kind.DECIMAL: (-(2**30), 2**31 - 1),
    Kind.TIMESTAMP: (0, 0),  # of microseconds, too few would be
}


def units_of(type_: Type) -> Callable[[Any], int] | None:
    """The function that gives a value in units; None for types that are not numbers or times."""
    match type_.kind:
        case Kind.NUMBER | Kind.UNSIGNED | Kind.BOOLEAN:
            return int
        case Kind.DECIMAL:
            return lambda value: int(value.scaleb(type_.scale, _WIDE))
        case Kind.DATE:
            return lambda value: value.toordinal()
        case Kind.TIMESTAMP:
            return lambda value: (value - _EPOCH) // _MICROSECOND
        case _:
            return None


def value_of(type_: Type) -> Callable[[int], Value]:
    """The inverse of `units_of`."""
    match type_.kind:
        case Kind.DECIMAL:
            # Times 10^-s, which keeps all digits and is faster than a shift of the exponent.
            unit, multiply = Decimal((0, (1,), -type_.scale)), _WIDE.multiply
            return lambda units: multiply(Decimal(units), unit)
        case Kind.BOOLEAN:
            return bool
        case Kind.DATE:
            return datetime.date.fromordinal
        case Kind.TIMESTAMP:
            return lambda units: _EPOCH + units * _MICROSECOND
        case _:
            return int


class UnitDictionary(Dictionary):
    """Codes by value: computed, or numbered. A value is in it when a row asked for it; columns do not ask."""

    __slots__ = ("_least", "_most", "_to_units", "_to_value")

    def __init__(self, listed: list[Value], type_: Type) -> None:
        super().__init__(listed, _FIRST)
        to_units = units_of(type_)
        assert to_units is not None
        self._to_units, self._to_value = to_units, value_of(type_)
        self._least, self._most = _OWN_CODES[type_.kind]

    def __missing__(self, value: Value) -> Code:
        if not self.room:
            raise TooManyValues
        code = self.own_code(value)
        if code is None:
            code = _FIRST + len(self.listed)
            self.listed.append(value)
        self[value] = code
        return code

    def own_code(self, value: Value) -> Code | None:
        """The code of a value that is its own code."""
        if self._least == self._most:
            return None
        units = self._to_units(value)
        # What the units do not tell exactly is another value.
        if not self._least <= units < self._most or self._to_value(units) != value:
            return None
        return units + 1 if units >= 0 else 2**32 + units

    @property
    def room(self) -> int:
        """How many more values there may be."""
        return min(self.ceiling - len(self), _END - _FIRST - len(self.listed))

    def limit(self, more: int) -> int:
        """Allow so many more values, if that is fewer than before. Returns the ceiling before."""
        before, self.ceiling = self.ceiling, min(self.ceiling, len(self) + more)
        return before


class UnitValues(dict[Code, Value]):
    """Values by code, some of which are remembered."""

    __slots__ = ("_listed", "_to_value")

    def __init__(self, listed: list[Value], type_: Type) -> None:
        super().__init__({NULL: None})
        self._listed = listed
        self._to_value = value_of(type_)

    def __missing__(self, code: Code) -> Value:
        if _FIRST <= code < _END:
            return self._listed[code - _FIRST]
        value = self._to_value(int(code) - 1 if code < _FIRST else int(code) - 2**32)
        if len(self) >= _REMEMBERED:
            self.clear()
            self[NULL] = None
        self[code] = value
        return value


class UnitCodec(Codec):
    """The codes of a type that has units.

    >>> codec = UnitCodec(Type(Kind.NUMBER))
    >>> codec.encode(41), codec.encode(-1) == 2**32 - 1, codec.encode(10**12) == 2**31, codec.values[42]
    (42, True, True, 41)
    """

    __slots__ = ("_filled", "_is_exact", "_known", "_own_code", "_range", "_to_units", "type")

    def __init__(self, type_: Type) -> None:
        self.type = type_
        self.listed = []
        self.codes = codes = UnitDictionary(self.listed, type_)
        self._own_code = codes.own_code
        to_units = units_of(type_)
        assert to_units is not None
        self._to_units = to_units
        self.values = UnitValues(self.listed, type_)
        self.encode = self.codes.__getitem__
        self._range = _OWN_CODES[type_.kind]
        # The units of what is listed: as far as `_filled`.
        self._known: Array = np.zeros(0, np.int64)
        self._filled = 0
        self._is_exact = True

    def find(self, value: Value) -> Code | None:
        """The code of a value that is its own code, or has been seen."""
        found = self.codes.get(value)
        return found if found is not None else self._own_code(value)

    def encode_many(self, values: Collection[Value]) -> Array:
        """The codes of values; those of many numbers at once."""
        if self.type.kind in (Kind.NUMBER, Kind.DATE):
            convert = units_of(self.type)
            try:
                return self.from_units(np.fromiter(map(convert, values), np.int64, len(values)))  # type: ignore[arg-type]
            except (TypeError, AttributeError, OverflowError):
                pass  # a NULL, or a number of more than 64 bits
        return super().encode_many(values)

    def decode_many(self, codes: Array) -> list[Value]:
        """The values of codes."""
        if self.type.kind is Kind.NUMBER and codes.all():
            found: list[Value] = self.units(codes).tolist()
            return found
        return super().decode_many(codes)

    def compact(self, codes: Array) -> tuple[Array, Sequence[Value]]:
        """The column by numbers that start at 0, which is NULL, and the values by these numbers."""
        distinct, numbers = np.unique(np.append(codes, np.uint32(NULL)), return_inverse=True)
        return numbers[:-1].astype(np.uint32), [None, *self.decode_many(distinct[1:])]

    def from_units(self, units: Array) -> Array:
        """The codes of values of so many units."""
        if not len(units):
            return np.empty(0, np.uint32)
        least, most = int(units.min()), int(units.max())
        codes: Array = (units + 1 if least >= 0 else units + (units >= 0)).astype(np.uint32)
        if least < self._range[0] or most >= self._range[1]:
            outside = np.flatnonzero((units < self._range[0]) | (units >= self._range[1]))
            codes[outside] = self._numbered(units[outside])
        return codes

    def _numbered(self, units: Array) -> Array:
        distinct, inverse = np.unique(units, return_inverse=True)
        start = len(self.listed)
        codes = self.encode_distinct(list(map(value_of(self.type), distinct.tolist())))
        if len(self.listed) == start + len(distinct) and self._filled == start:
            # Each has an entry of its own: their units need no look at the values.
            self._fill(distinct)
        numbered: Array = codes[inverse]
        return numbered

    def code_of_units(self, units: int) -> Code:
        """The code of the value of so many units."""
        if self._range[0] <= units < self._range[1]:
            return units + 1 if units >= 0 else 2**32 + units
        return self.encode(value_of(self.type)(units))

    def units_of_code(self, code: Code) -> int:
        """The units of the value of a code that is not NULL."""
        if code < _FIRST:
            return code - 1
        return code - 2**32 if code >= _END else self._to_units(self.listed[code - _FIRST])

    def units(self, codes: Array) -> Array:
        """The units of codes; 0 for NULL. Raises OverflowError where some listed value is beyond 64 bits."""
        signed = codes.view(np.int32)
        units: Array = signed - (signed > 0).astype(np.int64)
        if self.listed:
            numbers = codes - np.uint32(_FIRST)
            listed = np.flatnonzero(numbers < len(self.listed))
            if len(listed):
                units[listed] = self._listed_units()[numbers[listed]]
        return units

    def _listed_units(self) -> Array:
        if self._filled < len(self.listed):
            convert, new = units_of(self.type), self.listed[self._filled :]
            assert convert is not None
            try:
                self._fill(np.fromiter(map(convert, new), np.int64, len(new)))
            except OverflowError:
                self._is_exact = False
        if not self._is_exact:
            raise OverflowError(f"a {self.type} beyond 64 bits")
        return self._known

    def _fill(self, units: Array) -> None:
        need = self._filled + len(units)
        if need > len(self._known):
            grown = np.zeros(need + need // 4, np.int64)
            grown[: self._filled] = self._known[: self._filled]
            self._known = grown
        self._known[self._filled : need] = units
        self._filled = need

    @property
    def nbytes(self) -> int:
        """The bytes of the units of what is listed."""
        return self._known.nbytes
