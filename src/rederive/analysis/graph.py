"""Who depends on whom: the dependency graph, its strongly connected components, strata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rederive.errors import Span, Unstratified
from rederive.ir.rules import (
    Aggregate,
    Atom,
    Comparison,
    Definition,
    Negation,
    Operator,
    Program,
    Rule,
    defines,
    literal_variables,
)
from rederive.ir.terms import Call, Variable


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` is defined in terms of `source`; `negative` when its whole extent must be known first."""

    source: str
    target: str
    negative: bool = False
    through: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """Relations that depend on one another, with their definitions: the unit that is evaluated together."""

    relations: tuple[str, ...]
    definitions: tuple[Definition, ...]
    recursive: bool


def edges(definition: Definition) -> Iterator[Edge]:
    """The dependencies that one definition adds; atoms are called by their full name, variant included."""
    match definition:
        case Aggregate():
            # An aggregate must see its whole source, as a negation must: both are negative edges.
            yield Edge(definition.source, definition.relation, True, "aggregation", definition.span)
        case Rule(head, body):
            for literal in body:
                match literal:
                    case Atom():
                        yield Edge(literal.name, head.name, span=literal.span)
                    case Negation(atom):
                        yield Edge(atom.name, head.name, True, "negation", atom.span)
                    case _:
                        pass


def components(program: Program) -> tuple[Component, ...]:
    """The views of a program grouped by mutual recursion, each group after all that it depends on."""
    # Passes ask for each section: without the memo, planning would take the square of the number of views.
    if "components" not in program.memo:
        program.memo["components"] = _components(program)
    return cast("tuple[Component, ...]", program.memo["components"])


def _components(program: Program) -> tuple[Component, ...]:
    views = set(program.views)
    sources: dict[str, list[str]] = {view: [] for view in program.views}
    for definition in program.definitions:
        for edge in edges(definition):
            if edge.source in views:
                sources[edge.target].append(edge.source)
    # Names in the order of declaration, so that equal programs have equal components and texts.
    order = {name: i for i, name in enumerate(program.relations)}
    found = []
    for group in strongly_connected(sources):
        names = tuple(sorted(group, key=order.__getitem__))
        recursive = len(names) > 1 or names[0] in sources[names[0]]
        found.append(Component(names, _definitions(program, names), recursive))
    return tuple(found)


def _definitions(program: Program, names: tuple[str, ...]) -> tuple[Definition, ...]:
    """In the order of the program; of one relation, without looking at the others."""
    if len(names) == 1:
        return program.definitions_of(names[0])
    return tuple(definition for definition in program.definitions if defines(definition) in names)


def inventing_rule(component: Component) -> Rule | None:
    """A recursive rule that computes values for its head out of others: such a recursion may never end."""
    rules = (rule for rule in component.definitions if isinstance(rule, Rule) and component.recursive)
    return next((rule for rule in rules if _invents(rule, component.relations)), None)


def _invents(rule: Rule, inside: Sequence[str]) -> bool:
    atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
    bound = {v for atom in atoms for v in literal_variables(atom)}
    tests = (literal for literal in rule.body if isinstance(literal, Comparison) and literal.operator is Operator.EQ)
    sides = [(one, other) for test in tests for one, other in ((test.left, test.right), (test.right, test.left))]
    # A variable that an atom binds too is only tested: a value that some row has already.
    computes = any(isinstance(one, Variable) and one not in bound and isinstance(other, Call) for one, other in sides)
    return computes and any(atom.relation in inside for atom in atoms)


def check_stratified(program: Program, known: Program | None = None) -> None:
    """Refuse negation and aggregation inside a recursion, naming the cycle.

    Of a program that extends a `known` one, only what is new: no relation of that can depend on a new one.
    """
    new = program.definitions[len(known.definitions) :] if known is not None else program.definitions
    for component in components(Program(program.relations, new) if known is not None else program):
        if component.recursive:
            inside = [edge for d in component.definitions for edge in edges(d) if edge.source in component.relations]
            for edge in inside:
                # Stratified: no cycle through a negative edge. Both ends in one component are such a cycle.
                if edge.negative:
                    cycle = _cycle(edge, inside)
                    declared = [name for name in cycle[:-1] if not program.relations[name].is_auxiliary]
                    raise Unstratified((*declared, declared[0]) if declared else cycle, edge.through, edge.span)


def _cycle(closing: Edge, inside: Sequence[Edge]) -> tuple[str, ...]:
    """A shortest way from the closing edge's target back to its source, closed by that edge."""
    paths: dict[str, tuple[str, ...]] = {closing.target: (closing.target,)}
    frontier = [closing.target]
    # Breadth first; it ends, because the component is strongly connected.
    while closing.source not in paths:
        frontier = [e.target for name in frontier for e in inside if e.source == name and _extend(paths, e)]
    return (*paths[closing.source], closing.target)


def _extend(paths: dict[str, tuple[str, ...]], edge: Edge) -> bool:
    if edge.target in paths:
        return False
    paths[edge.target] = (*paths[edge.source], edge.target)
    return True


def strata(rules: Iterable[Definition]) -> dict[str, int]:
    """The lowest stratum of every relation: 0 for what no rule defines, and one more than what it negates.

    The rules must be stratified; variants count as relations of their own, so maintenance programs have strata too.
    """
    all_rules = tuple(rules)
    found = [edge for rule in all_rules for edge in edges(rule)]
    level = {edge.source: 0 for edge in found} | {_head(rule): 1 for rule in all_rules}
    changed = True
    # Least solution of level(target) >= level(source), and > where the edge is negative. It exists where the rules are
    # stratified.
    while changed:
        changed = False
        for edge in found:
            least = level[edge.source] + edge.negative
            if level[edge.target] < least:
                level[edge.target] = least
                changed = True
    return level


def _head(definition: Definition) -> str:
    return definition.head.name if isinstance(definition, Rule) else definition.relation


def needed(program: Program, targets: Iterable[str]) -> frozenset[str]:
    """The targets and every relation that they are computed from."""
    sources: dict[str, set[str]] = {}
    for definition in program.definitions:
        for edge in edges(definition):
            sources.setdefault(edge.target, set()).add(edge.source)
    found: set[str] = set()
    frontier = list(targets)
    while frontier:
        name = frontier.pop()
        if name not in found:
            found.add(name)
            frontier.extend(sources.get(name, ()))
    return frozenset(found)


def strongly_connected(successors: Mapping[str, Sequence[str]]) -> Iterator[frozenset[str]]:
    """Tarjan's algorithm, without recursion: components come after all components that they point to.

    >>> [sorted(c) for c in strongly_connected({"a": ["b"], "b": ["a", "c"], "c": []})]
    [['c'], ['a', 'b']]
    """
    # index: order of discovery; low: the smallest index on the stack that a node reaches. A component is complete when the two
    # are equal.
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in successors:
        if root in index:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(successors[following])))
                    break
                # An edge to a node off the stack leads into a finished component and closes no cycle.
                if following in on_stack:
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = set()
                    while node not in members:
                        members.add(stack.pop())
                    on_stack -= members
                    yield frozenset(members)
