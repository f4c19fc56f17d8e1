"""Views that a new definition makes bags, or no bags any more, or gives other columns: what of them leaves and enters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rederive.engines.protocol import ViewDelta
from rederive.ir.rules import BAG, Program
from rederive.ir.terms import Row
from rederive.result import Decoded, copies_in, of_counts


def newly_counted(before: Program, after: Program) -> list[str]:
    """The views that are no bags before, and are bags after."""
    return [n for n in before.views if n in after.relations and before.counted(n) == n != after.counted(n)]


def recounted(
    views: Mapping[str, ViewDelta], before: Program, after: Program, uncounted: Mapping[str, list[Row]]
) -> dict[str, ViewDelta]:
    """The changes that an engine found for a new program, where the views whose rows it counts are not the same ones.

    An engine compares relations: where a view becomes a bag, all its counts enter, and where it ceases to be one, all leave.
    `uncounted`: the rows that views had before they became bags.
    """
    found = dict(views)
    for name in after.views:
        if name in before.relations and (before.counted(name), after.counted(name)) != (name, name):
            parts = (found.pop(f"{name}.{BAG}", None), found.pop(name, None))
            change = _change(name, parts, before, after, uncounted.get(name, []))
            if len(change.plus) or len(change.minus):
                found[name] = change
    return found


def _change(
    name: str, parts: tuple[ViewDelta | None, ViewDelta | None], before: Program, after: Program, uncounted: list[Row]
) -> ViewDelta:
    counts, own = parts
    came, gone = (copies_in(counts.plus), copies_in(counts.minus)) if counts is not None else (Counter[Row](), Counter[Row]())
    gone.update(uncounted)
    if after.counted(name) == name:  # the set after is the set before, less what left it and with what entered it
        kept = Counter(dict.fromkeys(gone, 1))
        left, entered = (Counter(own.minus.decoded()), Counter(own.plus.decoded())) if own is not None else (Counter(), Counter())
        same = before.relations[name].types == after.relations[name].types
        came = kept - left + entered if same else entered
    if before.relations[name].types != after.relations[name].types:
        return ViewDelta(_rows(came), _rows(gone))
    return of_counts(came, gone)


def _rows(counts: Counter[Row]) -> Decoded:
    return Decoded(list(counts), counts)
