"""The catalog: the current definitions as statements, and changes from one catalog to the next. It does not know of data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, groupby

from rederive.errors import CorruptStore, Mismatch, ProgramError, StillNeeded, UnknownName, UnknownRelation
from rederive.ir.rules import Fact, Program
from rederive.ir.terms import UTC, Row
from rederive.lang.datalog.compiler import extend_program, parse_statements
from rederive.lang.datalog.program_edits import (
    Statements,
    missing_statements,
    parse_rules,
    rule_directives,
    with_rules,
    without_definition,
    without_directive,
    without_facts,
    without_rules,
    without_view,
)
from rederive.lang.datalog.rule_directives import active_rule
from rederive.lang.datalog.syntax import Clause, Declaration, Statement
from rederive.lang.programs import (
    add_sql_definition,
    compile_statements,
    defines_in_sql,
    replace_sql_view,
    revise_sql,
    still_needed,
    without_sql_relation,
)
from rederive.lang.rules.syntax import ActiveRule
from rederive.lang.sql.definition import SqlDefinition
from rederive.records import DATALOG, SQL, DefinitionText, SourceVersion


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """From one catalog to the next, or to the same one with initial rows.

    `facts`: the rows that enter base relations. `always`: whether it is a version even if no view changes. `loads`: whether the
    caller gave initial rows, which are not kept waiting where the definitions do not end. `sources`: the commits of attached
    tables whose rows are among the facts.
    """

    after: Catalog
    facts: Mapping[str, Iterable[Row]]
    always: bool
    loads: bool = False
    sources: tuple[SourceVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """The current statements, in parts: the first is compiled as a whole, each other one extends what is before it.

    >>> before = Catalog().define(".decl e(x: number)  .decl p(x: number)  p(x) :- e(x), x > 1.").after
    >>> after = before.replace_view("p", "p(x) :- e(x).").after
    >>> [len(part) for part in after.parts], Catalog.of(after.texts()).program == after.program
    ([3], True)
    """

    parts: tuple[Statements, ...] = ()
    program: Program = field(default_factory=lambda: Program({}, ()))

    @classmethod
    def none(cls, zone: str = UTC) -> Catalog:
        """No definitions yet, in a database of this time zone."""
        return cls((), Program({}, (), zone=zone))

    @property
    def _empty(self) -> Program:
        return Program({}, (), zone=self.program.zone)

    @property
    def statements(self) -> Statements:
        """All current statements, in order."""
        return tuple(chain.from_iterable(self.parts))

    def define(self, text: str, name: str = "<text>") -> CatalogChange:
        """Add the declarations, rules and facts of a Datalog text."""
        added = parse_statements(text, name)
        program = extend_program(self.program, added)
        return CatalogChange(
            Catalog((*self.parts, added), program), _by_relation(program.facts[len(self.program.facts) :]), False
        )

    def migrate(self, text: str, name: str = "<text>", *, whole: bool = True) -> CatalogChange | None:
        """Add the definitions of a text that are missing; None where none is.

        As a `whole`, the text must have every current definition of its language.
        """
        if defines_in_sql(text, name):
            return self._migrate_sql(text, name, whole)
        if not self.parts:
            return self.define(text, name)
        wanted = parse_statements(text, name)
        standing = tuple(s for s in self.statements if not isinstance(s, SqlDefinition))
        missing = missing_statements(standing, wanted)
        if whole:
            _check_none_missing(missing, name)
        added = missing_statements(wanted, standing)
        # If the database has no other definitions than this text, the text takes their place as it is written now.
        alone = standing == self.statements and not missing
        return self._to(wanted if alone else self._with(added), always=False) if added else None

    def _migrate_sql(self, text: str, name: str, whole: bool) -> CatalogChange | None:
        from rederive.lang.sql.ddl import parse_definitions

        wanted = parse_definitions(text, name)
        # CREATE OR REPLACE says itself that the old definition goes.
        replaced_names = {definition.name for definition in wanted if definition.replaces}
        standing = tuple(s for s in self.statements if isinstance(s, SqlDefinition) and s.name not in replaced_names)
        if whole:
            _check_none_missing(missing_statements(standing, wanted), name)
        found: Catalog = self
        for definition in wanted:
            if not found.has(definition) and (step := found.create(definition)) is not None:
                found = step.after
        return CatalogChange(found, {}, False) if found is not self else None

    def has(self, definition: SqlDefinition) -> bool:
        """Whether this SQL definition is current, however it was written."""
        return not missing_statements((definition,), self.statements)

    def _with(self, added: Sequence[Statement | SqlDefinition]) -> Statements:
        """The current statements with more of Datalog: rules after the declarations of their heads, before SQL that reads it."""
        rules = [s for s in added if isinstance(s, Clause)]
        others = (s for s in added if not isinstance(s, Clause))
        return with_rules((*self.statements, *others), rules)

    def add_rule(self, text: str) -> CatalogChange:
        """Add rules."""
        return self._to(with_rules(self.statements, parse_rules(text)))

    def remove_rule(self, text: str) -> CatalogChange:
        """Remove rules."""
        return self._to(without_rules(self.statements, parse_rules(text)))

    def replace_view(self, view: str, text: str) -> CatalogChange:
        """Give a view other rules."""
        check_view(self.program, view)
        return self._to(with_rules(without_definition(self.statements, view), parse_rules(text)))

    def drop_view(self, view: str) -> CatalogChange:
        """Remove a view."""
        check_view(self.program, view)
        sql = any(isinstance(statement, SqlDefinition) and statement.name == view for statement in self.statements)
        if sql and (revised := self._revise(view, None)) is not None:
            return revised
        return self._to(without_sql_relation(self.statements, view, self._empty) if sql else without_view(self.statements, view))

    def drop_table(self, table: str) -> CatalogChange:
        """Remove a table of SQL with its rows; refused while another definition reads it."""
        if not any(isinstance(s, SqlDefinition) and not s.is_view and s.name == table for s in self.statements):
            raise UnknownRelation(table, self.program.tables)
        if (revised := self._revise(table, None)) is not None:
            return revised
        return self._to(without_sql_relation(self.statements, table, self._empty))

    def alter_table(self, altered: SqlDefinition) -> CatalogChange:
        """Give a table of SQL another definition; refused if others read what is gone, or would have other columns."""
        is_same = [isinstance(s, SqlDefinition) and s.name == altered.name for s in self.statements]
        statements = tuple(altered if same else s for s, same in zip(self.statements, is_same, strict=True))
        try:
            change = self._revise(altered.name, altered) or self._to(statements)
        except UnknownName as error:
            what = f"{error.message.removeprefix('unknown ')} of '{altered.name}'"
            raise still_needed(what, statements, error) from None
        for name, relation in self.program.relations.items():
            after = change.after.program.relations.get(name)
            if relation.is_auxiliary or name == altered.name or after is None:
                continue
            if [(c.name, c.type) for c in relation.columns] != [(c.name, c.type) for c in after.columns]:
                hint = "first replace the view by one that names its columns"
                raise StillNeeded(f"the columns of '{name}' follow from those of '{altered.name}'", after.span, hint=hint)
        return change

    def definition(self, name: str) -> SqlDefinition | None:
        """The definition of a table or view of SQL; None where there is none."""
        return next((s for s in self.statements if isinstance(s, SqlDefinition) and s.name == name), None)

    def drop_rule(self, name: str) -> CatalogChange:
        """Remove an active rule that a text states."""
        return self._to(without_directive(self.statements, name), always=False)

    @property
    def rules(self) -> list[ActiveRule]:
        """The active rules that the texts state."""
        return [active_rule(directive) for directive in rule_directives(self.statements)]

    @property
    def queries(self) -> dict[str, str]:
        """The text of each view that is defined in SQL."""
        return {s.name: s.span.whole for s in self.statements if isinstance(s, SqlDefinition) and s.is_view}

    def create(self, added: SqlDefinition) -> CatalogChange | None:
        """Add a table or view of SQL, or replace a view; None where it exists and the statement says IF NOT EXISTS."""
        there = added.name in self.program.folded_names
        if there and added.if_not_exists:
            return None
        if there and added.replaces and added.is_view:
            current = self.definition(added.name)
            if current is not None and current.is_view and (revised := self._revise(added.name, added)) is not None:
                return revised
            return self._to(replace_sql_view(self.statements, added, self._empty))
        return CatalogChange(Catalog((*self.parts, (added,)), add_sql_definition(self.program, added)), {}, False)

    def _revise(self, gone: str, added: SqlDefinition | None) -> CatalogChange | None:
        """Drop or replace a relation of SQL and compile only what reads it; None where all has to be compiled."""
        statements = self.statements
        sql = [statement for statement in statements if isinstance(statement, SqlDefinition)]
        revised = revise_sql(sql, self.program, gone, added) if len(sql) == len(statements) else None
        return CatalogChange(Catalog((revised[0],), revised[1]), {}, always=True) if revised is not None else None

    def _to(self, statements: Statements, *, always: bool = True) -> CatalogChange:
        """Compile the statements as a whole. A base relation without rows may become a view, and a view a base relation."""
        program = compile_statements(statements, self._empty)
        if ruled := [name for name in self.program.bases if program.is_view(name)]:
            # facts that transactions took out of a base relation are not facts of the view
            statements = without_facts(statements, ruled)
            program = compile_statements(statements, self._empty)
        # A fact that was stated before does not enter again: a transaction may have deleted its row since.
        had = {(fact.relation, fact.row) for fact in self.program.facts}
        new = (f for f in program.facts if self.program.is_view(f.relation) or (f.relation, f.row) not in had)
        return CatalogChange(Catalog((statements,), program), _by_relation(new), always)

    # In a store

    def texts(self) -> tuple[DefinitionText, ...]:
        """What a store holds of the definitions: the texts as written, and which of their statements are current."""
        return tuple(
            _text(number, list(run)) for number, part in enumerate(self.parts) for _, run in groupby(part, _written_together)
        )

    @classmethod
    def of(cls, texts: Iterable[DefinitionText], zone: str = UTC) -> Catalog:
        """Read the definitions from what `texts` returned."""
        try:
            # Compiled in the order in which they were defined, each part over those before it.
            parts = [tuple(chain.from_iterable(map(_standing, run))) for _, run in groupby(texts, lambda text: text.part)]
            empty = cls.none(zone).program
            return cls(tuple(parts), reduce(lambda program, part: compile_statements(part, program), parts, empty))
        except (ProgramError, KeyError, ValueError) as error:
            raise CorruptStore(f"the program that the store holds cannot be read: {error}") from error


def _by_relation(facts: Iterable[Fact]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for fact in facts:
        found.setdefault(fact.relation, []).append(fact.row)
    return found


def _check_none_missing(missing: Sequence[Statement | SqlDefinition], name: str) -> None:
    if missing:
        raise Mismatch(
            f"the database has a definition that is not in {name}: {missing[0].span.text}",
            hint="take it out of the database first (db.definitions.remove_rule, drop_view), or use another store",
        )


def _written_together(statement: Statement | SqlDefinition) -> tuple[int, int]:
    """Datalog is stored by whole texts. Texts of SQL change data too, so each of their definitions is stored by itself."""
    return id(statement.span.source), id(statement) if isinstance(statement, SqlDefinition) else 0


def _text(part: int, group: Sequence[Statement | SqlDefinition]) -> DefinitionText:
    span = group[0].span
    marks = json.dumps([_mark(statement) for statement in group])
    sql = isinstance(group[0], SqlDefinition)
    return DefinitionText(part, span.source.name, span.whole if sql else span.source.text, marks, SQL if sql else DATALOG)


def _mark(statement: Statement | SqlDefinition) -> list[object]:
    """The place of a statement in its text; of a declaration also its names, as some may have been removed."""
    names = [name.text for name in statement.names] if isinstance(statement, Declaration) else []
    return [statement.span.line, statement.span.column, *names]


def _standing(text: DefinitionText) -> Sequence[Statement | SqlDefinition]:
    if text.language == SQL:
        from rederive.lang.sql.ddl import parse_definition_at

        return [parse_definition_at(text.text, text.name, *place) for place in json.loads(text.kept)]
    written = {(s.span.line, s.span.column): s for s in parse_statements(text.text, text.name)}
    return [_narrowed(written[line, column], names) for line, column, *names in json.loads(text.kept)]


def _narrowed(statement: Statement, names: list[str]) -> Statement:
    if not isinstance(statement, Declaration):
        return statement
    return replace(statement, names=tuple(name for name in statement.names if name.text in names))


def check_view(program: Program, name: str) -> None:
    """Refuse a name that is not a view. A table that is a bag is not one, although rules define it."""
    if not program.is_view(name) or name not in program.relations or program.numbered_copies(name) is not None:
        views = (
            view for view in program.views if not program.relations[view].is_auxiliary and program.numbered_copies(view) is None
        )
        raise UnknownRelation(name, views)


def followed(before: Program, after: Program, known: Mapping[str, int | None], version: int) -> dict[str, int | None]:
    """From which version on every change of each relation is recorded, when `after` is current from `version` on.

    A view that was not there had no rows, which is a record too. None: the relation is there, and nobody writes its changes down.
    """
    found: dict[str, int | None] = {}
    for name, relation in after.relations.items():
        if relation.is_auxiliary:
            continue
        if name not in after.monitored:
            found[name] = None
        elif name in before.relations and name not in before.monitored:
            found[name] = version
        else:
            found[name] = known.get(name, 0)
    # A dropped view keeps its record: its past changes can still be read.
    gone = {name: version if since is None else since for name, since in known.items() if name not in after.relations}
    return found | gone
