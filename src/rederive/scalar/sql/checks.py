"""Functions that check their arguments, and parts of addresses."""

from __future__ import annotations

import math
import re
import urllib.parse
from typing import Any, Final

from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.numbers import divide_toward_zero

_BITS: Final = 8 * 4096  # of a bitmap
# The characters of an address as java.net.URI takes them; others must be escaped.
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])*")


def _assert_true(condition: bool | None, message: str = "the condition of assert_true is not true") -> None:
    if condition is not True:
        raise ScalarError(message)


def _raise_error(message: str | None) -> Any:
    raise ScalarError(message or "")


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    if _ADDRESS.fullmatch(url) is None:
        raise ScalarError(f"not a URL: {url!r}")
    found = urllib.parse.urlsplit(url)
    if key is not None:
        values = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", found.query) if part == "QUERY" else None
        return values[1] if values is not None else None
    user, _, host = found.netloc.rpartition("@")
    query = f"?{found.query}" if "?" in url.partition("#")[0] else ""
    parts = {
        "HOST": re.sub(r":\d*$", "", host) or None,
        "PATH": found.path,
        "QUERY": found.query if query else None,
        "REF": found.fragment if "#" in url else None,
        "PROTOCOL": found.scheme or None,
        "FILE": found.path + query,
        "AUTHORITY": found.netloc or None,
        "USERINFO": user or None,
    }
    return parts.get(part)


def _nanvl(value: float | None, other: float | None) -> float | None:
    return other if value is not None and math.isnan(value) else value


CHECKS: Final = (
    BuiltIn("assert_true", "boolean, [string] -> void", _assert_true, strict=False, fallible=True),
    BuiltIn("raise_error", "string -> void", _raise_error, strict=False, fallible=True),
    BuiltIn("isnan", "double -> boolean", lambda value: value is not None and math.isnan(value), strict=False),
    BuiltIn("nanvl", "double, double -> double", _nanvl, strict=False),
    BuiltIn("bitmap_bit_position", "bigint -> bigint", lambda n: (n - 1) % _BITS if n > 0 else -n % _BITS),
    BuiltIn(
        "bitmap_bucket_number", "bigint -> bigint", lambda n: 1 + (n - 1) // _BITS if n > 0 else divide_toward_zero(n, _BITS)
    ),
    BuiltIn("bitmap_count", "binary -> bigint", lambda data: sum(byte.bit_count() for byte in data)),
    # A text of ours is always valid.
    *(BuiltIn(name, "string -> string", lambda text: text) for name in ("validate_utf8", "try_validate_utf8", "make_valid_utf8")),
    BuiltIn("parse_url", "string, string, [string] -> string", _parse_url, fallible=True, maybe_null=True),
)
