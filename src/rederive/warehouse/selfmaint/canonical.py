"""The canonical database and the maintenance queries over it (HU97, Definition 3.1 and Algorithm 3.1), as rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rederive.ir.rules import Atom, Negation, Relation, Rule
from rederive.ir.terms import Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind


def informative(views: Sequence[StoredView]) -> tuple[StoredView, ...]:
    """The views that compiled rules draw on. Leaving one out forgets something and claims nothing: a yes stays right."""
    return tuple(view for view in views if view.kind is ViewClass.PLAIN)


def determined(views: Sequence[StoredView], given: KnownRelations) -> frozenset[str]:
    """The relations that are known as a whole: kept here, read, or copied by a view."""
    copies = (view.query.body[0].relation for view in informative(views) if is_copy(view.query))
    return given.local | given.read | frozenset(copies)


def is_copy(query: ConjunctiveQuery) -> bool:
    """Whether a plain query holds all rows of one relation."""
    terms = query.body[0].terms
    return len(query.body) == 1 and all(isinstance(term, Variable) for term in terms) and len(set(terms)) == len(terms)


def canonical_rules(
    views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> Iterator[Rule]:
    """(A) r.known :- v. for every atom of every view's body: what must be there for the view's rows to be there.

    What is read counts as a copy of its before-image (section 7); a partial copy's rows are known too (6.3).
    """
    for view in informative(views):
        for atom in view.query.body:
            yield Rule(names.at(atom, names.KNOWN), (view.query.head,))
    for name in sorted({source for view in views for source in view.sources}):
        relation = relations[name]
        known = names.every(relation, names.KNOWN)
        if name in given.local:
            yield Rule(known, (names.every(relation),))
        if name in given.read:
            yield Rule(known, (names.every(relation, names.BEFORE),))
            yield from before_image(relation, kind, given)
        elif given.net and name in kind.deletes:
            yield Rule(known, (names.every(relation, names.DELETED),))
        if name in given.logged:
            yield Rule(known, (names.every(relation, names.PRESENT),))


def before_image(relation: Relation, kind: UpdateKind, given: KnownRelations) -> Iterator[Rule]:
    """s.before(..) :- s.read(..), !s.inserted(..) | s.deleted(..).

    An update that is not net may insert a row that was there, or delete one that was not: of these rows the before-image is
    open, and only the others are claimed.
    """
    before = names.every(relation, names.BEFORE)
    unchanged = [Negation(names.every(relation, names.INSERTED))] if relation.name in kind.inserts else []
    yield Rule(before, (names.every(relation, names.READ), *unchanged))
    if given.net and relation.name in kind.deletes:
        yield Rule(before, (names.every(relation, names.DELETED),))


def maintenance_rules(view: StoredView, relations: Mapping[str, Relation], kind: UpdateKind) -> Iterator[Rule]:
    """The change and the new state of a plain view, its base relations taken from the canonical database.

    Without projection a row has one derivation: it leaves when a fact of it does, and no other can bring it back.
    """
    query = view.query
    row = query.head
    for atom in dict.fromkeys(query.body):
        if atom.relation in kind.deletes:
            yield Rule(names.at(row, names.MINUS), (row, names.at(atom, names.DELETED)))
    for i, atom in enumerate(query.body):
        if atom.relation in kind.inserts:
            others = (after_update(other, kind) for j, other in enumerate(query.body) if j != i)
            yield Rule(names.at(row, names.PLUS), (names.at(atom, names.INSERTED), *others, Negation(row)))
    for relation in dict.fromkeys(atom.relation for atom in query.body):
        yield from _next_state(relations[relation], kind)
    yield from _next_view(view, relations[view.name], kind)


def after_update(atom: Atom, kind: UpdateKind) -> Atom:
    """The atom over the updated canonical database; a relation that the update leaves alone is as it was."""
    return names.at(atom, names.NEXT if atom.relation in kind.relations else names.KNOWN)


def _next_state(relation: Relation, kind: UpdateKind) -> Iterator[Rule]:
    """(F) r.next :- r.known, !r.deleted | r.inserted."""
    name = relation.name
    if name in kind.relations:
        stays = [Negation(names.every(relation, names.DELETED))] if name in kind.deletes else []
        yield Rule(names.every(relation, names.NEXT), (names.every(relation, names.KNOWN), *stays))
    if name in kind.inserts:
        yield Rule(names.every(relation, names.NEXT), (names.every(relation, names.INSERTED),))


def _next_view(view: StoredView, relation: Relation, kind: UpdateKind) -> Iterator[Rule]:
    """(H) v.next = v - v.minus + v.plus."""
    after = names.every(relation, names.NEXT)
    stays = [Negation(names.every(relation, names.MINUS))] if kind.deletes.intersection(view.sources) else []
    yield Rule(after, (names.every(relation), *stays))
    if kind.inserts.intersection(view.sources):
        yield Rule(after, (names.every(relation, names.PLUS),))
