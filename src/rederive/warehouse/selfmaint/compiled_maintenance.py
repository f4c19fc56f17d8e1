"""The compiled test: rules that decide from the stored views and the update whether a view is self-maintainable.

HU97's Algorithm 5.1 with Appendix A. A case of DIFF (`reduction`) refutes self-maintainability where values for its variables
exist that no constraint forbids (Algorithm A.1). The values may be any at all, so the test must be made safe (Algorithm A.2). Two
laws keep it small. A row that a constraint asks for is in no view: its facts would all be known, and a case with fewer unknown
facts says the same. So a constraint forbids wherever its premise holds. And a variable that only unknown facts have takes a
*fresh* value, one that occurs nowhere, and each such variable another, for these meet the fewest premises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rederive.ir.rules import Atom, Column, Comparison, Literal, Negation, Program, Relation, Rule
from rederive.ir.terms import Type, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, canonical_rules, maintenance_rules
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.reduction import DiffCase, Refutation, cases, constraints
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind

MAX_RULES: Final = 20_000  # of one test; beyond it there is none, and the view is not known to be self-maintainable


@dataclass(frozen=True, slots=True)
class CompiledMaintenance:
    """The rules for one view and one kind of update.

    `program` defines `v.plus`, `v.minus` and `v.next` and, unless the view is `always` self-maintainable, `v.depends` and
    `v.maintainable`. Its base relations are the stored views and what `names` lists. `hopeless`: some insertion of this kind
    leaves the answer open whatever the views hold, unless the row was there already.
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
    """The maintenance queries and the test of a view; None where it has no compiled test, or one that would be too large.

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
    if view.kind is not ViewClass.PLAIN:
        return None
    rules = [*canonical_rules(views, relations, kind, given), *maintenance_rules(view, relations, kind)]
    test: list[Rule] = []
    hopeless = False
    for number, case in enumerate(cases(view, views, kind, given), 1):
        found = constraints(case, views)
        test += _case_rules(view.name, case, found, kind, given, number)
        hopeless |= _hopeless(case, found)
        if len(test) > MAX_RULES:
            return None
    depends = [rule for rule in test if rule.head.relation == names.of(view.name, names.DEPENDS)]
    if depends:
        answer = Atom(names.of(view.name, names.MAINTAINABLE), ())
        test.append(Rule(answer, (Negation(Atom(names.of(view.name, names.DEPENDS), ())),)))
    outputs = [names.of(view.name, part) for part in (names.PLUS, names.MINUS, names.NEXT, names.MAINTAINABLE)]
    types = _variable_types(view.query, relations)
    program = _assembled([*rules, *test], outputs, relations, view, types)
    return CompiledMaintenance(view.name, kind, given, program, not depends, hopeless)


def _case_rules(
    view: str, case: DiffCase, found: Sequence[Refutation], kind: UpdateKind, given: KnownRelations, number: int
) -> list[Rule]:
    """One case as safe rules: `candidate` proposes values, `refuted` are those that a constraint forbids."""
    fresh, applying = case.fresh, _applying(case, found)
    positive = (names.at(case.inserted, names.INSERTED), *(after_update(atom, kind) for atom in case.after))
    if any(constraint.mandatory for constraint in applying):
        return []
    absent = (*_absences(case, kind, given), _undecided(case, kind))
    body: tuple[Literal, ...] = (*positive, *(Negation(atom) for atom in absent if not fresh.intersection(atom.terms)))
    depends = Atom(names.of(view, names.DEPENDS), ())
    if not applying:
        return [Rule(depends, body)]
    used = {term for constraint in applying for term in constraint.terms()}
    columns = tuple(v for v in case.variables if v in used)
    candidate, refuted = (Atom(f"{view}.{part}{number}", columns) for part in ("candidate", "refuted"))
    refutations = (Rule(refuted, (candidate, *constraint.premise())) for constraint in applying)
    return [Rule(candidate, body), *refutations, Rule(depends, (candidate, Negation(refuted)))]


def _undecided(case: DiffCase, kind: UpdateKind) -> Atom:
    """What must not be known, or the row is in the new view anyway: the row itself.

    All facts of the case but the unknown ones hold after the update, one of them is inserted, and a row without projection is
    there where all of its facts are. So where one fact alone is unknown, the row is there where that fact is.
    """
    return after_update(case.unknown[0], kind) if len(case.unknown) == 1 else names.at(case.head, names.NEXT)


def _applying(case: DiffCase, found: Sequence[Refutation]) -> list[Refutation]:
    """The constraints that fresh values can meet, without those whose premise includes another's, which forbids all they do."""
    premises = {c: frozenset(c.premise()) for c in found if not case.fresh.intersection(c.terms())}
    return [c for c in premises if not any(other < premises[c] for other in premises.values())]


def _hopeless(case: DiffCase, found: Sequence[Refutation]) -> bool:
    """Whether the case stands for every inserted row that was not there: only that it was can forbid it."""
    there = names.at(case.inserted, names.KNOWN)
    hidden = all(case.fresh.intersection(atom.terms) for atom in (case.head, *case.unknown))
    return hidden and not case.after and all(there in constraint.known for constraint in _applying(case, found))


def _absences(case: DiffCase, kind: UpdateKind, given: KnownRelations) -> Iterator[Atom]:
    """What must not hold: unknown facts must outlive the update, and must not be known to be absent."""
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


def _assembled(
    rules: Iterable[Rule],
    outputs: Sequence[str],
    relations: Mapping[str, Relation],
    view: StoredView,
    types: Mapping[Variable, Type],
) -> Program:
    """The rules that the outputs need, with a declaration for every relation in them."""
    given = tuple(dict.fromkeys(rules))
    wanted, waiting = set(outputs), list(outputs)
    while waiting:
        name = waiting.pop()
        read = {atom.relation for rule in given if rule.head.relation == name for atom in _atoms(rule)} - wanted
        wanted |= read
        waiting += read
    kept = tuple(rule for rule in given if rule.head.relation in wanted)
    declared: dict[str, Relation] = {}
    for rule in kept:
        for atom in (*_atoms(rule), rule.head):
            if atom.relation not in declared:
                declared[atom.relation] = _declared(atom, relations, view, types)
    for output in outputs[:3]:
        declared.setdefault(output, names.declared(output, relations))
    return Program(declared, kept)


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
