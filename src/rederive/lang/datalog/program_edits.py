"""Edits of a program as a list of statements, which is then compiled as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from rederive.errors import StillNeeded, SyntaxProblem, UnknownName
from rederive.lang.datalog.compiler import parse_statements
from rederive.lang.datalog.syntax import (
    Clause,
    ConstraintDirective,
    Declaration,
    OutputDirective,
    RuleDirective,
    Statement,
    StoredDirective,
    relations,
)
from rederive.lang.sql.definition import SqlDefinition

Statements = tuple[Statement | SqlDefinition, ...]


def parse_rules(text: str) -> tuple[Clause, ...]:
    """The rules of a text; other statements are refused."""
    rules = []
    for statement in parse_statements(text, "<rule>"):
        if not isinstance(statement, Clause) or statement.body is None:
            raise SyntaxProblem(
                "expected a rule", statement.span, hint="change facts in a transaction, and other statements with db.define"
            )
        rules.append(statement)
    return tuple(rules)


def with_rules(statements: Sequence[Statement | SqlDefinition], added: Sequence[Clause]) -> Statements:
    """The program with more rules, each before the first SQL definition that may read the relation of its head."""
    # SQL definitions are compiled in order, each over what precedes it: a rule after one would change a relation it has read.
    found = list(statements)
    for rule in added:
        names = {head.relation for head in rule.heads}
        declared = [i for i, s in enumerate(found) if isinstance(s, Declaration) and names & {name.text for name in s.names}]
        sql = (
            next((i for i in range(declared[-1], len(found)) if isinstance(found[i], SqlDefinition)), None) if declared else None
        )
        found.insert(sql if sql is not None else len(found), rule)
    return tuple(found)


def without_rules(statements: Sequence[Statement | SqlDefinition], removed: Sequence[Clause]) -> Statements:
    """The program without these rules; each must be part of it, with the same variable names."""
    left = list(statements)
    for rule in removed:
        same = [i for i, statement in enumerate(left) if _form(statement) == _form(rule)]
        if not same:
            known = [s.span.text for s in left if isinstance(s, Clause) and s.body is not None]
            raise UnknownName("rule", rule.span.text, known, rule.span)
        # A rule that is stated twice is removed once.
        del left[same[0]]
    return tuple(left)


def _form(statement: Statement | SqlDefinition) -> str:
    """A statement as text without positions; the name of a `_` is its position."""
    # Spans are not part of `repr`, so equal statements at other places have equal forms.
    return re.sub(r"Var\(name='\d+'\)", "_", repr(statement))


def missing_statements(statements: Statements, others: Statements) -> list[Statement | SqlDefinition]:
    """The statements that the others do not contain, in any order. Equal statements count as often as they occur."""
    # A multiset: a statement that occurs twice needs two counterparts.
    there = Counter(map(_form, others))
    left = []
    for statement in statements:
        form = _form(statement)
        if there[form]:
            there[form] -= 1
        else:
            left.append(statement)
    return left


def without_definition(statements: Sequence[Statement | SqlDefinition], view: str) -> Statements:
    """The program without the rules of one view, but with its declaration."""
    return tuple(s for s in statements if not (isinstance(s, Clause) and any(head.relation == view for head in s.heads)))


def without_facts(statements: Sequence[Statement | SqlDefinition], names: Collection[str]) -> Statements:
    """The program without the facts of these relations."""

    def fact(statement: Statement | SqlDefinition) -> bool:
        return isinstance(statement, Clause) and statement.body is None and statement.heads[0].relation in names

    return tuple(statement for statement in statements if not fact(statement))


def without_view(statements: Sequence[Statement | SqlDefinition], view: str) -> Statements:
    """The program without a view; refused if a rule of another relation reads it."""
    left: list[Statement | SqlDefinition] = []
    for statement in without_definition(statements, view):
        match statement:
            case Clause(_, body, span) if body is not None and view in relations(body):
                raise StillNeeded(f"'{view}' is still read by this rule", span, hint="first remove or replace the rule")
            case OutputDirective(relation) | StoredDirective(relation) | ConstraintDirective(relation) if relation.text == view:
                continue
            case Declaration(names) if any(name.text == view for name in names):
                others = tuple(name for name in names if name.text != view)
                if others:
                    left.append(replace(statement, names=others))
            case SqlDefinition(_, name) if name == view:
                continue
            case _:
                left.append(statement)
    return tuple(left)


def rule_directives(statements: Sequence[Statement | SqlDefinition]) -> tuple[RuleDirective, ...]:
    """The active rules that the program contains."""
    return tuple(statement for statement in statements if isinstance(statement, RuleDirective))


def without_directive(statements: Sequence[Statement | SqlDefinition], rule: str) -> Statements:
    """The program without one of its active rules."""
    return tuple(s for s in statements if not (isinstance(s, RuleDirective) and s.relation.text.lower() == rule))
