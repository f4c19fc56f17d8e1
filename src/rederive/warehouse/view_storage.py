"""The stored views of a warehouse on one of the engines, and the compiled rules that run over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from rederive.engines.protocol import Action, Engine, Operation
from rederive.ir.rules import Definition, Program, Relation
from rederive.ir.terms import Row
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import is_copy
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import StoredView, ViewClass
from rederive.warehouse.selfmaint.source_update import KnownRelations, PartialCopy, SourceUpdate, UpdateKind

_PARTS = (names.INSERTED, names.DELETED, names.READ, names.PRESENT, names.ABSENT)


class ViewStorage:
    """Tables for the views, for local relations, and for all that compiled rules read of an update.

    Rules run on demand: nothing of them is kept, and what an update does not touch is not looked at.
    """

    def __init__(self, program: Program, views: Sequence[StoredView], engine: Engine) -> None:
        self._views = views
        self._relations = program.relations
        self._kind = UpdateKind(*[frozenset(name for view in views for name in view.sources)] * 2)
        self._compiled: dict[tuple[str, tuple[str, ...], KnownRelations], CompiledMaintenance | None] = {}
        self._engine = engine
        self._installed: Program | None = None
        self._install(())

    def rows(self, name: str) -> frozenset[Row]:
        """The rows of a view, of a local relation, or of anything that the installed rules define."""
        return frozenset(self._engine.rows(name, {}))

    def size(self, name: str) -> int:
        return self._engine.size(name)

    def load(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """`replace` for many rows."""
        self.replace(dict.fromkeys(contents, ()))
        self._engine.load(contents)

    def replace(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """Give tables these rows and no others."""
        operations = []
        for name, rows in contents.items():
            wanted, there = frozenset(rows), self.rows(name)
            operations += [_operation(Action.DELETE, name, there - wanted), _operation(Action.INSERT, name, wanted - there)]
        self._apply(operations)

    def change(self, changes: Mapping[str, tuple[Iterable[Row], Iterable[Row]]]) -> None:
        """Rows that enter, and rows that leave, table by table."""
        operations = []
        for name, (plus, minus) in changes.items():
            operations += [_operation(Action.DELETE, name, minus), _operation(Action.INSERT, name, plus)]
        self._apply(operations)

    def present(self, update: SourceUpdate, read: Mapping[str, frozenset[Row]], log: PartialCopy) -> None:
        """Put before the rules an update, what was read for it and what the log tells."""
        given = (update.inserts, update.deletes, read, log.present, log.absent)
        parts = [(part, rows) for part, rows in zip(_PARTS, given, strict=True)]
        names_of = {name for view in self._views for name in view.sources}
        self.replace({names.of(name, part): rows.get(name, frozenset()) for part, rows in parts for name in names_of})

    def compile_maintenance(
        self, view: StoredView, group: Sequence[StoredView], given: KnownRelations
    ) -> CompiledMaintenance | None:
        """The rules for a view, with the views of its group to draw on; made once for each such question."""
        key = (view.name, tuple(other.name for other in group), given)
        if key not in self._compiled:
            self._compiled[key] = compile_maintenance(view, group, self._relations, self._kind, given)
        return self._compiled[key]

    def maintained(
        self, view: StoredView, group: Sequence[StoredView], given: KnownRelations
    ) -> tuple[frozenset[Row], frozenset[Row]] | None:
        """Plus and minus of a plain view where its test says that it is self-maintainable."""
        rules = self.compile_maintenance(view, group, given)
        if rules is None:
            return None
        self._install([c for other in group if (c := self.compile_maintenance(other, group, given)) is not None])
        test = () if rules.always else (names.MAINTAINABLE,)
        parts = (names.of(view.name, part) for part in (*test, names.PLUS, names.MINUS))
        with closing(self._engine.answers(parts)) as answers:  # the test has derived most of what the change needs
            if not rules.always and not next(answers):
                return None
            plus, minus = (frozenset(rows) for rows in answers)
            return plus, minus

    def _install(self, rules: Sequence[CompiledMaintenance]) -> None:
        """Switch to these rules; tables keep their rows."""
        definitions: dict[Definition, None] = {d: None for c in rules for d in c.program.definitions}
        relations = self._tables() | {n: r for c in rules for n, r in c.program.relations.items()}
        program = Program(relations, tuple(definitions))
        if program != self._installed:
            self._engine.install(plan(program, (), Strategy.ON_DEMAND.value), ())
            self._engine.commit()
            self._installed = program

    def _tables(self) -> dict[str, Relation]:
        bases = {name for view in self._views for name in view.sources}
        own = {name: Relation(name, self._relations[name].columns) for name in (*bases, *(view.name for view in self._views))}
        parts = {names.of(name, part): names.declared(names.of(name, part), self._relations) for name in bases for part in _PARTS}
        return own | parts

    def _apply(self, operations: Sequence[Operation]) -> None:
        wanted = [operation for operation in operations if operation.rows]
        if wanted:
            self._engine.propagate(self._engine.net(wanted))
            self._engine.commit()


def _operation(action: Action, name: str, rows: Iterable[Row]) -> Operation:
    return Operation(action, name, tuple(rows))


def evaluated(program: Program, view: str, bases: Mapping[str, Iterable[Row]], engine: Engine) -> frozenset[Row]:
    """A view from the rows of its base relations, whatever its rules are, on an engine that holds nothing yet."""
    engine.install(plan(program, (), Strategy.ON_DEMAND.value), (), bases)
    engine.commit()
    return frozenset(engine.rows(view, {}))


def copied(view: StoredView, rows: Iterable[Row]) -> tuple[str, frozenset[Row]] | None:
    """The base relation that a view copies, and its rows from the view's; None where it is no copy."""
    if view.kind is not ViewClass.PLAIN or not is_copy(view.query):
        return None
    (atom,) = view.query.body
    places = [view.query.head.terms.index(term) for term in atom.terms]
    return atom.relation, frozenset(tuple(row[place] for place in places) for row in rows)
