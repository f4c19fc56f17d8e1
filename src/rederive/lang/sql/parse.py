"""SQL text to sqlglot's trees, statement by statement, with positions for errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from rederive.errors import Source, Span, SyntaxProblem, Unsupported


class _Ansi(Spark):
    """Spark with its default ANSI mode: CAST fails on what it cannot cast."""

    class Parser(SparkParser):
        STRICT_CAST: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement: its tree, where it stands, and how to find the places of its parts."""

    tree: exp.Expr = field(compare=False)
    span: Span

    def span_of(self, node: exp.Expr | None) -> Span:
        """Where a part stands: from its first to its last word; the whole statement where no word of it is known."""
        metas = [part.meta for part in (node.walk() if node is not None else ()) if "start" in part.meta]
        if not metas:
            return self.span
        return _span(self.span.source, min(m["start"] for m in metas), max(m["end"] for m in metas))

    @property
    def kind(self) -> str:
        """What kind of statement it is: create, drop, change, begin, commit, rollback or query."""
        match self.tree:
            case exp.Create() | exp.Drop() | exp.Commit() | exp.Rollback():
                return self.tree.key
            case exp.Transaction():
                return "begin"
            case exp.Insert() | exp.Update() | exp.Delete():
                return "change"
            case exp.Query() | exp.Values():
                return "query"
        raise self.unsupported(f"the statement {self.tree.key.upper()}")

    def unsupported(self, what: str, node: exp.Expr | None = None, hint: str | None = None) -> Unsupported:
        return Unsupported(f"not supported: {what}", self.span_of(node), hint=hint)


def parse(text: str, name: str = "<text>") -> tuple[Parsed, ...]:
    """The statements of a text.

    >>> [type(parsed.tree).__name__ for parsed in parse("DROP VIEW v; BEGIN; SELECT 1")]
    ['Drop', 'Transaction', 'Select']
    """
    source = Source(name, text)
    try:
        tokens = _Ansi().tokenize(text)
    except TokenError as error:
        raise SyntaxProblem(f"not SQL: {_first_line(error)}", _span(source, 0, max(len(text) - 1, 0))) from None
    return tuple(_statement(chunk, source) for chunk in _chunks(tokens))


def _chunks(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    chunk: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            chunk.append(token)
        elif chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _statement(tokens: list[Token], source: Source) -> Parsed:
    span = _span(source, tokens[0].start, tokens[-1].end)
    try:
        trees = _Ansi().parser().parse(tokens, source.text)
    except ParseError as error:
        raise _refused(error, source, span) from None
    except RecursionError:
        raise Unsupported("not supported: a statement nested this deeply", span) from None
    (tree,) = trees
    if tree is None or isinstance(tree, exp.Command):
        raise Unsupported(f"not supported: the statement {tokens[0].text.upper()}", span)
    return Parsed(tree, span)


def _refused(error: ParseError, source: Source, span: Span) -> SyntaxProblem:
    details: dict[str, Any] = error.errors[0] if error.errors else {}
    line, column, text = details.get("line"), details.get("col"), details.get("highlight") or ""
    if line is None or column is None:
        return SyntaxProblem(f"not SQL: {_first_line(error)}", span)
    begin = max(column - len(text), 0) + 1
    place = Span(source, line, begin, line, begin + max(len(text), 1))
    return SyntaxProblem(f"not SQL: {details.get('description', 'unexpected text').rstrip('.')}", place)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _span(source: Source, start: int, end: int) -> Span:
    """From offsets, the last included, to lines and columns."""
    before, inside = source.text[:start], source.text[: end + 1]
    return Span(
        source,
        before.count("\n") + 1,
        start - (before.rfind("\n") + 1) + 1,
        inside.count("\n") + 1,
        end + 1 - (inside.rfind("\n") + 1) + 1,
    )
