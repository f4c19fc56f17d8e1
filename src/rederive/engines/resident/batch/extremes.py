"""The least or the largest value of each group of a batch."""

from __future__ import annotations

import numpy as np

from rederive.engines.resident.batch.vectors import Vector
from rederive.engines.resident.storage.codes import NULL
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.unit_codes import units_of


def best_of_groups(values: Vector, numbers: Array, groups: int, *, largest: bool) -> tuple[Array, Array]:
    """The code of the best value with each number, and which numbers there are. NULL is the best of nothing else."""
    there = np.zeros(groups, np.bool_)
    there[numbers] = True
    best = np.full(groups, NULL, np.uint32)
    codes = values.codes()
    known = np.flatnonzero(codes != NULL)
    if len(known):
        ranks = _ranks(values.take(known))
        # The last write of a number wins: the best comes last.
        order = np.argsort(ranks if largest else -ranks, kind="stable")
        best[numbers[known][order]] = codes[known][order]
    return best, there


def _ranks(values: Vector) -> Array:
    """Numbers in the order of the values."""
    if units_of(values.type) is not None:
        return values.units()
    codes, inverse = np.unique(values.codes(), return_inverse=True)
    held = Vector(values.space, values.type, codes).values()
    order = sorted(range(len(held)), key=held.__getitem__)  # type: ignore[arg-type]  # values of one type compare
    ranks = np.empty(len(held), np.int64)
    ranks[order] = np.arange(len(held))
    found: Array = ranks[inverse]
    return found
