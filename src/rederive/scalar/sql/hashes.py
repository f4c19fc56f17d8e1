"""Hash functions: digests of texts, and Spark's `hash` (Murmur3) and `xxhash64` of values of any types."""

from __future__ import annotations

import datetime
import hashlib
import struct
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from rederive.ir.floats import canonical
from rederive.scalar.sql.built_in import BuiltIn

_SEED: Final = 42
_32, _64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def _sha2(text: str, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return hashlib.new(name, text.encode()).hexdigest() if name is not None else None


# Murmur3 of 32 bits, as org.apache.spark.unsafe.hash.Murmur3_x86_32 computes it: the bytes of a tail are mixed one by one.


def _mix(state: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _32
    word = (word << 15 | word >> 17) * 0x1B873593 & _32
    state ^= word
    return ((state << 13 | state >> 19) & _32) * 5 + 0xE6546B64 & _32


def _finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & _32
    state = (state ^ state >> 13) * 0xC2B2AE35 & _32
    return state ^ state >> 16


def _murmur_int(value: int, seed: int) -> int:
    return _finish(_mix(seed, value & _32), 4)


def _murmur_long(value: int, seed: int) -> int:
    return _finish(_mix(_mix(seed, value & _32), value >> 32 & _32), 8)


def _murmur_bytes(data: bytes, seed: int) -> int:
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = _mix(seed, word)
    for byte in data[whole:]:
        seed = _mix(seed, (byte - 256 if byte > 127 else byte) & _32)
    return _finish(seed, len(data))


# xxHash of 64 bits


def _turn(value: int, bits: int) -> int:
    return (value << bits | (value & _64) >> (64 - bits)) & _64


def _avalanche(state: int) -> int:
    state = (state ^ state >> 33) * _P2 & _64
    state = (state ^ state >> 29) * _P3 & _64
    return state ^ state >> 32


def _xx_int(value: int, seed: int) -> int:
    state = seed + _P5 + 4 & _64
    return _avalanche(_turn(state ^ (value & _32) * _P1 & _64, 23) * _P2 + _P3 & _64)


def _xx_word(state: int, word: int) -> int:
    return _turn(state ^ _turn(word * _P2 & _64, 31) * _P1 & _64, 27) * _P1 + _P4 & _64


def _xx_long(value: int, seed: int) -> int:
    return _avalanche(_xx_word(seed + _P5 + 8 & _64, value & _64))


def _xx_bytes(data: bytes, seed: int) -> int:
    size, place = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while place <= size - 32:
            words = struct.unpack_from("<4Q", data, place)
            lanes = [_turn(lane + word * _P2 & _64, 31) * _P1 & _64 for lane, word in zip(lanes, words, strict=True)]
            place += 32
        state = sum(_turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _64
        for lane in lanes:
            state = (state ^ _turn(lane * _P2 & _64, 31) * _P1 & _64) * _P1 + _P4 & _64
    else:
        state = seed + _P5
    state = state + size & _64
    while place + 8 <= size:
        state = _xx_word(state, struct.unpack_from("<Q", data, place)[0])
        place += 8
    if place + 4 <= size:
        state = _turn(state ^ struct.unpack_from("<I", data, place)[0] * _P1 & _64, 23) * _P2 + _P3 & _64
        place += 4
    for byte in data[place:]:
        state = _turn(state ^ byte * _P5 & _64, 11) * _P1 & _64
    return _avalanche(state)


_Hash = Callable[[Any, int], int]


def _hash_value(kind: str, value: Any, seed: int, hashes: tuple[_Hash, _Hash, _Hash]) -> int:
    """The hash of one value, which is the seed of the next. `kind`: int, long, float, or the precision of a decimal."""
    of_int, of_long, of_bytes = hashes
    match value:
        case None:
            return seed
        case str():
            return of_bytes(value.encode(), seed)
        case float() if kind == "float":
            return of_int(struct.unpack("<i", struct.pack("<f", value))[0], seed)
        case float():
            return of_long(struct.unpack("<q", struct.pack("<d", canonical(value)))[0], seed)
        case datetime.datetime():
            return of_long((value - _EPOCH) // _MICROSECOND, seed)
        case datetime.date():
            return of_int((value - _EPOCH.date()).days, seed)
        case Decimal():
            sign, digits, _ = value.as_tuple()
            whole = int(Decimal((sign, digits, 0)))
            # Spark holds decimals of at most 18 digits in 64 bits, and others as bytes in two's complement.
            if int(kind) <= 18:
                return of_long(whole, seed)
            size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
            return of_bytes(whole.to_bytes(size, "big", signed=True), seed)
    return of_int(int(value), seed) if kind == "int" else of_long(value, seed)


def _hash(kinds: str, *values: Any) -> int:
    state = _SEED
    for kind, value in zip(kinds.split(), values, strict=True):
        state = _hash_value(kind, value, state, (_murmur_int, _murmur_long, _murmur_bytes))
    return state - 2**32 if state >= 2**31 else state


def _xxhash64(kinds: str, *values: Any) -> int:
    state = _SEED
    for kind, value in zip(kinds.split(), values, strict=True):
        state = _hash_value(kind, value, state, (_xx_int, _xx_long, _xx_bytes))
    return state - 2**64 if state >= 2**63 else state


HASHES: Final = (
    BuiltIn("md5", "string -> string", lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()),
    BuiltIn(
        "sha1",
        "string -> string",
        lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
        aliases=("sha",),
    ),
    BuiltIn("sha2", "string, int -> string", _sha2, maybe_null=True),
    BuiltIn("crc32", "string -> bigint", lambda text: zlib.crc32(text.encode())),
    # The first argument that an engine sees names the kinds of the others: the width of an integer decides its hash.
    BuiltIn("hash", "any ... -> int", _hash, strict=False),
    BuiltIn("xxhash64", "any ... -> bigint", _xxhash64, strict=False),
)
