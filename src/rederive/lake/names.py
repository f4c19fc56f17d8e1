"""Names of relations as folders, and of columns in tables: no two names become one, and every file system accepts them."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from rederive.ir.rules import Relation

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_")
_LONGEST: Final = 150  # characters of a folder's name; most file systems allow 255 bytes
_COLUMN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
PRESENT: Final = "_present"
"""The only column of a table of a relation without columns: Delta has no table without columns."""


@lru_cache(maxsize=4096)
def folder_name(relation: str) -> str:
    """The folder of a relation. Lower-case letters, digits and `_` stay; every other byte becomes `-` and two hexadecimal digits.

    So no two names become one, even on a file system that ignores case. A very long name ends with `--` and its hash.

    >>> folder_name("edge"), folder_name("deg.count1"), folder_name("Edge")
    ('edge', 'deg-2ecount1', '-45dge')
    >>> len(folder_name("x" * 1000))
    150
    """
    # A leading `_` is encoded, too: Hadoop hides files and folders whose names start with it.
    data = relation.encode()
    coded = "".join(chr(byte) if byte in _PLAIN and (i or byte != ord("_")) else f"-{byte:02x}" for i, byte in enumerate(data))
    if len(coded) <= _LONGEST:
        return coded
    digest = hashlib.sha256(data).hexdigest()
    return f"{coded[: _LONGEST - len(digest) - 2].rstrip('-')}--{digest}"


@lru_cache(maxsize=4096)
def column_names(relation: Relation) -> tuple[str, ...]:
    """The columns of a relation's table: its own names, or `_c<position>` for one that Delta cannot write or tell from another.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> column_names(Relation("r", (Column("x", NUMBER), Column("X", NUMBER), Column("y?", NUMBER))))
    ('x', '_c1', '_c2')
    """
    if not relation.columns:
        return (PRESENT,)
    names = [column.name for column in relation.columns]
    folded = [name.lower() for name in names]
    return tuple(name if _COLUMN.fullmatch(name) and folded.index(folded[i]) == i else f"_c{i}" for i, name in enumerate(names))


def quote(name: str) -> str:
    """A column's name as Spark SQL writes it.

    >>> quote("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
