"""How deep a statement may nest. Long chains of AND, OR and || are balanced, so that their length does not count as depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from rederive.errors import Span, TooDeep

DEPTH: Final = 80
"""Levels of a parse tree. What is generated for a tree of this depth fits the stack of Spark and the limits of Python."""
# AND and OR are associative in three-valued logic, too.
_ASSOCIATIVE: Final = (exp.And, exp.Or, exp.DPipe)


def balance_chains(tree: exp.Expr) -> exp.Expr:
    """The same tree, in which each chain of an associative operator is a balanced binary tree.

    >>> from sqlglot import parse_one
    >>> depth(balance_chains(parse_one(" OR ".join("abcdefgh")))) < depth(parse_one(" OR ".join("abcdefgh")))
    True
    """
    for node in list(tree.walk()):
        if isinstance(node, _ASSOCIATIVE) and type(node.parent) is not type(node) and type(node.this) is type(node):
            parts = _operands(node)
            halves = [_chain(node, half) for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :])]
            node.set("this", halves[0])
            node.set("expression", halves[1])
    return tree


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain, from left to right. It is found without recursion: the chain may be long."""
    found: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if type(one) is type(node):
            waiting += [one.args["expression"], one.this]
        else:
            found.append(one)
    return found


def _chain(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    others = {key: value for key, value in node.args.items() if key not in ("this", "expression")}
    return type(node)(this=_chain(node, parts[:half]), expression=_chain(node, parts[half:]), **others)


def check_depth(tree: exp.Expr, span: Span) -> None:
    """Refuse a tree of more than `DEPTH` levels."""
    if depth(tree) > DEPTH:
        raise TooDeep(DEPTH, span)


def depth(tree: exp.Expr) -> int:
    """The number of levels of a tree. It is found without recursion: the tree may be deep."""
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += ((child, level + 1) for child in node.iter_expressions())
    return deepest
