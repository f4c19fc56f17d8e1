"""Advice before any data: for each stored view and kind of update, whether it needs to read a source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from textwrap import indent, wrap
from typing import Any, Final

from rederive.errors import StrategyError, UnknownOption, UnknownRelation
from rederive.ir.rules import Program
from rederive.ir.to_sql import SPARK, sql_text
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import known_completely
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance, is_always
from rederive.warehouse.selfmaint.conjunctive import StoredView, stored_views
from rederive.warehouse.selfmaint.search_conditions import is_searched
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind

FORMATS = ("text", "json")
WIDTH: Final = 80  # of the table: it fits every terminal
_KEPT: Final[dict[str, Any]] = {"drop_whitespace": False, "break_long_words": False, "break_on_hyphens": False}


class AdviceVerdict(Enum):
    """Whether a view is self-maintainable under a kind of update."""

    ALWAYS = "always"
    DEPENDS = "depends on the data"
    NEEDS = "never"


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one view and one kind of update.

    `reads`: the fewest relations to read that make the view always self-maintainable. `rules`: the test and the maintenance
    rules, if the view has a compiled test.
    """

    view: StoredView
    update: str
    verdict: AdviceVerdict
    reads: tuple[str, ...] = ()
    rules: CompiledMaintenance | None = None

    @property
    def answer(self) -> str:
        """The verdict in words, without the relations to read."""
        is_searched = self.verdict is AdviceVerdict.DEPENDS and self.rules is None
        return f"{self.verdict.value}, by a bounded search" if is_searched else self.verdict.value

    def sql(self, part: str) -> str | None:
        """Return a part of the rules as Spark SQL: the test, or the rows that enter or leave. None if it has functors."""
        name = names.of(self.view.name, part)
        if self.rules is None or name not in self.rules.program.views:
            return None
        try:
            return sql_text(self.rules.program, name, SPARK)
        except StrategyError:
            return None


def advise(program: Program, view: str | None = None, *, net: bool = False) -> tuple[Advice, ...]:
    """Advise on every stored view, or on one: for insertions and deletions of each source, and for all of them mixed.

    `net`: the sources report net changes only.

    >>> from rederive.lang import compile_program
    >>> program = compile_program('''
    ...     .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .remote r, s
    ...     .decl v(x: symbol, y: symbol, z: symbol)  v(x, y, z) :- r(x, y), s(y, z).
    ... ''')
    >>> for advice in advise(program):
    ...     print(advice.update, "|", advice.answer, "|", *advice.reads)
    insert r | depends on the data | s
    delete r | always |
    insert s | depends on the data | r
    delete s | always |
    mixed | depends on the data | r s
    """
    views = stored_views(program)
    chosen = [found for found in views if view is None or found.name == view]
    if view is not None and not chosen:
        raise UnknownRelation(view, (found.name for found in views))
    return tuple(_advice(found, views, program, update, kind, net) for found in chosen for update, kind in _kinds(found))


def _kinds(view: StoredView) -> Iterator[tuple[str, UpdateKind]]:
    for name in view.sources:
        yield f"insert {name}", UpdateKind.of(insert=[name])
        yield f"delete {name}", UpdateKind.of(delete=[name])
    # Any update of any sources: what holds for it holds for every kind above.
    yield "mixed", UpdateKind.of(view.sources, view.sources)


def _advice(view: StoredView, views: Sequence[StoredView], program: Program, update: str, kind: UpdateKind, net: bool) -> Advice:
    remote = {declared.relation for declared in program.remotes}
    # Advice has no data, so nothing is read and nothing is logged; local relations are always known.
    given = KnownRelations(local=frozenset(name for name in program.bases if name not in remote), net=net)
    # Relations that are known completely need no read; without missing ones the view can always be evaluated.
    missing = [name for name in view.sources if name not in known_completely(views, given)]
    rules = compile_maintenance(view, views, program.relations, kind, given)
    if not missing or (rules is not None and rules.always):
        return Advice(view, update, AdviceVerdict.ALWAYS, rules=rules)
    reads = _fewest(view, views, program, kind, given, missing)
    if rules is not None and rules.has_test:
        return Advice(view, update, AdviceVerdict.NEEDS if rules.hopeless else AdviceVerdict.DEPENDS, reads, rules)
    # Without a compiled test, a search decides when the data is there; for other classes nothing can.
    searched = is_searched(view, program.relations, given.local)
    return Advice(view, update, AdviceVerdict.DEPENDS if searched else AdviceVerdict.NEEDS, reads)


def _fewest(
    view: StoredView,
    views: Sequence[StoredView],
    program: Program,
    kind: UpdateKind,
    given: KnownRelations,
    missing: Sequence[str],
) -> tuple[str, ...]:
    """Return the fewest relations that make the view always self-maintainable. All missing ones do.

    Law: at most two sets suffice without a superfluous relation, one that determines the change, and one that leaves no row open.
    """

    def suffices(read: Sequence[str]) -> bool:
        return is_always(view, views, program.relations, kind, replace(given, read=frozenset(read)))

    def without_superfluous(read: Sequence[str]) -> tuple[str, ...]:
        for name in missing:
            rest = tuple(other for other in read if other != name)
            read = rest if suffices(rest) else read
        return tuple(read)

    first = without_superfluous(missing)
    if not suffices(first):
        return tuple(missing)  # evaluated when all are known
    # A second set lacks a relation of the first one.
    rests = (tuple(other for other in missing if other != name) for name in first)
    return min((first, *(without_superfluous(rest) for rest in rests if suffices(rest))), key=len)


def show(advice: Sequence[Advice], form: str = "text", *, sql: bool = False) -> str:
    """Print advice as a table, with the tests as SQL below it if requested, or as JSON."""
    if form not in FORMATS:
        raise UnknownOption("format", form, FORMATS)
    return json.dumps([_data(line) for line in advice], indent=2) if form == "json" else "\n".join(_text(advice, sql))


def _data(line: Advice) -> dict[str, object]:
    return {
        "view": line.view.name,
        "class": line.view.kind.value,
        "sources": list(line.view.sources),
        "update": line.update,
        "answer": line.verdict.value,
        "needs": list(line.reads),
        "test": line.sql(names.MAINTAINABLE),
        "plus": line.sql(names.PLUS),
        "minus": line.sql(names.MINUS),
    }


def _text(advice: Sequence[Advice], sql: bool) -> Iterator[str]:
    for view in dict.fromkeys(line.view for line in advice):
        lines = [line for line in advice if line.view == view]
        yield from wrap(f"view {view.name}: {view.kind.value}, over {', '.join(view.sources)}", WIDTH, subsequent_indent="  ")
        head = ("update", "without a source", "otherwise reads")
        rows = [head, *((line.update, line.answer, ", ".join(line.reads)) for line in lines)]
        first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
        for update, answer, reads in rows:
            start = f"  {update:<{first}}  {answer:<{second}}  "
            # Names that are too long for a line go into the next one, below the first.
            yield from (part.rstrip() for part in wrap(start + reads, WIDTH, subsequent_indent=" " * len(start), **_KEPT))
        for line in lines if sql else ():
            if line.verdict is AdviceVerdict.DEPENDS and (test := line.sql(names.MAINTAINABLE)) is not None:
                yield f"  test for {line.update}:"
                yield indent(test, "    ")
