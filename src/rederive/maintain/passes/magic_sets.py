"""Magic sets: the rules of a view, restricted to the bindings that are requested.

A binding pattern is a view and its bound columns, in the papers its *adornment* (`bf`: the first bound, the second free). The
requested bindings are rows of a magic relation such as m_closure^bf(x). For a rule  p :- r1, ..., rn  and a pattern of p, the
body is joined from the bound columns on; before each literal rj of the same component comes the request that it answers:

    m_rj :- m_p, r1, ..., r(j-1).           p :- m_p, r1, ..., rn.

The values of m_p come from a request, and no row need have them: functors are applied to values of the body's atoms alone
(`analysis.bindings`), so the requests that a recursion makes end where the recursion does.

A view of a lower component is read by a *lookup*: it adds its key to the magic relation of its own pattern, and the lower query
rules run to their fixpoint before the lookup returns. So a negated literal or an aggregate always reads rows that are complete
for its binding, although the magic program as a whole need not be stratified.

A transitive closure is queried in the linear form that carries the bound half along (`passes.linearize`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rederive.analysis.bindings import binding_pattern, join_order
from rederive.analysis.closure import Form, closure_of
from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Definition, Literal, Negation, Relation, Rule, Variant, defines, literal_variables
from rederive.ir.terms import Variable
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule
from rederive.maintain.passes.linearize import form_for, in_form

Bound = tuple[int, ...]
REQUEST_LABEL = "M"  # of the rules that derive magic relations


@dataclass(frozen=True, slots=True)
class BindingPattern:
    """A relation and its columns that are bound to values."""

    relation: str
    bound: Bound


@dataclass(frozen=True, slots=True)
class QueryRules:
    """The rules that answer one binding pattern, and the patterns that they request of views in the same component."""

    rules: tuple[MaintenanceRule, ...]
    requests: tuple[BindingPattern, ...]


def adornment(bound: Bound, arity: int) -> str:
    """The papers' notation for the bound columns.

    >>> adornment((0,), 2)
    'bf'
    """
    return "".join("b" if i in bound else "f" for i in range(arity))


def magic_relation(pattern: BindingPattern, relation: Relation) -> Relation:
    """The relation that holds the requested bindings; its columns are the bound ones."""
    name = f"m_{relation.name}^{adornment(pattern.bound, relation.arity)}"
    return Relation(name, tuple(relation.columns[i] for i in pattern.bound))


def magic_atom(pattern: BindingPattern, atom: Atom, relation: Relation) -> Atom:
    """The atom of the magic relation that requests the rows of an atom."""
    return Atom(magic_relation(pattern, relation).name, tuple(atom.terms[i] for i in pattern.bound))


def query_rules(pattern: BindingPattern, component: Component, relations: Mapping[str, Relation]) -> QueryRules:
    """The rules of the pattern's view under its bindings; literals of the same component get rules that request them.

    An aggregate has no query rules: its groups are folded from a lookup of its source (`aggregate_pattern`).
    """
    rules: list[MaintenanceRule] = []
    requests: list[BindingPattern] = []
    # An aggregate contributes nothing: `_rules_in_form` returns rules alone.
    for rule in _rules_in_form(pattern, component):
        for made, requested in _restricted_rules(pattern, rule, relations, component.relations):
            rules.append(made)
            if requested is not None:
                requests.append(requested)
    return QueryRules(tuple(rules), tuple(dict.fromkeys(requests)))


def _rules_in_form(pattern: BindingPattern, component: Component) -> Iterable[Rule]:
    """The view's own rules; those of a transitive closure in the form that carries the bound half along."""
    closure = closure_of(component)
    if closure is not None and closure.form is not Form.NONLINEAR and len(pattern.bound) == closure.width:
        return in_form(closure, form_for(closure, pattern.bound))
    return own_rules(pattern.relation, component.definitions)


def own_rules(view: str, definitions: Iterable[Definition]) -> tuple[Rule, ...]:
    """The rules among the definitions whose head is this view."""
    return tuple(d for d in definitions if isinstance(d, Rule) and defines(d) == view)


def _restricted_rules(
    pattern: BindingPattern, rule: Rule, relations: Mapping[str, Relation], inside: Collection[str]
) -> Iterator[tuple[MaintenanceRule, BindingPattern | None]]:
    """One rule under one pattern: the requests of its literals `inside` the component, then the rule itself."""
    magic = magic_atom(pattern, rule.head, relations[rule.head.relation])
    bound = {v.name for v in literal_variables(magic)}
    before: list[Literal] = [magic]
    # `firm` is empty: the values of m_p come from a request, and no row need have them.
    for step in join_order(rule.body, frozenset(bound), firm=frozenset()):
        atom = step.literal.atom if isinstance(step.literal, Negation) else step.literal
        if isinstance(atom, Atom) and atom.relation in inside:
            # Sideways information passing: what is bound by m_p and the literals before this one.
            requested = BindingPattern(atom.relation, binding_pattern(atom, bound))
            request = magic_atom(requested, atom, relations[atom.relation])
            if tuple(before) != (request,):  # a request for the rule's own binding adds nothing
                yield _semi_naive(REQUEST_LABEL, request, before, rule, relations, inside), requested
        before.append(step.literal)
        bound.update(v.name for v in literal_variables(step.literal))
    # p :- m_p, r1, ..., rn.
    yield _semi_naive("Q", rule.head, before, rule, relations, inside), None


def _semi_naive(
    label: str, head: Atom, body: list[Literal], rule: Rule, relations: Mapping[str, Relation], inside: Collection[str]
) -> MaintenanceRule:
    """A rule that starts from each of its relations that grow while a query runs: the component's own and the magic ones."""
    # Magic relations are those that the program does not declare.
    grows = (
        i
        for i, literal in enumerate(body)
        if isinstance(literal, Atom) and (literal.relation in inside or literal.relation not in relations)
    )
    return MaintenanceRule(label, Rule(head, tuple(body), rule.span), tuple(grows))


def aggregate_pattern(pattern: BindingPattern, aggregate: Aggregate) -> BindingPattern:
    """What an aggregate looks up in its source: the bound columns of the group. A bound result only restricts the answer."""
    group = tuple(sorted(aggregate.group[i] for i in pattern.bound if i < len(aggregate.group)))
    return BindingPattern(aggregate.source, group)


# Lookups: requests of views that are derived on demand, by rules outside of their component


@dataclass(frozen=True, slots=True)
class LookupRule:
    """A lookup as a magic rule, and the pattern that it requests."""

    rule: MaintenanceRule
    pattern: BindingPattern


def lookup_rules(m: MaintenanceRule, relations: Mapping[str, Relation], derived: Collection[str]) -> Iterator[LookupRule]:
    """The lookups of one maintenance rule in the views that are `derived` on demand, for each of its drivers."""
    for driver in m.drivers:
        first = 0 if driver is None else 1  # a driver is what a phase has found, not a lookup
        yield from _lookups_in_order(join_from(m.whole.body, driver), first, relations, derived)


def lower_lookups(m: MaintenanceRule, relations: Mapping[str, Relation], lower: Collection[str]) -> Iterator[LookupRule]:
    """The lookups of one query rule, whose body is in join order, in `lower` views."""
    return _lookups_in_order(m.rule.body, 0, relations, lower)


def join_from(body: Sequence[Literal], driver: int | None) -> list[Literal]:
    """A body in the join order that is used where no sizes are known: its driver first.

    An engine that knows sizes may join in another order, and then requests other patterns.
    """
    before = [body[driver]] if driver is not None else []
    rest = [literal for i, literal in enumerate(body) if i != driver]
    return before + [step.literal for step in join_order(rest, frozenset(_names(before)))]


def _lookups_in_order(
    body: Sequence[Literal], first: int, relations: Mapping[str, Relation], derived: Collection[str]
) -> Iterator[LookupRule]:
    for i, literal in enumerate(body[first:], first):
        atom = literal.atom if isinstance(literal, Negation) else literal
        # Only whole states are derived; p^del, p^ins and the like are tables that phases fill.
        if isinstance(atom, Atom) and atom.variant in (Variant.OLD, Variant.NEW) and atom.relation in derived:
            # m_r :- r1, ..., r(i-1).
            before = tuple(body[:i])
            pattern = BindingPattern(atom.relation, binding_pattern(atom, _names(before)))
            request = magic_atom(pattern, atom, relations[atom.relation])
            yield LookupRule(MaintenanceRule(REQUEST_LABEL, Rule(request, before), (0,)), pattern)


def fold_lookup(fold: Fold, relations: Mapping[str, Relation]) -> LookupRule:
    """The lookup by which an aggregate reads its source: all of it, or the affected groups alone."""
    aggregate = fold.aggregate
    source = relations[aggregate.source]
    by_group = fold.into is Variant.FOLD
    columns = tuple(Variable(source.columns[i].name) for i in aggregate.group)
    pattern = BindingPattern(source.name, tuple(sorted(aggregate.group)) if by_group else ())
    touched = (Atom(aggregate.relation, columns, Variant.TOUCHED),) if by_group else ()
    request = magic_atom(pattern, Atom(source.name, tuple(Variable(c.name) for c in source.columns)), source)
    return LookupRule(MaintenanceRule(REQUEST_LABEL, Rule(request, touched), (0,)), pattern)


def _names(literals: Iterable[Literal]) -> set[str]:
    return {v.name for literal in literals for v in literal_variables(literal)}
