"""The entries of the pipeline that change the program: definitions, initial rows, active rules.

Whatever can be refused without the engine is refused here, before the engine prepares anything. The steps are those of every
version (`pipeline`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rederive.catalog import CatalogChange
from rederive.commit.pending import PendingVersion, TransactionRequest
from rederive.commit.redefinition import check_program
from rederive.commit.source_rows import check_not_in_place, with_source_rows
from rederive.commit.state import DatabaseState
from rederive.errors import Closed, Mismatch
from rederive.ir.terms import Row
from rederive.result import Result
from rederive.rules.rule_set import RuleSet, check_precision
from rederive.rules.runtime import RuleRuntime

if TYPE_CHECKING:
    from rederive.commit.setup import Setup


class ProgramChanges(ABC):
    """Commits other programs. `setup`: the open block of definitions that are evaluated together."""

    def __init__(self, state: DatabaseState, runtime: RuleRuntime) -> None:
        self.state = state
        self.runtime = runtime
        self.setup: Setup | None = None

    @abstractmethod
    def _commit_one(self, version: PendingVersion | TransactionRequest) -> PendingVersion:
        """Take the steps of one version."""

    def redefine(self, change: CatalogChange) -> PendingVersion | None:
        """Commit a change of definitions, or initial rows. Inside a setup it waits for the end of the block, and gives None."""
        if self.setup is not None:
            self.setup.add(change)
            # Later definitions of the block compile against this catalog,
            # while the engine still runs the program before the block.
            self.state.catalog = change.after
            return None
        state = self.state
        self.runtime.check_idle("a definition")
        if not state.is_open:
            raise Closed
        change = with_source_rows(state, change)
        rules = state.rules
        if change.after is not state.catalog:
            rules = rules.over(change.after.program, change.after.rules)
            self.runtime.check_actions(state.rules.rules, rules.rules)
            check_precision(rules, state.settings.precision)
            check_program(state, change.after.program)
        return self._commit_one(PendingVersion(rules, state.monitoring, is_transaction=False, change=change))

    def define(self, change: CatalogChange) -> Result | None:
        """Commit a change of definitions; the version that it makes, if it makes one."""
        pending = self.redefine(change)
        return pending.result if pending is not None else None

    def load(self, rows: Mapping[str, Iterable[Row]]) -> Result | None:
        """Commit initial rows of several relations, which are typed already; the version that they make, if they make one."""
        if self.state.catalog.program.in_place:
            check_not_in_place(self.state.catalog.program, rows)
        return self.define(CatalogChange(self.state.catalog, rows, always=False, loads=True)) if rows else None

    def change_rules(self, rules: RuleSet) -> None:
        """Commit other rules over the same definitions: no version, but durable."""
        self.runtime.check_actions(self.state.rules.rules, rules.rules)
        # While definitions are parked, conditions have no rows to compare with.
        self.state.check_evaluated()
        check_precision(rules, self.state.settings.precision)
        self._commit_one(PendingVersion(rules, self.state.monitoring, is_transaction=False))

    def check_no_setup(self, what: str) -> None:
        """Refuse what does not belong into a setup."""
        if self.setup is not None:
            raise Mismatch(f"{what} inside a setup, which definitions and loads belong in", hint="end its block first")
