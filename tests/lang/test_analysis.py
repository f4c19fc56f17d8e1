"""Types and safety as facts about rules, whoever made them."""

from __future__ import annotations

import pytest

from rederive.analysis.safety import binders, check_safety
from rederive.analysis.types import term_type, variable_types
from rederive.errors import UnknownName, UnsafeVariable
from rederive.ir.rules import Atom, Comparison, Negation, Operator, Rule
from rederive.ir.terms import FLOAT, NUMBER, SYMBOL, Call, Constant, Variable
from rederive.lang import compile_program

X, Y, Z = Variable("x"), Variable("y"), Variable("z")
RELATIONS = compile_program(".decl p(x: symbol) .decl n(k: number) .decl f(x: float) .decl q(x: symbol, k: number)").relations


def test_types_flow_through_equations_in_any_order() -> None:
    body = (
        Comparison(Operator.EQ, Z, Call("+", (Y, Constant(1, NUMBER)))),
        Comparison(Operator.EQ, Y, Call("strlen", (X,))),
        Atom("p", (X,)),
    )
    assert variable_types(Rule(Atom("n", (Z,)), body), RELATIONS) == {"x": SYMBOL, "y": NUMBER, "z": NUMBER}


def test_literals_decide_only_what_nothing_else_does() -> None:
    number = Comparison(Operator.EQ, X, Constant(1, NUMBER))
    assert variable_types(Rule(Atom("n", (X,)), (number,)), RELATIONS) == {"x": NUMBER}
    assert variable_types(Rule(Atom("f", (X,)), (number,)), RELATIONS) == {"x": FLOAT}
    alone = Rule(Atom("p", (Y,)), (Atom("p", (Y,)), number))
    assert variable_types(alone, RELATIONS) == {"y": SYMBOL, "x": NUMBER}


def test_type_of_terms() -> None:
    assert term_type(Call("+", (Constant(1, NUMBER), X)), {"x": FLOAT}) == FLOAT
    assert term_type(Call("to_string", (X,)), {"x": FLOAT}) == SYMBOL
    assert term_type(Call("max", (Constant(1, NUMBER), Constant(2, NUMBER))), {}) == NUMBER


def test_unknown_relation() -> None:
    with pytest.raises(UnknownName, match="unknown relation 'missing'"):
        variable_types(Rule(Atom("p", (X,)), (Atom("missing", (X,)),)), RELATIONS)


def test_binders_stand_behind_what_they_need() -> None:
    chain = Comparison(Operator.EQ, Z, Call("+", (Y, Y)))
    equation = Comparison(Operator.EQ, X, Y)
    atom = Atom("n", (X,))
    assert binders((chain, equation, atom)) == {"x": atom, "y": equation, "z": chain}


def test_a_circle_of_equations_binds_nothing() -> None:
    circle = (Comparison(Operator.EQ, X, Y), Comparison(Operator.EQ, Y, X))
    assert binders(circle) == {}
    with pytest.raises(UnsafeVariable, match="'x'"):
        check_safety(Rule(Atom("n", (X,)), circle))


def test_negation_and_tests_bind_nothing() -> None:
    for literal in (Negation(Atom("n", (X,))), Comparison(Operator.LT, X, Constant(1, NUMBER))):
        with pytest.raises(UnsafeVariable, match="'x'"):
            check_safety(Rule(Atom("q", ()), (literal,)))
