"""A rule evaluated: by Arrow or by the resident engine where all that it reads is in the driver, else as a plan for Spark.

Literals are joined in join order. Where a literal reads a view that is derived on demand, its rows are requested with the
bindings that the literals before it give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rederive.analysis.bindings import join_order
from rederive.analysis.types import variable_types
from rederive.engines.spark.plan.rule_query import RuleQuery
from rederive.engines.spark.plan.sources import Frame, Source
from rederive.engines.spark.run.driver_arrow import derive_table
from rederive.engines.spark.run.driver_resident import derive_rows, local_sources
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Bound, FindRows, OnDemand
from rederive.engines.spark.run.round import Derivation, evaluate
from rederive.engines.spark.session.types import from_arrow
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Relation, Rule


def derivation(
    rule: Rule,
    driver: int | None,
    delta: Frame | None,
    find: FindRows,
    jobs: Jobs,
    relations: Mapping[str, Relation],
    *,
    in_driver: bool = True,
    requests: bool = False,
) -> Derivation | None:
    """The rule as a query that starts from its driver, or from `delta` in the driver's place; None where it derives nothing.

    `in_driver`: it may be evaluated in the driver; rows found there do not tell how often each is derived. `requests`: it derives
    requests of bindings; a binding for which a functor fails is not requested.
    """
    start: Source | None = delta
    if driver is not None and start is None:
        found = find(_atom(rule, driver))
        start = found if isinstance(found, Source) else None
    # An empty driver derives nothing, so no query is made.
    if driver is not None and (start is None or start.empty):
        return None
    if in_driver and (table := derive_table(rule, driver, start, find, jobs, relations)) is not None:
        return _of_table(table, rule, relations, jobs)
    body = _Body(rule, find, jobs, relations)
    rest = list(rule.body)
    if driver is not None and start is not None:
        del rest[driver]
        body.join(_atom(rule, driver), start)
    # Without sizes: Spark's broadcast hints and its optimizer choose how each join runs.
    for step in join_order(rest, frozenset(body.query.columns)):
        if not body.add(step.literal, step.bound):
            return None
    rows = body.query.local_bindings(rule.head.terms)
    # A functor's error must be raised with its row, which the plan does.
    may_derive = in_driver and rows is None and not body.query.errors
    if may_derive and (local := local_sources(rule, body.read, jobs.tuning)) is not None:
        rows = derive_rows(rule, local, relations)
    if requests:
        body.query.drop_failures()
    return Derivation(rule, body.query.head(rule.head), bool(body.query.errors), rows)


def _atom(rule: Rule, place: int) -> Atom:
    atom = rule.body[place]
    assert isinstance(atom, Atom)
    return atom


def _of_table(table: pa.Table, rule: Rule, relations: Mapping[str, Relation], jobs: Jobs) -> Derivation:
    if table.num_rows > jobs.tuning.driver_rows:
        return Derivation(rule, table=table)
    return Derivation(rule, rows=frozenset(from_arrow(table, relations[rule.head.relation].types)))


@dataclass
class _Body:
    """The body of a rule on its way into a plan; `read` has the atoms so far that have rows, with their sources."""

    rule: Rule
    find: FindRows
    jobs: Jobs
    relations: Mapping[str, Relation]
    read: list[tuple[Atom, Source]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.query = RuleQuery(self.jobs.functors, variable_types(self.rule, self.relations), self.jobs.tuning)

    def join(self, atom: Atom, source: Source) -> None:
        self.query.join(atom, source, self.relations[atom.relation])
        self.read.append((atom, source))

    def add(self, literal: Literal, bound: Bound) -> bool:
        """Add a literal to the plan; False where no rows can be left."""
        match literal:
            case Comparison():
                self.query.compare(literal)
            case Negation(atom):
                # A negated view must be complete for the binding before its absence means anything.
                source = self._rows(atom, tuple(range(len(atom.terms))))
                self.query.exclude(atom, source, self.relations[atom.relation])
                self.read += [(atom, source)] if not source.empty else []
            case Atom():
                source = self._rows(literal, bound)
                if source.empty:
                    return False
                self.join(literal, source)
        return True

    def _rows(self, atom: Atom, bound: Bound) -> Source:
        """The rows of an atom. Those that are derived on demand are requested with the bindings so far."""
        found: Source | OnDemand = self.find(atom)
        if isinstance(found, Source):
            return found
        terms = tuple(atom.terms[i] for i in bound)
        types = tuple(self.relations[atom.relation].columns[i].type for i in bound)
        # m_r :- r1, ..., r(i-1): the bindings so far are the magic rule of this literal.
        bindings = Derivation(self.rule, self.query.bindings(terms), rows=self.query.local_bindings(terms))
        found.request(bound, evaluate([bindings], types, self.jobs))
        return found.source()
