"""What rules derive, gathered: all rules of a round in one query, the errors of functors among the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, listed, shown
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.arrow_sets import comparable, distinct
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column, columns, from_spark, sql_type, to_arrow
from rederive.errors import EvaluationError
from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule
from rederive.ir.terms import Row


@dataclass(frozen=True, slots=True)
class Derivation:
    """A rule's SELECT. Where a functor may fail, its last column `e` says how.

    `rows` or `table`: its answer, where no query is needed; then there may be none. A table may have a row twice.
    """

    text: str
    rule: Rule
    fails: bool = False
    rows: frozenset[Row] | None = None
    table: pa.Table | None = None

    def query(self, types: Types, jobs: Jobs) -> str:
        """The SELECT, over the answer where that is known."""
        if self.table is not None:
            return f"SELECT {listed(types)} FROM {jobs.tabled(self.table, types).text()}"
        return self.text or f"SELECT {listed(types)} FROM {Local(types, self.rows or frozenset()).text()}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The derivations of one relation, of which those in `known` are not wanted.

    `large`: many rows are expected, which stay in Spark; `sparse`: few beside those known. `by`: the column to partition them by,
    where they are not yet.
    """

    types: Types
    derivations: Sequence[Derivation]
    large: bool = False
    known: Sequence[Source] = ()
    by: int | None = None
    sparse: bool = False

    @property
    def asked(self) -> list[Derivation]:
        return [derivation for derivation in self.derivations if derivation.rows is None]

    @property
    def here(self) -> frozenset[Row]:
        return frozenset[Row]().union(*(d.rows for d in self.derivations if d.rows is not None))

    @property
    def tables(self) -> list[pa.Table]:
        return [derivation.table for derivation in self.derivations if derivation.table is not None]

    def table(self) -> pa.Table | None:
        """The distinct rows of all of them, where no query is needed."""
        if len(self.tables) < len(self.asked) or not self.tables or not comparable(self.types):
            return None
        return distinct(pa.concat_tables([*self.tables, to_arrow(self.here, self.types)]))


def gather(derivations: Sequence[Derivation], types: Types, jobs: Jobs) -> Frame:
    """The distinct rows of several derivations; where one of them fails, its error is raised."""
    return gather_all({"": Wanted(types, derivations)}, jobs)[""]


def gather_all(wanted: Mapping[str, Wanted], jobs: Jobs) -> dict[str, Frame]:
    """The same for several relations: one query for all that may be small, one more for each that is not."""
    here = {name: _tabled(one, table, jobs) for name, one in wanted.items() if (table := one.table()) is not None}
    rest = {name: one for name, one in wanted.items() if name not in here}
    small = {name: one for name, one in rest.items() if not one.large and not one.tables}
    found = _collected(small, jobs)
    if found is None:
        return here | {name: _kept(one, jobs) for name, one in rest.items()}
    return here | found | {name: _kept(one, jobs) for name, one in rest.items() if name not in small}


def _tabled(wanted: Wanted, table: pa.Table, jobs: Jobs) -> Frame:
    jobs.touched += table.num_rows
    return jobs.minus(jobs.tabled(table, wanted.types), wanted.known)


def _collected(wanted: Mapping[str, Wanted], jobs: Jobs) -> dict[str, Frame] | None:
    """The rows of all of them in the driver, or None where these are too many."""
    found = {name: set(one.here) for name, one in wanted.items()}
    if any(one.asked for one in wanted.values()):
        rows = jobs.session.sql(_tagged(wanted, jobs)).limit(tables.SMALL + 1).collect()
        if len(rows) > tables.SMALL:
            return None
        _sort_out(rows, wanted, found)
    if any(len(rows) > tables.SMALL for rows in found.values()):
        return None
    jobs.touched += sum(map(len, found.values()))
    frames = {name: Local(wanted[name].types, frozenset(rows)) for name, rows in found.items()}
    return {name: jobs.minus(frame, wanted[name].known) for name, frame in frames.items()}


def _tagged(wanted: Mapping[str, Wanted], jobs: Jobs) -> str:
    """All rows with the number of their relation and of their rule, an error, and columns of their relation's own."""
    slots = [(name, type) for name, one in wanted.items() for type in shown(one.types)]
    selects = []
    for tag, (name, one) in enumerate(wanted.items()):
        for number, derivation in enumerate(one.asked):
            own = iter(columns(one.types))
            values = [next(own) if owner == name else f"CAST(NULL AS {sql_type(type)})" for owner, type in slots]
            aliased = (f"{value} AS k{i}" for i, value in enumerate(values))
            error = "e" if derivation.fails else "CAST(NULL AS STRING)"
            query = derivation.query(one.types, jobs)
            selects.append(f"SELECT {tag} AS t, {number} AS n, {error} AS e, {', '.join(aliased)} FROM ({query})")
    return " UNION ALL ".join(selects)


def _sort_out(rows: Sequence[Any], wanted: Mapping[str, Wanted], found: dict[str, set[Row]]) -> None:
    """Give each relation its rows; raise the first error."""
    start = 3
    for tag, (name, one) in enumerate(wanted.items()):
        end = start + len(shown(one.types))
        mine = [row for row in rows if row[0] == tag]
        for row in mine:
            if row[2] is not None:
                raise failed(row[2], one.asked[row[1]].rule)
        found[name].update(from_spark((row[start:end] for row in mine), one.types))
        start = end


def _kept(wanted: Wanted, jobs: Jobs) -> Frame:
    """Many rows, kept by Spark."""
    if not wanted.derivations:
        return Local(wanted.types, frozenset())
    for derivation in wanted.derivations:
        if derivation.fails:
            for (error,) in jobs.few(f"SELECT e FROM ({derivation.text}) WHERE e IS NOT NULL LIMIT 1"):
                raise failed(error, derivation.rule)
    chosen = listed(wanted.types)
    text = " UNION ALL ".join(f"SELECT {chosen} FROM ({one.query(wanted.types, jobs)})" for one in wanted.derivations)
    if wanted.by is not None and wanted.types:
        text = f"SELECT /*+ REPARTITION({jobs.parts}, {column(wanted.by)}) */ {chosen} FROM ({text})"
    distinct = f"SELECT DISTINCT {chosen} FROM ({text})"
    if wanted.sparse:
        return jobs.minus(jobs.materialise(distinct, wanted.types), wanted.known)
    return jobs.materialise(jobs.without(f"({distinct})", wanted.types, wanted.known), wanted.types)


def viewed(derivations: Sequence[Derivation], types: Types, jobs: Jobs) -> Frame:
    """The distinct rows of derivations, where they need not be kept: a part of the query that reads them."""
    (one, *others) = derivations
    if others or one.fails or one.rows is not None:
        return gather(derivations, types, jobs)
    if one.table is not None:
        jobs.touched += one.table.num_rows
        return jobs.tabled(one.table, types)
    return jobs.viewed(one.text, types)


def failed(message: str, rule: Rule) -> EvaluationError:
    """A functor's error in the words of the program: its rule and where that stands."""
    place = f"the rule {rule.span}: {rule.span.text}" if rule.span else show_rule(rule)
    return EvaluationError(f"{message}, in {place}")
