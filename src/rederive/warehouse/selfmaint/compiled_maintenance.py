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
from typing import Final

from rederive.ir.rules import Atom, Column, Comparison, Literal, Negation, Program, Relation, Rule
from rederive.ir.terms import Type, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, canonical_rules, maintenance_rules
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, Totals, ViewClass
from rederive.warehouse.selfmaint.determined import is_determined
from rederive.warehouse.selfmaint.open_rows import change_rules, exceeds_budget, is_hopeless, open_row_test
from rederive.warehouse.selfmaint.reduction import DiffCase, Refutation, cases, refutations
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind
from rederive.warehouse.selfmaint.totals import are_moved, totals_rules

MAX_RULES: Final = 20_000  # of one test; a view with a larger test counts as not self-maintainable


@dataclass(frozen=True, slots=True)
class CompiledMaintenance:
    """The rules for one view and one kind of update.

    `program` defines `v.plus`, `v.minus`, for plain views `v.next` and, unless the view is `always` self-maintainable,
    `v.depends` and `v.maintainable`. Its base relations are the stored views and those of `relation_names`. `hopeless`: the view
    is not self-maintainable under any insertion of a new row, whatever the views hold; or it has no test, as totals have none.
    """

    view: str
    kind: UpdateKind
    given: KnownRelations
    program: Program
    always: bool
    hopeless: bool


def compile_maintenance(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> CompiledMaintenance | None:
    """Return the maintenance rules and the test of a view; None if it has no compiled test, or too large a one.

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
    if view.kind is ViewClass.OTHER or not _negates_local(view, given):
        return None
    if view.totals is not None:
        return _compile_totals(view, view.totals, views, relations, kind, given)
    if view.kind is not ViewClass.PLAIN or any(other.kind not in (ViewClass.PLAIN, ViewClass.OTHER) for other in views):
        return _compile_open_rows(view, views, relations, kind, given)
    if exceeds_budget((case.unknown for case in cases(view, views, kind, given)), views):
        return None
    rules = [*canonical_rules(views, relations, kind, given), *maintenance_rules(view, relations, kind)]
    test: list[Rule] = []
    hopeless = False
    for number, case in enumerate(cases(view, views, kind, given), 1):
        found = refutations(case, views)
        test += _case_rules(view.name, case, found, kind, given, number)
        hopeless |= _is_hopeless(case, found)
        if len(test) > MAX_RULES:
            return None
    depends = [rule for rule in test if rule.head.relation == names.of(view.name, names.DEPENDS)]
    if depends:
        # v.maintainable() :- !v.depends().
        answer = Atom(names.of(view.name, names.MAINTAINABLE), ())
        test.append(Rule(answer, (Negation(Atom(names.of(view.name, names.DEPENDS), ())),)))
    outputs = [names.of(view.name, part) for part in (names.PLUS, names.MINUS, names.NEXT, names.MAINTAINABLE)]
    types = _variable_types(view.query, relations)
    program = _assemble([*rules, *test], outputs, relations, view, types)
    return CompiledMaintenance(view.name, kind, given, program, not depends, hopeless)


def _negates_local(view: StoredView, given: KnownRelations) -> bool:
    """Tell whether the relations that the view negates are known before and after the update."""
    queries = (*view.queries, *((view.totals.query,) if view.totals is not None else ()))
    conditions = (condition for query in queries for condition in query.conditions)
    return all(condition.atom.relation in given.local for condition in conditions if isinstance(condition, Negation))


def _compile_totals(
    view: StoredView,
    totals: Totals,
    views: Sequence[StoredView],
    relations: Mapping[str, Relation],
    kind: UpdateKind,
    given: KnownRelations,
) -> CompiledMaintenance:
    rules = [*canonical_rules(views, relations, kind, given), *totals_rules(view, relations, kind)]
    outputs = [names.of(view.name, part) for part in (names.GAINED, names.LOST)]
    columns = relations[totals.query.head.relation].columns
    program = _assemble(rules, outputs, {**relations, **{name: Relation(name, columns) for name in outputs}}, view, {})
    is_moved = are_moved(view, views, kind, given)
    return CompiledMaintenance(view.name, kind, given, program, is_moved, hopeless=not is_moved)


def _compile_open_rows(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> CompiledMaintenance | None:
    """Return the rules of a view by the test of open rows: a "yes" is right, a "no" may be too careful."""
    found = open_row_test(view, views, relations, kind, given)
    if found is None:
        return None
    test, declared = found
    always = not test or is_determined(view, views, relations, kind, given)
    if not always:
        # v.maintainable() :- !v.depends().
        answer = Atom(names.of(view.name, names.MAINTAINABLE), ())
        test.append(Rule(answer, (Negation(Atom(names.of(view.name, names.DEPENDS), ())),)))
    canonical = tuple(canonical_rules(views, relations, kind, given))
    rules = [*canonical, *change_rules(view, relations, kind, canonical), *test]
    outputs = [names.of(view.name, part) for part in (names.PLUS, names.MINUS, *(() if always else (names.MAINTAINABLE,)))]
    program = _assemble(rules, outputs, {**relations, **declared}, view, {})
    hopeless = not always and not given.read and is_hopeless(view, views, relations, kind)
    return CompiledMaintenance(view.name, kind, given, program, always, hopeless)


def _case_rules(
    view: str, case: DiffCase, found: Sequence[Refutation], kind: UpdateKind, given: KnownRelations, number: int
) -> list[Rule]:
    """Return one case as safe rules: `candidate` holds possible values, `refuted` those that a refutation excludes."""
    fresh, applying = case.fresh, _applying(case, found)
    positive = (names.at(case.inserted, names.INSERTED), *(after_update(atom, kind) for atom in case.after))
    # Whatever the values are, some view would get a row that it does not have: the case never holds.
    if any(one.is_unconditional for one in applying):
        return []
    absent = (*_absences(case, kind, given), _undecided(case, kind))
    # A fact with a fresh value is in no relation, so its absence needs no test.
    body: tuple[Literal, ...] = (*positive, *(Negation(atom) for atom in absent if not fresh.intersection(atom.terms)))
    depends = Atom(names.of(view, names.DEPENDS), ())
    if not applying:
        # v.depends() :- r.inserted(...), s.next(...), ..., !absent(...).
        return [Rule(depends, body)]
    used = {term for one in applying for term in one.terms()}
    columns = tuple(v for v in case.variables if v in used)
    candidate, refuted = (Atom(f"{view}.{part}{number}", columns) for part in ("candidate", "refuted"))
    # v.candidateN(...) :- r.inserted(...), s.next(...), ..., !absent(...).
    # v.refutedN(...)   :- v.candidateN(...), premise.
    # v.depends()       :- v.candidateN(...), !v.refutedN(...).
    refuting = (Rule(refuted, (candidate, *one.premise())) for one in applying)
    return [Rule(candidate, body), *refuting, Rule(depends, (candidate, Negation(refuted)))]


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


def _absences(case: DiffCase, kind: UpdateKind, given: KnownRelations) -> Iterator[Atom]:
    """Return what must not hold: the update does not delete an unknown fact, and it is not known to be absent."""
    for atom in case.unknown:
        if atom.relation in kind.deletes:
            yield names.at(atom, names.DELETED)
        if given.net and atom.relation in kind.inserts:
            yield names.at(atom, names.INSERTED)
        if atom.relation in given.logged:
            yield names.at(atom, names.ABSENT)


def _variable_types(query: ConjunctiveQuery, relations: Mapping[str, Relation]) -> dict[Variable, Type]:
    found = {}
    for atom in query.body:
        for term, type_ in zip(atom.terms, relations[atom.relation].types, strict=True):
            if isinstance(term, Variable):
                found[term] = type_
    return found


def _assemble(
    rules: Iterable[Rule],
    outputs: Sequence[str],
    relations: Mapping[str, Relation],
    view: StoredView,
    types: Mapping[Variable, Type],
) -> Program:
    """Return the program of the rules that the outputs need, with a declaration for every relation."""
    given = tuple(dict.fromkeys(rules))
    needed, queue = set(outputs), list(outputs)
    while queue:
        name = queue.pop()
        read = {atom.relation for rule in given if rule.head.relation == name for atom in _atoms(rule)} - needed
        needed |= read
        queue += read
    used = tuple(rule for rule in given if rule.head.relation in needed)
    declared: dict[str, Relation] = {}
    for rule in used:
        for atom in (*_atoms(rule), rule.head):
            if atom.relation not in declared:
                declared[atom.relation] = _declared(atom, relations, view, types)
    for output in outputs:
        if not output.endswith(names.MAINTAINABLE):
            declared.setdefault(output, relations[output] if output in relations else names.declared(output, relations))
    return Program(declared, used)


def _atoms(rule: Rule) -> Iterator[Atom]:
    for literal in rule.body:
        if not isinstance(literal, Comparison):
            yield literal if isinstance(literal, Atom) else literal.atom


def _declared(atom: Atom, relations: Mapping[str, Relation], view: StoredView, types: Mapping[Variable, Type]) -> Relation:
    if atom.relation in relations:
        return Relation(atom.relation, relations[atom.relation].columns)
    stem, _, part = atom.relation.rpartition(".")
    if stem == view.name and part.rstrip("0123456789") in ("candidate", "refuted", names.DEPENDS, names.MAINTAINABLE):
        variables = [term for term in atom.terms if isinstance(term, Variable)]
        return Relation(atom.relation, tuple(Column(v.name, types[v]) for v in variables))
    return names.declared(atom.relation, relations)
