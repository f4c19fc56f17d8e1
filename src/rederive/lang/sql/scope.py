"""Which column a name means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rederive.errors import Span, TypeClash, UnknownName
from rederive.ir.terms import variables
from rederive.lang.sql.body import Body
from rederive.lang.sql.relation import Typed


@dataclass(slots=True)
class Binding:
    """A source by its alias: the names and terms of its columns."""

    alias: str
    columns: dict[str, Typed]


@dataclass(slots=True)
class Scope:
    """The sources of one query, inside those of the queries around it. `merged`: the columns that USING made one."""

    body: Body
    parent: Scope | None = None
    bindings: list[Binding] = field(default_factory=list)
    merged: dict[str, Typed] = field(default_factory=dict)

    def resolve(self, name: str, table: str | None, span: Span) -> Typed:
        """The column, looked for outwards; what an enclosing query binds is noted as outer."""
        found = self.find(name, table, span)
        if found is not None:
            return found
        if self.parent is None:
            raise self._unknown(name, table, span)
        try:
            outer = self.parent.resolve(name, table, span)
        except UnknownName:
            raise self._unknown(name, table, span) from None
        term = self.parent.body.term(outer.term)
        self.body.mention(variables(term))
        return replace(outer, term=term)

    def find(self, name: str, table: str | None, span: Span) -> Typed | None:
        """The column among this query's own sources."""
        if table is None and name in self.merged:
            return self.merged[name]
        found = [b.columns[name] for b in self.bindings if (table is None or b.alias == table) and name in b.columns]
        if len(found) > 1:
            raise TypeClash(f"'{name}' is ambiguous", span, hint=f"write {self._candidates(name)}")
        return found[0] if found else None

    def _candidates(self, name: str) -> str:
        return " or ".join(f"{b.alias}.{name}" for b in self.bindings if name in b.columns)

    def _unknown(self, name: str, table: str | None, span: Span) -> UnknownName:
        tables = [binding.alias for binding in self.bindings]
        if table is not None and table not in tables:
            return UnknownName("table or alias", table, tables, span)
        known = [column for b in self.bindings if table in (None, b.alias) for column in b.columns]
        return UnknownName("column", name, known, span)

    def star(self, table: str | None, span: Span) -> list[tuple[str, Typed]]:
        """The columns that `*` or `table.*` stands for, in order; merged ones first."""
        chosen = [binding for binding in self.bindings if table in (None, binding.alias)]
        if table is not None and not chosen:
            raise UnknownName("table or alias", table, [b.alias for b in self.bindings], span)
        merged = self.merged if table is None else {}
        columns = [(name, typed) for b in chosen for name, typed in b.columns.items() if name not in merged]
        return [*merged.items(), *columns]


def identifier(node: exp.Expr | None) -> str:
    """Names are the same in any case, as in Spark."""
    return node.name.lower() if node is not None else ""


def names(nodes: Sequence[exp.Expr]) -> list[str]:
    return [identifier(node) for node in nodes]
