"""What the lowering of one statement shares: the program that it adds to, names, and places for errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from rederive.errors import Span, UnknownName, Unsupported
from rederive.ir.rules import (
    ALL,
    Aggregate,
    Atom,
    Column,
    Function,
    Literal,
    Order,
    Relation,
    Rule,
    literal_variables,
)
from rederive.ir.terms import NUMBER, Simple, Variable
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.lowered_relation import LoweredRelation, table_as_read
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.rule_body import RuleBody


@dataclass(slots=True)
class StatementContext:
    """`owner` is the view that is being defined; auxiliary relations are named after it. `ctes`: the WITH queries in reach."""

    builder: ProgramBuilder
    owner: str
    parsed: ParsedStatement
    ctes: dict[str, LoweredRelation] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    _variables: set[str] = field(default_factory=set)

    def span(self, node: exp.Expr | None) -> Span:
        return self.parsed.span_of(node)

    def unsupported(self, what: str, node: exp.Expr | None = None, hint: str | None = None) -> Unsupported:
        return self.parsed.unsupported(what, node, hint)

    # Names

    def fresh(self, name: str) -> Variable:
        """A variable that nothing else in this statement is called."""
        stem = re.sub(r"\W", "_", name, flags=re.ASCII) or "v"
        stem = stem if not stem[0].isdigit() else f"_{stem}"
        found, number = stem, 1
        while found in self._variables:
            number += 1
            found = f"{stem}_{number}"
        self._variables.add(found)
        return Variable(found)

    def body(self, around: RuleBody | None = None) -> RuleBody:
        domain = around.binder if around is not None else lambda name: None
        return RuleBody(self.fresh, domain=domain, columns=self.columns)

    def name(self, word: str) -> str:
        """A name for an auxiliary relation: `v.group1`."""
        number = 1
        while f"{self.owner}.{word}{number}" in self.builder.relations:
            number += 1
        return f"{self.owner}.{word}{number}"

    def table(self, name: str, node: exp.Expr) -> LoweredRelation:
        """What a name in FROM means: a WITH query, or a table or view of the program."""
        if name in self.ctes:
            return self.ctes[name]
        relations = self.builder.relations
        found = [known for known in relations if known.lower() == name and "." not in known]
        if not found:
            raise UnknownName("table or view", name, (*self.ctes, *(n for n in relations if "." not in n)), self.span(node))
        return table_as_read(found[0] if len(found) == 1 else name, relations)

    # Definitions

    def declare(self, name: str, columns: Sequence[Column], key: Sequence[int] = ()) -> None:
        whole = tuple(key) == tuple(range(len(columns)))
        self.builder.relations[name] = Relation(name, distinct_columns(columns), () if whole else tuple(key), self.parsed.span)

    def define(self, name: str, terms: Sequence[Simple], body: Sequence[Literal]) -> None:
        # a rule that can derive nothing is kept: a relation without any definition would be a base relation
        self.builder.definitions.append(_tidy(Rule(Atom(name, tuple(terms)), tuple(body), self.parsed.span)))

    def aggregate(self, name: str, function: Function, source: str, group: Sequence[int], value: int | None) -> None:
        self.builder.definitions.append(Aggregate(name, function, source, tuple(group), value, self.parsed.span))

    def ranking(self, name: str, source: str, group: Sequence[int], order: Sequence[Order], most: int | None = None) -> None:
        """Declare and define the rows of a relation with their numbers, in its groups' order: groups, the rest, the number."""
        columns = self.builder.relations[source].columns
        places = (*group, *(i for i in range(len(columns)) if i not in group))
        self.declare(name, (*(columns[i] for i in places), Column("number", NUMBER)), range(len(columns)))
        function = Function.ROW_NUMBER
        definition = Aggregate(name, function, source, tuple(group), None, self.parsed.span, tuple(order), most)
        self.builder.definitions.append(definition)

    def into(self, target: str | None, word: str, hidden: Sequence[Column]) -> str:
        """The relation that a query goes into: the view itself, its rows with their identities, or an auxiliary one."""
        if target is None:
            return self.name(word)
        return f"{target}.{ALL}" if hidden else target


def distinct_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns with names of their own, for printing."""
    seen: dict[str, int] = {}
    found = []
    for column in columns:
        seen[column.name] = seen.get(column.name, 0) + 1
        times = seen[column.name]
        name = column.name if times == 1 else f"{column.name}_{times}"
        found.append(Column(name, column.type, column.nullable, column.bits))
    return tuple(found)


def _tidy(rule: Rule) -> Rule:
    """Variables that occur once become `_`, as nobody asks for their values."""
    everywhere = [v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal)]
    alone = {name: Variable(str(i)) for i, name in enumerate(everywhere) if everywhere.count(name) == 1}

    def atom(one: Atom) -> Atom:
        return Atom(one.relation, tuple(alone.get(t.name, t) if isinstance(t, Variable) else t for t in one.terms))

    body = tuple(atom(literal) if isinstance(literal, Atom) else literal for literal in rule.body)
    return Rule(rule.head, body, rule.span)
