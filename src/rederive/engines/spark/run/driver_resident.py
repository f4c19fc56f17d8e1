"""A rule whose relations are all in the driver, and small: the resident engine derives its rows without a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.plan.sources import Local, Source
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Atom, Relation, Rule
from rederive.ir.terms import Row
from rederive.maintain.fragments import HEAD, atom_name, rule_program
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy


def local_sources(rule: Rule, read: Sequence[tuple[Atom, Source]], tuning: Tuning) -> Sequence[tuple[Atom, Local]] | None:
    """What a rule reads, where all of it is in the driver, and little; else None."""
    if len(set(map(id, rule.body))) < len(rule.body):
        return None  # sources are found by the identity of their literal
    local = [(atom, source) for atom, source in read if isinstance(source, Local)]
    rows = sum(len(source) for _, source in local)
    return local if len(local) == len(read) and rows <= tuning.resident_rows else None


def derive_rows(rule: Rule, atoms: Sequence[tuple[Atom, Local]], relations: Mapping[str, Relation]) -> frozenset[Row]:
    """What a rule derives; `atoms` are those of its body that have rows, each with its source."""
    program = rule_program(rule, [atom for atom, _ in atoms], relations)
    # A new engine for each rule: at this size, building it takes less time than a job's overhead.
    engine = ResidentEngine()
    initial = {atom_name(i): source.rows for i, (_, source) in enumerate(atoms)}
    engine.install(plan(program, [HEAD], Strategy.MATERIALIZED.value), [HEAD], initial)
    engine.commit()
    return frozenset(engine.rows(HEAD, {}))
