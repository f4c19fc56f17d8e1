"""A recursion that only compares symbols, evaluated over their codes (decision 43).

Rounds join, compare and store the same rows many times over. A string is copied and hashed each time; a code is a number of 32
bits, and two of them are one key of Spark's hash tables. So what is read is coded once, and what is found is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rederive.analysis.graph import Component
from rederive.engines.spark.plan.expressions import Cast, ColumnRef, Named, Output, call, equal, infix, number, ref
from rederive.engines.spark.plan.nodes import Aliased, Distinct, Join, JoinKind, Plan, Projection, union_all
from rederive.engines.spark.plan.printer import print_expression
from rederive.engines.spark.plan.sources import Frame, Source, Types, broadcast_hint
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.session.sessions import executed
from rederive.engines.spark.session.types import CODE, column
from rederive.ir.rules import Aggregate, Atom, Comparison, Negation, Program, Relation, Variant
from rederive.ir.terms import SYMBOL, Constant

_IN_PARTITION = (1 << 33) - 1  # the bits of a `monotonically_increasing_id` that count within a partition
_SYMBOL, _CODE = 0, 1  # the columns of a symbol and its code


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
            # An order, a pattern or a functor needs the values; equality of codes is all that joins and negation need.
            if isinstance(literal, Comparison):
                return None
            atoms.append(literal.atom if isinstance(literal, Negation) else literal)
    relations = {atom.relation: program.relations[atom.relation] for atom in atoms}
    columns = [column for relation in relations.values() for column in relation.columns]
    # A constant may have no code, and NULL has none.
    if any(isinstance(term, Constant) for atom in atoms for term in atom.terms) or any(c.nullable for c in columns):
        return None
    of_symbols = {name for name, relation in relations.items() if SYMBOL in relation.types}
    # Symbols must enter from below and be found above, or there is nothing to code, or nothing to decode.
    if of_symbols.isdisjoint(component.relations) or of_symbols.issubset(component.relations):
        return None
    return Program({name: _coded(relation) for name, relation in relations.items()}, component.definitions)


def _coded(relation: Relation) -> Relation:
    return replace(relation, columns=tuple(replace(c, type=CODE) if c.type == SYMBOL else c for c in relation.columns))


@dataclass(frozen=True, slots=True)
class CodedRecursion:
    """A recursion over codes: `relations` is what it reads and finds; `codes` has each symbol with its code."""

    relations: Relations
    codes: Frame
    jobs: Jobs

    def decode(self, source: Source, types: Types) -> Frame:
        """The same rows over symbols."""
        return self.jobs.queries.frame_of(_translate(source, types, self.codes, _CODE, _SYMBOL, self.jobs))


def code_recursion(component: Component, relations: Relations, jobs: Jobs) -> CodedRecursion | None:
    """The recursion of a component over codes; None where that is not possible or not worthwhile."""
    program = coded_program(component, relations.program)
    if program is None:
        return None
    found = {name: relations.state(name, Variant.OLD) for name in program.bases}
    read = {name: source for name, source in found.items() if isinstance(source, Source)}
    # Relations derived on demand have no extent to number.
    if len(read) < len(found) or sum(map(jobs.queries.size, read.values())) < jobs.tuning.coded_rows:
        return None
    codes = number_symbols(read.values(), jobs)
    coded = {
        name: _translate(source, program.relations[name].types, codes, _SYMBOL, _CODE, jobs) for name, source in read.items()
    }
    return CodedRecursion(Relations(program, {}, (), coded.__getitem__, lambda *_: {}), codes, jobs)


def number_symbols(sources: Iterable[Source], jobs: Jobs) -> Frame:
    """A code for each symbol in some relations. Every partition counts its own symbols: code = partition + parts * position."""
    places = ((source, i) for source in sources for i, type in enumerate(source.types) if type == SYMBOL)
    values = union_all(Projection(jobs.queries.scan(source), (Named(ref(i), "c0"),)) for source, i in places)
    symbols = jobs.queries.data(Distinct(Projection(values, (ColumnRef("c0"),))))
    parts = executed(symbols).getNumPartitions()
    # The code depends on the partition, so it is added to the data frame whose partitions were counted.
    return jobs.queries.materialize_data(symbols.selectExpr("c0", print_expression(_code(parts))), (SYMBOL, CODE))


def _code(parts: int) -> Output:
    identifier = call("monotonically_increasing_id")
    # monotonically_increasing_id puts the partition into the upper 31 bits: too sparse for 32-bit codes.
    partition = call("shiftright", identifier, Cast(number(33), CODE))
    position = infix("&", identifier, number(_IN_PARTITION))
    return Named(Cast(infix("+", partition, infix("*", number(parts), position)), CODE), "c1")


def _translate(source: Source, types: Types, codes: Frame, given: int, wanted: int, jobs: Jobs) -> Source:
    """Each code or symbol looked up. All have one, and no two the same: the number of rows stays the same."""
    looked_up = [i for i, (one, other) in enumerate(zip(source.types, types, strict=True)) if one != other]
    if not looked_up:
        return source
    read, hint = jobs.queries.scan(codes), broadcast_hint(codes, jobs.tuning)
    plan: Plan = Aliased(jobs.queries.scan(source), "r")
    for i in looked_up:
        # An inner join loses no row, because every symbol that is read was numbered; no column holds NULL.
        on = equal(ref(given, f"k{i}"), ref(i, "r"), null_safe=False)
        plan = Join(plan, Aliased(read, f"k{i}", hint), JoinKind.INNER, (on,))
    outputs = tuple(Named(ref(wanted, f"k{i}"), column(i)) if i in looked_up else ref(i, "r") for i in range(len(types)))
    return jobs.queries.materialize(Projection(plan, outputs), types)
