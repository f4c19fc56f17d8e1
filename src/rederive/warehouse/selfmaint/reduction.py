"""Self-maintainability as containment of DIFF in INCON: the cases of DIFF, and what refutes them (HU97, Theorem 5.1, Table 2).

A case of DIFF assumes that a row enters the view which does not follow from the canonical database. Each fact that the row needs
is inserted, or known and not deleted, or *unknown*: some database that is consistent with the views may hold it.

Law (Theorem 5.1): the view is self-maintainable if and only if every case is refuted. A case is refuted if its unknown facts
would put a row into some stored view that does not have the row (INCON).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rederive.ir.rules import Atom, Comparison, Literal, Operator, literal_variables
from rederive.ir.terms import Constant, Simple, Variable
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import informative_views, known_completely
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, substitute
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind


@dataclass(frozen=True, slots=True)
class DiffCase:
    """One conjunctive query of DIFF.

    It has an inserted fact, facts of the canonical database after the update, and `unknown` facts outside of it.
    """

    head: Atom
    inserted: Atom
    after: tuple[Atom, ...]
    unknown: tuple[Atom, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of the case, each once."""
        atoms = (self.inserted, *self.after, *self.unknown)
        return tuple(dict.fromkeys(v for atom in atoms for v in literal_variables(atom)))

    @property
    def fresh(self) -> frozenset[Variable]:
        """The variables that occur in unknown facts only: they may have any value."""
        bound = {v for atom in (self.inserted, *self.after) for v in literal_variables(atom)}
        return frozenset(self.variables) - bound


def cases(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> Iterator[DiffCase]:
    """Return the expansions of rule (I), without those that can never hold.

    Without an inserted fact, the row is in the view already, and its facts are known. Without an unknown fact, the row follows
    from the canonical database. A relation that is known completely has no unknown facts.
    """
    complete = known_completely(views, given)
    body = view.query.body
    for i, inserted in enumerate(body):
        others = body[:i] + body[i + 1 :]
        # 2^n cases for n facts of relations that are not known completely.
        options = [(False,) if atom.relation in complete else (False, True) for atom in others]
        for choice in product(*options) if inserted.relation in kind.inserts else ():
            if any(choice):
                parts = [
                    tuple(atom for atom, is_unknown in zip(others, choice, strict=True) if is_unknown is wanted)
                    for wanted in (False, True)
                ]
                yield DiffCase(view.query.head, inserted, *parts)


@dataclass(frozen=True, slots=True)
class Refutation:
    """One containment mapping h from a rule of INCON to a case: if `equations` and `known` hold, some view would get a row.

    The view does not have that row: one of its facts is unknown, and all facts of a stored row are known.
    """

    equations: tuple[tuple[Simple, Simple], ...]
    known: tuple[Atom, ...]

    @property
    def is_unconditional(self) -> bool:
        """Whether it has no premise: it refutes the case for all values."""
        return not self.equations and not self.known

    def premise(self) -> tuple[Literal, ...]:
        """Return the literals that must hold."""
        return (*(Comparison(Operator.EQ, *pair) for pair in self.equations), *self.known)

    def terms(self) -> frozenset[Simple]:
        """Return the terms of the premise."""
        return frozenset((*(t for pair in self.equations for t in pair), *(t for atom in self.known for t in atom.terms)))


def refutations(case: DiffCase, views: Sequence[StoredView]) -> tuple[Refutation, ...]:
    """Return all containment mappings of (B'): they map some atoms of a view's body to unknown facts; the others are known."""
    found: dict[Refutation, None] = {}
    for view in informative_views(views):
        query = _rename_apart(view.query, case)
        # None: the atom is known. At least one atom must be mapped to an unknown fact, or the row is in the view already.
        choices = [(None, *(a for a in case.unknown if a.relation == atom.relation)) for atom in query.body]
        for images in product(*choices):
            if any(image is not None for image in images):
                refutation = _refutation(query, images)
                if refutation is not None:
                    found[refutation] = None
    return tuple(found)


def _rename_apart(query: ConjunctiveQuery, case: DiffCase) -> ConjunctiveQuery:
    """Return the query with variables that the case does not use."""
    taken = {variable.name for variable in case.variables}
    renaming: dict[Variable, Variable] = {}
    for variable in query.variables:
        renaming[variable] = Variable(unused_name(variable.name, taken))
        taken.add(renaming[variable].name)
    return ConjunctiveQuery(substitute(query.head, renaming), tuple(substitute(atom, renaming) for atom in query.body))


def unused_name(name: str, taken: Container[str]) -> str:
    """Return the name with as many underscores as make it unused.

    >>> unused_name("x", {"x", "x_"})
    'x__'
    """
    while name in taken:
        name += "_"
    return name


def _refutation(query: ConjunctiveQuery, images: Sequence[Atom | None]) -> Refutation | None:
    """Return the mapping, with the equations that the mapped atoms need; None if two different constants must be equal."""
    mapping: dict[Variable, Simple] = {}
    equations: dict[tuple[Simple, Simple], None] = {}
    for atom, image in zip(query.body, images, strict=True):
        for term, target in zip(atom.terms, image.terms if image is not None else (), strict=False):
            # A mapping sends a variable to one term. Where a second one
            # is needed, both must be equal, which becomes a premise.
            source = mapping.setdefault(term, target) if isinstance(term, Variable) else term
            if source != target:
                if isinstance(source, Constant) and isinstance(target, Constant):
                    return None
                equations[(source, target)] = None
    known = (atom for atom, image in zip(query.body, images, strict=True) if image is None)
    return Refutation(tuple(equations), tuple(_known(atom, mapping) for atom in known))


def _known(atom: Atom, mapping: Mapping[Variable, Simple]) -> Atom:
    return names.at(substitute(atom, mapping), names.KNOWN)
