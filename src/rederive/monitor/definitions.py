"""The program that stands, as statements, and the steps from one program to the next. Nothing here knows of data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, groupby

from rederive.errors import CorruptStore, Mismatch, ProgramError, UnknownRelation
from rederive.ir.rules import Fact, Program
from rederive.ir.terms import Row
from rederive.lang.active import ActiveRule
from rederive.lang.datalog import extended, parse_statements
from rederive.lang.directives import active_rule
from rederive.lang.edit import (
    Statements,
    not_in,
    parse_rules,
    rule_directives,
    with_rules,
    without_definition,
    without_directive,
    without_facts,
    without_rules,
    without_view,
)
from rederive.lang.project import compile_statements, replaced, without_sql_view
from rederive.lang.sql.statements import Definition, extended_by
from rederive.lang.syntax import Declaration, Statement
from rederive.monitor.entries import Text


@dataclass(frozen=True, slots=True)
class Step:
    """From one program to the next: the facts that base relations gain, and whether it is a version though no view changes."""

    after: Definitions
    facts: Mapping[str, list[Row]]
    always: bool


@dataclass(frozen=True, slots=True)
class Definitions:
    """The statements that stand, in parts: the first is compiled as a whole, each other one extends what is before it.

    Statements of SQL are not put on paper yet.

    >>> before = Definitions().define(".decl e(x: number)  .decl p(x: number)  p(x) :- e(x), x > 1.").after
    >>> after = before.replace_view("p", "p(x) :- e(x).").after
    >>> [len(part) for part in after.parts], Definitions.of(after.texts()).program == after.program
    ([3], True)
    """

    parts: tuple[Statements, ...] = ()
    program: Program = field(default_factory=lambda: Program({}, ()))

    @property
    def statements(self) -> Statements:
        return tuple(chain.from_iterable(self.parts))

    def define(self, text: str, name: str = "<text>") -> Step:
        added = parse_statements(text, name)
        program = extended(self.program, added)
        return Step(Definitions((*self.parts, added), program), _by_relation(program.facts[len(self.program.facts) :]), False)

    def ensure(self, text: str, name: str = "<text>") -> Step | None:
        """To a text that holds everything that stands, and perhaps more; None where it holds no more."""
        if not self.parts:
            return self.define(text, name)
        wanted = parse_statements(text, name)
        if missing := not_in(self.statements, wanted):
            raise Mismatch(
                f"the database has a definition that is not in {name}: {missing[0].span.text}",
                hint="take it out of the database first (remove_rule, drop_view), or use another store",
            )
        return self._to(wanted, always=False) if not_in(wanted, self.statements) else None

    def add_rule(self, text: str) -> Step:
        return self._to(with_rules(self.statements, parse_rules(text)))

    def remove_rule(self, text: str) -> Step:
        return self._to(without_rules(self.statements, parse_rules(text)))

    def replace_view(self, view: str, text: str) -> Step:
        check_view(self.program, view)
        return self._to(with_rules(without_definition(self.statements, view), parse_rules(text)))

    def drop_view(self, view: str) -> Step:
        check_view(self.program, view)
        sql = any(isinstance(statement, Definition) and statement.name == view for statement in self.statements)
        return self._to((without_sql_view if sql else without_view)(self.statements, view))

    def drop_rule(self, name: str) -> Step:
        """To the same without an active rule that a text states."""
        return self._to(without_directive(self.statements, name), always=False)

    @property
    def rules(self) -> list[ActiveRule]:
        """The active rules that the texts state."""
        return [active_rule(directive) for directive in rule_directives(self.statements)]

    def create(self, added: Definition) -> Step | None:
        """To one more table or view of SQL, or another definition of a view; None where it is there and may be."""
        there = any(name.lower() == added.name for name in self.program.relations)
        if there and added.unless_there:
            return None
        if there and added.replaces and added.view:
            return self._to(replaced(self.statements, added))
        return Step(Definitions((*self.parts, (added,)), extended_by(self.program, added)), {}, False)

    def _to(self, statements: Statements, *, always: bool = True) -> Step:
        """Compile the statements as a whole. A base relation without rows may become a view, and a view a base relation."""
        program = compile_statements(statements)
        if ruled := [name for name in self.program.bases if name in program.views]:
            # facts that transactions took out of a base relation are not facts of the view
            statements = without_facts(statements, ruled)
            program = compile_statements(statements)
        had = {(fact.relation, fact.row) for fact in self.program.facts}
        new = (f for f in program.facts if f.relation in self.program.views or (f.relation, f.row) not in had)
        return Step(Definitions((statements,), program), _by_relation(new), always)

    # On paper

    def texts(self) -> tuple[Text, ...]:
        """What is to be kept to have these definitions again: the texts as written, and which of their statements stand."""
        return tuple(
            Text(number, group[0].span.source.name, group[0].span.source.text, json.dumps([_mark(s) for s in group]))
            for number, part in enumerate(self.parts)
            for _, group in ((key, list(run)) for key, run in groupby(part, lambda s: id(s.span.source)))
        )

    @classmethod
    def of(cls, texts: Iterable[Text]) -> Definitions:
        """The definitions that `texts` has written."""
        try:
            parts = [tuple(chain.from_iterable(map(_standing, run))) for _, run in groupby(texts, lambda text: text.part)]
            return cls(tuple(parts), reduce(extended, parts, Program({}, ())))
        except (ProgramError, KeyError, ValueError) as error:
            raise CorruptStore(f"the program that the store holds cannot be read: {error}") from error


def _by_relation(facts: Iterable[Fact]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for fact in facts:
        found.setdefault(fact.relation, []).append(fact.row)
    return found


def _mark(statement: Statement | Definition) -> list[object]:
    """Tells a statement from the others of its text; a declaration may have lost some of its names."""
    names = [name.text for name in statement.names] if isinstance(statement, Declaration) else []
    return [statement.span.line, statement.span.column, *names]


def _standing(text: Text) -> list[Statement]:
    written = {(s.span.line, s.span.column): s for s in parse_statements(text.text, text.name)}
    return [_narrowed(written[line, column], names) for line, column, *names in json.loads(text.kept)]


def _narrowed(statement: Statement, names: list[str]) -> Statement:
    if not isinstance(statement, Declaration):
        return statement
    return replace(statement, names=tuple(name for name in statement.names if name.text in names))


def check_view(program: Program, name: str) -> None:
    """Refuse a name that is no view; a table that is a bag is none."""
    if not program.is_view(name) or name not in program.relations or program.copies_of(name) is not None:
        views = (view for view in program.views if not program.relations[view].auxiliary and program.copies_of(view) is None)
        raise UnknownRelation(name, views)


def followed(before: Program, after: Program, known: Mapping[str, int | None], version: int) -> dict[str, int | None]:
    """From which version on every change of each relation is recorded, when `after` stands from `version` on.

    A view that was not there had no rows, which is a record too. None: the relation is there, and nobody writes its changes down.
    """
    found: dict[str, int | None] = {}
    for name, relation in after.relations.items():
        if relation.auxiliary:
            continue
        if name not in after.monitored:
            found[name] = None
        elif name in before.relations and name not in before.monitored:
            found[name] = version
        else:
            found[name] = known.get(name, 0)
    gone = {name: version if since is None else since for name, since in known.items() if name not in after.relations}
    return found | gone
