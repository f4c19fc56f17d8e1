"""The rows of stored views on an engine, and the compiled maintenance rules that run over them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing

from rederive.engines.protocol import Action, Engine, Operation
from rederive.ir.rules import Definition, Program, Relation
from rederive.ir.terms import Row
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import is_copy
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import StoredView, Totals, ViewClass
from rederive.warehouse.selfmaint.determined import is_determined
from rederive.warehouse.selfmaint.source_update import KnownRelations, PartialCopy, SourceUpdate, UpdateKind
from rederive.warehouse.selfmaint.totals import are_moved, move_totals

_PARTS = (names.INSERTED, names.DELETED, names.READ, names.PRESENT, names.ABSENT)


class ViewStorage:
    """Tables for the views, for local relations, and for the parts of an update that compiled rules read.

    Rules run on demand: no derived row is stored, and rows that an update cannot reach are not looked at.
    """

    def __init__(self, program: Program, views: Sequence[StoredView], engine: Engine) -> None:
        self._views = views
        self._relations = program.relations
        self._kind = UpdateKind(*[frozenset(name for view in views for name in view.sources)] * 2)
        self._compiled: dict[tuple[str, tuple[str, ...], KnownRelations], CompiledMaintenance | None] = {}
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
        key = (view.name, tuple(other.name for other in group), given)
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
        # The tests of the whole group at once: exchanging rules costs
        # indexes over the stored views, which are built from scratch.
        self._install([c for other in group if (c := self.compile_maintenance(other, group, given)) is not None])
        if view.totals is not None:
            return self._move_totals(view, view.totals, are_moved(view, group, self._update, given))
        # Rules are compiled for all kinds of updates; for many kinds the answer is known without the test.
        is_tested = not rules.always and not is_determined(view, group, self._relations, self._update, given)
        test = (names.MAINTAINABLE,) if is_tested else ()
        parts = (names.of(view.name, part) for part in (*test, names.PLUS, names.MINUS))
        with closing(self._engine.answers(parts)) as answers:  # the change reuses what the test has derived
            if test and not next(answers):
                return None
            plus, minus = (frozenset(rows) for rows in answers)
            return plus, minus

    def _move_totals(self, view: StoredView, totals: Totals, is_moved: bool) -> tuple[frozenset[Row], frozenset[Row]] | None:
        if not is_moved:
            return None
        # The columns of the view that show the group.
        places = {i: place for i, (function, place) in enumerate(totals.folded) if function == "group" and place is not None}

        def stored(group: Row) -> Iterable[Row]:
            return self._engine.rows(view.name, {column: group[place] for column, place in places.items()})

        with closing(self._engine.answers(names.of(view.name, part) for part in (names.GAINED, names.LOST))) as answers:
            gained, lost = (list(rows) for rows in answers)
        return move_totals(totals, gained, lost, stored)

    def _install(self, rules: Sequence[CompiledMaintenance]) -> None:
        """Replace the installed rules; tables keep their rows."""
        definitions: dict[Definition, None] = {d: None for c in rules for d in c.program.definitions}
        relations = self._tables() | {n: r for c in rules for n, r in c.program.relations.items()}
        program = Program(relations, tuple(definitions))
        if program != self._program:
            self._switch(program)

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
