"""Scopes: which column a name means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rederive.errors import Span, TypeClash, UnknownName
from rederive.ir.terms import variables
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.rule_body import RuleBody


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column of a source: its name, the alias of the source, and its term.

    A column that USING has merged with another is *hidden*: `*` leaves it out, and only `alias.name` refers to it.
    """

    name: str
    alias: str
    typed: TypedTerm
    hidden: bool = False

    def matches(self, name: str, table: str | None) -> bool:
        """Whether `name` or `table.name` refers to this column."""
        return self.name == name and (self.alias == table if table is not None else not self.hidden)


@dataclass(slots=True)
class Scope:
    """The columns that one query reads, in the order of Spark, within the scopes of the enclosing queries."""

    body: RuleBody
    parent: Scope | None = None
    columns: list[ScopeColumn] = field(default_factory=list)

    @property
    def aliases(self) -> list[str]:
        """The aliases of the sources, in order."""
        return list(dict.fromkeys(column.alias for column in self.columns))

    @property
    def visible(self) -> list[ScopeColumn]:
        """The columns that `*` means."""
        return [column for column in self.columns if not column.hidden]

    def bind(self, alias: str, columns: Iterable[tuple[str, TypedTerm]]) -> None:
        """Add a source under its alias."""
        self.columns += [ScopeColumn(name, alias, typed) for name, typed in columns]

    def map_terms(self, function: Callable[[TypedTerm], TypedTerm]) -> None:
        """Replace the term of each column."""
        self.columns = [replace(column, typed=function(column.typed)) for column in self.columns]

    def resolve(self, name: str, table: str | None, span: Span) -> TypedTerm:
        """The term of a column, searched from this scope outwards; a column of an enclosing query becomes an outer variable."""
        found = self.find(name, table, span)
        if found is not None:
            return found
        if self.parent is None:
            raise self._unknown(name, table, span)
        try:
            outer = self.parent.resolve(name, table, span)
        except UnknownName:
            raise self._unknown(name, table, span) from None
        # The term as the enclosing body sees it now: a variable that was equated there has a representative.
        term = self.parent.body.term(outer.term)
        self.body.mention(variables(term))
        return replace(outer, term=term)

    def find(self, name: str, table: str | None, span: Span) -> TypedTerm | None:
        """The term of a column of this query's own sources; None if there is none."""
        found = [column for column in self.columns if column.matches(name, table)]
        if len(found) > 1:
            raise ambiguous(name, [column.alias for column in found], span)
        return found[0].typed if found else None

    def knows(self, name: str, table: str | None) -> bool:
        """Whether this query or an enclosing one has such a column."""
        known = any(column.matches(name, table) for column in self.columns)
        return known or (self.parent is not None and self.parent.knows(name, table))

    def _unknown(self, name: str, table: str | None, span: Span) -> UnknownName:
        if table is not None and table not in self.aliases:
            return UnknownName("table or alias", table, filter(is_written, self.aliases), span)
        known = [column.name for column in self.columns if table in (None, column.alias)]
        return UnknownName("column", name, known, span)

    def star(self, table: str | None, span: Span) -> list[ScopeColumn]:
        """The columns that `*` or `table.*` means, in order. Of one table, the columns that USING hides come first."""
        if table is None:
            return self.visible
        found = [column for column in self.columns if column.alias == table]
        if not found:
            raise UnknownName("table or alias", table, filter(is_written, self.aliases), span)
        return sorted(found, key=lambda column: not column.hidden)


def is_written(alias: str) -> bool:
    """Whether the query contains the alias; a source without a name gets one with a space."""
    return " " not in alias


def ambiguous(name: str, aliases: Sequence[str], span: Span) -> TypeClash:
    """The error that a name refers to columns of several sources."""
    candidates = " or ".join(f"{alias}.{name}" for alias in aliases if is_written(alias))
    return TypeClash(f"'{name}' is ambiguous", span, hint=f"write {candidates}" if candidates else "give the sources aliases")


def identifier(node: exp.Expr | None) -> str:
    """The name of a node in lower case: Spark ignores the case of names."""
    return node.name.lower() if node is not None else ""


def identifiers(nodes: Sequence[exp.Expr]) -> list[str]:
    """The names of nodes in lower case."""
    return [identifier(node) for node in nodes]
