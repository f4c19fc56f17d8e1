"""The canonical database and the maintenance queries over it, as rules (HU97, Definition 3.1 and Algorithm 3.1).

Law (HU97, section 3): every database that is consistent with the stored views contains the canonical database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rederive.ir.rules import Atom, Negation, Relation, Rule
from rederive.ir.terms import Constant, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind


def informative_views(views: Sequence[StoredView]) -> tuple[StoredView, ...]:
    """Return the views that compiled rules use. Without a view less is known, and a "yes" stays right."""
    return tuple(view for view in views if view.kind is ViewClass.PLAIN)


def known_completely(views: Sequence[StoredView], given: KnownRelations) -> frozenset[str]:
    """Return the relations that are known completely: local, read, or copied by a view."""
    copies = (view.query.body[0].relation for view in informative_views(views) if is_copy(view.query))
    return given.local | given.read | frozenset(copies)


def is_copy(query: ConjunctiveQuery) -> bool:
    """Tell whether a plain query is a copy of one relation."""
    terms = query.body[0].terms
    return len(query.body) == 1 and all(isinstance(term, Variable) for term in terms) and len(set(terms)) == len(terms)


def canonical_rules(
    views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> Iterator[Rule]:
    """Return rule (A): `r.known :- v` for every atom of every view's body. A stored row needs these facts.

    The before-image of a relation that was read is known (section 7), and so are the rows of a partial copy (6.3).
    """
    for view in informative_views(views):
        for atom in view.query.body:
            # r.known(...) :- v(...).
            yield Rule(names.at(atom, names.KNOWN), (view.query.head,))
    for view in views:
        if view.kind in (ViewClass.PROJECTION, ViewClass.CONDITIONAL) and len(view.queries) == 1:
            # The same for an atom whose terms the row shows, whatever else the view hides or requires.
            shown = set(view.query.head.terms)
            visible = (a for a in view.query.body if all(isinstance(term, Constant) or term in shown for term in a.terms))
            yield from (Rule(names.at(atom, names.KNOWN), (view.query.head,)) for atom in visible)
    for name in sorted({source for view in views for source in view.sources}):
        relation = relations[name]
        known = names.every(relation, names.KNOWN)
        if name in given.local:
            # r.known(...) :- r(...).
            yield Rule(known, (names.every(relation),))
        if name in given.read:
            # r.known(...) :- r.before(...).
            yield Rule(known, (names.every(relation, names.BEFORE),))
            yield from before_image(relation, kind, given)
        elif given.net and name in kind.deletes:
            # r.known(...) :- r.deleted(...): a net update deletes rows that were present.
            yield Rule(known, (names.every(relation, names.DELETED),))
        if name in given.logged:
            #   r.known(...) :- r.present(...).
            yield Rule(known, (names.every(relation, names.PRESENT),))


def before_image(relation: Relation, kind: UpdateKind, given: KnownRelations) -> Iterator[Rule]:
    """Return the rules `s.before :- s.read, !s.inserted` and, for net updates, `s.before :- s.deleted`.

    An update that is not net may insert a row that was present, or delete one that was absent. Whether these rows are in the
    before-image is unknown; the rules derive only the others.
    """
    before = names.every(relation, names.BEFORE)
    # A row that was inserted may have been present before, unless the update is net; then it was absent.
    unchanged = [Negation(names.every(relation, names.INSERTED))] if relation.name in kind.inserts else []
    yield Rule(before, (names.every(relation, names.READ), *unchanged))
    if given.net and relation.name in kind.deletes:
        yield Rule(before, (names.every(relation, names.DELETED),))


def maintenance_rules(view: StoredView, relations: Mapping[str, Relation], kind: UpdateKind) -> Iterator[Rule]:
    """Return the rules for the change and the new state of a plain view over the canonical database (Algorithm 3.1).

    Without projection a row has exactly one derivation: it leaves when one of its facts does.
    """
    query = view.query
    row = query.head
    for atom in dict.fromkeys(query.body):
        if atom.relation in kind.deletes:
            # v.minus(...) :- v(...), r.deleted(...).
            yield Rule(names.at(row, names.MINUS), (row, names.at(atom, names.DELETED)))
    for i, atom in enumerate(query.body):
        if atom.relation in kind.inserts:
            # v.plus(...) :- r.inserted(...), s.next(...), ..., !v(...).
            others = (after_update(other, kind) for j, other in enumerate(query.body) if j != i)
            yield Rule(names.at(row, names.PLUS), (names.at(atom, names.INSERTED), *others, Negation(row)))
    for relation in dict.fromkeys(atom.relation for atom in query.body):
        yield from next_state(relations[relation], kind)
    yield from _next_view(view, relations[view.name], kind)


def after_update(atom: Atom, kind: UpdateKind) -> Atom:
    """Return the atom over the updated canonical database; a relation that the update does not change stays as it is."""
    return names.at(atom, names.NEXT if atom.relation in kind.relations else names.KNOWN)


def next_state(relation: Relation, kind: UpdateKind) -> Iterator[Rule]:
    """Return rule (F): r.next = r.known - r.deleted + r.inserted."""
    name = relation.name
    if name in kind.relations:
        #   r.next(...) :- r.known(...), !r.deleted(...).
        #   r.next(...) :- r.inserted(...).
        stays = [Negation(names.every(relation, names.DELETED))] if name in kind.deletes else []
        yield Rule(names.every(relation, names.NEXT), (names.every(relation, names.KNOWN), *stays))
    if name in kind.inserts:
        yield Rule(names.every(relation, names.NEXT), (names.every(relation, names.INSERTED),))


def _next_view(view: StoredView, relation: Relation, kind: UpdateKind) -> Iterator[Rule]:
    """Return rule (H): v.next = v - v.minus + v.plus."""
    after = names.every(relation, names.NEXT)
    #   v.next(...) :- v(...), !v.minus(...).
    #   v.next(...) :- v.plus(...).
    stays = [Negation(names.every(relation, names.MINUS))] if kind.deletes.intersection(view.sources) else []
    yield Rule(after, (names.every(relation), *stays))
    if kind.inserts.intersection(view.sources):
        yield Rule(after, (names.every(relation, names.PLUS),))
