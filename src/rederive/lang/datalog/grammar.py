"""Text to parse trees: the Lark grammar `datalog.lark`, the constructs that it refuses by name, and syntax errors."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final, NoReturn, cast

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from rederive.errors import SourceText, Span, SyntaxProblem, Unsupported
from rederive.ir.rules import Operator

_REFUSED: Final = {
    "[": "records",
    "$": "algebraic data types",
    "@": "user-defined functors",
    "choice-domain": "choice-domain",
    ".comp": "components (.comp)",
    ".component": "components (.component)",
    ".init": "components (.init)",
    ".override": "components (.override)",
    ".functor": "user-defined functors (.functor)",
}


def parse_tree(source: SourceText, start: str) -> Tree[Token]:
    """The parse tree of a text; `start` is the grammar rule of the whole text. Raises SyntaxProblem or Unsupported."""
    try:
        return _parser().parse(source.text, start=start)
    except _Refusal as refusal:
        raise refused(refusal.token, token_span(source, refusal.token)) from None
    except UnexpectedToken as problem:
        raise _unexpected_token(source, problem) from None
    except UnexpectedCharacters as problem:
        raise _unexpected_characters(source, problem) from None


class _Refusal(Exception):
    """A token that starts a construct which is not supported; the rest of the text is not read."""

    def __init__(self, token: Token) -> None:
        self.token = token


def _refuse(token: Token) -> NoReturn:
    raise _Refusal(token)


@cache
def _parser() -> Lark:
    # LALR parses in time linear in the text. The contextual lexer reads a word as a keyword only where the grammar expects
    # one. A token of a construct that is not supported stops the lexer: the error names the construct.
    return Lark(
        files("rederive.lang.datalog").joinpath("datalog.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        start=["program", "query"],
        propagate_positions=True,
        maybe_placeholders=True,
        lexer_callbacks=dict.fromkeys(("REFUSED", "CHOICE", "RECORD", "ADT", "USER_FUNCTOR"), _refuse),
    )


def refused(construct: str, span: Span, hint: str | None = None) -> Unsupported:
    """The error that a construct of Soufflé is not supported."""
    return Unsupported(f"not supported: {_REFUSED.get(construct, construct)}", span, hint=hint)


def token_span(source: SourceText, token: Token) -> Span:
    """The place of a token."""
    return Span(source, token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 1)


# syntax errors

_VALUE_STARTS: Final = frozenset(
    [
        "NAME",
        "UNDERSCORE",
        "NUMBER",
        "UNSIGNED",
        "FLOAT",
        "STRING",
        "TRUE",
        "FALSE",
        "COUNT",
        "FOLD",
        "EXTREME",
        "MINUS",
        "NOT",
        "LPAR",
        "BANG",
    ]
)
_WORDS: Final = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "TRUE": "'true'",
    "FALSE": "'false'",
    "OPERATOR": "an operator",
    "MINUS": "an operator",
    "POWER": "an operator",
    "IO": "a directive",
    "LEGACY_TYPE": "a directive",
    "$END": "the end of the text",
}
_SILENT: Final = frozenset(["REFUSED", "CHOICE", "RECORD", "ADT", "USER_FUNCTOR", "HINT", "KEY", "UNSIGNED"])
_COMPARISONS: Final = frozenset(operator.value for operator in Operator)


def _expectation(terminals: Iterable[str]) -> str:
    """What the parser accepts instead, in a few words: a value, a condition, or the tokens themselves."""
    names = set(terminals) - _SILENT
    words = set()
    if "FLOAT" in names:
        words.add("a condition" if "BANG" in names else "a value")
        names -= _VALUE_STARTS
    # In the words of the language, not in the names of terminals: whoever reads this has no grammar at hand.
    words |= {_word_for(name) for name in names}
    if "':-'" in words:  # After a head, a comparison would be subsumption, which is not supported.
        words.discard("a comparison")
    *others, last = sorted(words, key=lambda word: (word.startswith("'"), word)) or ["nothing more"]
    return f"{', '.join(others)} or {last}" if others else last


def _word_for(terminal: str) -> str:
    if terminal in _WORDS:
        return _WORDS[terminal]
    text = str(_parser().get_terminal(terminal).pattern.value)
    if text in _COMPARISONS:
        return "a comparison"
    return "a directive" if text in (".decl", ".type") else f"'{text}'"


def _accepted(problem: UnexpectedToken | UnexpectedCharacters) -> Iterable[str]:
    """The terminals that the parser accepts; the list of the lexer also has terminals that lead to an error."""
    parser: Any = problem.interactive_parser
    return cast("set[str]", parser.accepts())


def _unexpected_token(source: SourceText, problem: UnexpectedToken) -> SyntaxProblem:
    expected = _expectation(_accepted(problem))
    if problem.token.type == "$END":
        return SyntaxProblem(f"unexpected end of the text, expected {expected}", _end(source))
    span = token_span(source, problem.token)
    return SyntaxProblem(f"unexpected '{span.text}', expected {expected}", span)


def _unexpected_characters(source: SourceText, problem: UnexpectedCharacters) -> SyntaxProblem:
    span = Span(source, problem.line, problem.column, problem.line, problem.column + 1)
    rest = source.text[problem.pos_in_stream :]
    expected = _expectation(_accepted(problem))
    # The lexer fails at the opening quote, because no string token matches from there.
    if rest.startswith('"'):
        return SyntaxProblem("the string does not end on its line", span, hint='close it with " and write \\n for a line break')
    if rest.startswith("/*"):
        return SyntaxProblem("the comment does not end", span, hint="close it with */")
    return SyntaxProblem(f"unexpected '{span.text}', expected {expected}", span)


def _end(source: SourceText) -> Span:
    """The place after the last character that is not a space."""
    # An editor shows the end of the text there, not after trailing blank lines.
    lines = source.text.rstrip().split("\n")
    return Span(source, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 1)
