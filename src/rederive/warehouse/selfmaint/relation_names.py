"""What the produced rules call their relations. A dot keeps them apart from declared ones, as everywhere in the IR.

| here | HU97 | |
|---|---|---|
| `r.known` | r̂ | the canonical database: what the views and all else that is given prove to be in `r` |
| `r.inserted`, `r.deleted` | δr+, δr- | the update |
| `r.read`, `r.before` | s, s0 | the after-image read from a source, and its before-image |
| `r.present`, `r.absent` | R+, R- | a partial copy |
| `r.next` | r̂' | the canonical database after the update |
| `v.plus`, `v.minus`, `v.next` | δv+, δv-, v̂' | the change of the view, and its new state |
| `v.depends`, `v.maintainable` | depend, maintainable | the test, without columns |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rederive.ir.rules import Atom, Relation
from rederive.ir.terms import Variable

KNOWN, INSERTED, DELETED, READ, BEFORE, PRESENT, ABSENT, NEXT = "known inserted deleted read before present absent next".split()
PLUS, MINUS, DEPENDS, MAINTAINABLE = "plus minus depends maintainable".split()


def of(name: str, part: str) -> str:
    return f"{name}.{part}"


def at(atom: Atom, part: str) -> Atom:
    """The same terms, over a part of the atom's relation."""
    return Atom(of(atom.relation, part), atom.terms, span=atom.span)


def every(relation: Relation, part: str | None = None) -> Atom:
    """The relation's atom, or that of its part, with a variable for each column."""
    terms = tuple(Variable(column.name) for column in relation.columns)
    return Atom(relation.name if part is None else of(relation.name, part), terms)


def declared(name: str, relations: Mapping[str, Relation]) -> Relation:
    """The columns of `r.part` are those of `r`."""
    stem, _, _ = name.rpartition(".")
    return replace(relations[stem], name=name, key=())
