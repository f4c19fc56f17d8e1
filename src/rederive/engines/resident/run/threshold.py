"""From how many rows on work is done by column, measured with `benchmarks/star.py` and `benchmarks/tpch.py`."""

from __future__ import annotations


class Threshold:
    """Tests set these to 0, so that every change runs by column."""

    requests: float = 100  # rows of one statement from which on their net effect is worked out by column
    bindings: float = 100  # a rule costs about 0.3 ms by column, and 3 us for each binding by row
    groups: float = 32  # changed groups: an aggregate costs about 0.1 ms by column, and 4 us for each group alone
