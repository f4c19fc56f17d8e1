"""WITH RECURSIVE: queries that refer to themselves or to each other. With UNION they are sets, as in Datalog.

With UNION ALL a query is a bag, as in Spark: a row has its level as a hidden column, which is bounded, and its path, which tells
its derivations apart:

    r(columns, 0, path) :- first, path = row path("1", identity).
    r(columns, n, path) :- r(before, m, p), ..., n = next level(m), path = row path(p, identity).

Lowering a branch needs the types of the columns of all queries that it reads, and these come from lowering the branches. So a
query takes its types from its first branch that reads typed queries only. Whether a column may be NULL is a fixpoint: it starts
with what the first branches say, and each round can only add nullable columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from rederive.analysis.graph import strongly_connected
from rederive.errors import TypeClash, WrongArity
from rederive.ir.rules import Atom, Column
from rederive.ir.terms import NUMBER, SYMBOL, Constant, Simple
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.sql.lowered_relation import Field, LoweredRelation, TypedTerm
from rederive.lang.sql.scope import identifier, identifiers
from rederive.lang.sql.types import INT, STRING, column_type

if TYPE_CHECKING:
    from rederive.lang.sql.query import PreparedQuery, QueryLowering


def _references(node: exp.Expr, among: Sequence[str]) -> list[str]:
    return [name for table in node.find_all(exp.Table) if (name := identifier(table)) in among]


def _groups(node: exp.With) -> list[frozenset[str]]:
    ctes = {identifier(cte.args["alias"]): cte.this for cte in node.expressions}
    return list(strongly_connected({name: _references(query, tuple(ctes)) for name, query in ctes.items()}))


def recursive_names(node: exp.With) -> frozenset[str]:
    """The names of the WITH queries that depend on themselves."""
    ctes = {identifier(cte.args["alias"]): cte.this for cte in node.expressions}
    found = [group for group in _groups(node) if len(group) > 1 or any(n in _references(ctes[n], tuple(group)) for n in group)]
    return frozenset[str]().union(*found)


def define_recursive_queries(queries: QueryLowering, node: exp.With, name: str) -> None:
    """Define all queries of the recursion that this query is part of."""
    group = next(group for group in _groups(node) if name in group)
    members = [cte for cte in node.expressions if identifier(cte.args["alias"]) in group]
    _RecursionLowering(queries, members).define()


class _RecursionLowering:
    """Lowers the queries of one recursion."""

    def __init__(self, queries: QueryLowering, members: Sequence[exp.CTE]) -> None:
        self.queries = queries
        self.context = queries.context
        self.is_bag = any(_has_union_all(cte.this) for cte in members)
        if self.is_bag and len(members) > 1:
            raise self.context.unsupported("UNION ALL in a mutual recursion", members[0], "write UNION")
        self.branches = {identifier(cte.args["alias"]): list(self.split(cte.this)) for cte in members}
        self.aliases = {
            identifier(cte.args["alias"]): identifiers(cte.args["alias"].args.get("columns") or ()) for cte in members
        }

    def split(self, node: exp.Expr) -> list[exp.Expr]:
        """The branches of a UNION."""
        if not isinstance(node, exp.Union):
            return [node]
        if bool(node.args.get("distinct")) is self.is_bag:
            raise self.context.unsupported("UNION and UNION ALL in one recursion", node, "use one of them")
        return [*self.split(node.this), *self.split(node.expression)]

    def define(self) -> None:
        """Define the queries and bring their names into scope."""
        rels = {name: self.relation(self.context.name(name), fields) for name, fields in self.column_types().items()}
        # Branches are lowered again with the columns of the previous round, until no column becomes nullable. Every round but the
        # last makes at least one more column nullable, so there are at most as many rounds as columns, and one.
        for _ in range(1 + sum(len(rel.fields) for rel in rels.values())):
            before = ProgramBuilder.of(self.context.builder.program())
            found = self.attempt(rels)
            if found == rels:
                self.context.ctes.update(rels)
                return
            rels = found
            self.restore(before)
        raise AssertionError("nullability only grows")

    def relation(self, name: str, fields: tuple[Field, ...]) -> LoweredRelation:
        """The relation of a recursive query; the path identifies a row of a bag."""
        if not self.is_bag:
            return LoweredRelation(name, fields)
        return LoweredRelation(name, fields, (Column("level", NUMBER), Column("path", SYMBOL)), (len(fields) + 1,))

    def restore(self, before: ProgramBuilder) -> None:
        """Forget the relations and rules of an attempt."""
        self.context.builder.relations, self.context.builder.definitions = before.relations, before.definitions

    def column_types(self) -> dict[str, tuple[Field, ...]]:
        """The columns of each query, from its first branch that reads typed queries only."""
        before, ctes = ProgramBuilder.of(self.context.builder.program()), dict(self.context.ctes)
        known: dict[str, tuple[Field, ...]] = {}
        while len(known) < len(self.branches):
            found = next(
                ((n, b) for n in self.branches if n not in known for b in self.branches[n] if self.can_type(b, known)), None
            )
            if found is None:
                name = next(n for n in self.branches if n not in known)
                node = self.branches[name][0]
                hint = "add a branch that does not read it: SELECT ... UNION SELECT ... FROM " + name
                raise TypeClash(f"the recursive query '{name}' has no branch to start from", self.context.span(node), hint=hint)
            name, branch = found
            known[name] = self.fields(name, branch)
            self.context.ctes[name] = self.relation(self.context.name(name), known[name])
            self.context.declare(self.context.ctes[name].name, self.context.ctes[name].own)
        # The branches were lowered for their types alone. `attempt` makes the rules.
        self.restore(before)
        self.context.ctes = ctes
        return known

    def can_type(self, branch: exp.Expr, known: dict[str, tuple[Field, ...]]) -> bool:
        """Whether the branch reads typed queries only."""
        return all(name in known for name in _references(branch, tuple(self.branches)))

    def fields(self, name: str, branch: exp.Expr) -> tuple[Field, ...]:
        """The columns of a query, as one of its branches gives them."""
        outputs = self.queries.prepare(branch).outputs
        columns = self.aliases[name] or [column for column, _ in outputs]
        if len(columns) != len(outputs):
            message = f"'{name}' names {len(columns)} columns, but the query has {len(outputs)}"
            raise WrongArity(message, self.context.span(branch))
        return tuple(Field(column, typed.type, typed.nullable) for column, (_, typed) in zip(columns, outputs, strict=True))

    def attempt(self, rels: dict[str, LoweredRelation]) -> dict[str, LoweredRelation]:
        """Define the queries, assuming these columns; return the columns that they turn out to have."""
        ctes = dict(self.context.ctes)
        self.context.ctes.update(rels)
        for rel in rels.values():
            self.context.declare(rel.name, rel.own)
        found = {name: self.define_branches(name, rel) for name, rel in rels.items()}
        self.context.ctes = ctes
        return found

    def define_branches(self, name: str, rel: LoweredRelation) -> LoweredRelation:
        """Define a rule for each branch of a query; return the relation with the columns that are nullable now."""
        nullable = [field.nullable for field in rel.fields]
        for number, branch in enumerate(self.branches[name], 1):
            prepared = self.queries.prepare(branch)
            if len(prepared.outputs) != len(rel.fields):
                message = f"different numbers of columns: {len(rel.fields)} and {len(prepared.outputs)}"
                raise WrongArity(message, self.context.span(branch))
            prepared = prepared.cast([field.type for field in rel.fields], branch)
            nullable = [one or typed.nullable for one, (_, typed) in zip(nullable, prepared.outputs, strict=True)]
            if self.is_bag:
                self.define_copies(rel, prepared, number, branch)
            else:
                self.queries.define_into(rel.name, prepared)
        fields = (replace(field, nullable=null) for field, null in zip(rel.fields, nullable, strict=True))
        return replace(rel, fields=tuple(fields))

    def define_copies(self, rel: LoweredRelation, branch: PreparedQuery, number: int, node: exp.Expr) -> None:
        """Define the rule of a branch of a bag: a row for each derivation, one level above the row that it is derived from."""
        body, lower = branch.body, branch.lower
        terms = [body.representative(body.assign(typed, name).term) for name, typed in branch.outputs]
        before = [literal for literal in body.literals if isinstance(literal, Atom) and literal.relation == rel.name]
        reads = _references(node, tuple(self.branches))
        if branch.distinct or len(before) != len(reads) or len(before) > 1:
            hint = "read it once in FROM, and not in a subquery or an outer join"
            raise self.context.unsupported("this use of a recursive query with UNION ALL", node, hint)
        first = TypedTerm(Constant(str(number), SYMBOL), STRING, False)
        level: TypedTerm = TypedTerm(Constant(0, NUMBER), INT, False)
        parts = [first]
        known: list[Simple] = []  # the path alone identifies a row, so that it holds what identifies its sources
        if before:
            above, path = before[0].terms[len(rel.fields) : len(rel.fields) + 2]
            level = lower.call("next level", [TypedTerm(above, INT, False)], INT)
            parts = [TypedTerm(path, STRING, False), first]
            known = [path]
        identity = body.identity(known)
        parts += [TypedTerm(v, column_type(self.context.columns[v.name]), True) for v in identity]
        found = [body.assign(level, "level"), body.assign(lower.call("row path", parts, STRING, nullable=False), "path")]
        self.context.define(rel.name, (*terms, *(body.representative(typed.term) for typed in found)), body.finish())


def _has_union_all(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Union):
        return False
    return not node.args.get("distinct") or _has_union_all(node.this) or _has_union_all(node.expression)
