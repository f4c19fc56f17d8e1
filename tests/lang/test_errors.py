"""What a refused program is told: the kind of error, its exact place, the offending text and what to do."""

from __future__ import annotations

import pytest

from rederive.errors import ProgramError, ProgramRefused
from rederive.lang import compile_program, compile_query

DECLARATIONS = """.decl e(x: symbol, y: symbol)
.decl n(x: symbol) .decl v(x: symbol, w: number) .decl t(k: number)
.decl s(d: date, a: decimal(10,2)) .decl f(x: float) .decl u(x: unsigned)
"""
LINE = DECLARATIONS.count("\n") + 1


def refused(text: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        compile_program(text, "t.dl")
    return caught.value


def place(error: ProgramError) -> tuple[str, int, int, str]:
    assert error.span is not None
    return error.code, error.span.line, error.span.column, error.span.text


@pytest.mark.parametrize(
    ("text", "column", "offending", "message"),
    [
        ("n(x) :- n(x)", 13, "", "unexpected end of the text, expected a comparison, an operator, ',', '.' or ';'"),
        ("n(x) :- n(x) n(x).", 14, "n", "unexpected 'n', expected a comparison, an operator, ',', '.' or ';'"),
        ("n(x) :- .", 9, ".", "unexpected '.', expected a condition"),
        ("n(x :- n(x).", 5, ":", "unexpected ':', expected ')' or ','"),
        ("n(x, ) :- n(x).", 6, ")", "unexpected ')', expected a value"),
        ("n(x) :- x = .", 13, ".", "unexpected '.', expected a value"),
        ("n(x) :- a < b < c.", 15, "<", "unexpected '<', expected ',', '.' or ';'"),
        (".decl (x)", 7, "(", "unexpected '(', expected a name"),
        (".decl q(x)", 10, ")", "unexpected ')', expected ':'"),
        (".decl q(x: )", 12, ")", "unexpected ')', expected a name"),
        ("n(x) :- x.", 9, "x", "expected a condition, not the value 'x'"),
        ("n(x) :- x + 1.", 9, "x + 1", "expected a condition, not the value 'x + 1'"),
        ("n(x) :- n((x < 1)).", 12, "x < 1", "expected a value, not the condition 'x < 1'"),
        ("n(x) :- min(x, 1).", 9, "min(x, 1)", "expected a condition, not the value 'min(x, 1)'"),
        ('n("abc', 3, '"', "the string does not end on its line"),
        (r'n("\q").', 3, r'"\q"', "the string has an unknown escape"),
        (r'n("\ud800").', 3, r'"\ud800"', "the string has an unknown escape"),
        ("n(x) :- n(x). /* no end", 15, "/", "the comment does not end"),
        ("n(x) & n(x).", 6, "&", "unexpected '&', expected ',', '.' or ':-'"),
        ("n(x) :- band = x.", 9, "band", "'band' is a reserved word"),
        (".decl count(x: number)", 7, "count", "'count' is a reserved word and cannot name a relation"),
        ("match(x, y) :- e(x, y).", 1, "match(x, y)", "'match' is a reserved word and cannot name a relation"),
    ],
)
def test_syntax(text: str, column: int, offending: str, message: str) -> None:
    error = refused(DECLARATIONS + text)
    assert place(error) == ("syntax", LINE, column, offending)
    assert error.message == message


@pytest.mark.parametrize(
    ("text", "column", "construct"),
    [
        ("n(x) :- e(x, y), y = [x, x].", 22, "records"),
        ("n(x) :- e(x, nil).", 14, "records"),
        (".type R = [a: number]", 11, "records"),
        ("n(x) :- n($A(x)).", 11, "algebraic data types"),
        (".type A = B {x: number} | C {}", 11, "algebraic data types"),
        (".comp C { }", 1, "components (.comp)"),
        (".init c = C", 1, "components (.init)"),
        (".override n", 1, "components (.override)"),
        (".decl q(x: number) choice-domain x", 20, "choice-domain"),
        ("t(a) <= t(b) :- a < b.", 1, "subsumption"),
        ("t(@f(1)).", 3, "user-defined functors"),
        (".functor f(x: number): number", 1, "user-defined functors (.functor)"),
        ('.pragma "x"', 1, ".pragma"),
        ("n(x) :- n(x). .plan 0: (1)", 15, ".plan"),
        (".limitsize n(n=3)", 1, ".limitsize"),
        (".printsize n", 1, ".printsize"),
        (".lattice L {}", 1, ".lattice"),
        (".decl q(x: number, y: number) eqrel", 31, "eqrel"),
        ('#include "a.dl"', 1, "#include"),
        ("#define A 1", 1, "#define"),
        ('.include "a.dl"', 1, ".include"),
        ("n(x) :- c.n(x).", 9, "qualified names"),
        ("c.n(x) :- n(x).", 1, "qualified names"),
        (".output c.n", 9, "qualified names"),
        ("t(k) :- k = autoinc().", 13, "autoinc()"),
        ("t(k) :- k = range(1, 3).", 13, "range"),
        (".input n(IO=sqlite)", 10, "IO=sqlite"),
        (".decl q(x: number) key(x) q(x) :- t(x).", 24, "a key on 'q', which has rules"),
    ],
)
def test_unsupported(text: str, column: int, construct: str) -> None:
    error = refused(DECLARATIONS + text)
    assert place(error)[:3] == ("unsupported", LINE, column)
    assert error.message == f"not supported: {construct}"


@pytest.mark.parametrize(
    ("text", "code", "column", "offending", "message", "hint"),
    [
        ("n(x) :- nn(x).", "unknown_name", 9, "nn(x)", "unknown relation 'nn'", None),
        ("n(x) :- x = strln(x).", "unknown_name", 13, "strln(x)", "unknown functor 'strln'", "did you mean 'strlen'?"),
        (".decl q(x: numbr)", "unknown_name", 12, "numbr", "unknown type 'numbr'", "did you mean 'number'?"),
        (".decl q(aa: number) key(ab)", "unknown_name", 25, "ab", "unknown column 'ab'", None),
        (".output en", "unknown_name", 9, "en", "unknown relation 'en'", None),
        ('.input e(filenam="x")', "unknown_name", 10, "filenam", "unknown option 'filenam'", "did you mean 'filename'?"),
        ('.input e(format="xml")', "unknown_name", 10, 'format="xml"', "unknown format 'xml'", None),
        (".decl e(x: number)", "redefined", 7, "e", "'e' is declared already", "the first declaration is at t.dl:1:7"),
        (".decl q(x: number, x: number)", "redefined", 20, "x", "column 'x' is declared already", None),
        (".type A <: B .type B <: A", "redefined", None, None, None, None),
        (".type symbol <: number", "redefined", 7, "symbol", "type 'symbol' is defined already", None),
        ("n(x, y) :- e(x, y).", "wrong_arity", 1, "n(x, y)", "'n' has 1 column, but 2 arguments here", "its columns are x"),
        ("n(x) :- n(x), !e(x).", "wrong_arity", 16, "e(x)", "'e' has 2 columns, but 1 argument here", None),
        ("t(k) :- n(x), k = strlen(x, x).", "wrong_arity", 19, "strlen(x, x)", "'strlen' takes 1 arguments, not 2", None),
        ("e(1).", "wrong_arity", 1, "e(1)", "'e' has 2 columns, but 1 argument here", None),
        ("n(1).", "type_clash", 3, "1", "'1' is number, but symbol is needed here", None),
        ('t("a").', "type_clash", 3, '"a"', "'\"a\"' is symbol, but number is needed here", None),
        ("t(1.5).", "type_clash", 3, "1.5", "'1.5' is float, but number is needed here", None),
        ("t(1u).", "type_clash", 3, "1u", "'1u' is unsigned, but number is needed here", None),
        ("n(x) :- v(_, x).", "type_clash", 3, "x", "'x' is number, but symbol is needed here", None),
        ("n(x) :- v(x, w), e(w, x).", "type_clash", 20, "w", "'w' is number, but symbol is needed here", None),
        ("t(k) :- v(x, w), k = w + x.", "type_clash", 26, "x", "'x' is symbol, but number is needed here", None),
        ("t(k) :- v(_, k), k < f.", "unsafe", 22, "f", "nothing binds the variable 'f'", None),
        ("t(k) :- t(k), f(y), k < y.", "type_clash", 25, "y", "'y' is float, but number is needed here", None),
        ("f(x) :- f(x), x = y, u(y).", "type_clash", 19, "y", "'y' is unsigned, but float is needed here", None),
        ("t(k) :- t(k), match(k, k).", "type_clash", 21, "k", "'k' is number, but symbol is needed here", None),
        ("n(x) :- n(y), x = y + y.", "type_clash", 19, "y + y", "'+' does not take symbol", None),
        ("f(x) :- f(y), x = y % y.", "type_clash", 19, "y % y", "'%' does not take float", None),
        ("t(k) :- k = sum y : { e(_, y) }.", "type_clash", 17, "y", "sum needs a number, not a symbol", None),
        ("t(9223372036854775808).", "type_clash", 3, "9223372036854775808", None, None),
        ("u(x) :- u(x), x > -1.", "type_clash", 19, "-1", None, None),
        ('s("2024-13-01", 1).', "type_clash", 3, '"2024-13-01"', '"2024-13-01" is not a date such as 2024-02-29', None),
        ('s("2024-01-01", 1.005).', "type_clash", 17, "1.005", "1.005 does not fit decimal(10,2) exactly", None),
        (".decl q(x: decimal(39,2))", "type_clash", 12, "decimal(39,2)", "'decimal(39,2)' is not a decimal type", None),
        (".decl q(x: decimal)", "type_clash", 12, "decimal", "'decimal' is not a decimal type", None),
        (".decl q(x: number(1,2))", "type_clash", 12, "number(1,2)", "type 'number' has no precision", None),
        (".type A = number | symbol", "type_clash", 20, "symbol", None, None),
        ("n(y) :- n(x).", "unsafe", 3, "y", "nothing binds the variable 'y'", None),
        ("n(x) :- n(x), !e(x, y).", "unsafe", 21, "y", "nothing binds the variable 'y'", None),
        ("n(x) :- n(x), x < y.", "unsafe", 19, "y", "nothing binds the variable 'y'", None),
        ("t(k) :- k = j + 1, j = k - 1.", "unsafe", 3, "k", "nothing binds the variable 'k'", None),
        ("t(k) :- t(j), k + 1 = j.", "unsafe", 3, "k", "nothing binds the variable 'k'", None),
        ("n(_) :- n(x).", "unsafe", 3, "_", "'_' has no value here", None),
        ("n(x).", "unsafe", 3, "x", "the fact has a variable, 'x'", None),
        ("v(x, k) :- k = count : { e(x, _) }.", "unsafe", 28, "x", None, None),
        ("t(k) :- k = count : { t(k) }.", "unsafe", 25, "k", None, None),
        ("t(k) :- k = count : { n(x), x < y }.", "unsafe", 33, "y", "nothing binds the variable 'y'", None),
        ("t(k) :- k = count : { e(x, _) ; n(x) }.", "unsafe", 28, "_", None, None),
    ],
)
def test_errors(text: str, code: str, column: int | None, offending: str | None, message: str | None, hint: str | None) -> None:
    error = refused(DECLARATIONS + text)
    found, line, at, shown = place(error)
    assert (found, line) == (code, LINE)
    assert column is None or (at, shown) == (column, offending)
    assert message is None or error.message == message
    assert hint is None or error.hint == hint


def test_a_type_clash_says_where_the_other_type_comes_from() -> None:
    error = refused(".decl v(w: number)\n.decl n(x: symbol)\nn(x) :-\n  v(x).")
    assert str(error) == (
        "t.dl:3:3: error[type_clash]: 'x' is number, but symbol is needed here\n"
        "    3 | n(x) :-\n"
        "      |   ^\n"
        "  help: 'x' is number at 4:5"
    )


def test_all_errors_come_together_in_the_order_of_the_text() -> None:
    error = refused(DECLARATIONS + 'n(y) :- n(x).\n.decl q(x: what)\nn(x) :- q(x).\nq(1).\n.output q\nt("a").\n.output missing')
    assert isinstance(error, ProgramRefused)
    assert [place(e)[:3] for e in error.errors] == [
        ("unsafe", LINE, 3),
        ("unknown_name", LINE + 1, 12),
        ("type_clash", LINE + 5, 3),
        ("unknown_name", LINE + 6, 9),
    ]
    assert error.code == "unsafe"


def test_positions_count_lines_and_columns_from_one() -> None:
    error = refused("// é 💥\n/* one\n   two */ .decl n(x: symbol)\r\n\tn(y) :- n(x).")
    assert place(error) == ("unsafe", 4, 4, "y")


@pytest.mark.parametrize(
    "text",
    [
        "n(x) :- " + "(" * 5000 + "n(x)" + ")" * 5000 + ".",
        "n(x) :- " + "!" * 5000 + "n(x).",
        "t(" + "+".join("1" * 5000) + ").",
        "t(k) :- k = " + "-(" * 3000 + "1" + ")" * 3000 + ".",
        "n(x) :- n(x), " + ", ".join(["(n(x) ; e(x, x))"] * 40) + ".",
        "n(x) :- n(x), !(" + ", ".join(["(n(x) ; e(x, x))"] * 2000) + ").",
    ],
)
def test_what_is_too_big_is_refused(text: str) -> None:
    assert refused(DECLARATIONS + text).code == "unsupported"


def test_a_number_of_many_digits() -> None:
    assert refused(DECLARATIONS + "t(" + "9" * 10000 + ").").code == "type_clash"


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("closure(x)", "unknown_name", 1),
        ("e(x)", "wrong_arity", 1),
        ("t(x", "syntax", 4),
        ("t(x) :- t(x).", "syntax", 6),
        ('t("a")', "type_clash", 3),
        ("t(x + 1)", "unsupported", 3),
        ("", "syntax", 1),
    ],
)
def test_queries(text: str, code: str, column: int) -> None:
    with pytest.raises(ProgramError) as caught:
        compile_query(text, compile_program(DECLARATIONS))
    assert place(caught.value)[:3] == (code, 1, column)
