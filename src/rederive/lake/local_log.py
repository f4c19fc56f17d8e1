"""The log of a Delta table in a local folder, read and written by this process: a commit is one file, and no Spark job.

Only tables whose protocol features are all known here are read; any other table is left to Spark. A commit exists when its file
has its final name, which a link gives it only if no other writer has taken it. See Delta's protocol, sections "Actions",
"Deletion Vectors" and "Checkpoints".
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Final
from uuid import UUID, uuid4
from zlib import crc32

import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql.types import StructType

from rederive.lake.delta_log import APPLICATION, LOG, TableState

Action = dict[str, Any]

_KNOWN_FEATURES: Final = {"deletionVectors", "timestampNtz", "appendOnly", "invariants"}
_FORBIDDEN: Final = {"delta.appendOnly", "delta.enableChangeDataFeed", "delta.columnMapping.mode"}
_MAGIC: Final = struct.pack("<i", 1681511377)  # of a RoaringBitmapArray, followed by the portable format of 64-bit bitmaps
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS: Final = {digit: i for i, digit in enumerate(_Z85)}


class Overtaken(Exception):
    """Another writer has made the commit of this number."""


@dataclass(slots=True)
class LocalLog:
    """A table as its log has it. `files`: the current files, by path, each as the action that added it."""

    place: Path
    version: int = -1
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)
    written: int | None = None
    checkpoint: int = -1
    """The last commit that has a checkpoint."""
    lock: RLock = field(default_factory=RLock, repr=False, compare=False)
    """Settling writes in a thread of its own, while others read."""

    def refresh(self) -> bool:
        """Read what was committed since; False if there is no table that this process can read and write."""
        with self.lock:
            return self.read() and self._is_known()

    def read(self, upto: int | None = None) -> bool:
        """Read what was committed since, up to a commit; False if the log cannot be read, or does not reach back to it."""
        try:
            if self.version < 0 or not (self.place / LOG).exists():
                self.version = -1
                self._read_checkpoint()
            while self.version != upto and (file := self.commit_file(self.version + 1)).exists():
                for action in self.actions(file):
                    self._apply(action)
                self.version += 1
        except (OSError, ValueError, KeyError):
            self.version = -1
        return self.version >= 0 and upto in (None, self.version)

    @staticmethod
    def actions(commit: Path) -> list[Action]:
        """The actions of a commit."""
        return [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]

    def commit_file(self, version: int) -> Path:
        """The file of a commit."""
        return self.place / LOG / f"{version:020}.json"

    def _read_checkpoint(self) -> None:
        """Start from the last checkpoint, if there is one."""
        self.metadata, self.protocol, self.files, self.written, self.checkpoint = {}, {}, {}, None, -1
        hint = self.place / LOG / "_last_checkpoint"
        if not hint.exists():
            return
        found = json.loads(hint.read_text(encoding="utf-8"))
        version, parts = int(found["version"]), found.get("parts")
        names = [f"{version:020}.checkpoint.parquet"]
        if parts:
            names = [f"{version:020}.checkpoint.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]
        for name in names:
            table = pq.read_table(self.place / LOG / name, partitioning=None)
            for kind in ("metaData", "protocol", "add", "txn"):
                for action in table[kind].drop_null().to_pylist():
                    self._apply({kind: _without_nulls(action)})
        self.version = self.checkpoint = version

    def _apply(self, action: Action) -> None:
        match action:
            case {"add": added}:
                self.files[added["path"]] = added
            case {"remove": removed}:
                # A file whose deletion vector changes is removed and added by one commit, in either order.
                if vector_id(self.files.get(removed["path"], {})) == vector_id(removed):
                    self.files.pop(removed["path"], None)
            case {"metaData": metadata}:
                self.metadata = metadata
            case {"protocol": protocol}:
                self.protocol = protocol
            case {"txn": {"appId": "rederive", "version": version}}:
                self.written = version

    def _is_known(self) -> bool:
        features = {*self.protocol.get("readerFeatures", ()), *self.protocol.get("writerFeatures", ())}
        properties = self.properties
        return (
            self.protocol["minReaderVersion"] in (1, 3)
            and self.protocol["minWriterVersion"] in (1, 2, 7)
            and features <= _KNOWN_FEATURES
            and not self.metadata.get("partitionColumns")
            and not any(properties.get(name, "false") not in ("false", "none") for name in _FORBIDDEN)
            # Columns that state conditions of their values are left to Spark.
            and "delta.invariants" not in self.metadata["schemaString"]
        )

    def create(
        self,
        schema: StructType,
        properties: Mapping[str, str],
        fill: Callable[[], list[Action]] | None = None,
        version: int | None = None,
    ) -> None:
        """Make the first commit of a table, with the files that `fill` writes: all of it exists, or nothing.

        The folder may hold what a killed first write left. `version`: the version of ours that the rows belong to.
        """
        features = ["deletionVectors", *(["timestampNtz"] if '"timestamp_ntz"' in schema.json() else [])]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features}
        protocol["writerFeatures"] = [*features, "appendOnly", "invariants"]
        described = {"id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema.json()}
        more = {"partitionColumns": [], "configuration": dict(properties), "createdTime": _milliseconds()}
        (self.place / LOG).mkdir(parents=True, exist_ok=True)
        self.metadata = {**described, **more}  # `fill` needs the columns
        files = fill() if fill is not None else []
        self.commit([{"protocol": protocol}, {"metaData": self.metadata}, *files], "CREATE TABLE", version, after=-1)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        found = self.metadata.get("configuration") or {}
        return dict(found)

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return StructType.fromJson(json.loads(self.metadata["schemaString"]))

    @property
    def has_vectors(self) -> bool:
        """Whether rows can be deleted by deletion vectors."""
        return self.properties.get("delta.enableDeletionVectors") == "true"

    def state(self) -> TableState:
        """The table, as `delta_log.table_state` describes it."""
        size = sum(file["size"] for file in self.files.values())
        return TableState(self.metadata["id"], self.version, self.schema, self.properties, self.written, len(self.files), size)

    def commit(self, actions: Sequence[Action], operation: str, version: int | None, *, after: int) -> None:
        """Make one commit of these actions, which follow from the commit `after`. `version`: the one of ours it belongs to."""
        now = _milliseconds()
        info = {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": APPLICATION}
        lines: list[Action] = [{"commitInfo": info}]
        if version is not None:
            # As `delta_log.idempotent_options` has it.
            info["userMetadata"] = json.dumps({APPLICATION: version})
            lines.append({"txn": {"appId": APPLICATION, "version": version, "lastUpdated": now}})
        text = "\n".join(json.dumps(line) for line in (*lines, *actions)) + "\n"
        partial = self.place / LOG / f".{uuid4().hex}.tmp"
        write_synced(partial, text.encode())
        with self.lock:
            self._link(partial, after + 1)
            for line in (*lines, *actions):
                self._apply(line)
            self.version += 1

    def _link(self, partial: Path, number: int) -> None:
        try:
            # A link, unlike a renaming, never replaces a file: of two writers one gets the number.
            os.link(partial, self.commit_file(number))
        except FileExistsError:
            raise Overtaken from None
        finally:
            partial.unlink()
        sync_folder(self.place / LOG)

    # Deletion vectors

    def deleted(self, file: Action) -> BitMap64:
        """The positions of a file's rows that are deleted."""
        vector = file.get("deletionVector")
        if not vector:
            return BitMap64()
        if vector["storageType"] == "i":
            data = _decode(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
        else:
            with self._vector_file(vector).open("rb") as opened:
                opened.seek(vector.get("offset") or 0)
                (size,) = struct.unpack(">i", opened.read(4))
                data = opened.read(size)
        if not data.startswith(_MAGIC):
            raise ValueError("a deletion vector of another format")
        return BitMap64.deserialize(data[len(_MAGIC) :])

    def _vector_file(self, vector: Mapping[str, Any]) -> Path:
        if vector["storageType"] == "p":
            return Path(vector["pathOrInlineDv"].removeprefix("file://").removeprefix("file:"))
        # The last 20 characters are the file's number, those before it a folder.
        coded = str(vector["pathOrInlineDv"])
        name = f"deletion_vector_{UUID(bytes=_decode(coded[-20:]))}.bin"
        return self.place / coded[:-20] / name

    def write_vectors(self, vectors: Iterable[BitMap64]) -> list[Action]:
        """Write deletion vectors to one file; their descriptions, in the same order."""
        number, content, found = uuid4(), bytearray(b"\x01"), []
        for vector in vectors:
            data = _MAGIC + vector.serialize()
            described = {"storageType": "u", "pathOrInlineDv": _encode(number.bytes), "offset": len(content)}
            found.append({**described, "sizeInBytes": len(data), "cardinality": len(vector)})
            content += struct.pack(">i", len(data)) + data + struct.pack(">I", crc32(data))
        write_synced(self.place / f"deletion_vector_{number}.bin", bytes(content))
        return found


def replace_vector(file: Action, vector: Action) -> list[Action]:
    """The actions that give a file another deletion vector."""
    stats = json.loads(file.get("stats") or "{}")
    # The least and greatest values may be of deleted rows from now on.
    stats = json.dumps({**stats, "tightBounds": False})
    return [remove_action(file), {"add": {**file, "deletionVector": vector, "stats": stats, "dataChange": True}}]


def remove_action(file: Action, *, data_change: bool = True) -> Action:
    """The action that removes a file."""
    removed = {"path": file["path"], "deletionTimestamp": _milliseconds(), "dataChange": data_change}
    more = {"extendedFileMetadata": True, "partitionValues": {}, "size": file["size"]}
    vector = {"deletionVector": file["deletionVector"]} if file.get("deletionVector") else {}
    return {"remove": {**removed, **more, **vector}}


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file to the disk: the journal forgets a version when its commit exists."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # some file systems cannot sync a folder
        os.fsync(descriptor)
    os.close(descriptor)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def vector_id(file: Mapping[str, Any]) -> object:
    """What tells the deletion vectors of a file apart."""
    vector = file.get("deletionVector") or {}
    return vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")


def _without_nulls(action: Any) -> Any:
    """An action of a checkpoint as a commit would have it: Parquet has every field, and maps as pairs."""
    found = {name: value for name, value in action.items() if value is not None}
    for name in ("configuration", "partitionValues"):
        if name in found:
            found[name] = dict(found[name])
    if "deletionVector" in found:
        found["deletionVector"] = _without_nulls(found["deletionVector"])
    return found


def _encode(data: bytes) -> str:
    """
    >>> _decode(_encode(bytes(range(16)))) == bytes(range(16))
    True
    """
    numbers = (int.from_bytes(data[i : i + 4]) for i in range(0, len(data), 4))
    return "".join("".join(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0)) for number in numbers)


def _decode(text: str) -> bytes:
    groups = (text[i : i + 5] for i in range(0, len(text), 5))
    return b"".join(sum(_DIGITS[c] * 85 ** (4 - i) for i, c in enumerate(group)).to_bytes(4) for group in groups)
