"""Lowering: what each construct becomes, as printed rules."""

from __future__ import annotations

import datetime
from decimal import Decimal
from inspect import cleandoc

import pytest

from rederive.errors import Redefined
from rederive.ir.printing import show_atom, show_definition, show_relation
from rederive.ir.rules import Aggregate, Atom, Fact, Function, Input, Negation, Program, Rule, literal_variables
from rederive.ir.terms import Constant, Type, Variable
from rederive.lang import compile_program, compile_query

DECLARATIONS = """
.decl e(x: symbol, y: symbol)
.decl n(x: symbol)
.decl v(x: symbol, w: number)
.decl r(x: symbol, k: number)
.decl t(k: number)
.decl s(d: date, a: decimal(10,2))
.decl f(x: float)
.decl u(x: unsigned)
.decl b(x: boolean)
.decl z()
"""


def rules(text: str) -> list[str]:
    program = compile_program(DECLARATIONS + text)
    return [show_definition(definition, program) for definition in program.definitions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n(x) :- e(x, _).", "n(x) :- e(x, _)."),
        ("n(x), e(x, x) :- v(x, _).", "n(x) :- v(x, _).\ne(x, x) :- v(x, _)."),
        ("n(x) :- e(x, _) ; v(x, 3).", "n(x) :- e(x, _).\nn(x) :- v(x, 3)."),
        ("n(x) :- n(x), (e(x, _) ; e(_, x)).", "n(x) :- n(x), e(x, _).\nn(x) :- n(x), e(_, x)."),
        ("n(x) :- n(x) ; n(x).", "n(x) :- n(x)."),
        ("n(x) :- n(x), true.", "n(x) :- n(x)."),
        ('n("a") :- false.', 'n("a") :- 0 != 0.'),
        ("n(x) :- n(x), (false ; v(x, _)).", "n(x) :- n(x), v(x, _)."),
        ("z() :- n(_).", "z() :- n(_)."),
        # expressions leave atoms and heads
        ("r(x, w + 1) :- v(x, w).", "r(x, _1) :- v(x, w), _1 = w + 1."),
        ("n(x) :- v(x, w), t(w * 2).", "n(x) :- v(x, w), _1 = w * 2, t(_1)."),
        ("n(x) :- v(x, _1), t(_1 * 2).", "n(x) :- v(x, _1), _2 = _1 * 2, t(_2)."),
        ('n(cat("a", "b")).', 'n(_1) :- _1 = cat("a", "b").'),
        # trivial equations
        ("n(y) :- n(x), y = x.", "n(x) :- n(x)."),
        ('n(x) :- e(x, y), y = "a".', 'n(x) :- e(x, "a").'),
        ('n(x) :- x = "a".', 'n("a").'),
        ("t(k) :- t(k), k = 1, k = 2.", "t(1) :- t(1), 1 = 2."),
        ("t(k) :- v(_, j), k = j, k = j.", "t(j) :- v(_, j)."),
        # negation
        ("n(x) :- n(x), !e(x, x).", "n(x) :- n(x), !e(x, x)."),
        ("n(x) :- n(x), !e(x, _).", "e.project_0(x) :- e(x, _).\nn(x) :- n(x), !e.project_0(x)."),
        ("n(x) :- n(x), !e(_, _).", "e.project() :- e(_, _).\nn(x) :- n(x), !e.project()."),
        (
            'n(x) :- n(x), !e(x, _), !e(_, x). t(1) :- !e("a", _).',
            "e.project_0(x) :- e(x, _).\ne.project_1(y) :- e(_, y).\n"
            'n(x) :- n(x), !e.project_0(x), !e.project_1(x).\nt(1) :- !e.project_0("a").',
        ),
        ("n(x) :- v(x, w), !t(w + 1).", "n(x) :- v(x, w), _1 = w + 1, !t(_1)."),
        ("n(x) :- n(x), !(e(x, x), !n(x)).", "n(x) :- n(x), !e(x, x).\nn(x) :- n(x)."),
        ("n(x) :- n(x), !(e(x, x) ; v(x, 1)).", "n(x) :- n(x), !e(x, x), !v(x, 1)."),
        ("n(x) :- v(x, w), !(w < 3).", "n(x) :- v(x, w), w >= 3."),
        ('n(x) :- n(x), !match("a.*", x), contains("b", x).', 'n(x) :- n(x), !match("a.*", x), contains("b", x).'),
        ('n(x) :- n(x), !!contains("b", x).', 'n(x) :- n(x), contains("b", x).'),
        # literals take their place's type
        ('s(d, 1) :- s(d, a), d >= "2024-01-01", a > 1.50.', 's(d, "1.00") :- s(d, a), d >= "2024-01-01", a > "1.50".'),
        ("f(x) :- f(y), x = y * 2 + 1, x < max(y, 100).", "f(x) :- f(y), x = (y * 2.0) + 1.0, x < max(y, 100.0)."),
        ("f(x) :- x = 1 + 2.5.", "f(x) :- x = 1.0 + 2.5."),
        ("u(x) :- u(y), x = y + 1.", "u(x) :- u(y), x = y + 1."),
        ("b(x) :- b(x), x != false.", "b(x) :- b(x), x != false."),
        ("n(to_string(k)) :- t(k).", "n(_1) :- t(k), _1 = to_string(k)."),
        ("t(to_number(x)) :- n(x).", "t(_1) :- n(x), _1 = to_number(x)."),
    ],
)
def test_rules(text: str, expected: str) -> None:
    assert rules(text) == expected.split("\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "r(x, k) :- n(x), k = count : { e(x, _) }.",
            """
            r.count1(x, result) :- result = count : { e(x, y) }.
            r.count1.project_0(x) :- r.count1(x, _).
            r(x, k) :- n(x), r.count1(x, k).
            r(x, 0) :- n(x), !r.count1.project_0(x).
            """,
        ),
        (  # the outer atom is a row of every group: none is empty
            "r(x, k) :- v(x, _), k = sum w : { v(x, w) }.",
            """
            r.sum1(x, result) :- result = sum w : { v(x, w) }.
            r(x, k) :- v(x, _), r.sum1(x, k).
            """,
        ),
        (
            "t(k) :- k = count : { e(_, _) }.",
            """
            t.count1(result) :- result = count : { e(x, y) }.
            t.count1.project() :- t.count1(_).
            t(k) :- t.count1(k).
            t(0) :- !t.count1.project().
            """,
        ),
        (  # min, max and mean of nothing are nothing
            "r(x, k) :- n(x), k = max w : { v(x, w) }. f(m) :- m = mean w : { v(_, w) }.",
            """
            r.max1(x, result) :- result = max w : { v(x, w) }.
            r(x, k) :- n(x), r.max1(x, k).
            f.mean1(result) :- result = mean w : { v(x, w) }.
            f(m) :- f.mean1(m).
            """,
        ),
        (  # a value that is computed has a column of its own
            "r(x, k) :- n(x), k = min w * 2 : { v(x, w), w > 1 }.",
            """
            r.body1(x, w, _1) :- v(x, w), w > 1, _1 = w * 2.
            r.min1(x, result) :- result = min value : { r.body1(x, w, value) }.
            r(x, k) :- n(x), r.min1(x, k).
            """,
        ),
        (  # constants and repeated variables need a body view; every `_` counts
            't(k) :- k = count : { e("a", _) }, k > 0.',
            """
            t.body1(_1) :- e("a", _1).
            t.count1(result) :- result = count : { t.body1(_0) }.
            t.count1.project() :- t.count1(_).
            t(k) :- k > 0, t.count1(k).
            """,
        ),
        (  # inside an expression, and two of them
            "t(k) :- k = sum j : { v(_, j) } + count : { n(_) }.",
            """
            t.sum1(result) :- result = sum w : { v(x, w) }.
            t.sum1.project() :- t.sum1(_).
            t.count2(result) :- result = count : { n(x) }.
            t.count2.project() :- t.count2(_).
            t(k) :- k = _1 + _2, t.sum1(_1), t.count2(_2).
            t(k) :- k = _1 + 0, t.sum1(_1), !t.count2.project().
            t(k) :- k = 0 + _2, !t.sum1.project(), t.count2(_2).
            t(k) :- k = 0 + 0, !t.sum1.project(), !t.count2.project().
            """,
        ),
        (
            "n(x) :- v(x, w), w + count : e(x, _) > 3.",
            """
            n.count1(x, result) :- result = count : { e(x, y) }.
            n.count1.project_0(x) :- n.count1(x, _).
            n(x) :- v(x, w), w + _1 > 3, n.count1(x, _1).
            n(x) :- v(x, w), w + 0 > 3, !n.count1.project_0(x).
            """,
        ),
        (  # what the body does not bind itself, the outer atom binds
            "t(k) :- v(_, m), k = count : { v(_, w), w < m }, k > 0.",
            """
            t.body1(_1, w, m) :- v(_1, w), w < m, v(_, m).
            t.count1(m, result) :- result = count : { t.body1(_0, w, m) }.
            t.count1.project_0(m) :- t.count1(m, _).
            t(k) :- v(_, m), k > 0, t.count1(m, k).
            """,
        ),
        (  # through an equation too
            "t(k) :- v(_, j), m = j + 1, k = max w : { v(_, w), w < m }.",
            """
            t.body1(_1, w, m) :- v(_1, w), w < m, m = j + 1, v(_, j).
            t.max1(m, result) :- result = max w : { t.body1(_0, w, m) }.
            t(k) :- v(_, j), m = j + 1, t.max1(m, k).
            """,
        ),
        (  # nested: the inner one sees the names of both levels
            "r(x, k) :- n(x), k = max y : { v(x, y), y < min z : { v(x, z), !t(z) } }.",
            """
            r.body1(x, z) :- v(x, z), !t(z).
            r.min1(x, result) :- result = min z : { r.body1(x, z) }.
            r.body2(x, y) :- v(x, y), y < _1, r.min1(x, _1).
            r.max2(x, result) :- result = max y : { r.body2(x, y) }.
            r(x, k) :- n(x), r.max2(x, k).
            """,
        ),
        (  # one aggregate's result in another's body
            "t(k) :- m = max w : { v(_, w) }, k = max w : { v(_, w), w < m }.",
            """
            t.max1(result) :- result = max w : { v(x, w) }.
            t.body2(_1, w, m) :- v(_1, w), w < m, t.max1(m).
            t.max2(m, result) :- result = max w : { t.body2(_0, w, m) }.
            t(k) :- t.max1(m), t.max2(m, k).
            """,
        ),
        (  # alternatives that bind the same variables
            "t(k) :- k = max w : { v(x, w) ; r(x, w) }.",
            """
            t.body1(x, w) :- v(x, w).
            t.body1(x, w) :- r(x, w).
            t.max1(result) :- result = max w : { t.body1(x, w) }.
            t(k) :- t.max1(k).
            """,
        ),
        (  # local variables of the same name in two aggregates have nothing to do with each other
            "t(k) :- k = max w : { v(_, w) }, k = min w : { r(_, w) }.",
            """
            t.max1(result) :- result = max w : { v(x, w) }.
            t.min2(result) :- result = min k : { r(x, k) }.
            t(k) :- t.max1(k), t.min2(k).
            """,
        ),
        (  # in a head
            "r(x, count : { e(x, _) }) :- e(x, _).",
            """
            r.count1(x, result) :- result = count : { e(x, y) }.
            r(x, _1) :- e(x, _), r.count1(x, _1).
            """,
        ),
    ],
)
def test_aggregates(text: str, expected: str) -> None:
    assert rules(text) == cleandoc(expected).split("\n")


def test_the_rule_s_own_relation_is_the_last_to_support_an_aggregate() -> None:
    text = "r(x, k) :- r(x, _), v(x, m), k = max w : { v(_, w), w < m, !e(x, x) }."
    assert rules(text)[0] == "r.body1(_1, w, m, x) :- v(_1, w), w < m, !e(x, x), v(x, m)."


def test_types_of_results() -> None:
    program = compile_program(
        DECLARATIONS
        + """
        .decl money(a: decimal(10,2))
        money(a) :- a = sum m : { s(_, m) }.
        f(x) :- x = mean m : { s(_, m) }.
        .decl w(x: unsigned)
        w(x) :- x = sum y : { u(y) }.
        """
    )
    assert show_relation(program.relations["money.sum1"]) == ".decl money.sum1(result: decimal(10,2))"
    assert show_relation(program.relations["f.mean1"]) == ".decl f.mean1(result: float)"
    assert show_relation(program.relations["w.sum1"]) == ".decl w.sum1(result: unsigned)"
    _, zero = program.definitions_of("money")
    assert isinstance(zero, Rule)
    assert zero.head.terms == (Constant(Decimal("0.00"), program.relations["money"].types[0]),)


def test_facts_are_typed() -> None:
    dates = 's("2024-02-29", "1.5"). s("2024-03-01", 2).'
    program = compile_program(DECLARATIONS + dates + 't(1 + 2 * 3). v("a", -1). f(1). f(0.1). u(5). b(true). z().')
    assert program.facts == (
        Fact("s", (datetime.date(2024, 2, 29), Decimal("1.50"))),
        Fact("s", (datetime.date(2024, 3, 1), Decimal("2.00"))),
        Fact("t", (7,)),
        Fact("v", ("a", -1)),
        Fact("f", (1.0,)),
        Fact("f", (0.1,)),
        Fact("u", (5,)),
        Fact("b", (True,)),
        Fact("z", ()),
    )
    assert program.views == ()
    assert isinstance(program.facts[4].row[0], float)


def test_a_long_decimal_literal_keeps_all_its_digits() -> None:
    program = compile_program(".decl d(x: decimal(30,10)) d(12345678901234567.8901234567).")
    assert program.facts == (Fact("d", (Decimal("12345678901234567.8901234567"),)),)


def test_facts_and_input_of_a_view() -> None:
    program = compile_program(".decl t(k: number) t(1). t(k) :- t(j), k = j + 1, k < 10. .input t .output t .output t")
    assert [show_definition(d, program) for d in program.definitions] == [
        "t(1).",
        "t(k) :- t(j), k = j + 1, k < 10.",
        "t(k) :- t.input(k).",
    ]
    assert program.inputs == (Input("t.input", (("filename", "t.facts"),)),)
    assert program.outputs == ("t",)
    assert program.bases == ("t.input",)
    assert program.facts == ()


def test_input_options() -> None:
    program = compile_program('.decl t(k: number) .input t(IO=file, filename="x.csv", headers=true, format="csv")')
    assert program.inputs == (Input("t", (("filename", "x.csv"), ("headers", "true"), ("format", "csv"))),)


def test_types_and_keys() -> None:
    program = compile_program(
        """
        .type Any = Node | Name
        .type Node <: symbol
        .symbol_type Name
        .number_type Count
        .decl p(x: Any, n: Count, d: decimal(38, 0)) key(n, x)
        """
    )
    assert show_relation(program.relations["p"]) == ".decl p(x: symbol, n: number, d: decimal(38,0)) key(x, n)"


def test_a_program_extends_another() -> None:
    first = compile_program(DECLARATIONS + "n(x) :- e(x, _), !e(_, x). t(1).")
    second = compile_program(".decl p(x: symbol) p(x) :- n(x), !e(_, x), !e(x, _). t(2). .output p", "second", first)
    assert second.definitions[: len(first.definitions)] == first.definitions
    assert second.facts[len(first.facts) :] == (Fact("t", (2,)),)
    assert [show_definition(d, second) for d in second.definitions[len(first.definitions) :]] == [
        "e.project_0(x) :- e(x, _).",
        "p(x) :- n(x), !e.project_1(x), !e.project_0(x).",
    ]
    assert second.outputs == ("p",)


@pytest.mark.parametrize("text", [".decl e(x: symbol)", "e(x, x) :- n(x).", 'n("a").', "n(x) :- v(x, _).", ".input n"])
def test_an_earlier_relation_keeps_its_definition(text: str) -> None:
    known = compile_program(DECLARATIONS + "n(x) :- e(x, _).")
    with pytest.raises(Redefined):
        compile_program(text, known=known)


def test_everything_made_from_text_has_its_position() -> None:
    rule = "r(x, k) :- n(x), !e(x, _), k = sum w + 1 : { v(x, w), w < 3 }."
    program = compile_program(DECLARATIONS + rule + ".decl q(x: number) q(x) :- t(x). .input q")
    assert all(relation.span is not None for relation in program.relations.values())
    for definition in program.definitions:
        assert definition.span is not None
        if isinstance(definition, Rule):
            for literal in (definition.head, *definition.body):
                assert (literal.atom.span if isinstance(literal, Negation) else literal.span) is not None
                assert all(variable.span is not None for variable in literal_variables(literal))
    aggregate = next(d for d in program.definitions if isinstance(d, Aggregate))
    assert aggregate.function is Function.SUM
    assert aggregate.span is not None
    assert aggregate.span.text == "sum w + 1 : { v(x, w), w < 3 }"


def test_declared_but_empty() -> None:
    assert compile_program("") == Program({}, ())
    assert compile_program("  // nothing\n/* at all */") == Program({}, ())


def test_queries() -> None:
    program = compile_program(DECLARATIONS)
    assert show_atom(compile_query('e("a", y)', program)) == 'e("a", y)'
    assert show_atom(compile_query("e(x, x).", program)) == "e(x, x)"
    assert show_atom(compile_query('s("2024-01-01", _)', program)) == 's("2024-01-01", _)'
    atom = compile_query("s(_, 1 + 1)", program)
    assert isinstance(atom, Atom)
    assert isinstance(atom.terms[0], Variable)
    assert atom.terms[0].is_anonymous
    assert atom.terms[1] == Constant(Decimal("2.00"), Type(program.relations["s"].types[1].kind, 10, 2))
