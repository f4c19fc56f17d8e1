"""Whatever the text, it compiles or is refused by an error of ours that points into it."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rederive.errors import ProgramError, ProgramRefused
from rederive.lang import compile_program, compile_query

DECLARATIONS = ".decl e(x: symbol, y: symbol) .decl t(k: number) .decl d(x: date, y: decimal(4,1)) .decl f(x: float) .decl z()\n"
PROGRAM = compile_program(DECLARATIONS)
WORDS = r"""
.decl .type .input .output .comp symbol number unsigned decimal(4,1) key btree #define e t d f z q x y k _ ?v nil
true false 1 -1 0x1F 2u 1.5 99999999999999999999 "a" "2024-01-01" "\q" " count sum min max mean cat strlen to_number
match contains band bnot ( ) { } [ ] , . ; : :- ! = != < <= <: | + - * / % ^ ** $ @ // /* */ é
"""
TOKENS = st.lists(st.sampled_from([*WORDS.split(), "\n", "\t", "\0"]), max_size=40).map(" ".join)


def check(text: str) -> None:
    try:
        compile_program(text)
    except ProgramError as error:
        for each in error.errors if isinstance(error, ProgramRefused) else (error,):
            points_into(each, text)


def points_into(error: ProgramError, text: str) -> None:
    assert str(error)
    assert error.message
    assert error.span is not None
    lines = text.split("\n")
    assert 1 <= error.span.line <= error.span.end_line <= len(lines)
    assert 1 <= error.span.column <= len(lines[error.span.line - 1]) + 1


@given(st.text(max_size=60))
@example("p(x) :- q(\x0c\u2028y")
def test_random_text(text: str) -> None:
    check(text)


@given(TOKENS)
@settings(max_examples=300)
@example("t ( x ) :- t ( x ) , x = max ( 1 )")
def test_random_words(text: str) -> None:
    check(DECLARATIONS + text)


NAMES = st.sampled_from(["x", "y", "k", "_"])
LITERALS = st.sampled_from(["1", "-2", "3u", "1.5", '"a"', '"2024-01-01"', "true"])
VALUES = st.recursive(
    NAMES | LITERALS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%^"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda v: f"strlen({v})"),
        inner.map(lambda v: f"-{v}"),
        st.tuples(inner, inner).map(lambda p: f"min({p[0]}, {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"sum {p[0]} : {{ e({p[1]}, y), t(k) }}"),
        inner.map(lambda v: f"count : t({v})"),
    ),
    max_leaves=4,
)
ATOMS = st.one_of(
    st.tuples(VALUES, VALUES).map(lambda p: f"e({p[0]}, {p[1]})"),
    VALUES.map(lambda v: f"t({v})"),
    st.tuples(VALUES, VALUES).map(lambda p: f"d({p[0]}, {p[1]})"),
    VALUES.map(lambda v: f"f({v})"),
    st.just("z()"),
)
CONDITIONS = st.recursive(
    st.one_of(ATOMS, ATOMS, st.tuples(VALUES, st.sampled_from(["=", "!=", "<", ">="]), VALUES).map(" ".join)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda c: f"({', '.join(c)})"),
        st.lists(inner, min_size=2, max_size=2).map(lambda c: f"({' ; '.join(c)})"),
        inner.map(lambda c: f"!{c}" if c.startswith("(") or c[1:2] == "(" else c),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(ATOMS, CONDITIONS), min_size=1, max_size=3))
@settings(max_examples=300)
def test_random_rules(clauses: list[tuple[str, str]]) -> None:
    check(DECLARATIONS + "\n".join(f"{head} :- {body}." for head, body in clauses))


@given(st.text(max_size=30) | TOKENS | ATOMS)
def test_random_queries(text: str) -> None:
    try:
        compile_query(text, PROGRAM)
    except ProgramError as error:
        points_into(error, text)
