"""Views that are not stored: rows are derived when a rule looks them up, and only for the bindings of the lookup.

A lookup by bound columns is the magic rule: it adds its key to the magic table of that pattern and runs the query rules of the
component (`maintain.passes.magic_sets`) to their fixpoint, unless the key was requested before. Answers stay until `clear`, at
the end of a transaction. A component looks up lower ones in the same way, from within, so whatever it negates or aggregates is
complete for the binding.

The compiled functions are the supplementary relations: what a rule has joined so far is in its loops and is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from pyroaring import BitMap

from rederive.analysis.graph import Component, edges, inventing_rule
from rederive.analysis.types import variable_types
from rederive.engines.resident.compile.findings import Pending
from rederive.engines.resident.compile.rule_compiler import compile_rule
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.fixpoint import Fixpoint, Meter, Target
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import PRESENT, Key, Leaf, Lookup, Probe, Readable, Table, rows_of, whole_rows
from rederive.ir.rules import Aggregate, Atom, Relation
from rederive.limits import Limits
from rederive.maintain.passes.magic_sets import REQUEST_LABEL, BindingPattern, Bound, QueryRules, magic_relation
from rederive.scalar.failures import ScalarError

Lower = Callable[[str], Readable]


class DerivedView:
    """One view, answered by its component."""

    lazy = True

    def __init__(self, answers: Answers, relation: Relation) -> None:
        self.answers = answers
        self.relation = relation
        self.arity = max(relation.arity, 1)
        self.primary_columns = tuple(range(self.arity - 1))

    def __bool__(self) -> bool:
        return any(True for _ in self.items())

    def fanout(self, bound: Bound) -> float:
        """Return a guess: the size of a view that is not stored is unknown."""
        return guessed_fanout(bound, self.arity)

    def lookup(self, bound: Bound) -> Lookup:
        """Return a function that requests its key, runs the query rules, and looks up the complete answer."""
        derive_for = self.answers.deriver(self.relation.name, bound)
        find = self.answers.table(self.relation.name).lookup(bound)

        def lookup(key: Key) -> Any:
            derive_for(key)
            return find(key)

        return lookup

    def probe(self) -> Probe:
        """Return a function that requests the rows of a leaf, and returns those that hold."""
        derive_for = self.answers.leaf_deriver(self.relation.name, tuple(range(self.relation.arity)))
        find = self.answers.table(self.relation.name).probe()

        def probe(key: Key, leaf: Leaf) -> Leaf | None:
            derive_for(key, leaf)
            return find(key, leaf)

        return probe

    def ahead(self, column: int) -> Callable[[Leaf], None]:
        """A function that makes the answers complete for many values of one column, in fewer rounds than one by one."""
        derive_for = self.answers.leaf_deriver(self.relation.name, (column,))
        return lambda leaf: derive_for((), leaf)

    def items(self) -> Iterable[tuple[Key, Leaf]]:
        """Derive all rows, by a request without bindings, and return them."""
        self.answers.deriver(self.relation.name, ())(())
        return self.answers.table(self.relation.name).items()


def guessed_fanout(bound: Bound, arity: int) -> float:
    """Nothing is known of the size of a view that is not stored; more bound columns match fewer rows."""
    # 64 rows where nothing is bound, 1 where everything is: it only ranks atoms against each other and against stored tables.
    return float(64 ** (1 - len(bound) / arity))


class Answers(Protocol):
    """What is known so far about the views of one component, in one state of the database."""

    def table(self, relation: str) -> Table:
        """Return the table of the rows derived so far; it is complete for requested bindings alone."""

    def deriver(self, relation: str, bound: Bound) -> Callable[[Key], None]:
        """A function that makes the answers complete for a key of the bound columns."""

    def leaf_deriver(self, relation: str, bound: Bound) -> Callable[[Key, Leaf], None]:
        """The same for many keys at once: those that a leaf's values complete."""

    def size(self, relation: str) -> int:
        """How many rows have been derived so far."""

    def clear(self) -> None:
        """Forget all answers and requests: the state of the database that they are about may change."""


class RuleAnswers:
    """Answers by rules: one fixpoint over magic tables and views, which continues when more is requested."""

    def __init__(
        self,
        component: Component,
        relations: Mapping[str, Relation],
        query_rules: Callable[[BindingPattern], QueryRules],
        lower: Lower,
        codes: Codes,
        meter: Meter,
        limits: Limits,
    ) -> None:
        self.query_rules = query_rules
        self.lower = lower
        self.codes = codes
        self.meter = meter
        self.limits = limits
        # Those that its rules name, and the magic relations that are made later: a program has many components.
        read = (edge.source for definition in component.definitions for edge in edges(definition))
        self.relations = {name: relations[name] for name in (*component.relations, *read)}
        self.targets: dict[str, Target] = {}
        self.compiled: set[BindingPattern] = set()
        self.is_used = False
        self.failures: list[ScalarError] = []  # of requests that are left out: no row can answer them
        self.fixpoint = Fixpoint((), (), codes, inventing_rule(component))
        for name in component.relations:
            self._target(name)

    def table(self, relation: str) -> Table:
        """Return the table that the fixpoint fills."""
        return self.targets[relation].table

    def deriver(self, relation: str, bound: Bound) -> Callable[[Key], None]:
        """Return a function that adds a key to the magic table, and runs the fixpoint where the key is new."""
        target = self._magic_target(BindingPattern(relation, bound))
        known, split = target.table.primary, _split(len(bound))

        def derive(key: Key) -> None:
            first, last = split(key)
            have = known.get(first)
            # m_p(key).  Requests only grow until `clear`, so a key in the magic table has been answered completely.
            if have is None or last not in have:
                target.pending[first] = BitMap((last,))
                self.is_used = True
                self.fixpoint.run(self.meter, self.limits)

        return derive

    def leaf_deriver(self, relation: str, bound: Bound) -> Callable[[Key, Leaf], None]:
        """Return a function that requests many keys at once, in one run of the fixpoint."""
        if not bound:
            derive_for = self.deriver(relation, ())
            return lambda key, leaf: derive_for(())
        target = self._magic_target(BindingPattern(relation, bound))
        known = target.table.primary

        def derive_leaf(key: Key, leaf: Leaf) -> None:
            have = known.get(key)
            new = leaf.copy() if have is None else leaf - have
            if new:
                target.pending[key] = new
                self.is_used = True
                self.fixpoint.run(self.meter, self.limits)

        return derive_leaf

    def size(self, relation: str) -> int:
        """Return the number of rows derived so far."""
        return len(self.targets[relation].table)

    def clear(self) -> None:
        """Empty the view's and the magic tables; compiled rules stay."""
        if not self.is_used:
            return
        self.is_used = False
        for target in self.targets.values():
            target.table.clear()
            target.pending.clear()
        self.failures.clear()

    def _target(self, name: str) -> Target:
        if name not in self.targets:
            table = Table(name, self.relations[name].arity)
            self.targets[name] = Target(table, table.lookup(table.primary_columns))
            self.fixpoint = replace(self.fixpoint, targets=tuple(self.targets.values()))
        return self.targets[name]

    def _magic_target(self, pattern: BindingPattern) -> Target:
        """The magic table of a pattern; its rules, and those of the patterns they request, are compiled at the first request."""
        target = self._magic_table(pattern)
        if pattern not in self.compiled:
            self.compiled.add(pattern)
            self._compile(self.query_rules(pattern))
        return target

    def _magic_table(self, pattern: BindingPattern) -> Target:
        magic = magic_relation(pattern, self.relations[pattern.relation])
        self.relations[magic.name] = magic
        return self._target(magic.name)

    def _compile(self, query: QueryRules) -> None:
        for requested in query.requests:  # rules refer to the tables of all requests, so these come first
            self._magic_table(requested)
        for m in query.rules:
            types = variable_types(m.rule, self.relations)
            is_request = m.label == REQUEST_LABEL
            into = Pending(self._target(m.rule.head.relation).pending, self.failures if is_request else None)
            # Semi-naive: a rule starts from each relation that grows, its magic relation and those of its own component.
            for driver in m.drivers:
                assert driver is not None
                atom = m.rule.body[driver]
                assert isinstance(atom, Atom)
                function = compile_rule(m.rule, driver, into, self._resolve, self.codes, types)
                self._target(atom.relation).variants.append(function)
        for requested in query.requests:
            # Last, and recursively: a pattern may request itself, and is in `compiled` by now.
            self._magic_target(requested)

    def _resolve(self, atom: Atom) -> Readable:
        # Of its own component the rows derived so far, which the fixpoint completes; lower views answer completely at once.
        return self.targets[atom.relation].table if atom.relation in self.targets else self.lower(atom.relation)


class GroupAnswers:
    """Answers of an aggregate: the requested groups are folded from their source rows."""

    def __init__(self, aggregate: Aggregate, groups: Groups, view: Relation, source: Readable, meter: Meter) -> None:
        self.aggregate = aggregate
        self.groups = groups
        self.source = source
        self.meter = meter
        self.view = Table(view.name, view.arity)
        self.requested: set[tuple[Bound, Key]] = set()

    def table(self, relation: str) -> Table:
        """Return the table of the groups folded so far."""
        return self.view

    def deriver(self, relation: str, bound: Bound) -> Callable[[Key], None]:
        """Look up the bound group columns in the source; a bound result only picks among the answers."""
        # Columns of the source in ascending order, as its indexes name them.
        positions = sorted((i for i in bound if i < len(self.aggregate.group)), key=lambda i: self.aggregate.group[i])
        columns = tuple(self.aggregate.group[i] for i in positions)
        within = [bound.index(i) for i in positions]
        arity = self.groups.source.arity
        lookup = self.source.lookup(columns) if columns else None

        def rows(key: Key) -> Iterator[tuple[int, ...]]:
            if lookup is None:
                return rows_of(dict(self.source.items()), arity)
            return whole_rows(columns, key, lookup(key) or (), arity)

        def derive(key: Key) -> None:
            given = _columns(key)
            chosen = tuple(given[i] for i in within)
            group: Key = chosen[0] if len(chosen) == 1 else chosen
            # Requests that differ in the result alone are one: the group is folded as a whole.
            if (columns, group) not in self.requested:
                self.requested.add((columns, group))
                self._fold(rows(group))

        return derive

    def leaf_deriver(self, relation: str, bound: Bound) -> Callable[[Key, Leaf], None]:
        """The group is derived, whether it comes as a key or its last column as the values of a leaf.

        What follows the group, a result or the other columns of a numbered row, only picks among the answers.
        """
        if bound[-1] >= len(self.aggregate.group):
            derive_for = self.deriver(relation, bound[:-1])
            return lambda key, leaf: derive_for(key)
        derive_for = self.deriver(relation, bound)

        def derive_leaf(key: Key, leaf: Leaf) -> None:
            for last in leaf:
                derive_for(last if len(bound) == 1 else (*_columns(key), last))

        return derive_leaf

    def _fold(self, rows: Iterable[tuple[int, ...]]) -> None:
        for key, leaf in self.groups.fold(rows):
            self.meter.touched += 1
            # Several patterns may request the same group; its result in one state is always the same.
            if key not in self.view.primary:
                self.view.add(key, leaf)

    def size(self, relation: str) -> int:
        """Return the number of groups folded so far."""
        return len(self.view)

    def clear(self) -> None:
        """Forget the folded groups and the requests for them."""
        self.view.clear()
        self.requested.clear()


def _columns(key: Key) -> tuple[int, ...]:
    return key if isinstance(key, tuple) else (key,)


def _split(columns: int) -> Callable[[Key], tuple[Key, int]]:
    """A key of this many columns as an entry of a magic table: the key of its primary index, and its last column."""
    match columns:
        case 0:
            return lambda key: ((), PRESENT)
        case 1:
            return lambda key: ((), key)  # type: ignore[return-value]
        case 2:
            return lambda key: key  # type: ignore[return-value]
        case _:
            return lambda key: (key[:-1], key[-1])  # type: ignore[index]
