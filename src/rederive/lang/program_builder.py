"""A program under construction, and the auxiliary relations that lowering adds to it. Their names contain a dot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rederive.errors import Span
from rederive.ir.rules import (
    Aggregate,
    Atom,
    Column,
    Constraint,
    Definition,
    Fact,
    Function,
    Input,
    Program,
    Relation,
    Remote,
    Rule,
)
from rederive.ir.terms import UTC, Variable


@dataclass(slots=True)
class ProgramBuilder:
    """Collects the parts of a program, statement by statement; `program` is the result."""

    relations: dict[str, Relation] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    remotes: list[Remote] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    zone: str = UTC
    known: Program | None = None

    @classmethod
    def of(cls, program: Program) -> ProgramBuilder:
        """A builder that starts with everything of a program."""
        return cls(
            dict(program.relations),
            list(program.definitions),
            list(program.facts),
            list(program.inputs),
            list(program.outputs),
            list(program.remotes),
            list(program.stored),
            list(program.constraints),
            program.zone,
            program,
        )

    def program(self) -> Program:
        """The program as it is now."""
        rest = (tuple(self.outputs), tuple(self.remotes), tuple(self.stored), tuple(self.constraints), self.zone)
        program = Program(dict(self.relations), tuple(self.definitions), tuple(self.facts), tuple(self.inputs), *rest)
        if self.known is not None:
            program.inherit(self.known)
        return program

    def projection(self, relation: Relation, kept: Sequence[int], span: Span | None) -> str:
        """The view of these columns of a relation. Its name determines it, so that equal projections are one view."""
        # By position and not by name: columns of auxiliary relations may have any name.
        name = ".".join((relation.name, "_".join(("project", *map(str, kept)))))
        if name not in self.relations:
            #   r.project_0_2(x, z) :- r(x, _, z).
            terms = tuple(Variable(c.name if i in kept else str(i), span) for i, c in enumerate(relation.columns))
            self.relations[name] = Relation(name, tuple(relation.columns[i] for i in kept), span=span)
            head = Atom(name, tuple(terms[i] for i in kept), span=span)
            self.definitions.append(Rule(head, (Atom(relation.name, terms, span=span),), span))
        return name

    def input_base(self, relation: Relation, span: Span | None) -> str:
        """The base relation for rows that are read into a view, and the rule that copies them into the view."""
        name = f"{relation.name}.input"
        if name not in self.relations:
            #   v(x) :- v.input(x).
            terms = tuple(Variable(column.name, span) for column in relation.columns)
            self.relations[name] = Relation(name, relation.columns, span=span)
            rule = Rule(Atom(relation.name, terms, span=span), (Atom(name, terms, span=span),), span)
            self.definitions.append(rule)
        return name

    def free_number(self, owner: str) -> int:
        """The first number that no aggregate of `owner` has; `deg.count1` and its `deg.body1` have the same number."""
        words = ("body", *(function.value for function in Function))
        # Numbers of dropped definitions are used again; a name only has to be free in this program.
        number = 1
        while any(f"{owner}.{word}{number}" in self.relations for word in words):
            number += 1
        return number

    def aggregate(self, definition: Aggregate, columns: Sequence[Column]) -> None:
        """Add an aggregate and the relation that it defines."""
        self.relations[definition.relation] = Relation(definition.relation, tuple(columns), span=definition.span)
        self.definitions.append(definition)
