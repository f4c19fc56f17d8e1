"""Everything that steps lead to from some places: the inner loop of searches that store nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Final

from rederive.engines.resident.storage.table import Leaf, Lookup

FEW: Final = 8  # steps from one place: testing one takes 20 ns, and a set operation 400 ns
NO_ENDS: Final[Mapping[int, Leaf]] = MappingProxyType({})


def spread(waiting: list[int], reached: Leaf, follow: Lookup, known: Mapping[int, Leaf] = NO_ENDS, most: float = inf) -> int:
    """Add to `reached` the places that steps lead to from the waiting ones, and return how many steps were looked at.

    Places in `reached` are not continued from. `known`: all ends of some places, which are taken in whole. Where more than `most`
    are reached, places are left waiting.

    >>> from pyroaring import BitMap
    >>> reached = BitMap([4])
    >>> spread([1], reached, {1: BitMap([2]), 2: BitMap([3, 4]), 4: BitMap([5])}.get)
    3
    >>> sorted(reached)
    [2, 3, 4]
    """
    looked_at = 0
    while waiting and len(reached) <= most:
        place = waiting.pop()
        if place in known:
            reached |= known[place]
            continue
        step = follow(place)
        if step is None:
            continue
        looked_at += len(step)
        if len(step) <= FEW:
            for end in step:
                if end not in reached:
                    reached.add(end)
                    waiting.append(end)
        else:
            new = step - reached
            reached |= new
            waiting += new
    return looked_at
