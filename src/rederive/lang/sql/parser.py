"""SQL text to parse trees of sqlglot, one for each statement, with the positions that errors show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from rederive.errors import SourceText, Span, SyntaxProblem, TooDeep, Unsupported
from rederive.lang.sql.dialect import AnsiSpark, tokenize
from rederive.lang.sql.equivalent_syntax import replace_equivalent
from rederive.lang.sql.nesting import DEPTH, balance_chains, check_depth
from rederive.lang.sql.row_values import expand_row_values
from rederive.lang.sql.supported_syntax import PARTS, construct_name, unsupported_parts

_STATEMENTS = (exp.DDL, exp.DML, exp.Alter, exp.Grant, exp.Copy, exp.LoadData, exp.Kill, exp.Set, exp.Use, exp.Declare, exp.Cache)
_NO_EFFECT = "omit it: it would not affect the rows"
_ONE_SCHEMA = "omit it: a database has one schema, default"
# What to do instead of a statement of Spark that is refused.
_HINTS = {
    "SHOW": "write SHOW TABLES, SHOW VIEWS, SHOW COLUMNS IN t or SHOW CREATE TABLE t",
    "USE": _ONE_SCHEMA,
    "SET": "set the time zone and other settings with rederive.open(...)",
    "RESET": "set the time zone and other settings with rederive.open(...)",
    **dict.fromkeys(("CACHE", "UNCACHE", "ANALYZE", "OPTIMIZE", "VACUUM", "MSCK"), _NO_EFFECT),
    "DECLARE": "write the value as a literal, or store it in a table of one row",
    "EXECUTE": "run the text with db.sql",
    "LOAD": "use --base TABLE=FILE or db.load",
    "LOAD DATA": "use --base TABLE=FILE or db.load",
}
_EXPLAINED = re.compile(
    r"EXPLAIN\s+(?:(?:EXTENDED|FORMATTED|COST)\s+)?(?=[(\s]*(?:SELECT|WITH|VALUES|FROM|TABLE)\b)", re.IGNORECASE
)
SAVEPOINTS = ("SAVEPOINT", "RELEASE", "ROLLBACK TO")
_OPENING = (TokenType.L_PAREN, TokenType.COMMA, TokenType.SELECT, TokenType.DISTINCT, TokenType.FROM)
_CLOSING = (TokenType.R_PAREN, TokenType.COMMA, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """One statement: its parse tree, its place in the text, and the places of its parts."""

    tree: exp.Expr = field(compare=False)
    span: Span
    tokens: tuple[Token, ...] = field(default=(), compare=False, repr=False)  # of CREATE, ALTER and DROP RULE, which have no tree
    constraint: str | None = None  # the mode of a CREATE CONSTRAINT VIEW

    def span_of(self, node: exp.Expr | None) -> Span:
        """The place of a part, from its first to its last token; the whole statement if no token of it is known."""
        metas = [part.meta for part in (node.walk() if node is not None else ()) if "start" in part.meta]
        if not metas:
            return self.span
        return span_between(self.span.source, min(m["start"] for m in metas), max(m["end"] for m in metas))

    @property
    def kind(self) -> str:
        """The kind: create, drop, alter, rule, change, refresh, begin, commit, rollback, savepoint, show or query."""
        if self.tokens:
            return "rule"
        match self.tree:
            case exp.Command() as command:
                return "savepoint" if command.this in SAVEPOINTS else "show"
            case exp.Create() | exp.Drop() | exp.Alter() | exp.Commit() | exp.Rollback():
                return self.tree.key
            case exp.Comment():
                return "alter"
            case exp.Transaction():
                return "begin"
            case exp.Describe():
                return "show"
            case exp.Insert() | exp.Update() | exp.Delete() | exp.Merge() | exp.TruncateTable():
                return "change"
            case exp.Refresh():
                return "refresh"
            case exp.Query() | exp.Values():
                return "query"
        if (word := self.first_word) in _HINTS:
            raise self.unsupported(f"the statement {word}", None, _HINTS[word])
        if not isinstance(self.tree, _STATEMENTS):
            raise SyntaxProblem("not SQL: the text is not a statement", self.span)
        name = construct_name(self.tree)
        raise self.unsupported(f"the statement {name}", None, _HINTS.get(name))

    @property
    def first_word(self) -> str:
        """The word that the statement begins with, in capitals."""
        lines = self.span.source.text.splitlines()
        found = re.match(r"\w+", lines[self.span.line - 1][self.span.column - 1 :])
        return found[0].upper() if found is not None else ""

    def unsupported(self, what: str, node: exp.Expr | None = None, hint: str | None = None) -> Unsupported:
        """The error that a construct is not supported, at the place of a node."""
        return Unsupported(f"not supported: {what}", self.span_of(node), hint=hint)


def parse(text: str, name: str = "<text>") -> tuple[ParsedStatement, ...]:
    """The statements of a text.

    >>> [type(parsed.tree).__name__ for parsed in parse("DROP VIEW v; BEGIN; SELECT 1")]
    ['Drop', 'Transaction', 'Select']
    """
    source = SourceText(name, text)
    return tuple(_statement(chunk, source) for chunk in _chunks(tokenize_source(source)))


def tokenize_source(source: SourceText) -> list[Token]:
    """The tokens of a text, with their places in it."""
    try:
        return tokenize(source.text)
    except TokenError as error:
        whole = span_between(source, 0, max(len(source.text) - 1, 0))
        raise SyntaxProblem(f"not SQL: {_in_words(_first_line(error), '')}", whole) from None


def _chunks(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    chunk: list[Token] = []
    for token in tokens:
        # A semicolon inside a string or a comment is not a token.
        if token.token_type is not TokenType.SEMICOLON:
            chunk.append(token)
        elif chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _statement(tokens: list[Token], source: SourceText) -> ParsedStatement:
    if _about_rules(tokens):
        return ParsedStatement(exp.Command(this="RULE"), span_between(source, tokens[0].start, tokens[-1].end), tuple(tokens))
    if (command := _command(tokens)) is not None:
        return ParsedStatement(command, span_between(source, tokens[0].start, tokens[-1].end))
    if (explained := _EXPLAINED.match(source.text, tokens[0].start)) is not None:
        # sqlglot does not parse what follows EXPLAIN. Blank characters in front give its tokens the places that they have.
        start, end = explained.end(), tokens[-1].end
        query = parse_tokens(tokenize(re.sub(r"\S", " ", source.text[:start]) + source.text[start : end + 1]), source)
        if query.kind != "query":
            raise query.unsupported("EXPLAIN of a statement that is not a query", None, "name a view, or write a query")
        return replace(query, tree=exp.Command(this="EXPLAIN QUERY", expression=query.tree))
    mode = _constraint(tokens, source)
    return replace(parse_tokens(tokens, source), constraint=mode) if mode is not None else parse_tokens(tokens, source)


def _command(tokens: Sequence[Token]) -> exp.Expr | None:
    """The statements that sqlglot does not parse: transactions and savepoints in words, SHOW and EXPLAIN."""
    # sqlglot makes one token of everything that follows SHOW or EXPLAIN.
    words = " ".join(token.text for token in tokens).split()
    match [word.upper() for word in words[:3]]:
        case ["START", "TRANSACTION"] if len(words) == 2:
            return exp.Transaction()
        case ["SAVEPOINT", _] if len(words) == 2:
            return exp.Command(this="SAVEPOINT", expression=words[1].lower())
        case ["RELEASE", "SAVEPOINT", _] if len(words) == 3:
            return exp.Command(this="RELEASE", expression=words[2].lower())
        case ["ROLLBACK", "TO", _] if len(words) in (3, 4) and words[-2].upper() in ("TO", "SAVEPOINT"):
            return exp.Command(this="ROLLBACK TO", expression=words[-1].lower())
        case ["SHOW", ("TABLES" | "VIEWS") as what] if len(words) == 2:
            return exp.Command(this=f"SHOW {what}", expression="")
        case ["SHOW", ("TABLES" | "VIEWS") as what, "LIKE"] if len(words) == 4 and words[3][0] in "'\"":
            return exp.Command(this=f"SHOW {what}", expression=words[3][1:-1].lower())
        case ["SHOW", "CREATE", "TABLE" | "VIEW"] if len(words) == 4:
            return exp.Command(this="SHOW CREATE", expression=words[3].lower())
        case ["SHOW", "COLUMNS", "IN" | "FROM"] if len(words) == 4:
            return exp.Command(this="SHOW COLUMNS", expression=words[3].lower())
        case ["EXPLAIN", *_] if len(words) == 2:
            return exp.Command(this="EXPLAIN", expression=words[1].lower())
    return None


def _about_rules(tokens: Sequence[Token]) -> bool:
    match [token.text.upper() for token in tokens[:4]]:
        case ["CREATE" | "ALTER" | "DROP", "RULE", *_] | ["CREATE", "OR", "REPLACE", "RULE"]:
            return True
        case _:
            return False


def _constraint(tokens: list[Token], source: SourceText) -> str | None:
    """The mode of a CREATE CONSTRAINT VIEW, whose words `CONSTRAINT [REJECT | MONITOR]` are removed from the tokens."""
    words = [token.text.upper() for token in tokens[:6]]
    if words[:1] != ["CREATE"] or "CONSTRAINT" not in words[1:4:2]:
        return None
    first = words.index("CONSTRAINT")
    mode = words[first + 1] if words[first + 1 : first + 2] in (["REJECT"], ["MONITOR"]) else None
    after = first + (2 if mode else 1)
    if words[after : after + 1] != ["VIEW"]:
        place = tokens[min(after, len(tokens) - 1)]
        hint = "write CREATE [OR REPLACE] CONSTRAINT [REJECT | MONITOR] VIEW name AS query"
        raise SyntaxProblem("not SQL: expected VIEW", span_between(source, place.start, place.end), hint=hint)
    del tokens[first:after]
    return (mode or "REJECT").lower()


def parse_tokens(tokens: list[Token], source: SourceText) -> ParsedStatement:
    """The statement that these tokens of a text form by themselves."""
    span = span_between(source, tokens[0].start, tokens[-1].end)
    _check_punctuation(tokens, source)
    try:
        trees = AnsiSpark().parser().parse(tokens, source.text)
    except ParseError as error:
        raise _refused(error, source, span) from None
    except RecursionError:
        raise TooDeep(DEPTH, span) from None
    except (ValueError, TypeError, AttributeError, LookupError):  # what sqlglot raises on some texts that are not SQL
        raise SyntaxProblem("not SQL: the text is not a statement", span) from None
    if len(trees) != 1:
        raise SyntaxProblem("not SQL: the text is not one statement", span)
    (tree,) = trees
    if tree is not None:
        tree = balance_chains(expand_row_values(replace_equivalent(tree)))
        check_depth(tree, span)
    # sqlglot makes a Command, with the rest as plain text, of statements that it knows by their first word alone.
    if tree is None or isinstance(tree, exp.Command):
        _check_query(tokens, source)
        word = tokens[0].text.upper()
        raise Unsupported(f"not supported: the statement {word}", span, hint=_HINTS.get(word))
    parsed = ParsedStatement(tree, span)
    if type(tree) in PARTS:
        for found in unsupported_parts(tree):
            raise parsed.unsupported(found.what, found.node, found.hint)
    return parsed


def _check_query(tokens: Sequence[Token], source: SourceText) -> None:
    """Refuse a mistake in the query of a CREATE where it is: sqlglot gives up the whole statement for it."""
    depths = accumulate((t.token_type is TokenType.L_PAREN) - (t.token_type is TokenType.R_PAREN) for t in tokens)
    words = [token.text.upper() if depth == 0 else "" for token, depth in zip(tokens, depths, strict=True)]
    if words[0] == "CREATE" and "AS" in words[:-1]:
        parse_tokens(list(tokens[words.index("AS") + 1 :]), source)


def _check_punctuation(tokens: Sequence[Token], source: SourceText) -> None:
    """Refuse unbalanced parentheses and superfluous commas, which sqlglot accepts."""
    depth = 0
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        kind = token.token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        alone = before is None or after is None or before.token_type in _OPENING or after.token_type in _CLOSING
        if depth < 0 or (depth > 0 and after is None) or (kind is TokenType.COMMA and alone):
            what = "a parenthesis is missing" if kind is not TokenType.COMMA else "unexpected ','"
            raise SyntaxProblem(f"not SQL: {what}", span_between(source, token.start, token.end))


def _refused(error: ParseError, source: SourceText, span: Span) -> SyntaxProblem:
    details: dict[str, Any] = error.errors[0] if error.errors else {}
    line, column, text = details.get("line"), details.get("col"), details.get("highlight") or ""
    if line is None or column is None:
        return SyntaxProblem(f"not SQL: {_in_words(_first_line(error), '')}", span)
    begin = max(column - len(text), 0) + 1
    place = Span(source, line, begin, line, begin + max(len(text), 1))
    return SyntaxProblem(f"not SQL: {_in_words(details.get('description', 'unexpected text'), text)}", place)


def _in_words(description: str, text: str) -> str:
    """What sqlglot says about a text, without the names of its classes."""
    if description.startswith("Required keyword"):
        return f"an expression is missing at '{text}'" if text else "an expression is missing"
    if description.startswith("Invalid expression") and text:
        return f"unexpected '{text}'"
    if description.startswith("Error tokenizing"):
        return "a text, a quoted name or a comment does not end"
    words = re.sub(r" but got <.*|<class .*", "", description).rstrip(". ")
    return re.sub(r"^(Expecting|Expected)", "expected", words)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def span_between(source: SourceText, start: int, end: int) -> Span:
    """The lines and columns of a part of a text, given by the offsets of its first and its last character."""
    before, inside = source.text[:start], source.text[: end + 1]
    return Span(
        source,
        before.count("\n") + 1,
        start - (before.rfind("\n") + 1) + 1,
        inside.count("\n") + 1,
        end + 1 - (inside.rfind("\n") + 1) + 1,
    )
