"""The test of views with projections, unions and conditions: no row may depend on facts that are not known (decision 135).

After an update, a row is *open* if known facts do not decide about it: an inserted fact derives it together with unknown facts,
or it lost a fact and only unknown facts may still derive it. Law: if no row is open, the view is self-maintainable, and known
facts derive its change. The law holds in one direction: a view with an open row may be self-maintainable all the same.

An open row is refuted if its unknown facts contradict what is known. Every contradiction is an *implication*: if the premise
holds, then so does the consequence. A query of a stored view implies its row; a key implies that two facts are equal. A free
variable, which only unknown facts have, takes any value, so an implication that mentions one is a case split: either its premise
holds, and premise and consequence bind the variable, or its premise does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Final

from rederive.ir.rules import Atom, Column, Comparison, Literal, Negation, Operator, Relation, Rule, literal_variables
from rederive.ir.terms import NUMBER, Call, Constant, Simple, Term, Type, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, known_completely, next_state
from rederive.warehouse.selfmaint.conjunctive import (
    ConjunctiveQuery,
    StoredView,
    ViewClass,
    substitute,
    substitute_condition,
    substitute_literal,
    substitute_query,
    unify,
)
from rederive.warehouse.selfmaint.reduction import unused_name
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind

# Implications may be left out, which makes an answer more careful and the test smaller: those with the longest premises are.
MAX_SPLITS: Final = 2  # premises assumed one after the other
MAX_SPLIT_IMPLICATIONS: Final = 8  # of one case: those that may need a split
MAX_IMPLICATIONS: Final = 40  # of one case
MAX_SPLIT_CASES: Final = 100  # of one view, with the splits; a view with more has no splits


@dataclass(frozen=True, slots=True)
class OpenCase:
    """Rows `head` that `start` makes open: they need `after`, facts known after the update, and `unknown` facts.

    `excluded`: rows about which known facts decide.
    """

    head: Atom
    start: Atom
    after: tuple[Atom, ...]
    unknown: tuple[Atom, ...]
    conditions: tuple[Comparison | Negation, ...]
    excluded: tuple[Atom, ...]

    @property
    def variables(self) -> frozenset[Variable]:
        """The variables of the case."""
        atoms = (self.head, self.start, *self.after, *self.unknown)
        return frozenset(v for atom in atoms for v in literal_variables(atom))


@dataclass(frozen=True, slots=True)
class Implication:
    """If the premise holds before the update, with the unknown facts of a case, then so does the consequence.

    Without a consequence the premise contradicts what is known.
    """

    premise: tuple[Literal, ...]
    consequence: tuple[Atom | Comparison, ...]


# Rules


def change_rules(
    view: StoredView, relations: Mapping[str, Relation], kind: UpdateKind, canonical: Sequence[Rule]
) -> Iterator[Rule]:
    """Return the rules for the change of a view that the known facts derive; `canonical` are the rules of these."""
    row = names.every(relations[view.name])
    for query in view.queries:
        after = [after_update(atom, kind) for atom in query.body]
        holding = tuple(_conditions_after(query, kind))
        for i, start in _starts(query, kind):
            # v.entering(...) :- r.inserted(...), s.next(...), ..., conditions.
            others = (atom for j, atom in enumerate(after) if j != i)
            yield Rule(names.at(query.head, names.ENTERING), (start, *others, *holding))
        for lost in _losses(query, kind):
            # v.touched(...) :- v(...), r.deleted(...).
            yield Rule(names.at(query.head, names.TOUCHED), (query.head, lost))
        # v.supported(...) :- v.touched(...), r.next(...), ..., conditions.
        supported = Rule(names.at(query.head, names.SUPPORTED), (names.at(query.head, names.TOUCHED), *after, *holding))
        yield from _unfold(supported, query.body[0], kind, canonical) if len(query.body) == 1 else (supported,)
    yield Rule(names.at(row, names.PLUS), (names.at(row, names.ENTERING), Negation(row)))
    yield Rule(names.at(row, names.MINUS), (names.at(row, names.TOUCHED), Negation(names.at(row, names.SUPPORTED))))
    for relation in dict.fromkeys(name for query in view.queries for name in _relations(query)):
        yield from next_state(relations[relation], kind)


def _unfold(supported: Rule, atom: Atom, kind: UpdateKind, canonical: Sequence[Rule]) -> Iterator[Rule]:
    """Return a rule over one atom with the definition of `r.next` in its place: one fact is looked for, none is derived."""
    start, _, *holding = supported.body
    kept = [Negation(names.at(atom, names.DELETED))] if atom.relation in kind.deletes else []
    if atom.relation in kind.inserts:
        # v.supported(...) :- v.touched(...), r.inserted(...).
        yield Rule(supported.head, (start, names.at(atom, names.INSERTED), *holding))
    taken = {v.name for literal in supported.body for v in literal_variables(literal)}
    for known in canonical:
        if known.head.relation == names.of(atom.relation, names.KNOWN):
            renaming = _unused(dict.fromkeys(v for lit in (known.head, *known.body) for v in literal_variables(lit)), taken)
            head, *body = (substitute_literal(literal, renaming) for literal in (known.head, *known.body))
            assert isinstance(head, Atom)
            bindings = unify(tuple(zip(head.terms, atom.terms, strict=True)))
            if bindings is not None:
                # v.supported(...) :- v.touched(...), w(...), !r.deleted(...).
                literals = (supported.head, start, *body, *kept, *holding)
                first, *rest = (substitute_literal(literal, bindings) for literal in literals)
                assert isinstance(first, Atom)
                yield Rule(first, tuple(rest))


def _relations(query: ConjunctiveQuery) -> Iterator[str]:
    yield from (atom.relation for atom in query.body)
    yield from (condition.atom.relation for condition in query.conditions if isinstance(condition, Negation))


def _conditions_after(query: ConjunctiveQuery, kind: UpdateKind) -> Iterator[Literal]:
    for condition in query.conditions:
        yield Negation(after_update(condition.atom, kind)) if isinstance(condition, Negation) else condition


def _starts(query: ConjunctiveQuery, kind: UpdateKind) -> Iterator[tuple[int | None, Atom]]:
    """Return what may add a row: a fact that enters, with its place in the body, or a negated one that leaves."""
    for i, atom in enumerate(query.body):
        if atom.relation in kind.inserts:
            yield i, names.at(atom, names.INSERTED)
    for condition in query.conditions:
        if isinstance(condition, Negation) and condition.atom.relation in kind.deletes:
            yield None, names.at(condition.atom, names.DELETED)


def _losses(query: ConjunctiveQuery, kind: UpdateKind) -> Iterator[Atom]:
    """Return what may take a derivation from a row: a fact that leaves, or a negated one that enters."""
    for atom in query.body:
        if atom.relation in kind.deletes:
            yield names.at(atom, names.DELETED)
    for condition in query.conditions:
        if isinstance(condition, Negation) and condition.atom.relation in kind.inserts:
            yield names.at(condition.atom, names.INSERTED)


def open_row_test(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> tuple[list[Rule], dict[str, Relation]]:
    """Return the rules of `v.depends`, with the relations that they add."""
    found = list(_open_cases(view, views, relations, kind, given))
    leaves = list(islice(_leaves(found, MAX_SPLITS), MAX_SPLIT_CASES + 1))
    if len(leaves) > MAX_SPLIT_CASES:
        leaves = list(_leaves(found, 0))
    rules: list[Rule] = []
    declared: dict[str, Relation] = {}
    for number, (query, case, leaf) in enumerate(leaves, 1):
        made, added = _leaf_rules(view.name, case, leaf, kind, given, number, variable_types(query, relations))
        rules += made
        declared |= added
    return rules, declared


def leaves_rows_open(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> bool:
    """Tell whether an update of this kind may leave a row open, whatever the data.

    Law: what refutes a case for all values also refutes those with more unknown facts. So those with one are looked at.
    """
    cases = (case for query in view.queries for case in query_cases(view, query, views, kind, given, most=1))
    return not all(_is_refuted(case, views) for case in cases)


def _is_refuted(case: OpenCase, views: Sequence[StoredView]) -> bool:
    """Tell whether the unknown fact of a case alone derives a row of a plain view: such a row would make it known."""
    (unknown,) = case.unknown
    for view in views:
        if view.kind is ViewClass.PLAIN and all(atom.relation == unknown.relation for atom in view.query.body):
            renamed = substitute_query(view.query, _unused(view.query.variables, {v.name for v in case.variables}))
            if any(not one.premise for one in _of_view(case, view, renamed, [unknown] * len(renamed.body))):
                return True
    return False


def _open_cases(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> Iterator[tuple[ConjunctiveQuery, OpenCase, Sequence[Implication]]]:
    """Return the cases that nothing refutes for all values, with their implications."""
    for query in view.queries:
        for case in query_cases(view, query, views, kind, given):
            # Those without a premise first: they hold in every case, so they split nothing.
            found = sorted(dict.fromkeys(_implications(case, views, relations)), key=lambda one: len(one.premise))
            if not any(not one.premise and not one.consequence for one in found):
                yield query, case, _chosen(case, found)


def _leaves(
    found: Iterable[tuple[ConjunctiveQuery, OpenCase, Sequence[Implication]]], splits: int
) -> Iterator[tuple[ConjunctiveQuery, OpenCase, _Leaf]]:
    for query, case, implications in found:
        for leaf in _descend(case, implications, (), (), splits):
            yield query, case, leaf


def _chosen(case: OpenCase, found: Sequence[Implication]) -> list[Implication]:
    free = case.variables - _bound((case.start, *case.after))
    splitting = [one for one in found if one.consequence and free.intersection(_mentioned(one))]
    dropped = set(splitting[MAX_SPLIT_IMPLICATIONS:])
    return [one for one in found if one not in dropped][:MAX_IMPLICATIONS]


def _mentioned(one: Implication) -> Iterator[Variable]:
    return (variable for literal in (*one.premise, *one.consequence) for variable in literal_variables(literal))


def is_hopeless(view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind) -> bool:
    """Tell whether a new row needs unknown facts about which no view and no key implies anything."""
    for query in view.queries:
        for case in query_cases(view, query, views, kind, KnownRelations()) if not query.conditions else ():
            bound = set(literal_variables(case.start))
            is_free = all(not bound.issuperset(literal_variables(atom)) for atom in (case.head, *case.unknown))
            is_new = case.start.relation.endswith(names.INSERTED)
            if is_new and is_free and not case.after and not any(_implications(case, views, relations)):
                return True
    return False


# Cases


def query_cases(
    view: StoredView,
    query: ConjunctiveQuery,
    views: Sequence[StoredView],
    kind: UpdateKind,
    given: KnownRelations,
    most: int | None = None,
) -> Iterator[OpenCase]:
    """Return the cases of a query; `most`: those with at most so many unknown facts."""
    complete = known_completely(views, given)
    head = query.head
    conditions = tuple(c for c in _conditions_after(query, kind) if not isinstance(c, Atom))
    for i, start in _starts(query, kind):
        others = [atom for j, atom in enumerate(query.body) if j != i]
        # A new row has a fact that was not there: one that is known to have been present is not the start.
        idle = (names.at(query.body[i], names.KNOWN),) if i is not None else ()
        excluded = (head, names.at(head, names.ENTERING), *idle)
        for after, unknown in _partitions(others, complete, most):
            yield OpenCase(head, start, after, unknown, conditions, excluded)
    # A plain row shows all its facts: one that lost a fact has no other derivation.
    if view.kind is not ViewClass.PLAIN and any(True for other in view.queries for _ in _losses(other, kind)):
        for after, unknown in _partitions(query.body, complete, most):
            # A row is touched because a fact that it shows was deleted: that fact does not derive it after the update.
            if any(_is_always_deleted(atom, head, view, kind) for atom in unknown):
                continue
            touched = names.at(head, names.TOUCHED)
            yield OpenCase(head, touched, after, unknown, conditions, (names.at(head, names.SUPPORTED),))


def _is_always_deleted(atom: Atom, head: Atom, view: StoredView, kind: UpdateKind) -> bool:
    """Tell whether every way to lose a derivation of a row deletes this fact of the row."""
    if not set(literal_variables(head)).issuperset(literal_variables(atom)) or set(map(type, head.terms)) - {Variable}:
        return False
    for query in view.queries:
        shown = {term: place for place, term in enumerate(query.head.terms)}
        for lost in _losses(query, kind):
            same = [
                isinstance(t, Variable) and t in shown and head.terms[shown[t]] == u
                for t, u in zip(lost.terms, atom.terms, strict=False)
            ]
            if lost.relation != names.of(atom.relation, names.DELETED) or not all(same):
                return False
    return True


def _partitions(
    atoms: Sequence[Atom], complete: frozenset[str], most: int | None
) -> Iterator[tuple[tuple[Atom, ...], tuple[Atom, ...]]]:
    """Return every way to have some of the facts unknown, or at most so many. A relation that is known completely has none."""
    places = [i for i, atom in enumerate(atoms) if atom.relation not in complete]
    for number in range(1, min(len(places), most or len(places)) + 1):
        for chosen in combinations(places, number):
            yield tuple(atom for i, atom in enumerate(atoms) if i not in chosen), tuple(atoms[i] for i in chosen)


def unknown_relations(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> frozenset[str]:
    """Return the relations whose unknown facts may decide about a row: reading all of them leaves no row open.

    >>> from rederive.lang import compile_program
    >>> from rederive.warehouse.selfmaint.conjunctive import stored_views
    >>> program = compile_program('''
    ...     .decl r(x: number, y: number)  .decl s(y: number)  .remote r, s  .decl v(x: number)  v(x) :- r(x, y), s(y).
    ... ''')
    >>> views = stored_views(program)
    >>> [sorted(unknown_relations(views[0], views, UpdateKind.of(insert=[name]), KnownRelations())) for name in "rs"]
    [['s'], ['r']]
    """
    # Every unknown fact of a case is also the only unknown one of another case.
    found = (case for query in view.queries for case in query_cases(view, query, views, kind, given, most=1))
    return frozenset(atom.relation for case in found for atom in case.unknown)


# Implications


def _implications(case: OpenCase, views: Sequence[StoredView], relations: Mapping[str, Relation]) -> Iterator[Implication]:
    taken = {variable.name for variable in case.variables}
    for view in views:
        for query in view.queries if view.kind is not ViewClass.OTHER else ():
            renamed = substitute_query(query, _unused(query.variables, taken))
            # None: a known fact. At least one fact is unknown, or the implication says nothing about the case.
            choices = [(None, *(a for a in case.unknown if a.relation == atom.relation)) for atom in renamed.body]
            for images in product(*choices):
                if any(image is not None for image in images):
                    yield from _of_view(case, view, renamed, images)
    for atom in case.unknown:
        yield from _of_key(atom, relations[atom.relation], taken)


def _unused(variables: Iterable[Variable], taken: set[str]) -> dict[Variable, Simple]:
    renaming: dict[Variable, Simple] = {}
    for variable in variables:
        renaming[variable] = Variable(unused_name(variable.name, taken))
        taken.add(unused_name(variable.name, taken))
    return renaming


def _of_view(case: OpenCase, view: StoredView, query: ConjunctiveQuery, images: Sequence[Atom | None]) -> Iterator[Implication]:
    """Yield: the facts of a query, some of them unknown ones of the case, imply the row of the view."""
    mapping: dict[Variable, Simple] = {}
    equations: dict[Comparison, None] = {}
    for atom, image in zip(query.body, images, strict=True):
        for term, target in zip(atom.terms, image.terms if image is not None else (), strict=False):
            source = mapping.setdefault(term, target) if isinstance(term, Variable) else term
            if source != target:
                if isinstance(source, Constant) and isinstance(target, Constant):
                    return
                equations[Comparison(Operator.EQ, source, target)] = None
    shown = {variable for atom in query.body for variable in literal_variables(atom)}
    known = [names.at(substitute(a, mapping), names.KNOWN) for a, image in zip(query.body, images, strict=True) if image is None]
    conditions = [substitute_condition(condition, mapping) for condition in query.conditions]
    needed = [c for c in conditions if not any(_implies(held, c) for held in case.conditions)]
    # A functor may fail on values that no database has, and a computed column is not bound: such a query is not used.
    if any(_has_call(c) for c in needed) or any(v not in shown for v in literal_variables(query.head)):
        return
    held = (Negation(names.at(c.atom, names.KNOWN)) if isinstance(c, Negation) else c for c in needed)
    # A stored row of a plain view makes all its facts known; the case with that fact known covers it (decision 18).
    consequence = () if view.kind is ViewClass.PLAIN else (substitute(query.head, mapping),)
    yield Implication((*known, *equations, *held), consequence)


def _of_key(atom: Atom, relation: Relation, taken: set[str]) -> Iterator[Implication]:
    """Yield: a known fact with the key of an unknown one is that fact."""
    others = [i for i in range(len(atom.terms)) if i not in relation.key]
    if relation.key and others:
        fresh = list(_unused((Variable(f"k{i}") for i in range(len(atom.terms))), taken).values())
        terms = tuple(atom.terms[i] if i in relation.key else fresh[i] for i in range(len(atom.terms)))
        equal = tuple(Comparison(Operator.EQ, atom.terms[i], fresh[i]) for i in others)
        yield Implication((names.at(replace(atom, terms=terms), names.KNOWN),), equal)


def _has_call(condition: Comparison | Negation) -> bool:
    return isinstance(condition, Comparison) and any(isinstance(side, Call) for side in (condition.left, condition.right))


# What a bound `x < 3` says about others, for whole numbers: the least and the greatest value that it allows.
_BOUNDS: Final[Mapping[Operator, Callable[[int], tuple[float, float]]]] = {
    Operator.EQ: lambda n: (n, n),
    Operator.LT: lambda n: (float("-inf"), n - 1),
    Operator.LE: lambda n: (float("-inf"), n),
    Operator.GT: lambda n: (n + 1, float("inf")),
    Operator.GE: lambda n: (n, float("inf")),
}


def _implies(held: Literal, other: Literal) -> bool:
    """Tell whether one condition implies another: the same one, or a narrower range of whole numbers."""
    if held == other:
        return True
    one, two = _range(held), _range(other)
    return one is not None and two is not None and one[0] == two[0] and one[1] >= two[1] and one[2] <= two[2]


def _range(condition: Literal) -> tuple[Term, float, float] | None:
    match condition:
        case Comparison(operator, Variable() as variable, Constant(int() as value, type_)) if operator in _BOUNDS:
            return (variable, *_BOUNDS[operator](value)) if type_ == NUMBER else None
        case _:
            return None


# Case splits


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One end of the case splits: what holds besides the case, and the implications that refute it."""

    held: tuple[Literal, ...]
    refuting: tuple[Implication, ...]


def _descend(
    case: OpenCase, left: Sequence[Implication], held: tuple[Literal, ...], refuting: tuple[Implication, ...], splits: int
) -> Iterator[_Leaf]:
    bound = _bound((case.start, *(names.at(atom, names.NEXT) for atom in case.after), *held))
    free = case.variables - bound
    for i, one in enumerate(left):
        if not free.intersection(_mentioned(one)):
            continue
        rest = [*left[:i], *left[i + 1 :]]
        # The premise holds: then so does the consequence. Without one this cannot be.
        if one.consequence and (splits or not one.premise):
            extended = (*held, *one.premise, *one.consequence)
            yield from _descend(case, rest, extended, refuting, splits - bool(one.premise))
        elif one.consequence:
            # No further split: the implication is not used.
            yield from _descend(case, rest, held, refuting, 0)
            return
        # The premise does not hold. That can be tested if no free variable is in it.
        if one.premise:
            is_tested = not free.intersection(v for literal in one.premise for v in literal_variables(literal))
            more = (Implication(one.premise, ()),) if is_tested else ()
            yield from _descend(case, rest, held, (*refuting, *more), splits)
        return
    yield _Leaf(held, (*refuting, *left))


def _bound(literals: Iterable[Literal]) -> frozenset[Variable]:
    """Return the variables that atoms bind, and equations with them."""
    given = tuple(literals)
    found = {v for literal in given if isinstance(literal, Atom) for v in literal_variables(literal)}
    equations = [c for c in given if isinstance(c, Comparison) and c.operator is Operator.EQ]
    for _ in equations:
        for one in equations:
            for side, other in ((one.left, one.right), (one.right, one.left)):
                if isinstance(side, Variable) and (isinstance(other, Constant) or other in found):
                    found.add(side)
    return frozenset(found)


# Rules of one leaf


def _leaf_rules(
    view: str,
    case: OpenCase,
    leaf: _Leaf,
    kind: UpdateKind,
    given: KnownRelations,
    number: int,
    types: Mapping[Variable, Type],
) -> tuple[list[Rule], dict[str, Relation]]:
    after = tuple(after_update(atom, kind) for atom in case.after)
    bound = _bound((case.start, *after, *leaf.held))
    absent = (*case.excluded, *absences(case.unknown, kind, given))
    # What mentions an unbound variable is left out: more rows then count as open, which is safe. So are functors, which may fail.
    tests = [*leaf.held, *(c for c in case.conditions if not _has_call(c)), *map(Negation, absent)]
    body = (case.start, *after, *(c for c in dict.fromkeys(tests) if bound.issuperset(literal_variables(c))))
    depends = Atom(names.of(view, names.DEPENDS), ())
    if not leaf.refuting:
        # v.depends() :- r.inserted(...), s.next(...), ..., !absent(...).
        return [Rule(depends, body)], {}
    mentioned = {variable for one in leaf.refuting for variable in _mentioned(one)}
    columns = tuple(sorted(mentioned & bound & case.variables, key=lambda variable: variable.name))
    candidate, refuted = (Atom(f"{view}.{part}{number}", columns) for part in ("candidate", "refuted"))
    # v.candidateN(...) :- r.inserted(...), s.next(...), ..., !absent(...).
    # v.refutedN(...)   :- v.candidateN(...), premise, !consequence.
    # v.depends()       :- v.candidateN(...), !v.refutedN(...).
    refuting = [Rule(refuted, (candidate, *literals)) for one in leaf.refuting for literals in _contradictions(one)]
    rules = [Rule(candidate, body), *dict.fromkeys(refuting), Rule(depends, (candidate, Negation(refuted)))]
    return rules, declare_cases((candidate, refuted), types)


def _contradictions(one: Implication) -> Iterator[tuple[Literal, ...]]:
    if not one.consequence:
        yield one.premise
    for literal in one.consequence:
        denied = Negation(literal) if isinstance(literal, Atom) else replace(literal, operator=Operator.NE)
        yield (*one.premise, denied)


def declare_cases(atoms: Iterable[Atom], types: Mapping[Variable, Type]) -> dict[str, Relation]:
    """Return declarations of relations whose columns are variables."""
    columns = {a.relation: tuple(Column(v.name, types[v]) for v in literal_variables(a)) for a in atoms}
    return {name: Relation(name, found) for name, found in columns.items()}


def absences(unknown: Iterable[Atom], kind: UpdateKind, given: KnownRelations) -> Iterator[Atom]:
    """Return what must not hold: the update does not delete an unknown fact, and it is not known to be absent."""
    for atom in unknown:
        if atom.relation in kind.deletes:
            yield names.at(atom, names.DELETED)
        if given.net and atom.relation in kind.inserts:
            yield names.at(atom, names.INSERTED)
        if atom.relation in given.logged:
            yield names.at(atom, names.ABSENT)


def variable_types(query: ConjunctiveQuery, relations: Mapping[str, Relation]) -> dict[Variable, Type]:
    """Return the type of each variable of a query."""
    found: dict[Variable, Type] = {}
    for atom in (query.head, *query.body):
        for term, type_ in zip(atom.terms, relations[atom.relation].types, strict=True):
            if isinstance(term, Variable):
                found[term] = type_
    return found
