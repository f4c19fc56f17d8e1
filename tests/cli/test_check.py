"""`rederive check`: relations, strata and monitored views."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Write


def test_relations_strata_and_monitored_views(cli: Cli, closure: str) -> None:
    ran = cli("check", closure)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "relations\n"
        "  base  .decl edge(x: symbol, y: symbol)\n"
        "  view  .decl closure(x: symbol, y: symbol)\n"
        "strata\n"
        "  S0 = {edge}\n"
        "  S1 = {closure}\n"
        "monitored\n"
        "  closure\n"
    )


def test_negation_and_aggregation_open_a_new_stratum(cli: Cli, write: Write) -> None:
    text = """.decl e(x: symbol, y: symbol) .decl r(x: symbol, y: symbol) .decl far(x: symbol, y: symbol) .decl many(n: number)
    r(x, y) :- e(x, y) ; e(x, z), r(z, y).
    far(x, y) :- r(x, y), !e(x, y).
    many(n) :- n = count : { far(_, _) }.
    """
    out = cli("check", write("p.dl", text)).out
    strata = [line for line in out.splitlines() if " = {" in line]
    levels = {name.strip(): i for i, line in enumerate(strata) for name in _names(line)}
    assert levels["e"] < levels["r"] <= levels["far"] < levels["many"]


def _names(line: str) -> list[str]:
    return line.partition("{")[2].rstrip("}").split(",")


def test_without_output_all_views_are_monitored(cli: Cli, write: Write) -> None:
    text = ".decl e(x: symbol) .decl v(x: symbol) .decl w(x: symbol)\nv(x) :- e(x).\nw(x) :- v(x).\n"
    assert cli("check", write("p.dl", text)).out.endswith("monitored\n  v\n  w\n")


def test_the_key_is_shown(cli: Cli, write: Write) -> None:
    assert (
        "  base  .decl s(i: symbol, n: number) key(i)\n"
        in cli("check", write("p.dl", ".decl s(i: symbol, n: number) key(i)")).out
    )


def test_only_what_the_user_declared_is_a_relation(cli: Cli, write: Write) -> None:
    text = ".decl e(x: symbol) .decl n(k: number)\nn(k) :- k = count : { e(_) }.\n"
    relations = cli("check", write("p.dl", text)).out.partition("strata")[0]
    assert [line.split(".decl ")[1].partition("(")[0] for line in relations.splitlines()[1:]] == ["e", "n"]


def test_version(cli: Cli) -> None:
    ran = cli("--version")
    assert (ran.code, ran.out) == (0, "rederive 0.1.0\n")


@pytest.mark.parametrize("command", ["check", "explain", "run", "query"])
def test_help_has_an_example(cli: Cli, command: str) -> None:
    ran = cli(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Example" in ran.out
    assert f"rederive {command} " in ran.out
