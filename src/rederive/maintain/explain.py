"""How each view is maintained and why: the maintenance program and the propagation network, as text, JSON or dot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rederive.analysis.closure import closure_of
from rederive.analysis.cost import Estimate
from rederive.analysis.graph import edges, strata
from rederive.errors import UnknownOption
from rederive.ir.printing import show_aggregate, show_definition, show_relation, show_rule
from rederive.ir.rules import Aggregate, Definition, Program
from rederive.ir.terms import TIMESTAMP, UTC
from rederive.maintain.program import MaintenanceProgram, MaintenanceRule, Phase, Section, state_rules

FORMATS = ("text", "json", "dot")


Estimates = Mapping[tuple[str, ...], Estimate]


def explain(maintenance: MaintenanceProgram, form: str = "text", estimates: Estimates | None = None, memory: str = "") -> str:
    """The whole maintenance program in one of the formats, with estimates of its cost and its memory where they are known."""
    if form not in FORMATS:
        raise UnknownOption("format", form, FORMATS)
    match form:
        case "json":
            return json.dumps(as_data(maintenance, estimates or {}, memory), indent=2, ensure_ascii=False)
        case "dot":
            return as_dot(maintenance)
        case _:
            return as_text(maintenance, estimates or {}, memory)


def as_data(maintenance: MaintenanceProgram, estimates: Estimates, memory: str = "") -> dict[str, Any]:
    """Plain data: sections with their phases and rules, strata, nodes and edges of the network; the time zone if it matters."""
    program = maintenance.program
    return {
        **({"zone": program.zone} if _has_times(maintenance) else {}),
        **({"memory": memory} if memory else {}),
        "sections": [_section_data(section, program, estimates) for section in maintenance.sections],
        "states": [_rule_data(rule) for rule in _state_rules(maintenance)],
        "strata": _strata(maintenance),
        "network": _network(maintenance),
    }


def _has_times(maintenance: MaintenanceProgram) -> bool:
    program = maintenance.program
    return program.zone != UTC or any(TIMESTAMP in relation.types for relation in program.relations.values())


def _section_data(section: Section, program: Program, estimates: Estimates) -> dict[str, Any]:
    estimate = estimates.get(section.component.relations) if section.adaptive else None
    return {
        "views": [show_relation(program.relations[name]) for name in section.component.relations],
        "recursive": section.component.recursive,
        "strategy": section.strategy.value,
        "reason": section.reason,
        "keeps": section.strategy.keeps,
        "skipped_paths": section.skipped_paths,
        "closure": _closure_text(section, program),
        "estimates": _estimate_data(estimate) if estimate is not None else None,
        "rules": [show_definition(definition, program) for definition in section.component.definitions],
        "phases": [_phase_data(phase, section, program) for phase in section.phases],
        "magic": [_rule_data(rule) for rule in section.rewritten],
    }


def _closure_text(section: Section, program: Program) -> str | None:
    """That a view is a transitive closure, and in which form its questions are answered."""
    closure = closure_of(section.component)
    if closure is None:
        return None
    columns = [column.name for column in program.relations[closure.relation].columns]
    first, last = (", ".join(half) for half in (columns[: closure.width], columns[closure.width :]))
    steps = closure.step or "what its exit rules derive"
    return f"of {steps}, {closure.form.value}; asked left-linear where {first} is given, right-linear where {last} is"


def _estimate_data(estimate: Estimate) -> dict[str, Any]:
    """In tuples touched."""
    per_row = {name: round(tuples, 1) for name, tuples in sorted(estimate.per_row.items())}
    return {"per_deleted_row": per_row, "from_scratch": round(estimate.whole)}


def _phase_data(phase: Phase, section: Section, program: Program) -> dict[str, Any]:
    rules = [_rule_data(rule) for rule in phase.rules]
    if phase.fold is not None:
        (aggregate,) = section.component.definitions
        assert isinstance(aggregate, Aggregate)
        fold = {"label": "F", "rule": show_aggregate(phase.fold, program.relations[aggregate.source])}
        rules.insert(-1, fold)
    return {"name": phase.name, "runs": phase.semantics.value, "rules": rules}


def _rule_data(rule: MaintenanceRule) -> dict[str, str]:
    return {"label": rule.label, "rule": show_rule(rule.rule)}


def _state_rules(maintenance: MaintenanceProgram) -> Iterator[MaintenanceRule]:
    used = {edge.source for section in maintenance.sections for d in section.component.definitions for edge in edges(d)}
    used.update(name for section in maintenance.sections for name in section.component.relations)
    for state in maintenance.states.values():
        if state.relation in used:
            yield from state_rules(state, maintenance.program.relations[state.relation])


def _strata(maintenance: MaintenanceProgram) -> list[list[str]]:
    phases = [phase for section in maintenance.sections for phase in section.phases]
    rules: list[Definition] = [rule.rule for phase in phases for rule in phase.rules]
    rules += [phase.fold for phase in phases if phase.fold is not None]
    rules += [rule.rule for rule in _state_rules(maintenance)]
    levels = strata(rules)
    return [sorted(name for name in levels if levels[name] == i) for i in range(max(levels.values(), default=-1) + 1)]


def _network(maintenance: MaintenanceProgram) -> dict[str, Any]:
    """Who passes changes on to whom; through a negation or an aggregate both signs may arise."""
    sections = maintenance.sections
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
    data = as_data(maintenance, estimates, memory)
    lines = [f"{title}: {data[name]}" for title, name in (("time zone", "zone"), ("memory", "memory")) if name in data]
    lines += [""] if lines else []
    for section in data["sections"]:
        lines += section["views"]
        lines.append(f"  strategy: {section['strategy']} ({section['reason']}); keeps {section['keeps']}")
        if section["closure"] is not None:
            lines.append(f"  transitive closure {section['closure']}")
        if section["estimates"] is not None:
            costs = section["estimates"]
            per_row = ", ".join(f"{tuples:,} for a deleted row of {name}" for name, tuples in costs["per_deleted_row"].items())
            lines.append(f"  estimated tuples touched: {per_row}; {costs['from_scratch']:,} from scratch")
            lines.append("  evaluated from scratch instead where a transaction is estimated to touch more")
        if section["skipped_paths"]:
            lines.append(f"  path analysis: {section['skipped_paths']} rules cannot contribute and are left out")
        lines += [f"    {rule}" for rule in section["rules"]]
        for phase in section["phases"]:
            lines.append(f"  {phase['name']}: {phase['runs']}")
            lines += [_labelled(rule) for rule in phase["rules"]]
        if section["magic"]:
            lines.append("  with rederivation on demand: the maintenance rules and the query rules that they raise")
            lines += [_labelled(rule) for rule in section["magic"]]
        lines.append("")
    if data["states"]:
        lines.append("new states, read without being stored")
        lines += [*map(_labelled, data["states"]), ""]
    lines.append("strata")
    lines += [f"  S{i} = {{{', '.join(names)}}}" for i, names in enumerate(data["strata"])]
    lines += ["", "propagation network"]
    lines += [f"  {edge['from']} -> {edge['to']} ({edge['through']})" for edge in data["network"]["edges"]]
    return "\n".join(lines)


def _labelled(rule: dict[str, str]) -> str:
    return f"    {rule['label']:<4}{rule['rule']}"


def as_dot(maintenance: MaintenanceProgram) -> str:
    """The propagation network for Graphviz."""
    network = _network(maintenance)
    lines = ["digraph propagation {", "  rankdir=BT;", '  node [fontname="sans-serif"];']
    for node in network["nodes"]:
        shape = "box" if node["strategy"] == "base relation" else "ellipse"
        label = json.dumps(f"{node['relation']}\n{node['strategy']}", ensure_ascii=False)
        lines.append(f"  {json.dumps(node['relation'])} [shape={shape}, label={label}];")
    for edge in network["edges"]:
        style = "solid" if edge["through"] == "join" else "dashed"
        lines.append(f'  {json.dumps(edge["from"])} -> {json.dumps(edge["to"])} [style={style}, label="{edge["through"]}"];')
    return "\n".join([*lines, "}"])
