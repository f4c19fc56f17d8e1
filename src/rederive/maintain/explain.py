"""How each view is maintained and why: the maintenance program and the propagation network, as text, JSON or dot.

The printed rules are those that engines run: initial, incremental, from scratch, and the query rules of views that are not
stored. `tests/properties/test_explained_program_runs.py` runs them without an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rederive.analysis.closure import closure_of
from rederive.analysis.cost import Estimate
from rederive.analysis.graph import edges, strata
from rederive.errors import UnknownOption
from rederive.ir.printing import show_aggregate, show_definition, show_relation, show_rule
from rederive.ir.rules import Atom, Definition, Program, Variant
from rederive.ir.terms import TIMESTAMP, UTC
from rederive.maintain.maintenance_rule import MaintenanceRule, state_rules
from rederive.maintain.passes.magic_sets import adornment
from rederive.maintain.program import MaintenanceProgram, PartitionProgram, PassResult, Phase, Section
from rederive.maintain.requested_queries import requested_queries

FORMATS = ("text", "json", "dot")
Estimates = Mapping[tuple[str, ...], Estimate]


def explain(
    maintenance: MaintenanceProgram,
    form: str = "text",
    estimates: Estimates | None = None,
    memory: str = "",
    *,
    passes: bool = False,
) -> str:
    """The whole maintenance program in one of the formats, with estimates of its cost and its memory where they are known.

    With `passes`, also the program after each pass.
    """
    # Refused before anything is computed.
    if form not in FORMATS:
        raise UnknownOption("format", form, FORMATS)
    match form:
        case "json":
            data = as_data(maintenance, estimates or {}, memory)
            data |= {"passes": passes_data(maintenance)} if passes else {}
            return json.dumps(data, indent=2, ensure_ascii=False)
        case "dot":
            return as_dot(maintenance)
        case _:
            text = as_text(maintenance, estimates or {}, memory)
            return f"{passes_text(maintenance)}\n\n{text}" if passes else text


def as_data(maintenance: MaintenanceProgram, estimates: Estimates, memory: str = "") -> dict[str, Any]:
    """Plain data: sections with their phases and rules, strata, nodes and edges of the network; the time zone if it matters."""
    # Rules are printed as the maintenance program holds them; nothing is rewritten for the text.
    program = maintenance.program
    lookups, queries = _queries_data(maintenance)
    return {
        **({"zone": program.zone} if _has_times(maintenance) else {}),
        **({"memory": memory} if memory else {}),
        "sections": [_section_data(section, program, estimates) for section in maintenance.sections],
        "lookups": lookups,
        "queries": queries,
        "states": [_rule_data(rule) for rule in _state_rules(maintenance)],
        "strata": _strata(maintenance),
        "network": _network(maintenance),
    }


def _has_times(maintenance: MaintenanceProgram) -> bool:
    program = maintenance.program
    return program.zone != UTC or any(TIMESTAMP in relation.types for relation in program.relations.values())


def _section_data(section: Section, program: Program, estimates: Estimates) -> dict[str, Any]:
    # Estimates matter only where an engine has a choice.
    estimate = estimates.get(section.component.relations) if section.is_adaptive else None
    return {
        "views": [show_relation(program.relations[name]) for name in section.component.relations],
        "recursive": section.component.recursive,
        "strategy": section.strategy.value,
        "reason": section.reason,
        "stores": section.strategy.stored_state,
        "skipped_paths": section.skipped_paths,
        "closure": _closure_text(section, program),
        "estimates": _estimate_data(estimate) if estimate is not None else None,
        "rules": [show_definition(definition, program) for definition in section.component.definitions],
        "initial": [_phase_data(phase, program) for phase in section.initial],
        **({"by_partition": _partition_data(section.by_partition)} if section.by_partition is not None else {}),
        "phases": [_phase_data(phase, program) for phase in section.phases],
        "adaptive": section.is_adaptive,
        "from_scratch": [_phase_data(phase, program) for phase in section.from_scratch],
    }


def _partition_data(partition: PartitionProgram) -> dict[str, Any]:
    (section,) = partition.inside.sections
    (phase,) = section.initial
    return {
        "column": partition.inside.program.relations[partition.seed].columns[partition.column].name,
        "seeds": [_rule_data(rule) for rule in partition.seeds],
        "rules": [_rule_data(rule) for rule in phase.rules],
    }


def _closure_text(section: Section, program: Program) -> str | None:
    """That a view is a transitive closure, and in which form its queries are answered."""
    closure = closure_of(section.component)
    if closure is None:
        return None
    columns = [column.name for column in program.relations[closure.relation].columns]
    first, last = (", ".join(half) for half in (columns[: closure.width], columns[closure.width :]))
    steps = closure.step or "what its exit rules derive"
    return f"of {steps}, {closure.form.value}; queried left-linear where {first} is bound, right-linear where {last} is"


def _estimate_data(estimate: Estimate) -> dict[str, Any]:
    """In touched tuples."""
    per_row = {name: round(deleted, 1) for name, (deleted, _) in sorted(estimate.per_row.items())}
    return {"per_deleted_row": per_row, "from_scratch": round(estimate.whole)}


def _phase_data(phase: Phase, program: Program) -> dict[str, Any]:
    rules = [_rule_data(rule) for rule in phase.rules]
    if phase.fold is not None:
        source = program.relations[phase.fold.aggregate.source]
        fold = {"label": "F", "rule": show_aggregate(phase.fold.definition, source)}
        if phase.fold.source is not None:
            fold["source"] = show_rule(phase.fold.source.whole)
        # The fold is not a rule, but it is printed where it runs: after (G), before the rules that read its results.
        rules.insert(_fold_position(phase), fold)
    strict = {"strict": [_rule_data(rule) for rule in phase.strict]} if phase.strict else {}
    proof = phase.proof
    proved = {"proof": {"order": proof.order.value, "rules": list(map(_rule_data, proof.rules))}} if proof is not None else {}
    return {"name": phase.name, "runs": phase.semantics.value, "rules": rules, **strict, **proved}


def _fold_position(phase: Phase) -> int:
    """Before the first rule that reads the results of the fold."""
    reads = (i for i, m in enumerate(phase.rules) for a in m.rule.body if isinstance(a, Atom) and a.variant is Variant.FOLD)
    return next(reads, len(phase.rules))


def _rule_data(rule: MaintenanceRule) -> dict[str, str]:
    return {"label": rule.label, "rule": show_rule(rule.whole)}


def _queries_data(maintenance: MaintenanceProgram) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """The lookups in views that are derived on demand, and the query rules of each pattern that is requested."""
    # Patterns depend on the join order: these are the ones without sizes, and an engine may request others.
    requested = requested_queries(maintenance)
    relations = maintenance.program.relations
    queries = [
        {
            "view": pattern.relation,
            "pattern": adornment(pattern.bound, relations[pattern.relation].arity),
            "rules": [_rule_data(m) for m in rules],
        }
        for pattern, rules in requested.queries.items()
    ]
    return [_rule_data(m) for m in requested.lookups], queries


def _state_rules(maintenance: MaintenanceProgram) -> Iterator[MaintenanceRule]:
    # States that no printed rule reads are left out.
    used = {edge.source for section in maintenance.sections for d in section.component.definitions for edge in edges(d)}
    used.update(name for section in maintenance.sections for name in section.component.relations)
    for state in maintenance.states.values():
        if state.relation in used:
            yield from state_rules(state, maintenance.program.relations[state.relation])


def _strata(maintenance: MaintenanceProgram) -> list[list[str]]:
    phases = [phase for section in maintenance.sections for phase in section.phases]
    # Variants are relations of their own: p^minus negates p^ins and p^red without a cycle.
    rules: list[Definition] = [rule.whole for phase in phases for rule in phase.rules]
    rules += [phase.fold.definition for phase in phases if phase.fold is not None]
    rules += [rule.rule for rule in _state_rules(maintenance)]
    levels = strata(rules)
    return [sorted(name for name in levels if levels[name] == i) for i in range(max(levels.values(), default=-1) + 1)]


def _network(maintenance: MaintenanceProgram) -> dict[str, Any]:
    """Who passes changes on to whom; through a negation or an aggregate both signs may arise."""
    sections = maintenance.sections
    # Sorted and distinct: two rules that read the same relation are one edge.
    links = sorted(
        {
            (edge.source, edge.target, edge.through)
            for section in sections
            for definition in section.component.definitions
            for edge in edges(definition)
        }
    )
    strategies = {name: section.strategy.value for section in sections for name in section.component.relations}
    names = sorted({name for source, target, _ in links for name in (source, target)} | strategies.keys())
    return {
        "nodes": [{"relation": name, "strategy": strategies.get(name, "base relation")} for name in names],
        "edges": [{"from": source, "to": target, "through": through or "join"} for source, target, through in links],
    }


def as_text(maintenance: MaintenanceProgram, estimates: Estimates, memory: str = "") -> str:
    """The same as `as_data`, for people."""
    data = as_data(maintenance, estimates, memory)
    lines = [f"{title}: {data[name]}" for title, name in (("time zone", "zone"), ("memory", "memory")) if name in data]
    lines += [""] if lines else []
    for section in data["sections"]:
        lines += [*_section_lines(section), ""]
    if data["queries"]:
        lines.append("views derived on demand, in either state: a lookup requests its key, and query rules run to a fixpoint")
        lines += map(_labelled, data["lookups"])
        for query in data["queries"]:
            lines.append(f"  {query['view']}^{query['pattern']}")
            lines += map(_labelled, query["rules"])
        lines.append("")
    if data["states"]:
        lines.append("new states, read without being stored")
        lines += [*map(_labelled, data["states"]), ""]
    lines.append("strata")
    lines += [f"  S{i} = {{{', '.join(names)}}}" for i, names in enumerate(data["strata"])]
    lines += ["", "propagation network"]
    lines += [f"  {edge['from']} -> {edge['to']} ({edge['through']})" for edge in data["network"]["edges"]]
    return "\n".join(lines)


def _section_lines(section: dict[str, Any]) -> Iterator[str]:
    yield from section["views"]
    yield f"  strategy: {section['strategy']} ({section['reason']}); stores {section['stores']}"
    if section["closure"] is not None:
        yield f"  transitive closure {section['closure']}"
    if section["estimates"] is not None:
        costs = section["estimates"]
        per_row = ", ".join(f"{tuples:,} for a deleted row of {name}" for name, tuples in costs["per_deleted_row"].items())
        yield f"  estimated touched tuples: {per_row}; {costs['from_scratch']:,} from scratch"
    if section["skipped_paths"]:
        yield f"  path analysis: {section['skipped_paths']} rules cannot contribute and are left out"
    yield from (f"    {rule}" for rule in section["rules"])
    for phase in section["initial"]:
        yield from _phase_lines(phase)
    if "by_partition" in section:
        partition = section["by_partition"]
        yield f"  instead, where rows are in partitions by {partition['column']}: seeds first, then each partition to a fixpoint"
        yield from map(_labelled, (*partition["seeds"], *partition["rules"]))
    for phase in section["phases"]:
        yield from _phase_lines(phase)
    # A transaction runs either the incremental phases or these, never both.
    if section["from_scratch"]:
        if section["adaptive"]:
            yield "  instead, for a transaction where this is estimated to touch fewer tuples or the phases above take too long:"
        else:
            yield "  instead, for a transaction where the phases above take too long:"
    for phase in section["from_scratch"]:
        yield from _phase_lines(phase)


def _phase_lines(phase: dict[str, Any]) -> Iterator[str]:
    yield f"  {phase['name']}: {phase['runs']}"
    for rule in phase["rules"]:
        yield _labelled(rule)
        if "source" in rule:
            yield f"        all of its rows, where a fold reads all of them: {rule['source']}"
    if "strict" in phase:
        yield "  where a functor fails, for the error alone:"
        yield from map(_labelled, phase["strict"])
    if "proof" in phase:
        yield f"  each row is proved before it is deleted, in the resident engine: {phase['proof']['order']}"
        yield from map(_labelled, phase["proof"]["rules"])


def passes_data(maintenance: MaintenanceProgram) -> list[dict[str, Any]]:
    """What each pass made of the program: its definitions, or the phases of its sections. Unchanged results are left out."""
    results = []
    before: PassResult | None = None
    for result in maintenance.history:
        # Passes are pure, so equality of the results is what "unchanged" means.
        changed = before is None or (result.program, result.sections) != (before.program, before.sections)
        before = result
        data: dict[str, Any] = {"pass": result.name, "reason": result.reason, "changed": changed}
        if changed and result.sections:
            data["sections"] = [_section_data(section, result.program, {}) for section in result.sections]
        elif changed:
            data["rules"] = [show_definition(definition, result.program) for definition in result.program.definitions]
        results.append(data)
    return results


def passes_text(maintenance: MaintenanceProgram) -> str:
    """The same as `passes_data`, for people."""
    lines: list[str] = []
    for result in passes_data(maintenance):
        lines.append(f"after {result['pass']} ({result['reason']})" + ("" if result["changed"] else ": unchanged"))
        lines += [f"    {rule}" for rule in result.get("rules", ())]
        for section in result.get("sections", ()):
            lines += [f"  {line}" for line in _section_lines(section)]
        lines.append("")
    return "\n".join(lines[:-1])


def _labelled(rule: dict[str, str]) -> str:
    return f"    {rule['label']:<4}{rule['rule']}"


def as_dot(maintenance: MaintenanceProgram) -> str:
    """The propagation network for Graphviz."""
    network = _network(maintenance)
    lines = ["digraph propagation {", "  rankdir=BT;", '  node [fontname="sans-serif"];']
    for node in network["nodes"]:
        shape = "box" if node["strategy"] == "base relation" else "ellipse"
        # A JSON string is a valid quoted string of Graphviz.
        label = json.dumps(f"{node['relation']}\n{node['strategy']}", ensure_ascii=False)
        lines.append(f"  {json.dumps(node['relation'])} [shape={shape}, label={label}];")
    for edge in network["edges"]:
        style = "solid" if edge["through"] == "join" else "dashed"
        lines.append(f'  {json.dumps(edge["from"])} -> {json.dumps(edge["to"])} [style={style}, label="{edge["through"]}"];')
    return "\n".join([*lines, "}"])
