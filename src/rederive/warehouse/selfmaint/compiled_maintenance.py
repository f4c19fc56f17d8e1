"""The compiled test: rules that decide, from the stored views and the update, whether a view is self-maintainable.

For plain views this is HU97's Algorithm 5.1 with Appendix A; for others see `open_rows`. A case of DIFF (`reduction`) shows that
a view is not self-maintainable if its variables have values that no refutation excludes (Algorithm A.1). The values are
arbitrary, so the rules must be made safe (Algorithm A.2). Two laws keep them small:

- The row that a refutation derives is in no view, because one of its facts is unknown. So the premise alone refutes.
- A variable that occurs in unknown facts only takes a *fresh* value, which occurs nowhere else, and each such variable a
  different one: these values satisfy the fewest premises. If they do not show a difference, no values do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from rederive.ir.rules import Atom, Comparison, Literal, Negation, Program, Relation, Rule
from rederive.ir.terms import Type, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, canonical_rules, maintenance_rules
from rederive.warehouse.selfmaint.conjunctive import StoredView, ViewClass
from rederive.warehouse.selfmaint.determined import is_determined
from rederive.warehouse.selfmaint.open_rows import (
    absences,
    change_rules,
    declare_cases,
    is_hopeless,
    leaves_rows_open,
    open_row_test,
    query_cases,
    variable_types,
)
from rederive.warehouse.selfmaint.reduction import DiffCase, Refutation, cases, refutations
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind
from rederive.warehouse.selfmaint.totals import are_moved, totals_rules

# Of the queries of views to the unknown facts of all cases of a test: about half a second. A larger test is not made.
MAX_MAPPINGS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CompiledMaintenance:
    """The rules for one view and one kind of update.

    `program` defines `v.plus`, `v.minus`, for plain views `v.next` and, if there is a test, `v.depends` and `v.maintainable`; for
    totals `v.gained` and `v.lost`. Its base relations are the stored views and those of `relation_names`. `always`: the view is
    self-maintainable under every update of this kind, so it needs no test. `has_test`: it needs one, and the test is not too
    large. `hopeless`: the test never holds for an insertion of a new row, whatever the views hold.
    """

    view: str
    kind: UpdateKind
    given: KnownRelations
    program: Program
    always: bool
    has_test: bool = False
    hopeless: bool = False


def compile_maintenance(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> CompiledMaintenance | None:
    """Return the maintenance rules and the test of a view; None for the classes of views that no rules maintain.

    >>> from rederive.ir.printing import show_rule
    >>> from rederive.lang import compile_program
    >>> from rederive.warehouse.selfmaint.conjunctive import stored_views
    >>> program = compile_program('''
    ...     .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .remote r, s, t
    ...     .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    ...     .decl v2(y: symbol, z: symbol)             v2(y, z) :- s(y, z).
    ... ''')
    >>> views = stored_views(program)
    >>> test = compile_maintenance(views[0], views, program.relations, UpdateKind.of(insert=["r"]), KnownRelations())
    >>> print(*(show_rule(rule) for rule in test.program.definitions if rule.head.relation.startswith("v1")), sep="\\n")
    v1.plus(x, y, z) :- r.inserted(x, y), s.known(y, z), t.known(z), !v1(x, y, z).
    v1.next(x, y, z) :- v1(x, y, z).
    v1.next(x, y, z) :- v1.plus(x, y, z).
    v1.candidate1(z) :- r.inserted(x, y), s.known(y, z), !t.known(z).
    v1.refuted1(z) :- v1.candidate1(z), r.known(x_, y_), s.known(y_, z).
    v1.depends() :- v1.candidate1(z), !v1.refuted1(z).
    v1.maintainable() :- !v1.depends().
    """
    if not _has_rules(view, given):
        return None
    always = is_always(view, views, relations, kind, given)
    canonical = tuple(canonical_rules(views, relations, kind, given))
    if view.totals is not None:
        outputs = [names.of(view.name, part) for part in (names.GAINED, names.LOST)]
        columns = relations[view.totals.query.head.relation].columns
        declared = {**relations, **{name: Relation(name, columns) for name in outputs}}
        program = _assemble([*canonical, *totals_rules(view, relations, kind)], outputs, declared)
        return CompiledMaintenance(view.name, kind, given, program, always)
    if _is_exact(view, views):
        rules = [*canonical, *maintenance_rules(view, relations, kind)]
        outputs = [names.of(view.name, part) for part in (names.PLUS, names.MINUS, names.NEXT)]
    else:
        rules = [*canonical, *change_rules(view, relations, kind, canonical)]
        outputs = [names.of(view.name, part) for part in (names.PLUS, names.MINUS)]
    test = None if always else _test(view, views, relations, kind, given)
    if test is None:
        return CompiledMaintenance(view.name, kind, given, _assemble(rules, outputs, relations), always)
    # v.maintainable() :- !v.depends().
    depends, answer = (Atom(names.of(view.name, part), ()) for part in (names.DEPENDS, names.MAINTAINABLE))
    rules += [*test.rules, Rule(answer, (Negation(depends),))]
    declared = {**relations, **test.declared, **{atom.relation: Relation(atom.relation, ()) for atom in (depends, answer)}}
    program = _assemble(rules, [*outputs, answer.relation], declared)
    return CompiledMaintenance(view.name, kind, given, program, always=False, has_test=True, hopeless=test.hopeless)


def is_always(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> bool:
    """Tell whether a view is self-maintainable under every update of this kind: this is known when it is defined."""
    if view.totals is not None:
        return are_moved(view, views, kind, given)
    is_certain = is_determined(view, views, relations, kind, given) or not leaves_rows_open(view, views, kind, given)
    return _has_rules(view, given) and is_certain


def _has_rules(view: StoredView, given: KnownRelations) -> bool:
    """Tell whether rules maintain the view. The relations that it negates must be known before and after the update."""
    queries = (*view.queries, *((view.totals.query,) if view.totals is not None else ()))
    negated = (c.atom.relation for query in queries for c in query.conditions if isinstance(c, Negation))
    return view.kind is not ViewClass.OTHER and given.local.issuperset(negated)


def _is_exact(view: StoredView, views: Sequence[StoredView]) -> bool:
    """Tell whether HU97's own test decides about the view; for others there is the test of open rows."""
    return view.kind is ViewClass.PLAIN and all(other.kind in (ViewClass.PLAIN, ViewClass.OTHER) for other in views)


def _is_too_large(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> bool:
    """Tell whether a test has too many mappings of the queries of views to the unknown facts of its cases.

    Their number is exponential in the bodies of queries, so it is estimated before any of them is made.
    """
    unknown = (
        (case.unknown for case in cases(view, views, kind, given))
        if _is_exact(view, views)
        else (case.unknown for query in view.queries for case in query_cases(view, query, views, kind, given))
    )
    bodies = [query.body for other in views for query in other.queries]
    found = 0
    for atoms in unknown:
        relations = [atom.relation for atom in atoms]
        found += 1 + sum(prod(1 + relations.count(atom.relation) for atom in body) for body in bodies)
        if found > MAX_MAPPINGS:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Test:
    """The rules of `v.depends`, and the relations that they add."""

    rules: Sequence[Rule]
    declared: Mapping[str, Relation]
    hopeless: bool


def _test(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> _Test | None:
    """Return the test of a view; None if it is too large."""
    if _is_too_large(view, views, kind, given):
        return None
    if not _is_exact(view, views):
        # A "yes" is right, a "no" may be too careful.
        rules, declared = open_row_test(view, views, relations, kind, given)
        return _Test(rules, declared, not given.read and is_hopeless(view, views, relations, kind))
    types = variable_types(view.query, relations)
    rules, declared, hopeless = [], {}, False
    for number, case in enumerate(cases(view, views, kind, given), 1):
        found = refutations(case, views)
        made, added = _case_rules(view.name, case, found, kind, given, number, types)
        rules += made
        declared |= added
        hopeless |= _is_hopeless(case, found)
    return _Test(rules, declared, hopeless)


def _case_rules(
    view: str,
    case: DiffCase,
    found: Sequence[Refutation],
    kind: UpdateKind,
    given: KnownRelations,
    number: int,
    types: Mapping[Variable, Type],
) -> tuple[list[Rule], dict[str, Relation]]:
    """Return one case as safe rules: `candidate` holds possible values, `refuted` those that a refutation excludes."""
    fresh, applying = case.fresh, _applying(case, found)
    positive = (names.at(case.inserted, names.INSERTED), *(after_update(atom, kind) for atom in case.after))
    # Whatever the values are, some view would get a row that it does not have: the case never holds.
    if any(one.is_unconditional for one in applying):
        return [], {}
    absent = (*absences(case.unknown, kind, given), _undecided(case, kind))
    # A fact with a fresh value is in no relation, so its absence needs no test.
    body: tuple[Literal, ...] = (*positive, *(Negation(atom) for atom in absent if not fresh.intersection(atom.terms)))
    depends = Atom(names.of(view, names.DEPENDS), ())
    if not applying:
        # v.depends() :- r.inserted(...), s.next(...), ..., !absent(...).
        return [Rule(depends, body)], {}
    used = {term for one in applying for term in one.terms()}
    columns = tuple(v for v in case.variables if v in used)
    candidate, refuted = (Atom(f"{view}.{part}{number}", columns) for part in ("candidate", "refuted"))
    # v.candidateN(...) :- r.inserted(...), s.next(...), ..., !absent(...).
    # v.refutedN(...)   :- v.candidateN(...), premise.
    # v.depends()       :- v.candidateN(...), !v.refutedN(...).
    refuting = (Rule(refuted, (candidate, *one.premise())) for one in applying)
    rules = [Rule(candidate, body), *refuting, Rule(depends, (candidate, Negation(refuted)))]
    return rules, declare_cases((candidate, refuted), types)


def _undecided(case: DiffCase, kind: UpdateKind) -> Atom:
    """Return the atom that must not hold: the row itself, or else the row follows from the canonical database.

    Without projection a row is in the view if and only if all its facts hold. All facts but the unknown ones hold after the
    update. So if exactly one fact is unknown, that fact decides about the row.
    """
    return after_update(case.unknown[0], kind) if len(case.unknown) == 1 else names.at(case.head, names.NEXT)


def _applying(case: DiffCase, found: Sequence[Refutation]) -> list[Refutation]:
    """Return the refutations that fresh values can satisfy, without those that another one with a smaller premise implies."""
    premises = {c: frozenset(c.premise()) for c in found if not case.fresh.intersection(c.terms())}
    return [c for c in premises if not any(other < premises[c] for other in premises.values())]


def _is_hopeless(case: DiffCase, found: Sequence[Refutation]) -> bool:
    """Tell whether the case holds for every inserted row that was absent: only its presence refutes the case."""
    present = names.at(case.inserted, names.KNOWN)
    is_hidden = all(case.fresh.intersection(atom.terms) for atom in (case.head, *case.unknown))
    return is_hidden and not case.after and all(present in one.known for one in _applying(case, found))


def _assemble(rules: Iterable[Rule], outputs: Sequence[str], relations: Mapping[str, Relation]) -> Program:
    """Return the program of the rules that the outputs need, with a declaration for every relation."""
    given = tuple(dict.fromkeys(rules))
    defining: dict[str, list[Rule]] = {}
    for rule in given:
        defining.setdefault(rule.head.relation, []).append(rule)
    needed, queue = set(outputs), list(outputs)
    while queue:
        read = {atom.relation for rule in defining.get(queue.pop(), ()) for atom in _atoms(rule)} - needed
        needed |= read
        queue += read
    used = tuple(rule for rule in given if rule.head.relation in needed)
    mentioned = dict.fromkeys((*(atom.relation for rule in used for atom in (*_atoms(rule), rule.head)), *outputs))
    return Program({name: _declared(name, relations) for name in mentioned}, used)


def _atoms(rule: Rule) -> Iterator[Atom]:
    for literal in rule.body:
        if not isinstance(literal, Comparison):
            yield literal if isinstance(literal, Atom) else literal.atom


def _declared(name: str, relations: Mapping[str, Relation]) -> Relation:
    return Relation(name, relations[name].columns) if name in relations else names.declared(name, relations)
