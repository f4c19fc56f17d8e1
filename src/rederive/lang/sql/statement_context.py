"""What the lowering of one statement shares: the program that it extends, the names it makes, and the places for errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rederive.errors import Span, UnknownName, Unsupported
from rederive.ir.rules import (
    CLOCK,
    Aggregate,
    Atom,
    BagRelations,
    Column,
    Function,
    Literal,
    Order,
    Relation,
    Rule,
    literal_variables,
)
from rederive.ir.terms import NUMBER, TIMESTAMP, Simple, Variable
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.lowered_relation import LoweredRelation, TypedTerm, table_as_read
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.rule_body import RuleBody
from rederive.lang.sql.types import SqlType, column_type


@dataclass(slots=True)
class StatementContext:
    """The state of lowering one statement.

    `owner` is the view that the statement defines; auxiliary relations are named after it. `ctes` are the WITH queries in scope,
    `columns` the column that each variable was made for.
    """

    builder: ProgramBuilder
    owner: str
    parsed: ParsedStatement
    ctes: dict[str, LoweredRelation] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    _variables: set[str] = field(default_factory=set)

    def span(self, node: exp.Expr | None) -> Span:
        """The place of a node in the text."""
        return self.parsed.span_of(node)

    def unsupported(self, what: str, node: exp.Expr | None = None, hint: str | None = None) -> Unsupported:
        """The error that a construct is not supported, at the place of a node."""
        return self.parsed.unsupported(what, node, hint)

    # Names

    def fresh(self, name: str) -> Variable:
        """A new variable, whose name nothing else in this statement has."""
        stem = re.sub(r"\W", "_", name, flags=re.ASCII) or "v"
        stem = stem if not stem[0].isdigit() else f"_{stem}"
        found, number = stem, 1
        while found in self._variables:
            number += 1
            found = f"{stem}_{number}"
        self._variables.add(found)
        return Variable(found)

    def row_columns(self, columns: Sequence[Column]) -> list[tuple[str, TypedTerm]]:
        """The columns of one row that is read without a relation, as named terms; `c2` is the one at position 2."""
        found = {f"c{i}": column for i, column in enumerate(columns)}
        self.columns.update(found)
        self._variables.update(found)  # a lambda's parameter of that name gets another one
        return [(c.name, TypedTerm(Variable(name), column_type(c), c.nullable)) for name, c in found.items()]

    def body(self, around: RuleBody | None = None) -> RuleBody:
        """An empty rule body; for a subquery, `around` is the body that binds its outer variables."""
        domain = around.binder if around is not None else lambda name: None
        return RuleBody(self.fresh, domain=domain, columns=self.columns)

    def name(self, word: str) -> str:
        """A new name for an auxiliary relation, such as `v.rows1`."""
        number = 1
        while f"{self.owner}.{word}{number}" in self.builder.relations:
            number += 1
        return f"{self.owner}.{word}{number}"

    def table(self, name: str, node: exp.Expr) -> LoweredRelation:
        """The relation that a name in FROM means: a WITH query, or a table or view of the program."""
        if name in self.ctes:
            return self.ctes[name]
        relations = self.builder.relations
        # SQL ignores case and Datalog does not: of several relations that differ only by case, the name means the lower-case one.
        if name in relations and "." not in name:
            return table_as_read(name, relations)
        found = [known for known in relations if known.lower() == name and "." not in known]
        if not found:
            raise UnknownName("table or view", name, (*self.ctes, *(n for n in relations if "." not in n)), self.span(node))
        return table_as_read(found[0] if len(found) == 1 else name, relations)

    def clock(self, body: RuleBody) -> TypedTerm:
        """The current time: a body reads the one row of the clock, which is a base relation."""
        if CLOCK not in self.builder.relations:
            # Clocks come first among relations: every view that reads the time is declared after it.
            column = Column("now", TIMESTAMP)
            clock = Relation(CLOCK, (column,), span=self.parsed.span, monitored=False)
            self.builder.relations = {CLOCK: clock, **self.builder.relations}
        found = next((one for one in body.literals if isinstance(one, Atom) and one.relation == CLOCK), None)
        if found is None:
            variable = self.fresh("now")
            self.columns[variable.name] = Column("now", TIMESTAMP)
            found = Atom(CLOCK, (variable,))
            body.add(found)
        return TypedTerm(found.terms[0], SqlType(TIMESTAMP), False)

    # Definitions

    def declare(self, name: str, columns: Sequence[Column], key: Sequence[int] = ()) -> None:
        """Add a relation to the program. A key of all columns says no more than that the relation is a set."""
        whole = tuple(key) == tuple(range(len(columns)))
        self.builder.relations[name] = Relation(name, distinct_columns(columns), () if whole else tuple(key), self.parsed.span)

    def define(self, name: str, terms: Sequence[Simple], body: Sequence[Literal]) -> None:
        """Add a rule to the program."""
        # A rule that can never fire is added, too: a relation without any rule would be a base relation.
        self.builder.definitions.append(_tidy(Rule(Atom(name, tuple(terms)), tuple(body), self.parsed.span)))

    def aggregate(self, name: str, function: Function, source: str, group: Sequence[int], value: int | None) -> None:
        """Add an aggregate to the program."""
        self.builder.definitions.append(Aggregate(name, function, source, tuple(group), value, self.parsed.span))

    def ranking(self, name: str, source: str, group: Sequence[int], order: Sequence[Order], most: int | None = None) -> None:
        """Declare and define a relation that numbers the rows of each group: the group, the other columns, the number."""
        columns = self.builder.relations[source].columns
        places = (*group, *(i for i in range(len(columns)) if i not in group))
        self.declare(name, (*(columns[i] for i in places), Column("number", NUMBER)), range(len(columns)))
        function = Function.ROW_NUMBER
        definition = Aggregate(name, function, source, tuple(group), None, self.parsed.span, tuple(order), most)
        self.builder.definitions.append(definition)

    def into(self, target: str | None, word: str, hidden: Sequence[Column]) -> str:
        """The relation that a query defines: the view itself, its rows with their identities, or an auxiliary relation."""
        if target is None:
            return self.name(word)
        return bag_relations(target).rows if hidden else target


def bag_relations(view: str) -> BagRelations:
    """The relations that hold a view that is a bag."""
    return BagRelations(rows=f"{view}.all", counts=f"{view}.bag")


def distinct_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with distinct names, which printing needs."""
    seen: dict[str, int] = {}
    found = []
    for column in columns:
        seen[column.name] = seen.get(column.name, 0) + 1
        times = seen[column.name]
        name = column.name if times == 1 else f"{column.name}_{times}"
        found.append(replace(column, name=name, default=None))
    return tuple(found)


def _tidy(rule: Rule) -> Rule:
    """The rule with `_` for each variable that occurs once."""
    # A variable whose name is a number is printed as `_`.
    everywhere = [v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal)]
    alone = {name: Variable(str(i)) for i, name in enumerate(everywhere) if everywhere.count(name) == 1}

    def atom(one: Atom) -> Atom:
        return Atom(one.relation, tuple(alone.get(t.name, t) if isinstance(t, Variable) else t for t in one.terms))

    body = tuple(atom(literal) if isinstance(literal, Atom) else literal for literal in rule.body)
    return Rule(rule.head, body, rule.span)
