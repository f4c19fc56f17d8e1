"""Locations: a local folder, or an address that only Spark can reach. Everything that takes a path parses it here.

A text with a scheme of at least two letters and a slash after it is an address. `file:` addresses are local folders, with
percent-encoding; all others (`s3a://`, `abfss://`, `gs://`, `hdfs://`, `dbfs:/`) are remote and stay as they are. Everything else
is a local folder: one letter before a colon belongs to the name, `~` is the home folder, and a relative path starts from `base`
or from the working folder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from rederive.errors import PlaceError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_LOCAL_HOSTS: Final = ("", "localhost")


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """An address that only Spark can reach, without a slash at its end.

    >>> str(RemoteAddress("s3a://bucket/lake") / "base")
    's3a://bucket/lake/base'
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> RemoteAddress:
        return RemoteAddress(f"{self.address.rstrip('/')}/{name}")


Location: TypeAlias = Path | RemoteAddress


def parse_location(given: str | Path, base: Path | None = None) -> Location:
    """The location that a path or an address denotes. Local ones are absolute: Spark's executors have other working folders.

    >>> [str(parse_location(given)) for given in ("file:/data/a%20b/", "s3a://bucket/x/", "dbfs:/x", "/data/edges/")]
    ['/data/a b', 's3a://bucket/x', 'dbfs:/x', '/data/edges']
    >>> str(parse_location("c:/x", Path("/project")))
    '/project/c:/x'
    """
    text = str(given)
    if not text or "\0" in text:
        raise PlaceError(f"{text!r} does not name a folder", hint="name a folder, or an address that Spark can write")
    address = _SCHEME.fullmatch(text)
    if address is None:
        return _absolute((base or Path()) / (_in_home(text) if text.startswith("~") else Path(text)))
    scheme, rest = address[1].lower(), address[2]
    if not rest.startswith("/"):
        hint = f"write {scheme}:/... for an address, or ./{text} for a local folder with this name"
        raise PlaceError("an address needs a slash after its scheme", hint=hint).at(text)
    if scheme == "file":
        return _from_uri(text, rest)
    if isinstance(given, Path):  # pathlib has made one slash of two, so the host or bucket looks like a folder
        raise PlaceError("a pathlib.Path cannot hold an address", hint="pass the address as a str").at(text)
    return RemoteAddress(text.rstrip("/") if rest.strip("/") else text)


def local_folder(given: str | Path, what: str, base: Path | None = None) -> Path:
    """The local folder that a text denotes; raises PlaceError for an address. `what`: what needs the folder, such as "a store".

    >>> local_folder("s3a://bucket/store", "a store")
    Traceback (most recent call last):
    rederive.errors.PlaceError: s3a://bucket/store: error[place]: a store needs a local folder, and this is an address
      help: name a local or mounted folder
    """
    found = parse_location(str(given), base)
    if isinstance(found, RemoteAddress):
        raise PlaceError(f"{what} needs a local folder, and this is an address", hint="name a local or mounted folder").at(
            str(given)
        )
    return found


def _in_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        hint = f"write the folder's absolute path, or ./{text} for a folder with this name"
        raise PlaceError("this home folder does not exist", hint=hint).at(text) from None


def _from_uri(text: str, rest: str) -> Path:
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest[1:])
    if host.lower() not in _LOCAL_HOSTS or not slash:
        hint = f"write file:///{rest.lstrip('/')} for a local folder, or mount the other machine's"
        raise PlaceError(f"a file: address must name a folder of this machine, not of '{host}'", hint=hint).at(text)
    decoded = os.fsdecode(unquote_to_bytes(os.fsencode(path)))
    if "\0" in decoded:
        raise PlaceError("a folder's name cannot contain a zero byte", hint="leave out %00").at(text)
    return _absolute(Path(f"/{decoded.lstrip('/')}"))


def _absolute(path: Path) -> Path:
    """An absolute path without `..`: the operating system follows links before it goes up, and Hadoop does not."""
    return path.resolve() if ".." in path.parts else path.absolute()
