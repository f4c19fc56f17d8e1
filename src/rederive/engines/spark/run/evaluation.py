"""Rules evaluated, one by one and in rounds.

A rule is evaluated over Python rows or Arrow tables where all that it reads is in the driver, else as a plan for Spark. Where a
literal reads a view that is derived on demand, its rows are requested with the bindings that the literals before it give. A round
is what all rules derive, in one query, with the errors of functors among the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rederive.engines.spark.plan.expressions import ColumnRef, Expression, Named, NullTest, TypedValue, number, ref, refs
from rederive.engines.spark.plan.nodes import Distinct, Filter, Limit, Plan, Projection, Repartition, union_all
from rederive.engines.spark.plan.rule_plan import RulePlan
from rederive.engines.spark.plan.rule_query import ERROR, RuleQuery
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, shown
from rederive.engines.spark.run.arrow_sets import can_compare, distinct
from rederive.engines.spark.run.driver_arrow import derive_table
from rederive.engines.spark.run.driver_rows import derive_rows
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Bound, FindRows, OnDemand
from rederive.engines.spark.session.types import columns, from_arrow, from_spark, to_arrow
from rederive.errors import EvaluationError
from rederive.ir.printing import show_rule
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Relation, Rule
from rederive.ir.terms import SYMBOL, Row


@dataclass(frozen=True, slots=True)
class Derivation:
    """What a rule derives: by a plan, or as rows or a table that were derived in the driver already.

    Where `can_fail`, the last column `e` of the plan has the error of each row. A table may have a row twice.
    """

    rule: Rule
    # Rows that were derived in the driver replace the plan in a round.
    plan: Plan | None = None
    can_fail: bool = False
    rows: frozenset[Row] | None = None
    table: pa.Table | None = None

    def query(self, types: Types, jobs: Jobs) -> Plan:
        """The plan; over the derived rows where there is none."""
        if self.table is not None:
            return jobs.queries.select(jobs.frames.of_table(self.table, types))
        return self.plan if self.plan is not None else jobs.queries.select(Local(types, self.rows or frozenset()))


@dataclass(frozen=True, slots=True)
class RelationRound:
    """The derivations of one relation in a round; rows in `known` are left out.

    `is_large`: many rows are expected, which stay in Spark; `is_sparse`: few next to the known ones. `by`: the column to
    partition them by, where they are not partitioned by it yet.
    """

    types: Types
    derivations: Sequence[Derivation]
    is_large: bool = False
    known: Sequence[Source] = ()
    by: int | None = None
    is_sparse: bool = False

    @property
    def queries(self) -> list[Derivation]:
        """The derivations whose rows are not Python rows in the driver."""
        return [derivation for derivation in self.derivations if derivation.rows is None]

    @property
    def driver_rows(self) -> frozenset[Row]:
        """The rows that were derived in the driver."""
        return frozenset[Row]().union(*(d.rows for d in self.derivations if d.rows is not None))

    @property
    def tables(self) -> list[pa.Table]:
        """The tables that were derived in the driver."""
        return [derivation.table for derivation in self.derivations if derivation.table is not None]

    def driver_table(self) -> pa.Table | None:
        """The distinct rows of all derivations, where no query is needed; else None."""
        if len(self.tables) < len(self.queries) or not self.tables or not can_compare(self.types):
            return None
        rows = self.driver_rows
        return distinct(pa.concat_tables([*self.tables, *([to_arrow(rows, self.types)] if rows else ())]))


def evaluate(derivations: Sequence[Derivation], types: Types, jobs: Jobs) -> Frame:
    """The distinct rows of several derivations. Where one fails, its error is raised."""
    return evaluate_all({"": RelationRound(types, derivations)}, jobs)[""]


def evaluate_all(rounds: Mapping[str, RelationRound], jobs: Jobs) -> dict[str, Frame]:
    """The same for several relations: one query for all that may be small, one more for each of the others."""
    # In the driver without a job; then one job for all small relations; then one for each large one.
    found = {name: _new_of_table(one, table, jobs) for name, one in rounds.items() if (table := one.driver_table()) is not None}
    rest = {name: one for name, one in rounds.items() if name not in found}
    # Rows that were all derived in the driver already are few, however many they were derived from.
    small = {name: one for name, one in rest.items() if not one.queries or (not one.is_large and not one.tables)}
    collected = _collect(small, jobs)
    if collected is None:
        return found | {name: _on_executors(one, jobs) for name, one in rest.items()}
    return found | collected | {name: _on_executors(one, jobs) for name, one in rest.items() if name not in small}


def as_view(derivations: Sequence[Derivation], types: Types, jobs: Jobs) -> Frame:
    """The distinct rows of derivations that the next query reads as a part of its own plan, where that is possible."""
    (one, *others) = derivations
    # Errors must be found before anybody reads the rows, and several derivations must be made distinct.
    if others or one.can_fail or one.rows is not None:
        return evaluate(derivations, types, jobs)
    if one.table is not None:
        jobs.queries.touch(one.table.num_rows)
        return jobs.frames.of_table(one.table, types)
    return jobs.frames.of_query(one.query(types, jobs), types)


def functor_error(message: str, rule: Rule) -> EvaluationError:
    """A functor's error, with the rule and its place in the program."""
    place = f"the rule {rule.span}: {rule.span.text}" if rule.span else show_rule(rule)
    return EvaluationError(f"{message}, in {place}")


def _new_of_table(one: RelationRound, table: pa.Table, jobs: Jobs) -> Frame:
    jobs.queries.touch(table.num_rows)
    return jobs.sets.minus(jobs.frames.of_table(table, one.types), one.known)


# Few rows: all relations in one query, collected


def _collect(rounds: Mapping[str, RelationRound], jobs: Jobs) -> dict[str, Frame] | None:
    """The rows of all relations in the driver, or None where these are too many."""
    most = jobs.tuning.driver_rows
    found = {name: set(one.driver_rows) for name, one in rounds.items()}
    if any(one.queries for one in rounds.values()):
        # One row more than the limit tells that there are too many.
        rows = jobs.queries.data(_tagged(rounds, jobs)).limit(most + 1).collect()
        if len(rows) > most:
            return None
        _assign(rows, rounds, found)
    if any(len(rows) > most for rows in found.values()):
        return None
    jobs.queries.touch(sum(map(len, found.values())))
    frames = {name: Local(rounds[name].types, frozenset(rows)) for name, rows in found.items()}
    return {name: jobs.sets.minus(frame, rounds[name].known) for name, frame in frames.items()}


def _tagged(rounds: Mapping[str, RelationRound], jobs: Jobs) -> Plan:
    """All rows with the number of their relation (`t`) and rule (`n`), their error, and columns of their relation's own."""
    # A union has one list of columns: each relation has slots of its own, NULL in the rows of others.
    slots = [(name, type) for name, one in rounds.items() for type in shown(one.types)]
    parts = []
    for tag, (name, one) in enumerate(rounds.items()):
        for position, derivation in enumerate(one.queries):
            own = iter(columns(one.types))
            values = [ColumnRef(next(own)) if owner == name else TypedValue(None, type) for owner, type in slots]
            slot_columns = (Named(value, f"k{i}") for i, value in enumerate(values))
            error: Expression = ColumnRef(ERROR) if derivation.can_fail else TypedValue(None, SYMBOL)
            outputs = (Named(number(tag), "t"), Named(number(position), "n"), Named(error, ERROR), *slot_columns)
            parts.append(Projection(derivation.query(one.types, jobs), outputs))
    return union_all(parts)


def _assign(rows: Sequence[Any], rounds: Mapping[str, RelationRound], found: dict[str, set[Row]]) -> None:
    """Give each relation its rows; raise the first error."""
    start = 3
    for tag, (name, one) in enumerate(rounds.items()):
        end = start + len(shown(one.types))
        own = [row for row in rows if row[0] == tag]
        for row in own:
            # Only rows that the whole body lets through are here, so an error counts.
            if row[2] is not None:
                raise functor_error(row[2], one.queries[row[1]].rule)
        found[name].update(from_spark((row[start:end] for row in own), one.types))
        start = end


# Many rows: they stay in Spark


def _on_executors(one: RelationRound, jobs: Jobs) -> Frame:
    if not one.derivations:
        return Local(one.types, frozenset())
    # Errors first, by a query that stops at one: the rows would be evaluated for nothing.
    for derivation in one.derivations:
        if derivation.can_fail:
            failures = Filter(derivation.query(one.types, jobs), (NullTest(ColumnRef(ERROR), is_null=False),))
            for (error,) in jobs.queries.collect(Limit(Projection(failures, (ColumnRef(ERROR),)), 1)):
                raise functor_error(error, derivation.rule)
    chosen = refs(one.types)
    plan = union_all(Projection(derived.query(one.types, jobs), chosen) for derived in one.derivations)
    # Before Distinct, which then needs no exchange of its own: equal rows are in one partition.
    if one.by is not None and one.types:
        plan = Repartition(Projection(plan, chosen), jobs.parts, (ref(one.by),))
    plan = Distinct(Projection(plan, chosen))
    # Few new rows are evaluated first and then sent to the many known ones.
    if one.is_sparse:
        return jobs.sets.minus(jobs.queries.materialize(plan, one.types, is_large=one.is_large), one.known)
    rest = jobs.sets.minus_plan(plan, one.types, one.known)
    return jobs.queries.materialize(rest, one.types, is_large=one.is_large)


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
    compiled = jobs.compiled.get((id(rule), driver))
    if compiled is None:
        compiled = jobs.compiled[id(rule), driver] = RulePlan(rule, driver, relations)
    start: Source | None = delta
    if driver is not None and start is None:
        found = find(_atom(rule, driver))
        start = found if isinstance(found, Source) else None
    # An empty driver derives nothing, so no query is made.
    if driver is not None and (start is None or start.empty):
        return None
    if in_driver and (evaluated := _in_driver(compiled, start, find, jobs)) is not None:
        return evaluated
    body = _Body(compiled, find, jobs)
    for place, step in compiled.steps:
        source = start if place == driver else None
        if not body.add(place, step.literal, step.bound, source):
            return None
    rows = body.query.local_bindings(rule.head.terms)
    if in_driver and rows is None:
        rows = _derive_rows(compiled, body.read, jobs)
    if requests:
        body.query.drop_failures()
    return Derivation(rule, body.query.head(rule.head), bool(body.query.errors), rows)


def _in_driver(compiled: RulePlan, start: Source | None, find: FindRows, jobs: Jobs) -> Derivation | None:
    """What the rule derives, where all that it reads is in the driver; None where a part is in Spark, or derived on demand."""
    read: dict[int, Source] = {}
    for place, atom in compiled.atoms:
        source = start if start is not None and place == compiled.driver else find(atom)
        if not isinstance(source, Source):
            return None
        read[place] = source
    if (rows := _derive_rows(compiled, read, jobs)) is not None:
        return Derivation(compiled.rule, rows=rows)
    table = derive_table(compiled, read, jobs)
    return _of_table(table, compiled.rule, compiled.relations, jobs) if table is not None else None


def _derive_rows(compiled: RulePlan, read: Mapping[int, Source], jobs: Jobs) -> frozenset[Row] | None:
    tuning = jobs.tuning
    local = {place: tuple(source.rows) for place, source in read.items() if isinstance(source, Local)}
    if len(local) < len(read) or sum(map(len, local.values())) > tuning.python_rows:
        return None
    rows = derive_rows(compiled, local, tuning.arrow_join_factor * tuning.python_rows)
    return rows if rows is not None and len(rows) <= tuning.driver_rows else None


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
    """The body of a rule on its way into a plan; `read` has the sources of the literals so far, by their places."""

    compiled: RulePlan
    find: FindRows
    jobs: Jobs
    read: dict[int, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.relations = self.compiled.relations
        self.query = RuleQuery(self.jobs.functors, self.compiled.types, self.jobs.tuning)

    def add(self, place: int, literal: Literal, bound: Bound, given: Source | None = None) -> bool:
        """Add a literal to the plan, with the rows that are given for it; False where no rows can be left."""
        match literal:
            case Comparison():
                self.query.compare(literal)
            case Negation(atom):
                # A negated view must be complete for the binding before its absence means anything.
                source = self._rows(atom, tuple(range(len(atom.terms))))
                self.query.exclude(atom, source, self.relations[atom.relation])
                self.read[place] = source
            case Atom():
                source = given if given is not None else self._rows(literal, bound)
                if source.empty:
                    return False
                self.query.join(literal, source, self.relations[literal.relation])
                self.read[place] = source
        return True

    def _rows(self, atom: Atom, bound: Bound) -> Source:
        """The rows of an atom. Those that are derived on demand are requested with the bindings so far."""
        found: Source | OnDemand = self.find(atom)
        if isinstance(found, Source):
            return found
        terms = tuple(atom.terms[i] for i in bound)
        types = tuple(self.relations[atom.relation].columns[i].type for i in bound)
        # m_r :- r1, ..., r(i-1): the bindings so far are the magic rule of this literal.
        bindings = Derivation(self.compiled.rule, self.query.bindings(terms), rows=self.query.local_bindings(terms))
        found.request(bound, evaluate([bindings], types, self.jobs))
        return found.source()
