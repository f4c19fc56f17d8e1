"""Which binding patterns the rules of a maintenance program request of views that are derived on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rederive.ir.rules import Aggregate, Atom, Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule, canonical
from rederive.maintain.passes.magic_sets import (
    REQUEST_LABEL,
    BindingPattern,
    LookupRule,
    aggregate_pattern,
    fold_lookup,
    lookup_rules,
    lower_lookups,
    magic_atom,
)
from rederive.maintain.program import MaintenanceProgram

QueriesByPattern = Mapping[BindingPattern, tuple[MaintenanceRule, ...]]


@dataclass(frozen=True, slots=True)
class RequestedQueries:
    """The lookups of maintenance rules as magic rules, and the query rules of every pattern that is requested.

    The rules of a pattern contain the lookups that they make in lower views.
    """

    lookups: tuple[MaintenanceRule, ...]
    queries: QueriesByPattern


def requested_queries(maintenance: MaintenanceProgram) -> RequestedQueries:
    """What the rules request in the join order that is used where no sizes are known."""
    # Distinct, in order of first use: the same text at every run.
    lookups = list(dict.fromkeys(_lookups(maintenance)))
    queries = answering_rules((lookup.pattern for lookup in lookups), maintenance)
    return RequestedQueries(tuple(dict.fromkeys(lookup.rule for lookup in lookups)), queries)


def answering_rules(patterns: Iterable[BindingPattern], maintenance: MaintenanceProgram) -> QueriesByPattern:
    """The query rules of these patterns, and of those that they request in turn, with their lookups in lower views."""
    waiting = list(dict.fromkeys(patterns))
    queries: dict[BindingPattern, tuple[MaintenanceRule, ...]] = {}
    while waiting:
        pattern = waiting.pop(0)
        # Ends: a view of n columns has 2^n patterns.
        if pattern not in queries:
            rules, requests = _answer(pattern, maintenance)
            queries[pattern] = rules
            waiting += requests
    return queries


def _lookups(maintenance: MaintenanceProgram) -> Iterator[LookupRule]:
    relations, derived = maintenance.program.relations, frozenset(maintenance.derived_views)
    for section in maintenance.sections:
        # Also the initial evaluation: a stored view may read one that is derived on demand.
        for phase in (*section.initial, *section.phases, *section.from_scratch):
            for m in phase.rules:
                yield from lookup_rules(m, relations, derived)
            if phase.fold is not None and phase.fold.aggregate.source in derived:
                yield fold_lookup(phase.fold, relations)


def _answer(
    pattern: BindingPattern, maintenance: MaintenanceProgram
) -> tuple[tuple[MaintenanceRule, ...], Iterable[BindingPattern]]:
    """The query rules of a pattern with their lookups in lower views, and the patterns that both request."""
    relations, component = maintenance.program.relations, maintenance.component(pattern.relation)
    # Literals of the same component are requested by the query rules themselves.
    lower = frozenset(maintenance.derived_views).difference(component.relations)
    found = maintenance.query_rules(pattern)
    lookups = [lookup for m in found.rules for lookup in lower_lookups(m, relations, lower)]
    for definition in component.definitions:
        if isinstance(definition, Aggregate) and definition.source in lower:
            lookups.append(_aggregate_lookup(pattern, definition, maintenance))
    rules = dict.fromkeys((*(lookup.rule for lookup in lookups), *found.rules))
    return tuple(rules), (*found.requests, *(lookup.pattern for lookup in lookups))


def _aggregate_lookup(pattern: BindingPattern, aggregate: Aggregate, maintenance: MaintenanceProgram) -> LookupRule:
    """The lookup by which the requested groups read their rows."""
    relations = maintenance.program.relations
    view, source = canonical(relations[aggregate.relation]), relations[aggregate.source]
    # m_s(g) :- m_p(g, ...).  The group's variables are named as in the view; a bound result is not passed on.
    groups = {column: view.terms[i] for i, column in enumerate(aggregate.group)}
    rows = Atom(source.name, tuple(groups.get(i, term) for i, term in enumerate(canonical(source).terms)), Variant.OLD)
    requested = aggregate_pattern(pattern, aggregate)
    request = magic_atom(requested, rows, source)
    body = (magic_atom(pattern, view, relations[aggregate.relation]),)
    return LookupRule(MaintenanceRule(REQUEST_LABEL, Rule(request, body), (0,)), requested)
