"""The deltas of views that a new definition turns from sets into bags, or back, or gives other columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rederive.delta import Delta, sum_of_counts
from rederive.ir.rules import Program
from rederive.ir.terms import Row


def newly_counted(before: Program, after: Program) -> list[str]:
    """The views that are sets before, and bags after."""
    if after.extends(before):
        return []
    others = (n for n in before.views if before.relations[n] is not after.relations.get(n, before.relations[n]))
    return [n for n in others if before.counting_relation(n) == n != after.counting_relation(n)]


def recounted(
    views: Mapping[str, Delta], before: Program, after: Program, uncounted: Mapping[str, list[Row]]
) -> dict[str, Delta]:
    """The deltas that an engine found for a new program, corrected for views that become bags or cease to be bags.

    An engine compares relations: where a view becomes a bag, all its counts enter, and where it ceases to be one, all leave.
    `uncounted`: the rows that views had before they became bags.
    """
    found = dict(views)
    reported = {after.bags.get(name) or before.bags.get(name, name) for name in views}
    if after.extends(before) and not reported.intersection(before.relations):
        return found
    others = [n for n in after.views if n in reported or before.relations.get(n) is not after.relations[n]]
    for name in others:
        if name in before.relations and (before.counting_relation(name), after.counting_relation(name)) != (name, name):
            counting = next(n for n in (before.counting_relation(name), after.counting_relation(name)) if n != name)
            parts = (found.pop(counting, None), found.pop(name, None))
            change = _change(name, parts, before, after, uncounted.get(name, []))
            if change:
                found[name] = change
    return found


def _change(name: str, parts: tuple[Delta | None, Delta | None], before: Program, after: Program, uncounted: list[Row]) -> Delta:
    # gone: the rows before, counted or of the set; came: the rows after. The delta is their difference.
    counts, own = parts
    came, gone = (sum_of_counts(side) for side in ((counts.plus, counts.minus) if counts is not None else ((), ())))
    gone.update(uncounted)
    if after.counting_relation(name) == name:  # the set after is the set before, less what left it and with what entered it
        kept = Counter(dict.fromkeys(gone, 1))
        left, entered = (Counter(own.minus), Counter(own.plus)) if own is not None else (Counter(), Counter())
        same = before.relations[name].types == after.relations[name].types
        came = kept - left + entered if same else entered
    if before.relations[name].types != after.relations[name].types:
        return Delta(came, gone)  # rows of other types are other rows
    return Delta.between(gone, came)
