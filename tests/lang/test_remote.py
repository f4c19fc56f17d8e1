"""`.remote` and `.stored`."""

from __future__ import annotations

import pytest

from rederive.errors import ProgramError
from rederive.lang import compile_program

BASE = ".decl r(x: number) .decl v(x: number) v(x) :- r(x). "


def test_a_remote_relation_has_a_source_and_a_size() -> None:
    program = compile_program(BASE + '.remote r(source=jdbc, url="jdbc:x", table="t", rows=7) .stored v')
    (remote,) = program.remotes
    assert (remote.relation, remote.source, dict(remote.options)["rows"]) == ("r", "jdbc", "7")
    assert program.stored == ("v",)
    assert compile_program(BASE + ".remote r").remotes[0].source == "none"


def test_both_are_kept_when_a_program_is_extended() -> None:
    program = compile_program(".decl w(x: number) w(x) :- v(x).", known=compile_program(BASE + ".remote r .stored v"))
    assert ([remote.relation for remote in program.remotes], program.stored) == (["r"], ("v",))


@pytest.mark.parametrize(
    ("directive", "code", "message"),
    [
        (".remote v", "unsupported", "the view 'v' as a remote relation"),
        (".stored r", "unsupported", "the base relation 'r' as a stored view"),
        (".remote u", "unknown_name", "unknown relation 'u'"),
        (".remote r .remote r", "redefined", "'r' is declared remote already"),
        (".remote r(source=ftp)", "unknown_name", "unknown source 'ftp'"),
        ('.remote r(source=jdbc, url="x")', "syntax", "a jdbc source needs 'table'"),
        ('.remote r(path="x")', "unknown_name", "unknown option 'path'"),
        (".remote r(rows=many)", "type_clash", "'many' is not a number of rows"),
        (".stored v(rows=1)", "unknown_name", "unknown option 'rows'"),
    ],
)
def test_refused(directive: str, code: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        compile_program(BASE + directive)
    assert caught.value.code == code
    assert message in str(caught.value)
    assert caught.value.span is not None
