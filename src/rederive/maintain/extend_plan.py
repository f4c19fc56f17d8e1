"""A plan that is extended by new definitions: the n-th view costs what its own rules cost.

A section depends on the rules of its component, on the relations that these read, and on few facts about its readers: that there
are any, which signs they need, whether only totals read it, and whether only constants do. With every reader more, each of these
facts can change once, and in one direction. A relation is *fixed* where no further reader can change them. So only new
relations, those below them that are not fixed, and the readers of these are planned; fixed ones are targets of that plan.
`tests/maintain/test_extend_plan.py` compares the result with the plan of the whole program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rederive.analysis.graph import Component, edges
from rederive.delta import BOTH, Sign
from rederive.ir.rules import Definition, Program
from rederive.maintain.maintenance_rule import State
from rederive.maintain.plan import plan
from rederive.maintain.program import MaintenanceProgram, PlanExtension, Section, Strategy

Signs = Mapping[str, frozenset[Sign]]
_VERSION = ".at("  # in the name of a relation that `passes.push_constants` made


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a maintenance program is planned for; the arguments of `plan`."""

    program: Program
    monitored: Signs
    strategy: str
    precision: str
    not_stored: frozenset[str] = frozenset()
    conditions: Mapping[str, str] = field(default_factory=dict)

    def plan(self) -> MaintenanceProgram:
        """The plan of the whole program."""
        return plan(self.program, self.monitored, self.strategy, self.precision, self.monitored, self.not_stored, self.conditions)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was made for. `readers`: who reads each relation of the program."""

    request: PlanRequest
    maintenance: MaintenanceProgram
    readers: Mapping[str, tuple[str, ...]]

    @classmethod
    def whole(cls, request: PlanRequest) -> Planned:
        """The plan of a whole program."""
        return cls(request, request.plan(), _with_readers({}, request.program.definitions))

    def extend(self, request: PlanRequest) -> Planned | None:
        """The plan for a program with more definitions; None where it is not this program with new relations alone."""
        added = _added_definitions(self.request, request)
        if added is None:
            return None
        if request.program is self.request.program and len(request.monitored) == len(self.request.monitored):
            return self
        readers = _with_readers(self.readers, added)
        found = _extended(self, request, readers)
        return Planned(request, found, readers) if found is not None else None


def _with_readers(known: Mapping[str, tuple[str, ...]], added: Iterable[Definition]) -> dict[str, tuple[str, ...]]:
    readers = dict(known)
    for definition in added:
        for edge in edges(definition):
            readers[edge.source] = (*readers.get(edge.source, ()), edge.target)
    return readers


def _added_definitions(before: PlanRequest, after: PlanRequest) -> Sequence[Definition] | None:
    """The definitions that a program adds for relations of their own; None where anything else differs."""
    same = (before.strategy, before.precision, before.not_stored) == (after.strategy, after.precision, after.not_stored)
    # Conditions of active rules may be differenced, which depends on all other targets.
    if not same or before.conditions or after.conditions:
        return None
    one, two = before.program, after.program
    more = after.monitored.keys() - before.monitored.keys()
    is_more = before.monitored.items() <= after.monitored.items() and more.isdisjoint(one.relations)
    return two.definitions[len(one.definitions) :] if is_more and two.extends(one) else None


def _extended(before: Planned, request: PlanRequest, readers: Mapping[str, tuple[str, ...]]) -> MaintenanceProgram | None:
    old, known = before.maintenance, before.request.program.relations
    new = tuple(islice(request.program.relations, len(known), None))
    region = _region(before, request.program, new, readers)
    part = _part(request, region, _border(request.program, region, old))
    # Versions of a view that is now read in general are no longer made, here and in the sections of others.
    changed = {name for name in region if name in known}
    if any(name.partition(_VERSION)[0] in changed for name in old.program.relations if _VERSION in name):
        return None
    if any(part.program.definitions_of(name) != old.program.definitions_of(name) for name in changed):
        return None
    own = {name for name in part.program.relations if name in region or name not in old.program.relations}
    sections = tuple(section for section in part.sections if own.issuperset(section.component.relations))
    replaced = {section.component.relations: section for section in sections if section.component.relations[0] in old.section_of}
    if any(old.section_of[name].component.relations not in replaced for name in changed if name in old.section_of):
        return None
    fresh = tuple(section for section in sections if section.component.relations not in replaced)
    return _merged(before, request, part, own, replaced, fresh)


def _region(before: Planned, program: Program, new: Sequence[str], readers: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The relations to be planned: the new ones, what they read and is not fixed, and all readers of that."""
    region: set[str] = set()
    waiting = list(new)
    while waiting:
        name = waiting.pop()
        if name in region:
            continue
        region.add(name)
        below = {edge.source for definition in program.definitions_of(name) for edge in edges(definition)}
        waiting += [source for source in below if source in program.defined and not _is_fixed(source, before)]
        if not _is_fixed(name, before):
            waiting += readers.get(name, ())
    return region


def _is_fixed(name: str, before: Planned) -> bool:
    """Whether no further reader changes how a view is maintained."""
    old = before.maintenance
    section = old.section_of.get(name)
    if section is None or old.signs.get(name) != BOTH:
        return False
    # A view that only totals read is not stored; one that a single rule reads may be unfolded into it.
    is_passed_on = section.strategy is Strategy.DIFFERENCING and section.has_one_derivation
    return not is_passed_on and (before.request.strategy != Strategy.ON_DEMAND.value or name in before.request.monitored)


def _border(program: Program, region: Collection[str], old: MaintenanceProgram) -> dict[str, Component]:
    """The components outside the region that it reads."""
    read = {edge.source for name in region for definition in program.definitions_of(name) for edge in edges(definition)}
    return {name: old.component(name) for name in sorted(read) if name in program.defined and name not in region}


def _part(request: PlanRequest, region: Collection[str], border: Mapping[str, Component]) -> MaintenanceProgram:
    """The plan of a region. What it reads outside is a target: fixed relations are maintained as targets are."""
    program = request.program
    outside = dict.fromkeys(n for component in border.values() for n in component.relations if n in program.relations)
    names = (*(name for name in program.relations if name in region), *outside)
    definitions = tuple(definition for name in names for definition in program.definitions_of(name))
    read = (edge.source for definition in definitions for edge in edges(definition))
    relations = {name: program.relations[name] for name in dict.fromkeys((*read, *names))}
    monitored = {name: request.monitored[name] for name in names if name in request.monitored and name in region}
    return replace(
        request,
        program=Program(relations, definitions, zone=program.zone),
        monitored={**monitored, **dict.fromkeys(border, BOTH)},
    ).plan()


def _merged(
    before: Planned,
    request: PlanRequest,
    part: MaintenanceProgram,
    own: Collection[str],
    replaced: Mapping[tuple[str, ...], Section],
    fresh: tuple[Section, ...],
) -> MaintenanceProgram:
    old, known = before.maintenance, before.maintenance.program.relations
    new = {name: relation for name, relation in part.program.relations.items() if name in own and name not in known}
    # A view that no target needs has no section, and is in the program all the same.
    declared = islice(request.program.relations, len(before.request.program.relations), None)
    new |= {name: request.program.relations[name] for name in declared}
    definitions = tuple(definition for name in new for definition in part.program.definitions_of(name))
    program = replace(request.program, relations={**known, **new}, definitions=(*old.program.definitions, *definitions))
    program.inherit(old.program)
    sections = tuple(replaced.get(section.component.relations, section) for section in old.sections) if replaced else old.sections
    # The new ones come last: nothing that was there reads them.
    bases = (*old.bases, *(State(name) for name in new if name not in program.defined))
    extension = PlanExtension(old.token, tuple(replaced.values()), fresh, tuple(new))
    signs = {**old.signs, **{name: signs for name, signs in part.signs.items() if name in own}}
    found = MaintenanceProgram(program, (*sections, *fresh), bases, signs=signs, extends=extension)
    found.inherit(old, {name: component for name, component in part.components.items() if name in own})
    return found
