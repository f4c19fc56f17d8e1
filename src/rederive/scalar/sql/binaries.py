"""Functions of BINARY values, which are bytes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import Any, Final

from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.sql.built_in import BuiltIn

_CHARSETS: Final = {
    "us-ascii": "ascii", "iso-8859-1": "latin-1", "utf-8": "utf-8", "utf-16be": "utf-16-be", "utf-16le": "utf-16-le",
    "utf-16": "utf-16-be", "utf-32": "utf-32-be",
}  # fmt: skip


def _charset(name: str) -> str:
    found = _CHARSETS.get(name.lower())
    if found is None:
        raise ScalarError(f"not a character set: {name!r}")
    return found


def _encode(text: str, charset: str) -> bytes:
    try:
        encoded = text.encode(_charset(charset))
    except UnicodeEncodeError:
        raise ScalarError(f"{charset} has no code for a character of {text!r}") from None
    return b"\xfe\xff" + encoded if charset.lower() == "utf-16" and encoded else encoded


def _decode(data: bytes, charset: str) -> str:
    name = _charset(charset)
    if charset.lower() == "utf-16" and data[:2] in (b"\xfe\xff", b"\xff\xfe"):
        name, data = ("utf-16-be" if data[:2] == b"\xfe\xff" else "utf-16-le"), data[2:]
    try:
        return data.decode(name)
    except UnicodeDecodeError:
        raise ScalarError(f"the bytes are not {charset}") from None


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(("0" if len(text) % 2 else "") + text) if not any(c.isspace() for c in text) else None
    except ValueError:
        return None


def _from_mime(text: str) -> bytes:
    """unbase64: as Java reads MIME, other characters than those of base64 are skipped, and the padding may be missing."""
    kept = "".join(c for c in text.partition("=")[0] if c.isascii() and (c.isalnum() or c in "+/"))
    if len(kept) % 4 == 1:
        raise ScalarError(f"{text!r} is not text in base64")
    return base64.b64decode(kept + "=" * (-len(kept) % 4))


def _strict_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(c for c in text if c not in "\r\n"), validate=True)
    except (binascii.Error, ValueError):
        raise ScalarError(f"{text!r} is not text in base64") from None


def _to_binary(text: str, format: str) -> bytes:
    match format.lower():
        case "hex":
            if (found := _unhex(text)) is None:
                raise ScalarError(f"{text!r} is not text in hex")
            return found
        case "base64":
            return _strict_base64(text)
        case "utf-8" | "utf8":
            return text.encode()
    raise ScalarError(f"not a format of to_binary: {format!r}")


def _substring(data: bytes, start: int, length: int = 2**31 - 1) -> bytes:
    begin = start - 1 if start > 0 else len(data) + start if start < 0 else 0
    end = begin + length
    return data[max(begin, 0) : max(end, 0)] if length > 0 else b""


def _pad(data: bytes, width: int, fill: bytes, *, left: bool) -> bytes:
    check_length(width)
    if width <= len(data) or not fill:
        return data[: max(width, 0)]
    more = (fill * (width // len(fill) + 1))[: width - len(data)]
    return more + data if left else data + more


def _base64(data: bytes) -> str:
    encoded = base64.b64encode(data).decode()
    return "\r\n".join(encoded[i : i + 76] for i in range(0, len(encoded), 76))  # lines of MIME


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return hashlib.new(name, data).hexdigest() if name is not None else None


def _concat(*parts: bytes) -> bytes:
    check_length(sum(map(len, parts)))
    return b"".join(parts)


def _of_bytes(name: str, signature: str, compute: Any, **flags: Any) -> BuiltIn:
    return BuiltIn(f"{name} of bytes", signature, compute, **flags)


# `name of bytes`: what the function `name` computes where its first argument is BINARY (`lang.sql.binary_functions`).
BINARIES: Final = (
    BuiltIn("encode", "string, string -> binary", _encode, fallible=True),
    BuiltIn("decode_bytes", "binary, string -> string", _decode, fallible=True),
    BuiltIn("unhex", "string -> binary", _unhex, maybe_null=True),
    BuiltIn("unbase64", "string -> binary", _from_mime, fallible=True),
    BuiltIn("to_binary", "string, [string] -> binary", lambda text, format="hex": _to_binary(text, format), fallible=True),
    BuiltIn("is_valid_utf8", "string -> boolean", lambda text: True),
    _of_bytes("length", "binary -> int", len),
    _of_bytes("octet_length", "binary -> int", len),
    _of_bytes("bit_length", "binary -> int", lambda data: 8 * len(data)),
    _of_bytes("concat", "binary ... -> binary", _concat),
    _of_bytes("substring", "binary, int, [int] -> binary", _substring),
    _of_bytes("left", "binary, int -> binary", lambda data, count: data[: max(count, 0)]),
    _of_bytes("reverse", "binary -> binary", lambda data: data[::-1]),
    _of_bytes("startswith", "binary, binary -> boolean", bytes.startswith),
    _of_bytes("endswith", "binary, binary -> boolean", bytes.endswith),
    _of_bytes("contains", "binary, binary -> boolean", lambda data, part: part in data),
    _of_bytes("lpad", "binary, int, binary -> binary", lambda d, w, f=b"\0": _pad(d, w, f, left=True)),
    _of_bytes("rpad", "binary, int, binary -> binary", lambda d, w, f=b"\0": _pad(d, w, f, left=False)),
    _of_bytes("hex", "binary -> string", lambda data: data.hex().upper()),
    _of_bytes("base64", "binary -> string", _base64),
    _of_bytes("md5", "binary -> string", lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    _of_bytes("sha1", "binary -> string", lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest()),
    _of_bytes("sha2", "binary, int -> string", _sha2, maybe_null=True),
    _of_bytes("crc32", "binary -> bigint", zlib.crc32),
)
