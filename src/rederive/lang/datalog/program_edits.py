"""Changes of a program, rule by rule: on statements, which then are compiled again as a whole."""

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
    """A text that holds rules and nothing else."""
    rules = []
    for statement in parse_statements(text, "<rule>"):
        if not isinstance(statement, Clause) or statement.body is None:
            raise SyntaxProblem("expected a rule", statement.span, hint="facts are changed by transactions, the rest by define")
        rules.append(statement)
    return tuple(rules)


def with_rules(statements: Sequence[Statement | SqlDefinition], added: Sequence[Clause]) -> Statements:
    """The program with more rules, each behind the declaration of its head: SQL that follows reads all of them."""
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
    """The program without these rules; each must be there, written with the same variables."""
    left = list(statements)
    for rule in removed:
        same = [i for i, statement in enumerate(left) if _form(statement) == _form(rule)]
        if not same:
            known = [s.span.text for s in left if isinstance(s, Clause) and s.body is not None]
            raise UnknownName("rule", rule.span.text, known, rule.span)
        del left[same[0]]
    return tuple(left)


def _form(statement: Statement | SqlDefinition) -> str:
    """A statement without positions; each `_` is named after its own."""
    return re.sub(r"Var\(name='\d+'\)", "_", repr(statement))


def missing_statements(statements: Statements, others: Statements) -> list[Statement | SqlDefinition]:
    """The statements that the others do not have, wherever they stand there; one that is there once too often included."""
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
    """The program without the rules of one view; its declaration stays."""
    return tuple(s for s in statements if not (isinstance(s, Clause) and any(head.relation == view for head in s.heads)))


def without_facts(statements: Sequence[Statement | SqlDefinition], names: Collection[str]) -> Statements:
    """The program without the facts of these relations."""

    def fact(statement: Statement | SqlDefinition) -> bool:
        return isinstance(statement, Clause) and statement.body is None and statement.heads[0].relation in names

    return tuple(statement for statement in statements if not fact(statement))


def without_view(statements: Sequence[Statement | SqlDefinition], view: str) -> Statements:
    """The program without a view at all; refused while a rule of another one still reads it."""
    left: list[Statement | SqlDefinition] = []
    for statement in without_definition(statements, view):
        match statement:
            case Clause(_, body, span) if body is not None and view in relations(body):
                raise StillNeeded(f"'{view}' is still needed by this rule", span, hint="remove or replace that rule first")
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
    """The active rules that the program itself states."""
    return tuple(statement for statement in statements if isinstance(statement, RuleDirective))


def without_directive(statements: Sequence[Statement | SqlDefinition], rule: str) -> Statements:
    """The program without an active rule that it states."""
    return tuple(s for s in statements if not (isinstance(s, RuleDirective) and s.relation.text.lower() == rule))
