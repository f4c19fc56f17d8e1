"""The parser of CREATE RULE, ALTER RULE and DROP RULE. The SQL parser reads the query and the change of data inside them.

CREATE [OR REPLACE] RULE name [ON INSERT|DELETE|UPDATE OF table] WHEN query | TABLE view
DO CALL function[(expressions)] | WEBHOOK 'url' | INSERT ... | UPDATE ... | DELETE ...
[STRICT|NERVOUS] [IMMEDIATE|DEFERRED] [ON PLUS|MINUS|BOTH] [SINCE TRANSACTION|CHECK] [PRIORITY n] [RECURSIVE]

ALTER RULE name ACTIVATE|DEACTIVATE [FOR (values)]        DROP RULE [IF EXISTS] name
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from rederive.delta import BOTH, Sign
from rederive.errors import SourceText, Span, SyntaxProblem, Unsupported
from rederive.lang.datalog.syntax import Name
from rederive.lang.rules.syntax import (
    FIRING,
    Action,
    ActiveRule,
    AlterRule,
    CallAction,
    Condition,
    CreateRule,
    DropRule,
    EventKind,
    RuleEvent,
    RuleStatement,
    ViewCondition,
    WebhookAction,
    WriteAction,
)
from rederive.lang.sql.parser import ParsedStatement, parse_tokens, span_between, tokenize_source

_SIGNS = {"PLUS": frozenset({Sign.PLUS}), "MINUS": frozenset({Sign.MINUS}), "BOTH": BOTH}
_WORDS: dict[str, dict[str, Any]] = {
    "STRICT": {"strict": True},
    "NERVOUS": {"strict": False},
    "IMMEDIATE": {"immediate": True},
    "DEFERRED": {"immediate": False},
    "RECURSIVE": {"recursive": True},
}
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_VALUES: dict[TokenType, Callable[[str], str | int | float | bool | None]] = {
    TokenType.STRING: str,
    TokenType.NUMBER: lambda text: int(text) if text.isdigit() else float(text),
    TokenType.TRUE: lambda _: True,
    TokenType.FALSE: lambda _: False,
    TokenType.NULL: lambda _: None,
}


def parse_rule_statement(parsed: ParsedStatement) -> RuleStatement:
    """The statement that the tokens of a CREATE, ALTER or DROP RULE form.

    >>> from rederive.lang.sql.parser import parse
    >>> (parsed,) = parse("CREATE RULE low WHEN SELECT i FROM stock WHERE n < 3 DO CALL order(i) PRIORITY 10")
    >>> rule = parse_rule_statement(parsed).rule
    >>> rule.name, rule.action.function, [name.text for name in rule.action.columns], rule.priority, rule.strict
    ('low', 'order', ['i'], 10, True)
    """
    words = _Words(parsed.tokens, parsed.span.source)
    match words.take("CREATE", "ALTER", "DROP"):
        case "CREATE":
            return _create(words, parsed)
        case "ALTER":
            return _alter(words, parsed.span)
        case _:
            words.take("RULE")
            # IF without EXISTS is an error of the text, not a rule named "if".
            may_miss = words.maybe("IF") is not None and words.take("EXISTS") == "EXISTS"
            dropped = DropRule(words.name(), may_miss, parsed.span)
            words.end()
            return dropped


def parse_action(text: str, span: Span, offset: int) -> Action:
    """The action in a string of a Datalog program; `offset` is the position of its first character in the program's text."""
    source = span.source
    # Blanks instead of the program's text give the tokens their places in the program.
    # Line feeds stay, so that lines and columns of an error are those of the program.
    before = "".join(c if c == "\n" else " " for c in source.text[:offset])
    words = _Words(
        tokenize_source(SourceText(source.name, f"{before[:-3]}DO {text}")), source
    )  # CALL, if first, would hide the rest
    words.take("DO")
    found = _action(words)
    words.end()
    return found


@dataclass(slots=True)
class _Words:
    """A cursor over the tokens of a statement."""

    tokens: Sequence[Token]
    source: SourceText
    at: int = 0

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place].text.upper() if place < len(self.tokens) else ""

    def span(self, first: int | None = None, last: int | None = None) -> Span:
        """The place from one token to another; by default, that of the next token, or of the last if none is left."""
        # Past the end, an error points at the last token, because there is nothing to underline behind it.
        start = min(self.at if first is None else first, len(self.tokens) - 1)
        stop = start if last is None else last
        return span_between(self.source, self.tokens[start].start, self.tokens[stop].end)

    def maybe(self, *words: str) -> str | None:
        if self.at < len(self.tokens) and (word := self.peek()) in words:
            self.at += 1
            return word
        return None

    def take(self, *words: str) -> str:
        found = self.maybe(*words)
        if found is None:
            found_text = f"'{self.tokens[self.at].text}'" if self.at < len(self.tokens) else "the end of the statement"
            raise SyntaxProblem(f"not SQL: expected {' or '.join(words)}, not {found_text}", self.span())
        return found

    def name(self) -> str:
        """Take a name of letters, digits and _, as written."""
        text = self.tokens[self.at].text if self.at < len(self.tokens) else ""
        if not text.replace("_", "a").isalnum() or not text.isascii() or text[0].isdigit():
            raise SyntaxProblem("not SQL: expected a name", self.span(), hint="use letters, digits and _")
        self.at += 1
        return text

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise SyntaxProblem(f"not SQL: unexpected '{self.tokens[self.at].text}'", self.span())

    def rest(self) -> Sequence[Token]:
        left, self.at = self.tokens[self.at :], len(self.tokens)
        return left


# CREATE RULE


def _create(words: _Words, parsed: ParsedStatement) -> CreateRule:
    replaces = words.maybe("OR") is not None and words.take("REPLACE") == "REPLACE"
    words.take("RULE")
    name = words.name()
    event = _event(words) if words.maybe("ON") is not None else None
    words.take("WHEN")
    condition = _condition(words)
    words.take("DO")
    # Options before the action, though they are written after it: what is left of the tokens is then the action.
    options = _options(words)
    action = _action(words)
    words.end()
    # The journal holds this text, and the rule is compiled from it when the store is opened.
    text = parsed.span.source.text[words.tokens[0].start : parsed.tokens[-1].end + 1]
    return CreateRule(ActiveRule(name.lower(), condition, action, parsed.span, event=event, text=text, **options), replaces)


def _event(words: _Words) -> RuleEvent:
    kind = EventKind(words.take(*_CHANGES).lower())
    words.take("OF")
    span = words.span()
    return RuleEvent(kind, words.name(), span)


def _condition(words: _Words) -> Condition:
    """The condition: everything up to the DO before the action."""
    # TABLE v copies the view as it is; a query is lowered, and may join, group and nest.
    if words.maybe("TABLE") is not None:
        span = words.span()
        return ViewCondition(words.name(), span)
    # DO may be an alias inside a subquery, so it counts only outside of parentheses and before the word of an action.
    start, depth = words.at, 0
    while words.at < len(words.tokens):
        depth += {"(": 1, ")": -1}.get(words.peek(), 0)
        if depth == 0 and words.peek() == "DO" and words.peek(1) in ("CALL", "WEBHOOK", *_CHANGES):
            break
        words.at += 1
    else:
        raise SyntaxProblem("not SQL: expected DO and an action", words.span(len(words.tokens) - 1))
    if words.at == start:
        raise SyntaxProblem("not SQL: expected a query after WHEN", words.span(start - 1))
    query = parse_tokens(list(words.tokens[start : words.at]), words.source)
    if query.kind != "query":
        raise SyntaxProblem("not SQL: the condition of a rule must be a query", query.span)
    return query


def _options(words: _Words) -> dict[str, Any]:
    """The options at the end, which are read backwards: an action has no keyword that ends it. The rest is the action."""
    found: dict[str, Any] = {}
    tokens = list(words.tokens)
    while True:
        last = [token.text.upper() for token in tokens[-3:]]
        match last:
            # The string 'strict' at the end of an action is a value, not an option.
            case [*_, word] if word in _WORDS and tokens[-1].token_type is not TokenType.STRING:
                given, length = _WORDS[word], 1
            case [*_, "SINCE", ("CHECK" | "TRANSACTION") as since]:
                given, length = {"since_check": since == "CHECK"}, 2
            case [*_, "ON", sign] if sign in _SIGNS:
                given, length = {"signs": _SIGNS[sign]}, 2
            # A sign is a token of its own.
            case ["PRIORITY", "-", number] if number.isdigit():
                given, length = {"priority": -int(number)}, 3
            case [*_, "PRIORITY", number] if number.isdigit():
                given, length = {"priority": int(number)}, 2
            case _:
                break
        if double := next((key for key in given if key in found), None):
            raise SyntaxProblem(f"not SQL: the option {double} is given twice", words.span(len(tokens) - length, len(tokens) - 1))
        found |= given
        del tokens[-length:]
    words.tokens = tokens
    return found


def _action(words: _Words) -> Action:
    match words.peek():
        case "CALL":
            return _call(words)
        case "WEBHOOK":
            words.at += 1
            span = words.span()
            if words.at >= len(words.tokens) or words.tokens[words.at].token_type is not TokenType.STRING:
                raise SyntaxProblem("not SQL: expected an address in quotes", span, hint="write WEBHOOK 'https://host/path'")
            words.at += 1
            return WebhookAction(words.tokens[words.at - 1].text, span)
        case change if change in _CHANGES:
            return WriteAction(parse_tokens(list(words.rest()), words.source))
        case _:
            raise Unsupported("not supported: this action", words.span(), hint="use CALL, WEBHOOK, INSERT, UPDATE or DELETE")


def _call(words: _Words) -> CallAction:
    words.at += 1
    first = words.at
    function = words.name()
    if words.maybe("(") is None:
        return CallAction(function, None, words.span(first))
    start, depth = words.at, 1
    while depth and words.at < len(words.tokens):
        depth += {"(": 1, ")": -1}.get(words.peek(), 0)
        words.at += 1
    inner = list(words.tokens[start : words.at - 1])
    if depth:
        raise SyntaxProblem("not SQL: a parenthesis is missing", words.span(start - 1))
    span = words.span(first, words.at - 1)
    # An empty list is allowed: the function is called with one empty row where the condition holds.
    is_name = [
        token.token_type not in _VALUES and token.text.replace("_", "a").isalnum() and not token.text[:1].isdigit()
        for token in inner
    ]
    if all(is_name[::2]) and all(token.text == "," for token in inner[1::2]) and len(inner) % 2 == (1 if inner else 0):
        places = range(start, words.at - 1, 2)
        return CallAction(function, tuple(Name(words.tokens[i].text.lower(), words.span(i)) for i in places), span)
    return CallAction(function, None, span, _arguments(inner, words.source))


def _arguments(tokens: list[Token], source: SourceText) -> ParsedStatement:
    """The query of a call's arguments: `SELECT *, argument, ... FROM firing`."""
    place = tokens[0]
    select = Token(TokenType.SELECT, "SELECT", place.line, place.col, place.start, place.start)
    parsed = parse_tokens([select, *tokens], source)
    if not isinstance(parsed.tree, exp.Select) or any(v for name, v in parsed.tree.args.items() if name != "expressions"):
        raise SyntaxProblem("not SQL: expected expressions over the columns of the condition", parsed.span)
    if star := next((one for one in parsed.tree.expressions if one.is_star), None):
        raise parsed.unsupported("* as an argument", star, "omit the parentheses to pass whole rows")
    named = [exp.alias_(one.unalias(), f"argument{i}") for i, one in enumerate(parsed.tree.expressions)]
    return replace(parsed, tree=exp.Select(expressions=[exp.Star(), *named]).from_(FIRING, copy=False))


# ALTER RULE


def _alter(words: _Words, span: Span) -> AlterRule:
    words.take("RULE")
    name = words.name()
    active = words.take("ACTIVATE", "DEACTIVATE") == "ACTIVATE"
    values = _values(words) if words.maybe("FOR") is not None else None
    words.end()
    return AlterRule(name.lower(), active, values, span)


def _values(words: _Words) -> tuple[str | int | float | bool | None, ...]:
    words.take("(")
    found: list[str | int | float | bool | None] = []
    # At least one value: FOR () would be all rows, which is written without FOR.
    while not found or words.maybe(",") is not None:
        negative = words.maybe("-") is not None
        if words.at >= len(words.tokens) or words.tokens[words.at].token_type not in _VALUES:
            raise SyntaxProblem("not SQL: expected a value", words.span(), hint="use strings, numbers, TRUE, FALSE or NULL")
        token = words.tokens[words.at]
        try:
            value = _VALUES[token.token_type](token.text)
        except ValueError:
            raise SyntaxProblem("not SQL: expected a number", words.span()) from None
        found.append(-value if negative and isinstance(value, int | float) else value)
        words.at += 1
    words.take(")")
    return tuple(found)
