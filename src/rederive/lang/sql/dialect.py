"""Spark 4 in ANSI mode, as far as sqlglot's dialect of Spark differs from it: literals and the precedence of operators.

The levels of precedence are those of Spark's grammar (SqlBaseParser.g4), `booleanExpression` and `valueExpression`:

    NOT p     p AND q     p OR q             p: EXISTS (query), or a value, or value [NOT] predicate, once
    predicate: BETWEEN value AND value, IN (...), LIKE value, RLIKE value, IS [NOT] NULL | TRUE | FALSE | DISTINCT FROM value
    value, loosest first: = <=> <> < <= > >=   |   ^   &   << >>   + - ||   * / % DIV   - + ~ (prefix)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from rederive.lang.sql.pipes import PipeParser

_Build = Callable[[exp.Expr | None, exp.Expr | None], exp.Expr]


def _binary(kind: type[exp.Expr]) -> _Build:
    return lambda left, right: kind(this=left, expression=right)


# The operators of each level, as the tokens that they consist of. A longer operator comes before its prefix.
_LEVELS: Final[tuple[dict[tuple[TokenType, ...], _Build], ...]] = (
    {(token,): _binary(kind) for token, kind in {**SparkParser.EQUALITY, **SparkParser.COMPARISON}.items()},
    {(TokenType.PIPE,): _binary(exp.BitwiseOr)},
    {(TokenType.CARET,): _binary(exp.BitwiseXor)},
    {(TokenType.AMP,): _binary(exp.BitwiseAnd)},
    {
        (TokenType.GT, TokenType.GT, TokenType.GT): lambda left, right: exp.Anonymous(
            this="shiftrightunsigned", expressions=[left, right]
        ),
        (TokenType.LT, TokenType.LT): _binary(exp.BitwiseLeftShift),
        (TokenType.GT, TokenType.GT): _binary(exp.BitwiseRightShift),
    },
    {
        **{(token,): _binary(kind) for token, kind in SparkParser.TERM.items()},
        (TokenType.DPIPE,): lambda left, right: exp.DPipe(this=left, expression=right, safe=True),
    },
)
_OWN_SYNTAX: Final = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR")
_TERMS: Final = len(_LEVELS) - 1
_STARTS_OF_QUERIES: Final = frozenset(
    {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.TABLE, TokenType.L_PAREN}
)
_TYPED_LITERALS: Final = {
    exp.DType.DATE,
    exp.DType.TIME,
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMPNTZ,
    exp.DType.TIMESTAMPTZ,  # what sqlglot makes of Spark's TIMESTAMP
}


def _no_typed_literal(parser: SparkParser, literal: exp.Expr, type: exp.DataType) -> exp.Expr:
    parser.raise_error(f"{type.sql('spark')} before a literal: write CAST({literal.sql('spark')} AS {type.sql('spark')})")
    return literal


def _overlay(parser: SparkParser) -> exp.Expr:
    """OVERLAY(text PLACING new FROM start [FOR length]), or the same arguments after commas."""
    arguments = [_argument(parser)]
    for word in ("PLACING", "FROM", "FOR"):
        if parser._match(TokenType.COMMA) or parser._match_text_seq(word):
            arguments.append(_argument(parser))
    return parser.expression(exp.Anonymous(this="overlay", expressions=arguments))


def _position(parser: SparkParser) -> exp.Expr:
    """POSITION(part IN text), or the arguments after commas."""
    arguments = parser._parse_csv(parser._parse_bitwise)
    if parser._match(TokenType.IN):
        arguments.append(_argument(parser))
    return parser.expression(exp.Anonymous(this="position", expressions=arguments))


def _argument(parser: SparkParser) -> exp.Expr:
    found = parser._parse_disjunction()
    if found is None:
        parser.raise_error("an argument is missing")
    assert found is not None
    return found


class AnsiParser(PipeParser):
    """Reads a call as a name and its arguments, except for the calls with a syntax of their own, such as CAST.

    sqlglot's own table of functions has the names of other databases, too, and it rewrites and drops arguments: it would
    read two of the arguments of `datediff(a, b, c, d)`.
    """

    STRICT_CAST: ClassVar[bool] = True  # CAST fails on what it cannot cast
    # `array(1, 2)[0]` is an element of an array; sqlglot would read the array [0].
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, type[exp.Func]]] = {}
    SUPPORTS_TABLE_QUERY: ClassVar[bool] = True  # TABLE t: SELECT * FROM t
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX},
        "OVERLAY": _overlay,
        "POSITION": _position,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "ANY")
    }
    # In Spark's grammar NOT negates conditions, and is not an operator of values.
    UNARY_PARSERS: ClassVar[Any] = {
        **{token: parser for token, parser in SparkParser.UNARY_PARSERS.items() if token is not TokenType.NOT},
        TokenType.PLUS: lambda self: self.expression(exp.Anonymous(this="positive", expressions=[self._parse_unary()])),
    }
    TYPE_LITERAL_PARSERS: ClassVar[Any] = {type: _no_typed_literal for type in exp.DType if type not in _TYPED_LITERALS}

    def _warn_unsupported(self) -> None:
        """Do nothing: what is not supported is refused later, with its place."""

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        """A condition that is neither AND nor OR."""
        if self._match(TokenType.NOT):
            return self.expression(exp.Not(this=self._parse_equality()))
        # EXISTS (query) takes no predicate; exists(array, test) is a value, and does.
        is_query = self._token_at(0) is TokenType.EXISTS and self._token_at(2) in _STARTS_OF_QUERIES
        return self._parse_unary() if is_query else self._parse_range()

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        """A value, and one predicate about it."""
        value = this or self._parse_bitwise()
        negate = self._match(TokenType.NOT)
        if not self._match_set(self.RANGE_PARSERS):
            if negate:
                # This NOT negates no predicate, so it belongs to what follows.
                self._retreat(self._index - 1)
            return value
        predicate = self.RANGE_PARSERS[self._prev.token_type](self, value)
        return self._negate_range(predicate) if negate else predicate or value

    def _parse_update_assignment(self) -> exp.Expr | None:
        """`column = condition`: the first `=` assigns, and a condition may follow, such as `NOT a` or `a = b`."""
        if self._match(TokenType.STAR):  # of a MERGE
            return exp.Star()
        column = self._parse_column()
        if not self._match(TokenType.EQ):
            self.raise_error("'=' is missing after the column")
        return self.expression(exp.EQ(this=column, expression=_argument(self)))

    def _parse_is_rhs(self, distinct: bool = False) -> exp.Expr | None:
        return self._parse_bitwise()

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._value(0)

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        return self._value(_TERMS)

    def _value(self, level: int) -> exp.Expr | None:
        """`left op right op ...` of one level, associated to the left."""
        if level == len(_LEVELS):
            return self._parse_factor()
        left = self._value(level + 1)
        while (build := self._operator(level)) is not None:
            left = self.expression(build(left, self._value(level + 1)))
        return left

    def _operator(self, level: int) -> _Build | None:
        for tokens, build in _LEVELS[level].items():
            if all(self._token_at(i) is token for i, token in enumerate(tokens)):
                self._advance(len(tokens))
                return build
        return None

    def _token_at(self, offset: int) -> TokenType | None:
        place = self._index + offset
        return self._tokens[place].token_type if place < len(self._tokens) else None


class AnsiSpark(Spark):
    """The dialect of Spark 4 in ANSI mode."""

    class Tokenizer(Spark.Tokenizer):
        """Reads a doubled quote inside quotes as one quote."""

        # Spark reads 'O''Brien' as one string. sqlglot's dialect of Spark reads two strings and concatenates them.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    Parser = AnsiParser


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. The tokenizer has already read the text of a raw string, so it is a string like all others."""
    tokens = AnsiSpark().tokenize(text)
    for token, after in zip(tokens, (*tokens[1:], None), strict=False):
        if token.token_type is TokenType.HEX_STRING and text[token.start] == "0":
            # To Spark, X'1F' is a literal and 0x1F is a name.
            token.token_type, token.text = TokenType.VAR, text[token.start : token.end + 1]
        if token.token_type is TokenType.RAW_STRING:
            token.token_type = TokenType.STRING
        # window(ts, '1 hour') and window.start are not the clause WINDOW w AS (...).
        is_name = after is not None and after.token_type in (TokenType.L_PAREN, TokenType.DOT)
        if token.token_type is TokenType.WINDOW and is_name:
            token.token_type = TokenType.VAR
    return tokens
