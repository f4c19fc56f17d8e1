"""The kinds of places that commands take: a program, the folder of a store, the address of a service."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from rederive.errors import PlaceError
from rederive.locations import local_folder
from rederive.store.journal.file import FILE

T = TypeVar("T")


class PlaceKind(Enum):
    """What a place is."""

    PROGRAM = "a program"
    STORE = "the folder of a store"
    SERVICE = "the address of a service"


_FOUND: Final = {PlaceKind.PROGRAM: "a file", PlaceKind.STORE: "a folder", PlaceKind.SERVICE: "an address"}
_TAKEN_BY: Final = {
    PlaceKind.PROGRAM: "use rederive run, shell, check, explain, advise, query or why with a program",
    PlaceKind.STORE: "use rederive query, why, log or backup with the folder of a store, and run or shell with --store FOLDER",
    PlaceKind.SERVICE: "use rederive query, why, watch or apply with the address of a service",
}
# pathlib makes one slash of two.
_HTTP: Final = re.compile(r"(https?):/+", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def kind_of(place: str | Path) -> PlaceKind | None:
    """What a place is; None if nothing is there.

    >>> kind_of("http://127.0.0.1:8420"), kind_of("/"), kind_of("nothing here")
    (<PlaceKind.SERVICE: 'the address of a service'>, <PlaceKind.STORE: 'the folder of a store'>, None)
    """
    text, path = str(place), Path(place)
    if path.exists():
        return PlaceKind.STORE if path.is_dir() else PlaceKind.PROGRAM
    if _HTTP.match(text):
        return PlaceKind.SERVICE
    return PlaceKind.STORE if _ADDRESS.match(text) else None


def only(wanted: PlaceKind) -> Callable[[T], T]:
    """The callback of an argument that takes one kind of place. A place where nothing is passes: its command says so."""

    def check(given: T) -> T:
        for place in given if isinstance(given, list) else [given]:
            if not isinstance(place, str | Path):  # an argument that is left out
                continue
            found = kind_of(place)
            if found not in (wanted, None):
                shown = _HTTP.sub(r"\1://", str(place), count=1)
                raise PlaceError(f"not {wanted.value}, but {_FOUND[found]}", hint=_TAKEN_BY[found]).at(shown)
        return given

    return check


def store_in(folder: str | Path) -> Path:
    """The store of a folder, which may also be that of a project or of a lake."""
    found = local_folder(folder, "a store")
    if (found / FILE).exists():
        return found
    inside = sorted(file.parent for file in found.glob(f"*/{FILE}"))
    if len(inside) > 1:
        names = ", ".join(str(Path(folder) / one.name) for one in inside)
        raise PlaceError("the folder has several stores", hint=f"name one of {names}").at(str(folder))
    return inside[0] if inside else found
