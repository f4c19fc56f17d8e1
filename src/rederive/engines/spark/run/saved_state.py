"""The stored views and auxiliary state of a Spark engine in files, so that a later process need not evaluate the views.

A relation is saved as the engine holds it: its rows, and the deltas since. Rows that were saved before and did not change since
are not written again. Base relations are not saved: they are in the lake, or in tables in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow import parquet
from pyspark.errors import PySparkException

from rederive.engines.protocol import Unrestorable
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Types, shown
from rederive.engines.spark.run.arrow_sets import cast_columns
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import Storage, StoredRelation
from rederive.engines.spark.session.types import schema, to_arrow
from rederive.ir.terms import Kind, Part, Type

SavedFrame = dict[str, Any]
"""A frame in files, as JSON: its name in the folder, and its number of rows."""


class SavedFrames:
    """The folder of one engine's saved frames. `is_local`: whether this process can read it."""

    def __init__(self, jobs: Jobs, folder: str) -> None:
        self.jobs = jobs
        self.folder = folder.rstrip("/")
        self.is_local = jobs.scratch.is_local and "://" not in folder
        self._in_use: set[str] = set()

    def save(self, storage: Storage, names: Iterable[str]) -> dict[str, Any]:
        """Write relations; what `restore` needs to read them."""
        if self.is_local:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            # What neither the last checkpoint nor the rows in use refer to is of a process that was killed.
            for path in Path(self.folder).iterdir():
                if path.name not in self._in_use:
                    _remove(path)
        found = {name: self._save(storage.summed(name)) for name in names if name in storage}
        self._in_use = {part["name"] for relation in found.values() for part in _parts(relation)}
        return found

    def restore(self, saved: Mapping[str, Any]) -> dict[str, StoredRelation]:
        """The relations that `save` wrote; raises `Unrestorable` if their files are gone."""
        try:
            found = {name: self._restore(relation) for name, relation in saved.items()}
        except (PySparkException, OSError):
            raise Unrestorable from None
        self._in_use = {part["name"] for relation in saved.values() for part in _parts(relation)}
        return found

    def _save(self, stored: StoredRelation) -> dict[str, Any]:
        types = [_type_to_json(type) for type in stored.rows.types]
        minus, plus = ([self._write(frame) for frame in side] for side in (stored.minus, stored.plus))
        return {"types": types, "rows": self._write(stored.rows), "minus": minus, "plus": plus, "by": stored.by}

    def _restore(self, relation: Mapping[str, Any]) -> StoredRelation:
        types = tuple(map(_type_from_json, relation["types"]))
        minus, plus = (tuple(self._read(part, types) for part in relation[side]) for side in ("minus", "plus"))
        return StoredRelation(self._read(relation["rows"], types), minus, plus, by=relation["by"])

    def _write(self, frame: Frame) -> SavedFrame:
        if isinstance(frame, Distributed) and frame.saved is not None:
            return {"name": frame.saved, "rows": len(frame)}
        name = f"{uuid4().hex}.parquet"
        many = frame
        if isinstance(frame, Local):
            many = self.jobs.frames.distributed_table(to_arrow(frame.rows, frame.types), frame.types)
        assert isinstance(many, Distributed)
        if many.table is not None and self.is_local:
            parquet.write_table(many.table, f"{self.folder}/{name}")
        else:
            many.data.write.parquet(f"{self.folder}/{name}")
        many.saved = name
        return {"name": name, "rows": len(frame)}

    def _read(self, part: SavedFrame, types: Types) -> Frame:
        path, frames = f"{self.folder}/{part['name']}", self.jobs.frames
        if part["rows"] <= self.jobs.tuning.arrow_rows:
            read = parquet.read_table(path) if self.is_local else self._data(path, types).toArrow()
            found = frames.of_table(cast_columns(read, shown(types)), types)
        else:
            found = frames.of_data(self._data(path, types), types, part["rows"])
        if isinstance(found, Distributed):
            found.saved = part["name"]
        return found

    def _data(self, path: str, types: Types) -> Any:
        return self.jobs.session.read.schema(schema(types)).parquet(path)


def _parts(relation: Mapping[str, Any]) -> list[SavedFrame]:
    return [relation["rows"], *relation["minus"], *relation["plus"]]


def _remove(path: Path) -> None:
    if path.is_dir():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink()


def _type_to_json(type: Type) -> list[Any]:
    """
    >>> _type_from_json(_type_to_json(Type(Kind.DECIMAL, 9, 2)))
    Type(kind=<Kind.DECIMAL: 'decimal'>, precision=9, scale=2, parts=())
    """
    return [type.kind.value, type.precision, type.scale, [[p.name, _type_to_json(p.type), p.bits] for p in type.parts]]


def _type_from_json(given: Any) -> Type:
    kind, precision, scale, parts = given
    return Type(Kind(kind), precision, scale, tuple(Part(name, _type_from_json(type), bits) for name, type, bits in parts))


def to_bytes(saved: Mapping[str, Any]) -> bytes:
    """What was saved, as text."""
    return json.dumps(saved).encode()


def from_bytes(data: bytes) -> dict[str, Any]:
    """What `to_bytes` wrote."""
    found: dict[str, Any] = json.loads(data)
    return found
