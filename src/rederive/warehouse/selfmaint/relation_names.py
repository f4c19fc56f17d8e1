"""The names of the relations in compiled rules. They contain a dot, which no declared name does.

| name | HU97 | meaning |
|---|---|---|
| `r.known` | r̂ | the canonical database: the rows that must be in `r`, by the views and what else is known |
| `r.inserted`, `r.deleted` | δr+, δr- | the update |
| `r.read`, `r.before` | s, s0 | the after-image read from a source, and its before-image |
| `r.present`, `r.absent` | R+, R- | a partial copy |
| `r.next` | r̂' | the canonical database after the update |
| `v.plus`, `v.minus`, `v.next` | δv+, δv-, v̂' | the change of the view, and its new state |
| `v.entering` | | the rows that known facts derive with an inserted one |
| `v.touched`, `v.supported` | | the stored rows that a deleted fact may have derived; those that known facts still derive |
| `v.gained`, `v.lost` | | the rows that enter and leave the query under counts and sums |
| `v.depends`, `v.maintainable` | depend, maintainable | the test, without columns |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rederive.ir.rules import Atom, Relation
from rederive.ir.terms import Variable

KNOWN, INSERTED, DELETED, READ, BEFORE, PRESENT, ABSENT, NEXT = "known inserted deleted read before present absent next".split()
PLUS, MINUS, DEPENDS, MAINTAINABLE, ENTERING, TOUCHED, SUPPORTED, GAINED, LOST = (
    "plus minus depends maintainable entering touched supported gained lost".split()
)


def of(name: str, part: str) -> str:
    """Return the name of a part of a relation."""
    return f"{name}.{part}"


def at(atom: Atom, part: str) -> Atom:
    """Return the atom over a part of its relation."""
    return Atom(of(atom.relation, part), atom.terms, span=atom.span)


def every(relation: Relation, part: str | None = None) -> Atom:
    """Return the atom of a relation, or of its part, with a variable for each column."""
    terms = tuple(Variable(column.name) for column in relation.columns)
    return Atom(relation.name if part is None else of(relation.name, part), terms)


def declared(name: str, relations: Mapping[str, Relation]) -> Relation:
    """Return the declaration of `r.part`: it has the columns of `r`."""
    stem, _, _ = name.rpartition(".")
    return replace(relations[stem], name=name, key=())
