"""A checkpoint: the state of an engine at one version, in a file next to the journal, so that opening need not evaluate views.

The journal alone is the truth. A checkpoint that does not belong to a version of this journal, or to the program that runs, is
ignored; one of an earlier version is brought forward by the changes that the journal has recorded since.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

FILE: Final = "checkpoint"
_FORMAT: Final = 1  # of the file, and of what engines dump: raised whenever either changes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an engine dumped at a version. `at`: when the journal committed that version, which another history would not share.

    `program`: the digest of the program that ran. `not_stored`: views that did not fit in memory.
    """

    epoch: str
    version: int
    at: str
    program: str
    not_stored: tuple[str, ...]
    data: bytes


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a store. A kill leaves the old one or the new one."""
    head = {
        "format": _FORMAT,
        "epoch": checkpoint.epoch,
        "version": checkpoint.version,
        "at": checkpoint.at,
        "program": checkpoint.program,
        "not_stored": checkpoint.not_stored,
        "bytes": len(checkpoint.data),
        "checksum": crc32(checkpoint.data),
    }
    partial = folder / f"{FILE}.partial"
    with partial.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n")
        file.write(checkpoint.data)
        file.flush()
        os.fsync(file.fileno())
    # The journal needs no sync of the folder: after a power failure either name is as good.
    partial.replace(folder / FILE)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a store; None if there is none, or none that this release reads whole."""
    try:
        with (folder / FILE).open("rb") as file:
            head = json.loads(file.readline())
            if head["format"] != _FORMAT:
                return None
            data = file.read()
        if (head["bytes"], head["checksum"]) != (len(data), crc32(data)):
            return None
        return Checkpoint(head["epoch"], head["version"], head["at"], head["program"], tuple(head["not_stored"]), data)
    except (OSError, ValueError, KeyError, TypeError):
        return None
