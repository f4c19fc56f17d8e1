"""The values that pass through the commit pipeline."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rederive.catalog import CatalogChange
from rederive.commit.monitoring import Monitoring
from rederive.commit.parked import ParkedDefinitions
from rederive.delta import Delta
from rederive.engines.protocol import Operation, Propagation
from rederive.ir.terms import Row
from rederive.records import Firing, SourceVersion, VersionRecord
from rederive.result import Result
from rederive.rules.rule_set import CompiledRule, Function, RuleSet
from rederive.rules.triggers import CheckedRows

Net: TypeAlias = Mapping[str, Delta]


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A whole transaction to commit, and its idempotency key."""

    operations: Sequence[Operation]
    key: str | None = None


@dataclass(slots=True)
class BatchOutcome:
    """What became of a sequence of transactions: the committed versions, and the error that ended it early."""

    results: list[Result] = field(default_factory=list)
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A function to call with the rows that its rule fired for; `sides`: its arguments for the rows that entered and left."""

    rule: CompiledRule
    function: Function
    delta: Delta
    sides: tuple[list[Row], list[Row]]


@dataclass(slots=True, eq=False)
class PendingVersion:
    """A version that is not committed yet: what was requested, and what each step of the pipeline adds.

    `requests`: the operations that were asked for, by which an idempotency key is compared. `operations`: what is to be done,
    with what actions of rules added. `is_replay`: its key was committed before. `is_transaction`: if not, the engine gets another
    program, for a `change` of definitions or initial rows, or for other rules. `rules`: the rules and the program after it.
    `from_sources`: the net effect that commits of attached tables had, and `sources`: those commits.
    """

    rules: RuleSet
    monitoring: Monitoring
    key: str | None = None
    is_replay: bool = False
    is_transaction: bool = True
    change: CatalogChange | None = None
    requests: list[Operation] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    from_sources: Net = field(default_factory=dict)
    sources: tuple[SourceVersion, ...] = ()
    started: float = field(default_factory=time.perf_counter)
    # The rules: what fired, what is still to be called, and the deltas that immediate rules have been processed for.
    firings: list[Firing] = field(default_factory=list)
    calls: list[PendingCall] = field(default_factory=list)
    processed: dict[str, Delta] = field(default_factory=dict)
    checked: dict[str, CheckedRows] = field(default_factory=dict)
    failure: Exception | None = None
    # Set by the steps, in this order.
    net: Net = field(default_factory=dict)
    has_moved_bases: bool = False  # the net effect is applied to an engine that holds base relations alone
    propagation: Propagation | None = None
    parked: ParkedDefinitions | None = None
    result: Result | None = None
    shares_sync: bool = False  # other versions of its group are not durable yet
    entry: VersionRecord | None = None
    has_called: bool = False
    is_bulk: bool = False
    is_committed: bool = False
