"""A rule whose relations are all in the driver, and small: the resident engine derives its rows without a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.plan.sources import Local, Source
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Program, Relation, Rule
from rederive.ir.terms import Row
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy

_HEAD = "head"


def local_sources(rule: Rule, read: Sequence[tuple[Atom, Source]], tuning: Tuning) -> Sequence[tuple[Atom, Local]] | None:
    """What a rule reads, where all of it is in the driver, and little; else None."""
    if len(set(map(id, rule.body))) < len(rule.body):
        return None  # sources are found by the identity of their literal
    local = [(atom, source) for atom, source in read if isinstance(source, Local)]
    rows = sum(len(source) for _, source in local)
    return local if len(local) == len(read) and rows <= tuning.resident_rows else None


def derive_rows(rule: Rule, atoms: Sequence[tuple[Atom, Local]], relations: Mapping[str, Relation]) -> frozenset[Row]:
    """What a rule derives; `atoms` are those of its body that have rows, each with its source."""
    names = {id(atom): f"a{i}" for i, (atom, _) in enumerate(atoms)}
    declared = {names[id(atom)]: _named(relations[atom.relation], names[id(atom)]) for atom, _ in atoms}
    head = replace(rule.head, relation=_HEAD)
    body = tuple(one for literal in rule.body if (one := _renamed(literal, names)) is not None)
    program = Program({_HEAD: _named(relations[rule.head.relation], _HEAD), **declared}, (Rule(head, body, rule.span),))
    engine = ResidentEngine()
    initial = {names[id(atom)]: source.rows for atom, source in atoms}
    engine.install(plan(program, [_HEAD], Strategy.MATERIALIZED.value), [_HEAD], initial)
    engine.commit()
    return frozenset(engine.rows(_HEAD, {}))


def _named(relation: Relation, name: str) -> Relation:
    return Relation(name, relation.columns)


def _renamed(literal: Literal, names: Mapping[int, str]) -> Literal | None:
    """The literal over a relation of its own; None for the negation of an atom without rows, which holds."""
    match literal:
        case Comparison():
            return literal
        case Negation(atom):
            return Negation(_plain(atom, names)) if id(atom) in names else None
        case Atom():
            return _plain(literal, names)


def _plain(atom: Atom, names: Mapping[int, str]) -> Atom:
    return Atom(names[id(atom)], atom.terms)
