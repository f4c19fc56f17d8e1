"""A plan that follows the definitions: what a statement costs is what its own relations cost, and those that read them.

A section depends on the rules of its component, on the relations that these read, and on few facts about its readers: that there
are any, which signs they need, whether only totals read it, and whether only constants do. With every reader more, each of these
facts can change once, and in one direction. A relation is *fixed* where no further reader can change them. So only new
relations, those below them that are not fixed, and the readers of these are planned; fixed ones are targets of that plan.

A relation that is replaced is taken out with all that read it, and comes in as new with them. What a reader less may change is
planned as well: a relation is *stable* where it is a target itself, or where one of the readers that are left fixes it alone.
`tests/maintain/test_extend_plan.py` compares the result with the plan of the whole program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rederive.analysis.affected import changed_relations
from rederive.analysis.graph import edges, needed
from rederive.delta import BOTH, Sign
from rederive.ir.rules import TOTALS, Aggregate, Atom, Definition, Program, Rule
from rederive.ir.terms import Constant
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
        """The plan for a program that differs in some relations; None where the plan of the whole has to be made."""
        change = _Change.between(self, request)
        if change is None:
            return None
        if request.program is self.request.program and len(request.monitored) == len(self.request.monitored):
            return self
        found = _extended(self, request, change)
        return Planned(request, found, change.readers) if found is not None else None


def _with_readers(known: Mapping[str, tuple[str, ...]], added: Iterable[Definition]) -> dict[str, tuple[str, ...]]:
    readers = dict(known)
    for definition in added:
        for edge in edges(definition):
            readers[edge.source] = (*readers.get(edge.source, ()), edge.target)
    return readers


@dataclass(frozen=True, slots=True)
class _Change:
    """From one program to the next. `gone`: the relations that are taken out; a replaced one is `new` as well.

    `readers`: who reads each relation of the next program. `serving`: what a target needs that is no condition of a rule.
    """

    gone: frozenset[str]
    new: tuple[str, ...]
    readers: Mapping[str, tuple[str, ...]]
    serving: frozenset[str] | None

    @classmethod
    def between(cls, planned: Planned, request: PlanRequest) -> _Change | None:
        """What differs; None where it is more than some relations."""
        before, one, two = planned.request, planned.request.program, request.program
        same = (before.strategy, before.precision, before.not_stored) == (request.strategy, request.precision, request.not_stored)
        if not same or one.zone != two.zone:
            return None
        changed = changed_relations(one, two) if one is not two else set()
        gone = _with_their_readers({name for name in changed if name in one.relations}, planned.readers)
        new = tuple(name for name in two.relations if name in gone or name in changed)
        # Rows of a base relation that stays under another declaration are not loaded again.
        if any(name in gone and name not in one.defined and one.shares_base(name, two) for name in new):
            return None
        touched = gone.union(changed)
        asked_before = ((request.monitored, before.monitored), (request.conditions, before.conditions))
        if any(_others(asked, touched) != _others(known, touched) for asked, known in asked_before):
            return None
        left = _without_readers(planned.readers, gone, one) if gone else planned.readers
        readers = _with_readers(left, (definition for name in new for definition in two.definitions_of(name)))
        serving = None
        if request.conditions or before.conditions:
            serving = needed(one, [name for name in before.monitored if name not in before.conditions])
        return cls(gone, new, readers, serving)


def _others(asked: Mapping[str, object], touched: Collection[str]) -> dict[str, object]:
    return {name: what for name, what in asked.items() if name not in touched}


def _with_their_readers(names: set[str], readers: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    waiting = list(names)
    while waiting:
        more = set(readers.get(waiting.pop(), ())).difference(names)
        names |= more
        waiting += more
    return frozenset(names)


def _without_readers(
    readers: Mapping[str, tuple[str, ...]], gone: Collection[str], program: Program
) -> dict[str, tuple[str, ...]]:
    left = {name: found for name, found in readers.items() if name not in gone}
    for source in {edge.source for name in gone for d in program.definitions_of(name) for edge in edges(d)}.difference(gone):
        left[source] = tuple(name for name in left[source] if name not in gone)
    return left


def _extended(before: Planned, request: PlanRequest, change: _Change) -> MaintenanceProgram | None:
    old, known = before.maintenance, before.request.program.relations
    gone = _gone_with_versions(before, change)
    if gone is None:
        return None
    loose = _loosened(before, change)
    region = _region(before, request.program, change, loose)
    part = _part(before, request, region, change)
    # Versions of a view that is now read in general are no longer made, here and in the sections of others.
    changed = {name for name in region if name in known and name not in gone}
    if any(name.partition(_VERSION)[0] in changed for name in old.program.relations if _VERSION in name and name not in gone):
        return None
    if any(part.program.definitions_of(name) != old.program.definitions_of(name) for name in changed):
        return None
    own = {name for name in part.program.relations if name in region or name in gone or name not in old.program.relations}
    sections = tuple(section for section in part.sections if own.issuperset(section.component.relations))
    standing = {name: section for name, section in old.section_of.items() if name not in gone} if gone else old.section_of
    replaced = {section.component.relations: section for section in sections if section.component.relations[0] in standing}
    if any(standing[name].component.relations not in replaced for name in changed if name in standing):
        return None
    # Other views that are derived on demand may read what would be stored no longer.
    freed = any(standing[n[0]].is_stored and not section.is_stored for n, section in replaced.items())
    if freed and (request.not_stored or request.conditions):
        return None
    fresh = tuple(section for section in sections if section.component.relations not in replaced)
    return _merged(before, request, part, own, gone, replaced, fresh, change)


def _gone_with_versions(before: Planned, change: _Change) -> frozenset[str] | None:
    """The relations that leave the planned program: those that passes made for the readers that go, too.

    None where one that stays reads a relation that a pass made as well.
    """
    program, asked = before.maintenance.program, before.request.program.relations
    if not change.gone or len(program.relations) == len(asked):
        return change.gone
    gone, waiting = set(change.gone), [name for name in change.gone if name in program.relations]
    while waiting:
        read = (edge.source for definition in program.definitions_of(waiting.pop()) for edge in edges(definition))
        more = [name for name in read if name not in asked and name not in gone]
        gone.update(more)
        waiting += more
    made = gone - change.gone
    left = (definition for name, found in program.defined.items() if name not in gone for definition in found)
    return frozenset(gone) if not made or all(edge.source not in gone for d in left for edge in edges(d)) else None


def _loosened(before: Planned, change: _Change) -> set[str]:
    """The views below the relations that go which a reader less may change."""
    program = before.request.program
    below: dict[str, None] = {}
    waiting = list(change.gone)
    while waiting:
        for definition in program.definitions_of(waiting.pop()):
            for edge in edges(definition):
                if edge.source in program.defined and edge.source not in below and edge.source not in change.gone:
                    below[edge.source] = None
                    waiting.append(edge.source)
    stable: dict[str, bool] = {}
    return {name for name in below if not _is_stable(name, before, change, below, stable)}


def _is_stable(name: str, before: Planned, change: _Change, below: Collection[str], known: dict[str, bool]) -> bool:
    """Whether the readers that are left keep a view as it is."""
    if name not in known:
        known[name] = False  # on a cycle, until another reader decides
        request = before.request
        is_target = request.monitored.get(name) == BOTH and name not in request.conditions
        known[name] = is_target or any(
            _fixes(definition, name)
            for reader in before.readers.get(name, ())
            if reader not in change.gone
            and _is_fixed(reader, before, change)
            and (reader not in below or _is_stable(reader, before, change, below, known))
            for definition in request.program.definitions_of(reader)
        )
    return known[name]


def _fixes(definition: Definition, name: str) -> bool:
    """Whether a reader that is itself fixed fixes what it reads: it needs the rows themselves, whatever their values."""
    match definition:
        case Aggregate():
            return definition.source == name and (definition.function not in TOTALS or definition.is_window)
        case Rule():
            atoms = (literal for literal in definition.body if isinstance(literal, Atom) and literal.relation == name)
            return any(not any(isinstance(term, Constant) for term in atom.terms) for atom in atoms)


def _region(before: Planned, program: Program, change: _Change, loose: Collection[str]) -> set[str]:
    """The relations to be planned: the new and the loose ones, what they read and is not fixed, and all readers of that."""
    region: set[str] = set()
    waiting = [*change.new, *loose]
    while waiting:
        name = waiting.pop()
        if name in region:
            continue
        region.add(name)
        below = {edge.source for definition in program.definitions_of(name) for edge in edges(definition)}
        free = (source for source in below if source in program.defined)
        waiting += [source for source in free if source in loose or not _is_fixed(source, before, change)]
        if name in loose or not _is_fixed(name, before, change):
            waiting += change.readers.get(name, ())
    return region


def _is_fixed(name: str, before: Planned, change: _Change) -> bool:
    """Whether no further reader changes how a view is maintained."""
    old = before.maintenance
    section = old.section_of.get(name)
    if name in change.gone or section is None or old.signs.get(name) != BOTH:
        return False
    # What conditions of active rules alone need may be differenced.
    if change.serving is not None and name not in change.serving:
        return False
    # A view that only totals read is not stored; one that a single rule reads may be unfolded into it.
    is_passed_on = section.strategy is Strategy.DIFFERENCING and section.has_one_derivation
    return not is_passed_on and (before.request.strategy != Strategy.ON_DEMAND.value or name in before.request.monitored)


def _part(before: Planned, request: PlanRequest, region: Collection[str], change: _Change) -> MaintenanceProgram:
    """The plan of a region. What it reads outside is a target: fixed relations are maintained as targets are."""
    program, old = request.program, before.maintenance
    read = {edge.source for name in region for definition in program.definitions_of(name) for edge in edges(definition)}
    border = {name: old.component(name) for name in sorted(read) if name in program.defined and name not in region}
    outside = dict.fromkeys(n for component in border.values() for n in component.relations if n in program.relations)
    names = (*(name for name in program.relations if name in region), *outside)
    definitions = tuple(definition for name in names for definition in program.definitions_of(name))
    sources = (edge.source for definition in definitions for edge in edges(definition))
    relations = {name: program.relations[name] for name in dict.fromkeys((*sources, *names))}
    monitored = {name: signs for name, signs in request.monitored.items() if name in region}
    return replace(
        request,
        program=Program(relations, definitions, zone=program.zone),
        monitored={**monitored, **dict.fromkeys(border, BOTH)},
        conditions={name: precision for name, precision in request.conditions.items() if name in region},
    ).plan()


def _merged(
    before: Planned,
    request: PlanRequest,
    part: MaintenanceProgram,
    own: Collection[str],
    gone: frozenset[str],
    replaced: Mapping[tuple[str, ...], Section],
    fresh: tuple[Section, ...],
    change: _Change,
) -> MaintenanceProgram:
    old = before.maintenance
    left = old.program.without(gone) if gone else old.program
    new = {name: relation for name, relation in part.program.relations.items() if name in own and name not in left.relations}
    # A view that no target needs has no section, and is in the program all the same.
    new |= {name: request.program.relations[name] for name in change.new}
    definitions = tuple(definition for name in new for definition in part.program.definitions_of(name))
    program = replace(request.program, relations={**left.relations, **new}, definitions=(*left.definitions, *definitions))
    program.inherit(left)
    sections = old.sections
    if gone:
        lost = {id(old.section_of[name]) for name in gone if name in old.section_of}
        sections = tuple([section for section in sections if id(section) not in lost])
    if replaced:
        sections = tuple(replaced.get(section.component.relations, section) for section in sections)
    # The new ones come last: nothing that was there reads them.
    bases = tuple(state for state in old.bases if state.relation not in gone) if gone else old.bases
    bases = (*bases, *(State(name) for name in new if name not in program.defined))
    extension = PlanExtension(old.token, tuple(replaced.values()), fresh, tuple(new), gone)
    signs = {name: signs for name, signs in old.signs.items() if name not in gone} if gone else old.signs
    signs = {**signs, **{name: signs for name, signs in part.signs.items() if name in own}}
    found = MaintenanceProgram(program, (*sections, *fresh), bases, signs=signs, extends=extension)
    found.inherit(old, {name: component for name, component in part.components.items() if name in own})
    return found
