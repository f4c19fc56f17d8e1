"""A step of a database: other definitions, or the same with more rows, installed and written down as one version.

Version 0 is the empty database, and the rows of a view are the sum of its changes: a step that changes a monitored view, or
that puts rows into a base relation, is a version, the first one included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rederive.bags import numbered, on_copies
from rederive.catalog import CatalogChange
from rederive.commit.group import Net, Write
from rederive.commit.parked import ParkedDefinitions
from rederive.commit.recount import newly_counted, recounted
from rederive.delta import Delta
from rederive.engines.auto import counted
from rederive.engines.protocol import Propagation
from rederive.errors import Endless, Violated
from rederive.ir.rules import Mode, Program
from rederive.result import Result
from rederive.store.codec import digest
from rederive.store.version_changes import dropped_base_rows

if TYPE_CHECKING:
    from rederive.database import Database

Record = Callable[[Callable[[], Net], Result | None], None]  # base rows are decoded where somebody writes them down


class Advance:
    """One attempt. `bulk`: whether the version is staged in the lake. `touched`: the tuples that the evaluation looked at."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._started = time.perf_counter()
        self._before = database.program
        self._parked = database.parked
        self.result: Result | None = None
        self.bulk = False
        self.touched = 0

    def take(self, step: CatalogChange) -> None:
        """Take a step whose program is the database's already. Without rows to load, definitions that do not end are parked."""
        db, before, after = self._db, self._before, self._db.program
        rows = numbered(after, {name: counted(given) for name, given in step.facts.items()}, db.engine, before.bases)
        gone = dropped_base_rows(db.engine, before, after)
        changed = newly_counted(before, step.after.program) if self._parked is None else []
        uncounted = {name: db.engine.rows(name, {}) for name in changed}
        same = step.after is db.definitions

        def record(net: Callable[[], Net], result: Result | None) -> None:
            if db.durable is not None and not (same and result is None):
                self.bulk = db.durable.redefine(before, step, net(), result, db.signs)

        def evaluated(found: Propagation) -> None:
            if self._parked is None:
                found = replace(found, views=recounted(found.views, before, step.after.program, uncounted))
            self._confirm(self._since_parked(found), gone, step.always, record)

        parked = self._parking(step, same)
        try:
            db.install_and_write(rows, evaluated)
        except Endless as error:
            if parked is None:
                raise
            db.install_parked(rows, parked(error), lambda found: self._confirm(found, gone, step.always, record))
        if self.result is not None:  # only now are the rows there, and measured
            self.result = replace(self.result, engine_reason=db.engine.reason)

    def _parking(self, step: CatalogChange, same: bool) -> Callable[[Endless], ParkedDefinitions] | None:
        """How to park, where that may be. What subscribers were told of is asked for while the engine has it."""
        db, before, known = self._db, self._before, self._parked
        if step.loads or same:
            return None
        if known is not None:
            return known.with_error
        if not db.parks:
            return None
        return lambda error: ParkedDefinitions.over(error, before, db.followed(before), db.followed_parts(before), db.engine)

    def _since_parked(self, found: Propagation) -> Propagation:
        if self._parked is None:
            return found
        views, parts = self._parked.changes(found.views, self._db.program), self._parked.part_changes(found.bound)
        return replace(found, views=views, bound=parts)

    def _confirm(self, found: Propagation, gone: Net, always: bool, record: Record) -> None:
        self.touched = found.touched
        monitored = any(name not in self._db.rule_base.wanted for name in found.views)
        if always or monitored or found.bound or found.entered or gone:
            self.result = self._db._version(found, self._started)
        record(lambda: {name: Delta(rows) for name, rows in found.entered.items()} | dict(gone), self.result)

    # A transaction over parked definitions

    def commit(self, write: Write) -> Result:
        """Put in what a transaction changes, and evaluate everything then; where that does not end, nothing is changed."""
        db, parked = self._db, self._parked
        assert parked is not None
        operations = [*(write.course.operations if write.course is not None else ()), *write.operations]
        if write.key is not None and db.durable is not None and (known := db.durable.find_result(write.key, operations)):
            return known
        if db.rule_base.active or db.house is not None:
            raise parked.error
        net, version = db.engine.net(on_copies(db.program, operations, db.engine)), db.version
        bases = self._move(net)

        def record(_: Callable[[], Net], result: Result | None) -> None:
            assert result is not None
            _check_constraints(db.program, result)
            if db.durable is not None:
                used_for = digest(operations) if write.key is not None else None
                entry = db.durable.version_record(db.program, net, result, db.signs, write.key, used_for)
                db.durable.append([entry])
                self.bulk = entry.staged is not None

        def evaluated(found: Propagation) -> None:
            self._confirm(self._since_parked(replace(found, views={**found.views, **bases})), {}, True, record)

        try:
            db.install_and_write({}, evaluated)
        except Exception:
            db.version = version
            self._move({name: delta.invert() for name, delta in net.items()})
            raise
        except BaseException:
            db.close()  # the engine may be ahead of the disk
            raise
        assert self.result is not None
        return self.result

    def _move(self, net: Net) -> Mapping[str, Delta]:
        """Change base rows; what that does to those that are monitored."""
        found = self._db.engine.propagate(net)
        self._db.engine.commit()
        return found.views


def _check_constraints(program: Program, result: Result) -> None:
    for constraint in program.constraints:
        change = result.changes.get(constraint.view)
        if constraint.mode is Mode.REJECT and change is not None and change.plus:
            raise Violated(constraint.view, change.plus)
