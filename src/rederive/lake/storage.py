"""A lake as the place where an engine keeps its relations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rederive.errors import UnknownRelation
from rederive.ir.rules import Relation
from rederive.lake.tables import Area, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LakeStorage:
    """Base relations under `base/`, everything else that is kept under `views/`."""

    def __init__(self, lake: Lake, bases: Collection[str]) -> None:
        self.lake = lake
        self._bases = frozenset(bases)

    def read(self, relation: Relation) -> DataFrame:
        """The relation's rows as they are now."""
        return self.lake.read(self._area(relation.name), relation)

    def write(self, relation: Relation, rows: DataFrame) -> None:
        """Make `rows` the whole content of the relation's table, which is created if it is not there."""
        self.lake.replace(self._area(relation.name), relation, rows)

    def apply(self, changes: Mapping[str, tuple[DataFrame, DataFrame]], version: int) -> None:
        """What leaves and what enters each relation. Relations that have this version already stay as they are."""
        relations = {name: self._declared(name) for name in changes}
        for name, (gone, came) in changes.items():
            self.lake.apply(self._area(name), relations[name], gone, came, version)

    def drop(self, name: str) -> None:
        self.lake.drop(self._area(name), name)

    def _area(self, name: str) -> Area:
        return Area.BASE if name in self._bases else Area.VIEWS

    def _declared(self, name: str) -> Relation:
        found = self.lake.declaration(self._area(name), name)
        if found is None:
            raise UnknownRelation(name, self._bases)
        return found
