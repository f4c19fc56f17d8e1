"""Rules run as queries: literal by literal in join order, asking for the rows that are derived on demand."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from rederive.analysis.bindings import join_order
from rederive.analysis.types import variable_types
from rederive.engines.spark.plan.rule_query import Select
from rederive.engines.spark.plan.sources import Frame, Source
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.driver_arrow import joined
from rederive.engines.spark.run.driver_resident import all_here, derived_here
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Bound, Find, Lazy
from rederive.engines.spark.run.round import Derivation, gather
from rederive.engines.spark.session.types import from_arrow
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Relation, Rule


def derivation(
    rule: Rule,
    driver: int | None,
    delta: Frame | None,
    find: Find,
    jobs: Jobs,
    relations: Mapping[str, Relation],
    *,
    here: bool = True,
    asks: bool = False,
) -> Derivation | None:
    """The rule as a query that starts from its driver, or from `delta` in the driver's place; None where it derives nothing.

    `here`: where all that it reads is in the driver, its rows come with it. They do not tell how often each is derived.
    `asks`: it raises questions, and what a functor fails for is not asked.
    """
    start: Source | None = delta
    if driver is not None and start is None:
        found = find(_atom(rule, driver))
        start = found if isinstance(found, Source) else None
    if driver is not None and (start is None or start.empty):
        return None
    if here and (table := joined(rule, driver, start, find, jobs, relations)) is not None:
        return _from_table(table, rule, relations)
    select = Select(jobs.functions, variable_types(rule, relations))
    rest = list(rule.body)
    read: list[tuple[Atom, Source]] = []
    if driver is not None and start is not None:
        atom = _atom(rule, driver)
        del rest[driver]
        select.join(atom, start, relations[atom.relation])
        read.append((atom, start))
    for step in join_order(rest, frozenset(select.columns)):
        if not _joined(step.literal, step.bound, select, find, jobs, rule, relations, read):
            return None
    rows = select.projected(rule.head.terms)
    local = all_here(rule, read) if here and rows is None and not select.errors else None
    if local is not None:
        rows = derived_here(rule, local, relations)
    if asks:
        select.leave_out_failures()
    return Derivation(select.head(rule.head), rule, bool(select.errors), rows)


def _atom(rule: Rule, place: int) -> Atom:
    atom = rule.body[place]
    assert isinstance(atom, Atom)
    return atom


def _from_table(table: pa.Table, rule: Rule, relations: Mapping[str, Relation]) -> Derivation:
    if table.num_rows > tables.SMALL:
        return Derivation("", rule, table=table)
    return Derivation("", rule, rows=frozenset(from_arrow(table, relations[rule.head.relation].types)))


def _joined(
    literal: Literal,
    bound: Bound,
    select: Select,
    find: Find,
    jobs: Jobs,
    rule: Rule,
    relations: Mapping[str, Relation],
    read: list[tuple[Atom, Source]],
) -> bool:
    """Add a literal to the query, and what it reads to `read`; False where nothing can be left of it."""
    match literal:
        case Comparison():
            select.compare(literal)
        case Negation(atom):
            source = _rows(find(atom), atom, tuple(range(len(atom.terms))), select, jobs, rule, relations)
            select.exclude(atom, source, relations[atom.relation])
            read += [(atom, source)] if not source.empty else []
        case Atom():
            source = _rows(find(literal), literal, bound, select, jobs, rule, relations)
            if source.empty:
                return False
            select.join(literal, source, relations[literal.relation])
            read.append((literal, source))
    return True


def _rows(
    found: Source | Lazy, atom: Atom, bound: Bound, select: Select, jobs: Jobs, rule: Rule, relations: Mapping[str, Relation]
) -> Source:
    """The rows of an atom. Where they are derived on demand, they are asked for with the bindings at hand."""
    if isinstance(found, Source):
        return found
    terms = tuple(atom.terms[i] for i in bound)
    types = tuple(relations[atom.relation].columns[i].type for i in bound)
    found.ask(bound, gather([Derivation(select.bindings(terms), rule, rows=select.projected(terms))], types, jobs))
    return found.source()
