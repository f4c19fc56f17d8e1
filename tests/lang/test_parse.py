"""The grammar: every construct of the language parses to the nodes it should, with the position of its text."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from rederive.errors import SourceText, Span
from rederive.ir.rules import Function, Operator
from rederive.ir.terms import BOOLEAN, FLOAT, NUMBER, SYMBOL, UNSIGNED
from rederive.lang.datalog.parser import parse_program, parse_query
from rederive.lang.datalog.syntax import (
    And,
    Apply,
    Clause,
    Compare,
    Declaration,
    Formula,
    InputDirective,
    Node,
    Or,
    OutputDirective,
    ParsedAggregate,
    ParsedAtom,
    ParsedConstant,
    ParsedNegation,
    Truth,
    TypeDefinition,
    Value,
    Var,
    children,
)

SPAN = Span(SourceText("", ""), 1, 1, 1, 1)


def body(text: str) -> Formula:
    (clause,) = parse_program(SourceText("t", f"p(x) :- {text}."))
    assert isinstance(clause, Clause)
    assert clause.body is not None
    return clause.body


def value(text: str) -> Value:
    test = body(f"v = {text}")
    assert isinstance(test, Compare)
    return test.right


def var(name: str) -> Var:
    return Var(name, SPAN)


def number(n: int) -> ParsedConstant:
    return ParsedConstant(n, NUMBER, SPAN)


def call(functor: str, *arguments: Value) -> Apply:
    return Apply(functor, arguments, SPAN)


def atom(relation: str, *arguments: Value) -> ParsedAtom:
    return ParsedAtom(relation, arguments, SPAN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", ParsedConstant(42, NUMBER, SPAN)),
        ("007", ParsedConstant(7, NUMBER, SPAN)),
        ("-42", ParsedConstant(-42, NUMBER, SPAN)),
        ("0xfF", ParsedConstant(255, NUMBER, SPAN)),
        ("0b101", ParsedConstant(5, NUMBER, SPAN)),
        ("7u", ParsedConstant(7, UNSIGNED, SPAN)),
        ("0xFFu", ParsedConstant(255, UNSIGNED, SPAN)),
        ("1.50", ParsedConstant(Decimal("1.50"), FLOAT, SPAN)),
        ("-2.5e-3", ParsedConstant(Decimal("-0.0025"), FLOAT, SPAN)),
        ("true", ParsedConstant(True, BOOLEAN, SPAN)),
        ("false", ParsedConstant(False, BOOLEAN, SPAN)),
        (r'"a\n\"\\\t\u00e9"', ParsedConstant('a\n"\\\té', SYMBOL, SPAN)),
        ('"// no comment"', ParsedConstant("// no comment", SYMBOL, SPAN)),
        ("?x", var("?x")),
        ("counter", var("counter")),
        ("maximum", var("maximum")),
        ("truely", var("truely")),
    ],
)
def test_literals_and_names(text: str, expected: Value) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a - b + c", "(a - b) + c"),
        ("a * b % c / d", "((a * b) % c) / d"),
        ("a ^ b ^ c", "a ^ (b ^ c)"),
        ("a ** b", "a ^ b"),
        ("-a ^ b", "-(a ^ b)"),
        ("a ^ -b", "a ^ (-b)"),
        ("-a * b", "(-a) * b"),
        ("bnot a band b", "(bnot a) band b"),
        ("a lor b lxor c land d", "a lor (b lxor (c land d))"),
        ("a bor b bxor c band d bshl e + f", "a bor (b bxor (c band (d bshl (e + f))))"),
        ("a land b bshr c", "a land (b bshr c)"),
        ("lnot a lor b", "(lnot a) lor b"),
        ("min(a, b) + 1", "(min(a, b)) + 1"),
        ("count : { q(x) } + 1", "(count : { q(x) }) + 1"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert value(text) == value(same)


def test_functors() -> None:
    assert value("cat(a, b, c)") == call("cat", var("a"), var("b"), var("c"))
    assert value("max(a, 1)") == call("max", var("a"), number(1))


def test_aggregates() -> None:
    q = atom("q", var("y"))
    assert value("count : { q(y) }") == ParsedAggregate(Function.COUNT, None, q, SPAN)
    assert value("count : q(y)") == ParsedAggregate(Function.COUNT, None, q, SPAN)
    assert value("sum y * 2 : { q(y) }") == ParsedAggregate(Function.SUM, call("*", var("y"), number(2)), q, SPAN)
    assert value("mean y : q(y)") == ParsedAggregate(Function.MEAN, var("y"), q, SPAN)
    assert value("min y : { q(y) }") == ParsedAggregate(Function.MIN, var("y"), q, SPAN)
    assert value("max (y) : { q(y) }") == ParsedAggregate(Function.MAX, var("y"), q, SPAN)
    assert value("max y + 1 : { q(y) }") == ParsedAggregate(Function.MAX, call("+", var("y"), number(1)), q, SPAN)


@pytest.mark.parametrize(("sign", "operator"), [(o.value, o) for o in Operator if not o.value.strip("!").isalpha()])
def test_comparisons(sign: str, operator: Operator) -> None:
    assert body(f"x {sign} 1") == Compare(operator, var("x"), number(1), SPAN)


def test_conditions() -> None:
    p, q = atom("p", var("x")), atom("q", var("x"))
    assert body("p(x), q(x)") == And((p, q), SPAN)
    assert body("p(x) ; q(x)") == Or((p, q), SPAN)
    assert body("p(x) ; p(x), q(x)") == Or((p, And((p, q), SPAN)), SPAN)
    assert body("(p(x) ; q(x)), q(x)") == And((Or((p, q), SPAN), q), SPAN)
    assert body("!p(x)") == ParsedNegation(p, SPAN)
    assert body("!(p(x), q(x))") == ParsedNegation(And((p, q), SPAN), SPAN)
    assert body("(p(x))") == p
    assert body("(x) < (1)") == Compare(Operator.LT, var("x"), number(1), SPAN)
    assert body("(true)") == Truth(True, SPAN)
    assert body("x = true") == Compare(Operator.EQ, var("x"), ParsedConstant(True, BOOLEAN, SPAN), SPAN)
    assert body('match("a.*", x)') == Compare(Operator.MATCH, ParsedConstant("a.*", SYMBOL, SPAN), var("x"), SPAN)
    assert body('!contains("a", x)') == ParsedNegation(
        Compare(Operator.CONTAINS, ParsedConstant("a", SYMBOL, SPAN), var("x"), SPAN), SPAN
    )
    assert body("p(x), // one\n /* two\n , */ q(x) /**/") == And((p, q), SPAN)
    assert body("x = 6 / 2 // half\n") == Compare(Operator.EQ, var("x"), call("/", number(6), number(2)), SPAN)


def test_each_wildcard_is_a_variable_of_its_own() -> None:
    formula = body("e(_, _)")
    assert isinstance(formula, ParsedAtom)
    first, second = formula.arguments
    assert isinstance(first, Var)
    assert isinstance(second, Var)
    assert first.name.isdigit()
    assert first.name != second.name


def test_directives() -> None:
    statements = parse_program(
        SourceText(
            "t",
            """
            .type Node <: symbol
            .type Any = Node | symbol
            .symbol_type Old
            .number_type Older
            .decl a, b(x: Node, count: decimal(10, 2)) btree no_inline
            .decl k(x: number, y: number) brie key(x)
            k(1, 2).
            .input a, b(filename="f.csv", delimiter=",", headers=true, format="csv")
            .output a(IO=stdout)
            .decl key(x: number)
            key(1).
            .decl magic(x: number)
            magic(1).
            .decl nothing()
            """,
        )
    )
    kinds = [type(statement) for statement in statements]
    assert kinds == [
        *[TypeDefinition] * 4,
        *[Declaration] * 2,
        Clause,
        *[InputDirective] * 2,
        OutputDirective,
        *[Declaration, Clause] * 2,
        Declaration,
    ]
    declaration = statements[4]
    assert isinstance(declaration, Declaration)
    assert [name.text for name in declaration.names] == ["a", "b"]
    assert declaration.columns[1].name.text == "count"
    assert declaration.columns[1].type.parameters == (10, 2)
    keyed = statements[5]
    assert isinstance(keyed, Declaration)
    assert [name.text for name in keyed.key] == ["x"]
    directive = statements[8]
    assert isinstance(directive, InputDirective)
    assert [(option.name.text, option.value) for option in directive.options] == [
        ("filename", "f.csv"),
        ("delimiter", ","),
        ("headers", "true"),
        ("format", "csv"),
    ]


def test_clauses() -> None:
    fact, rule = parse_program(SourceText("t", "p(1).q(x), r(x) :- p(x)."))
    assert fact == Clause((atom("p", number(1)),), None, SPAN)
    assert rule == Clause((atom("q", var("x")), atom("r", var("x"))), atom("p", var("x")), SPAN)


def test_query() -> None:
    assert parse_query(SourceText("t", 'p("a", y)')) == parse_query(SourceText("t", ' p("a",y) . '))


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from nodes(child)


def test_every_span_covers_its_own_text() -> None:
    text = 'p(x, 12) :- q(x + 1, "a"), (r(x) ; !s(x, _)), x != min(3, y),\n  n = sum x * 2 : { q(x, y), !(x < 2 ^ y) }.'
    (clause,) = parse_program(SourceText("t", text))
    assert isinstance(clause, Clause)
    assert clause.body is not None
    for node in [n for root in (*clause.heads, clause.body) for n in nodes(root)]:
        span = node.span
        lines = text.split("\n")[span.line - 1 : span.end_line]
        covered = "\n".join(lines)[span.column - 1 :]
        match node:
            case Var() if not node.name.isdigit():
                assert span.text == node.name
            case Var():
                assert span.text == "_"
            case ParsedConstant():
                assert span.text.strip('"') == str(node.value)
            case Apply() | ParsedAtom():
                name = node.functor if isinstance(node, Apply) else node.relation
                assert name in covered
                assert span.text == text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1]
            case ParsedAggregate():
                assert span.text == "sum x * 2 : { q(x, y), !(x < 2 ^ y) }"
            case _:
                assert covered
