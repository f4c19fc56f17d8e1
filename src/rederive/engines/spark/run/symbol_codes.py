"""A recursion that does nothing with symbols but to compare them, evaluated over their codes.

Rounds join, compare and keep the same rows many times over. A string is copied and hashed each time; a code is a number of 32
bits, and two of them are one key for Spark's hash tables. So what is read is coded once, and what is found is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rederive.analysis.graph import Component
from rederive.engines.spark.plan.sources import Frame, Source, Types
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.session.sessions import executed
from rederive.engines.spark.session.types import CODE, column
from rederive.ir.rules import Aggregate, Atom, Comparison, Negation, Program, Relation, Variant
from rederive.ir.terms import SYMBOL, Constant

CODED_ROWS = 20_000  # that are read: of fewer, the coding takes longer than it spares
_IN_PARTITION = (1 << 33) - 1  # the bits of a `monotonically_increasing_id` that count within a partition


def coded_program(component: Component, program: Program) -> Program | None:
    """The recursion alone, over codes in the place of symbols; the relations that it reads are its bases.

    None where it reads or finds no symbols, does more with values than to compare them, or meets NULLs or constants.
    """
    if not component.recursive:
        return None
    atoms: list[Atom] = []
    for definition in component.definitions:
        if isinstance(definition, Aggregate):
            return None
        for literal in (definition.head, *definition.body):
            if isinstance(literal, Comparison):
                return None
            atoms.append(literal.atom if isinstance(literal, Negation) else literal)
    relations = {atom.relation: program.relations[atom.relation] for atom in atoms}
    columns = [column for relation in relations.values() for column in relation.columns]
    if any(isinstance(term, Constant) for atom in atoms for term in atom.terms) or any(c.nullable for c in columns):
        return None
    of_symbols = {name for name, relation in relations.items() if SYMBOL in relation.types}
    if of_symbols.isdisjoint(component.relations) or of_symbols.issubset(component.relations):
        return None
    return Program({name: _coded(relation) for name, relation in relations.items()}, component.definitions)


def _coded(relation: Relation) -> Relation:
    return replace(relation, columns=tuple(replace(c, type=CODE) if c.type == SYMBOL else c for c in relation.columns))


@dataclass(frozen=True, slots=True)
class Coded:
    """A recursion over codes: `relations` is what it reads and finds; `known` has the symbols with their codes."""

    relations: Relations
    known: Frame
    jobs: Jobs

    def decoded(self, source: Source, types: Types) -> Frame:
        """The same rows over symbols."""
        return self.jobs.frame_of(_translated(source, types, self.known, "c1", "c0", self.jobs))


def over_codes(component: Component, relations: Relations, jobs: Jobs) -> Coded | None:
    """What a recursion reads, coded; None where that is not possible or not worth while."""
    program = coded_program(component, relations.program)
    if program is None:
        return None
    found = {name: relations.state(name, Variant.OLD) for name in program.bases}
    read = {name: source for name, source in found.items() if isinstance(source, Source)}
    if len(read) < len(found) or sum(map(jobs.size, read.values())) < CODED_ROWS:
        return None
    known = _numbered(read.values(), jobs)
    coded = {name: _translated(source, program.relations[name].types, known, "c0", "c1", jobs) for name, source in read.items()}
    return Coded(Relations(program, {}, (), coded.__getitem__, lambda *_: {}), known, jobs)


def _numbered(sources: Iterable[Source], jobs: Jobs) -> Frame:
    """A code for each symbol in some relations. Every partition has numbers of its own: nobody has to count them all."""
    places = ((source, i) for source in sources for i, type in enumerate(source.types) if type == SYMBOL)
    values = " UNION ALL ".join(f"SELECT {column(i)} AS c0 FROM {source.text()}" for source, i in places)
    symbols = jobs.session.sql(f"SELECT DISTINCT c0 FROM ({values})")
    parts, number = executed(symbols).getNumPartitions(), "monotonically_increasing_id()"
    code = f"CAST(shiftright({number}, 33) + {parts}L * ({number} & {_IN_PARTITION}L) AS INT) AS c1"
    return jobs.settled(symbols.selectExpr("c0", code), (SYMBOL, CODE))


def _translated(source: Source, types: Types, known: Frame, given: str, wanted: str, jobs: Jobs) -> Source:
    """Each code or symbol looked up. All have one, and no two the same: the rows stay as many as they were."""
    looked_up = [i for i, (one, other) in enumerate(zip(source.types, types, strict=True)) if one != other]
    if not looked_up:
        return source
    values = (f"k{i}.{wanted} AS {column(i)}" if i in looked_up else f"r.{column(i)}" for i in range(len(types)))
    joins = (f"JOIN {known.text()} k{i} ON k{i}.{given} = r.{column(i)}" for i in looked_up)
    hint = f"/*+ BROADCAST({', '.join(f'k{i}' for i in looked_up)}) */ " if known.small else ""
    return jobs.materialise(f"SELECT {hint}{', '.join(values)} FROM {source.text()} r {' '.join(joins)}", types)
