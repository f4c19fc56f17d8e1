"""The rows of stored views on an engine, and the compiled maintenance rules that run over them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, TypeAlias

from rederive.engines.protocol import Action, Engine, Operation
from rederive.ir.rules import Atom, Definition, Literal, Negation, Program, Relation, Rule
from rederive.ir.terms import Row
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import is_copy
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance, is_always
from rederive.warehouse.selfmaint.conjunctive import StoredView, Totals, ViewClass
from rederive.warehouse.selfmaint.source_update import KnownRelations, PartialCopy, SourceUpdate, UpdateKind
from rederive.warehouse.selfmaint.totals import move_totals

_PARTS = (names.INSERTED, names.DELETED, names.READ, names.PRESENT, names.ABSENT)
MAX_SITUATIONS: Final = 8  # whose rules are installed at the same time; each keeps its indexes over the stored views

Situation: TypeAlias = tuple[tuple[str, ...], KnownRelations]
"""The views that are decided together, and what else is known: rules are compiled for it."""


class ViewStorage:
    """Tables for the views, for local relations, and for the parts of an update that compiled rules read.

    Rules run on demand: no derived row is stored, and rows that an update cannot reach are not looked at.
    """

    def __init__(self, program: Program, views: Sequence[StoredView], engine: Engine) -> None:
        self._views = views
        self._relations = program.relations
        self._kind = UpdateKind(*[frozenset(name for view in views for name in view.sources)] * 2)
        self._compiled: dict[tuple[str, Situation], CompiledMaintenance | None] = {}
        self._installed: dict[Situation, Program] = {}  # the one used last is at the end
        self._numbers: dict[Situation, int] = {}
        self._sizes: dict[str, int] = {}
        self._engine = engine
        self._update = UpdateKind.of()
        self._switch(Program(self._tables(), ()))

    def rows(self, name: str) -> frozenset[Row]:
        """Return the rows of a view, of a local relation, or of a relation that the installed rules define."""
        return frozenset(self._engine.rows(name, {}))

    def size(self, name: str) -> int:
        """Return the number of rows of a stored view. Counted once; changes of views are exact and move it."""
        if name not in self._sizes:
            self._sizes[name] = self._engine.size(name)
        return self._sizes[name]

    def load(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """Replace the rows of tables; faster than `replace` for many rows."""
        self.replace(dict.fromkeys(contents, ()))
        self._sizes.clear()
        # The same rules once more, with rows: what is derived from the tables is evaluated once, not row by row.
        self._switch(self._program, contents)

    def replace(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """Replace the rows of tables."""
        operations = []
        for name, rows in contents.items():
            new, present = frozenset(rows), self.rows(name)
            operations += [_operation(Action.DELETE, name, present - new), _operation(Action.INSERT, name, new - present)]
        self._apply(operations)

    def change(self, changes: Mapping[str, tuple[Collection[Row], Collection[Row]]]) -> None:
        """Apply a change to each table: rows that enter, and rows that leave."""
        operations = []
        for name, (plus, minus) in changes.items():
            if name in self._sizes:
                self._sizes[name] += len(plus) - len(minus)
            operations += [_operation(Action.DELETE, name, minus), _operation(Action.INSERT, name, plus)]
        self._apply(operations)

    def without_idle_rows(self, update: SourceUpdate, local: Collection[str]) -> SourceUpdate:
        """Return the update without the rows of local relations that change nothing: inserted ones that are there, and so on."""
        inserts, deletes = dict(update.inserts), dict(update.deletes)
        for name in update.relations.intersection(local):
            changed = (*update.inserts.get(name, ()), *update.deletes.get(name, ()))
            present = frozenset(self._engine.rows_with_prefix(name, changed))
            inserts[name] = update.inserts.get(name, frozenset()) - present
            deletes[name] = update.deletes.get(name, frozenset()) & present
        return SourceUpdate.of(inserts, deletes, net=update.net)

    def set_update(self, update: SourceUpdate, read: Mapping[str, frozenset[Row]], log: PartialCopy) -> None:
        """Set the update that the rules see, the relations that were read for it, and the log."""
        self._update = UpdateKind.of(update.inserts, update.deletes)
        given = (update.inserts, update.deletes, read, log.present, log.absent)
        parts = [(part, rows) for part, rows in zip(_PARTS, given, strict=True)]
        sources = {name for view in self._views for name in view.sources}
        self.replace({names.of(name, part): rows.get(name, frozenset()) for part, rows in parts for name in sources})

    def compile_maintenance(
        self, view: StoredView, group: Sequence[StoredView], given: KnownRelations
    ) -> CompiledMaintenance | None:
        """Return the rules of a view, given the views of its group; they are compiled once for each combination."""
        key = (view.name, _situation(group, given))
        if key not in self._compiled:
            self._compiled[key] = compile_maintenance(view, group, self._relations, self._kind, given)
        return self._compiled[key]

    def maintain(
        self, view: StoredView, group: Sequence[StoredView], given: KnownRelations
    ) -> tuple[frozenset[Row], frozenset[Row]] | None:
        """Return plus and minus of a view if the update determines them, or if its test says so; else None."""
        rules = self.compile_maintenance(view, group, given)
        if rules is None:
            return None
        # Rules are compiled for all kinds of updates; for many kinds the answer is known without the test.
        is_certain = rules.always or is_always(view, group, self._relations, self._update, given)
        if not is_certain and not rules.has_test:
            return None
        number = self._install(group, given)
        if view.totals is not None:
            return self._move_totals(view, view.totals, number)
        test = () if is_certain else (names.MAINTAINABLE,)
        parts = (_numbered(names.of(view.name, part), number) for part in (*test, names.PLUS, names.MINUS))
        with closing(self._engine.answers(parts)) as answers:  # the change reuses what the test has derived
            if test and not next(answers):
                return None
            plus, minus = (frozenset(rows) for rows in answers)
            return plus, minus

    def _move_totals(self, view: StoredView, totals: Totals, number: int) -> tuple[frozenset[Row], frozenset[Row]]:
        # The columns of the view that show the group.
        places = {i: place for i, (function, place) in enumerate(totals.folded) if function == "group" and place is not None}

        def stored(group: Row) -> Iterable[Row]:
            return self._engine.rows(view.name, {column: group[place] for column, place in places.items()})

        parts = (_numbered(names.of(view.name, part), number) for part in (names.GAINED, names.LOST))
        with closing(self._engine.answers(parts)) as answers:
            gained, lost = (list(rows) for rows in answers)
        return move_totals(totals, gained, lost, stored)

    def _install(self, group: Sequence[StoredView], given: KnownRelations) -> int:
        """Install the rules of a situation, if they are not, and return the number that their relations have.

        The rules of earlier situations stay: a view that waits is decided apart from the others in every transaction, and
        compiling rules for each of them would cost more than all tests.
        """
        situation = _situation(group, given)
        number = self._numbers.setdefault(situation, len(self._numbers))
        if situation not in self._installed:
            found = (self.compile_maintenance(view, group, given) for view in group)
            tables = Program(self._tables(), ())
            programs = [_numbered_program(rules.program, number, tables) for rules in found if rules is not None]
            while len(self._installed) >= MAX_SITUATIONS:
                self._installed.pop(next(iter(self._installed)))
            self._installed[situation] = _union(programs)
            self._switch(_union([tables, *self._installed.values()]))
        self._installed[situation] = self._installed.pop(situation)
        return number

    def _switch(self, program: Program, initial: Mapping[str, Iterable[Row]] | None = None) -> None:
        self._engine.install(plan(program, (), Strategy.ON_DEMAND.value), (), initial)
        self._engine.commit()
        self._program = program

    def _tables(self) -> dict[str, Relation]:
        bases = {name for view in self._views for name in view.sources}
        own = {name: Relation(name, self._relations[name].columns) for name in (*bases, *(view.name for view in self._views))}
        parts = {names.of(name, part): names.declared(names.of(name, part), self._relations) for name in bases for part in _PARTS}
        return own | parts

    def _apply(self, operations: Sequence[Operation]) -> None:
        wanted = [operation for operation in operations if operation.rows]
        if wanted:
            self._engine.propagate(self._engine.net_effect(wanted))
            self._engine.commit()


def _situation(group: Sequence[StoredView], given: KnownRelations) -> Situation:
    return tuple(view.name for view in group), given


def _numbered(name: str, number: int) -> str:
    return f"{name}.{number}"


def _numbered_program(program: Program, number: int, tables: Program) -> Program:
    """Return the program with a number on all names but those of tables: rules of several situations define `r.known`."""
    defined = {name: _numbered(name, number) for name in program.relations if name not in tables.relations}

    def literal(given: Literal) -> Literal:
        if isinstance(given, Negation):
            return Negation(atom(given.atom))
        return atom(given) if isinstance(given, Atom) else given

    def atom(given: Atom) -> Atom:
        return replace(given, relation=defined.get(given.relation, given.relation))

    rules = [d for d in program.definitions if isinstance(d, Rule)]
    relations = [replace(relation, name=defined.get(name, name)) for name, relation in program.relations.items()]
    return Program(
        {relation.name: relation for relation in relations},
        tuple(Rule(atom(rule.head), tuple(map(literal, rule.body))) for rule in rules),
    )


def _union(programs: Sequence[Program]) -> Program:
    definitions: dict[Definition, None] = {d: None for program in programs for d in program.definitions}
    return Program({n: r for program in programs for n, r in program.relations.items()}, tuple(definitions))


def _operation(action: Action, name: str, rows: Iterable[Row]) -> Operation:
    return Operation(action, name, tuple(rows))


def evaluate_view(program: Program, view: str, bases: Mapping[str, Iterable[Row]], engine: Engine) -> frozenset[Row]:
    """Evaluate a view of any class from the rows of its base relations, on an empty engine."""
    engine.install(plan(program, (), Strategy.ON_DEMAND.value), (), bases)
    engine.commit()
    return frozenset(engine.rows(view, {}))


def copied_relation(view: StoredView, rows: Iterable[Row]) -> tuple[str, frozenset[Row]] | None:
    """Return the base relation that a view copies, with its rows; None if the view is not a copy."""
    if view.kind is not ViewClass.PLAIN or not is_copy(view.query):
        return None
    (atom,) = view.query.body
    places = [view.query.head.terms.index(term) for term in atom.terms]
    return atom.relation, frozenset(tuple(row[place] for place in places) for row in rows)
