"""Self-maintainability as containment of DIFF in INCON (HU97, Theorem 5.1 and Table 2): the cases of DIFF, and what refutes one.

A case of DIFF supposes that a row enters the view after the update, though not from the canonical database: each fact that it
needs is inserted, or known and not deleted, or *unknown*, a fact that some database consistent with the views may hold besides.
The case stands unless adding its unknown facts would put a row into some stored view that is not there (INCON).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rederive.ir.rules import Atom, Comparison, Literal, Operator, literal_variables
from rederive.ir.terms import Constant, Simple, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import determined, informative
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, substituted
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind


@dataclass(frozen=True, slots=True)
class DiffCase:
    """One conjunctive query of DIFF: a fact that is inserted, facts that the canonical database has after the update, and
    `unknown` ones, outside of it."""

    head: Atom
    inserted: Atom
    after: tuple[Atom, ...]
    unknown: tuple[Atom, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        atoms = (self.inserted, *self.after, *self.unknown)
        return tuple(dict.fromkeys(v for atom in atoms for v in literal_variables(atom)))

    @property
    def fresh(self) -> frozenset[Variable]:
        """The variables that only unknown facts have."""
        bound = {v for atom in (self.inserted, *self.after) for v in literal_variables(atom)}
        return frozenset(self.variables) - bound


def cases(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> Iterator[DiffCase]:
    """The expansions of rule (I) that can stand at all.

    One without an inserted fact cannot: its row is in the view already, so its facts are known. One without an unknown fact
    cannot: the canonical database gives its row. And nothing is unknown of a relation that is known as a whole.
    """
    known_whole = determined(views, given)
    body = view.query.body
    for i, inserted in enumerate(body):
        others = body[:i] + body[i + 1 :]
        options = [(False,) if atom.relation in known_whole else (False, True) for atom in others]
        for choice in product(*options) if inserted.relation in kind.inserts else ():
            if any(choice):
                parts = [
                    tuple(atom for atom, is_unknown in zip(others, choice, strict=True) if is_unknown is wanted)
                    for wanted in (False, True)
                ]
                yield DiffCase(view.query.head, inserted, *parts)


@dataclass(frozen=True, slots=True)
class Refutation:
    """One containment mapping h from a rule of INCON: where `equations` and `known` hold, its view would get a row.

    The view does not have that row: it maps some atom to an unknown fact, and a stored row's facts are all known.
    """

    equations: tuple[tuple[Simple, Simple], ...]
    known: tuple[Atom, ...]

    @property
    def mandatory(self) -> bool:
        """Nothing has to hold first: the case cannot stand."""
        return not self.equations and not self.known

    def premise(self) -> tuple[Literal, ...]:
        return (*(Comparison(Operator.EQ, *pair) for pair in self.equations), *self.known)

    def terms(self) -> frozenset[Simple]:
        return frozenset((*(t for pair in self.equations for t in pair), *(t for atom in self.known for t in atom.terms)))


def constraints(case: DiffCase, views: Sequence[StoredView]) -> tuple[Refutation, ...]:
    """All containment mappings of (B'): some atoms of a view's body fall on unknown facts of the case, the others are known."""
    found: dict[Refutation, None] = {}
    for view in informative(views):
        query = _apart(view.query, case)
        choices = [(None, *(a for a in case.unknown if a.relation == atom.relation)) for atom in query.body]
        for images in product(*choices):
            if any(image is not None for image in images):
                constraint = _constraint(query, images)
                if constraint is not None:
                    found[constraint] = None
    return tuple(found)


def _apart(query: ConjunctiveQuery, case: DiffCase) -> ConjunctiveQuery:
    """The query with variables that the case does not use."""
    taken = {variable.name for variable in case.variables}
    renaming: dict[Variable, Variable] = {}
    for variable in query.variables:
        renaming[variable] = Variable(unused(variable.name, taken))
        taken.add(renaming[variable].name)
    return ConjunctiveQuery(substituted(query.head, renaming), tuple(substituted(atom, renaming) for atom in query.body))


def unused(name: str, taken: Container[str]) -> str:
    """The name, with as many underscores as it takes to be another.

    >>> unused("x", {"x", "x_"})
    'x__'
    """
    while name in taken:
        name += "_"
    return name


def _constraint(query: ConjunctiveQuery, images: Sequence[Atom | None]) -> Refutation | None:
    """The mapping, with the equations that rectifying the mapped atoms leaves; None where two constants would be equal."""
    mapping: dict[Variable, Simple] = {}
    equations: dict[tuple[Simple, Simple], None] = {}
    for atom, image in zip(query.body, images, strict=True):
        for term, target in zip(atom.terms, image.terms if image is not None else (), strict=False):
            source = mapping.setdefault(term, target) if isinstance(term, Variable) else term
            if source != target:
                if isinstance(source, Constant) and isinstance(target, Constant):
                    return None
                equations[(source, target)] = None
    known = (atom for atom, image in zip(query.body, images, strict=True) if image is None)
    return Refutation(tuple(equations), tuple(_known(atom, mapping) for atom in known))


def _known(atom: Atom, mapping: Mapping[Variable, Simple]) -> Atom:
    return names.at(substituted(atom, mapping), names.KNOWN)
