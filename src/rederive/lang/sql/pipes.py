"""Pipe syntax: `query |> operator |> operator`, read as one query over the other.

    FROM t |> WHERE a > 1 |> EXTEND a * 2 AS b |> AGGREGATE sum(b) AS s GROUP BY c
    SELECT c, sum(b) AS s FROM (SELECT *, a * 2 AS b FROM t WHERE a > 1) GROUP BY c

An *open* query is `SELECT *` from tables, joins and a condition: an operator adds to it, so that the names of its tables are
still there. Any other query becomes a subquery in the FROM of the next one.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

_SOURCE: Final = ("from_", "joins", "laterals", "where")
_SET_OPERATORS: Final = frozenset({TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT})


class PipeParser(SparkParser):
    """Reads the operators after `|>`. sqlglot's own reading makes a WHERE after a LIMIT filter before it."""

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        # A pipe after a set operation reads the whole of it, not its last query.
        consume_pipe = consume_pipe and parse_set_operation
        return super()._parse_select(nested, table, parse_subquery_alias, parse_set_operation, consume_pipe)

    def _parse_select_query(
        self, nested: bool = False, table: bool = False, parse_subquery_alias: bool = True, parse_set_operation: bool = True
    ) -> exp.Expr | None:
        found = super()._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation)
        # Of `FROM t JOIN u` in front, sqlglot has the joins at the first table.
        if isinstance(found, exp.Select) and (source := found.args.get("from_")) and (joins := source.this.args.get("joins")):
            source.this.set("joins", None)
            found.set("joins", [*joins, *(found.args.get("joins") or ())])
        return found

    def _parse_wrapped_select(self, table: bool = False) -> exp.Expr | None:
        found = super()._parse_wrapped_select(table)
        is_piped = isinstance(found, exp.Query) and self._match(TokenType.PIPE_GT, advance=False)
        return self._parse_pipe_syntax_query(found) if isinstance(found, exp.Query) and is_piped else found

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query:
        found = query if isinstance(query, exp.Select) else _over(query)
        has_lost_order = False
        while self._match(TokenType.PIPE_GT):
            is_limit = self._match_set((TokenType.LIMIT, TokenType.OFFSET), advance=False)
            has_order = bool(found.args.get("order"))
            if is_limit and not _is_ordered(found) and (has_order or has_lost_order):
                # Spark's rows keep their order from one operator to the next; those of a view have none.
                self.raise_error("LIMIT that does not follow its ORDER BY: write ORDER BY again")
            has_lost_order = has_order or has_lost_order
            found = self._operator_of_pipe(found)
            has_lost_order = has_lost_order and not found.args.get("order")
        return found

    def _operator_of_pipe(self, query: exp.Select) -> exp.Select:
        """The query after one operator."""
        if self._match(TokenType.SELECT, advance=False):
            return self._selected(query)
        if self._match(TokenType.WHERE, advance=False):
            return _open(query).where(self._parse_where(), copy=False)
        if self._match(TokenType.ALIAS):
            return _over(query, self._parse_id_var())
        if self._match_set((TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET), advance=False):
            return self._arranged(query)
        if self._match_set((TokenType.PIVOT, TokenType.UNPIVOT, TokenType.TABLE_SAMPLE), advance=False):
            found = _over(query)
            found.args["from_"].this.set("pivots", self._parse_pivots())
            found.args["from_"].this.set("sample", self._parse_table_sample())
            return found
        if self._curr is not None and self._curr.token_type in _SET_OPERATORS:
            united = self.parse_set_operation(query if _is_open(query) else _over(query))
            assert isinstance(united, exp.SetOperation)
            return _over(united)
        if self._match_text_seq("EXTEND"):
            return _project(_open(query), [exp.Star(), *self._parse_expressions()])
        if self._match_text_seq("DROP"):
            return _project(_open(query), [exp.Star(except_=self._parse_csv(self._parse_column))])
        if self._match_text_seq("AGGREGATE"):
            return self._aggregated(_open(query))
        if self._match(TokenType.SET):
            return self._assigned(query)
        join = self._parse_join() if not self._match(TokenType.COMMA, advance=False) else None
        if join is None:
            self.raise_error("expected an operator after |>")
            return query
        name, is_outer = _only_name(query), join.side in ("RIGHT", "FULL")
        # A right or full join keeps rows that a condition before it has not seen.
        stays = _is_open(query) and (query.args.get("where") is None or (name is None and not is_outer))
        return (query if stays else _over(query, name)).join(join, copy=False)

    def _selected(self, query: exp.Select) -> exp.Select:
        found = self._parse_select_query(parse_set_operation=False)
        assert isinstance(found, exp.Select)
        if any(found.args.get(part) for part in (*_SOURCE, "group", "having", "order", "limit")):
            self.raise_error("|> SELECT takes no other clause: write it after another |>")
        source = _open(query)
        for part in _SOURCE:
            found.set(part, source.args.get(part))
        return found

    def _assigned(self, query: exp.Select) -> exp.Select:
        """Each assignment is a query of its own, so that the next one reads its value."""
        assignments = self._parse_csv(self._parse_update_assignment)
        names = [one.this.name.lower() for one in assignments]
        if len(set(names)) < len(names):
            self.raise_error("|> SET assigns a column twice")
        for one in assignments:
            query = _project(_open(query), [exp.Star(assigned=one)])
        return query

    def _arranged(self, query: exp.Select) -> exp.Select:
        """ORDER BY, LIMIT and OFFSET; a LIMIT right after an ORDER BY is that of the order."""
        found = query if _is_ordered(query) and not self._match(TokenType.ORDER_BY, advance=False) else _open(query)
        if (order := self._parse_order()) is not None:
            found.set("order", order)
        # Spark reads LIMIT before OFFSET.
        if (limit := self._parse_limit()) is not None:
            found.set("limit", limit)
        if (offset := self._parse_offset()) is not None:
            found.set("offset", offset)
        return found

    def _aggregated(self, query: exp.Select) -> exp.Select:
        values = [] if self._match(TokenType.GROUP_BY, advance=False) else self._parse_expressions()
        groups = self._parse_expressions() if self._match(TokenType.GROUP_BY) else []
        if any(isinstance(group, exp.Literal) for group in groups):
            self.raise_error("|> AGGREGATE groups by names and expressions, not by positions")
        found = _project(query, [*groups, *values])
        if groups:
            found.set("group", exp.Group(expressions=[group.unalias().copy() for group in groups]))
        return found


def _is_open(query: exp.Select) -> bool:
    written = {part for part, value in query.args.items() if value}
    return query.expressions == [exp.Star()] and written <= {*_SOURCE, "expressions"}


def _is_ordered(query: exp.Select) -> bool:
    return bool(query.args.get("order")) and not (query.args.get("limit") or query.args.get("offset"))


def _open(query: exp.Select) -> exp.Select:
    return query if _is_open(query) else _over(query)


def _over(query: exp.Query, alias: exp.Expr | None = None) -> exp.Select:
    """SELECT * FROM (query) [AS alias]."""
    inner = query.unnest() if isinstance(query, exp.Subquery) and not query.alias else query
    found = exp.Subquery(this=inner, alias=exp.TableAlias(this=alias) if alias is not None else None)
    return exp.select(exp.Star(), copy=False).from_(found, copy=False)


def _only_name(query: exp.Select) -> exp.Expr | None:
    """The name of the one table that an open query reads."""
    if not _is_open(query) or query.args.get("joins") or query.args.get("laterals"):
        return None
    name = query.args["from_"].this.alias_or_name
    return exp.to_identifier(name) if name else None


def _project(query: exp.Select, columns: list[exp.Expr]) -> exp.Select:
    query.set("expressions", columns)
    return query
