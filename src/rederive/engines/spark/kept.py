"""What stays between transactions: base relations, views, and what strategies keep beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from rederive.engines.spark.jobs import Jobs
from rederive.engines.spark.sources import Distributed, Frame, Local, Source, listed, overlay


class Kept(Protocol):
    """Relations by name. `apply` moves them all at once."""

    def source(self, name: str) -> Source: ...

    def __contains__(self, name: str) -> bool: ...

    def write(self, name: str, frame: Frame) -> None:
        """Create a relation, or replace all its rows."""

    def apply(self, changes: Mapping[str, tuple[Source, Source]]) -> None:
        """Take out and put in rows of each relation: what goes is there, what comes is not."""

    def fork(self, names: Iterable[str]) -> Kept:
        """A copy to build on, with these relations only; whoever made it takes its place when it stands."""

    @property
    def names(self) -> Iterable[str]:
        """The temporary views in use."""


class KeptInSession:
    """Relations that live as long as the session: in the driver where they are small, else in the memory of Spark's workers."""

    def __init__(self, jobs: Jobs, frames: Mapping[str, Frame] | None = None) -> None:
        self.jobs = jobs
        self.frames = dict(frames or {})

    def source(self, name: str) -> Source:
        return self.frames[name]

    def __contains__(self, name: str) -> bool:
        return name in self.frames

    def write(self, name: str, frame: Frame) -> None:
        self.frames[name] = frame

    def apply(self, changes: Mapping[str, tuple[Source, Source]]) -> None:
        moved = {name: self._moved(self.frames[name], gone, came) for name, (gone, came) in changes.items()}
        self.frames.update(moved)

    def _moved(self, old: Frame, gone: Source, came: Source) -> Frame:
        match old, gone, came:
            case Local(types, rows), Local(), Local():
                return self.jobs.frame((rows - gone.rows) | came.rows, types)
            case _:
                return self.jobs.materialise(f"SELECT {listed(old.types)} FROM {overlay(old, gone, [came]).text()}", old.types)

    def fork(self, names: Iterable[str]) -> KeptInSession:
        return KeptInSession(self.jobs, {name: self.frames[name] for name in names if name in self.frames})

    @property
    def names(self) -> Iterable[str]:
        return [frame.name for frame in self.frames.values() if isinstance(frame, Distributed)]
