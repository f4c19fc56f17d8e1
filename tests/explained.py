"""Runs a maintenance program as `explain` prints it: naively, rule by rule, without any engine.

Relations and their variants are Python sets by printed name. A phase is iterated until nothing is added. A literal over a view
that is derived on demand is a lookup: it requests its binding, and the printed query rules of that pattern run to a fixpoint. A
pattern that is not printed cannot be answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rederive.ir.rules import Aggregate, Atom, Comparison, Literal, Negation, Rule, Variant
from rederive.ir.terms import Constant, Row
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule
from rederive.maintain.passes.magic_sets import BindingPattern, aggregate_pattern, join_from, magic_relation
from rederive.maintain.program import MaintenanceProgram, Phase, Section, Semantics
from rederive.maintain.requested_queries import requested_queries
from tests.oracle import Binding, compared, fold, matched, value_of

Rows = dict[str, set[Row]]
Deltas = dict[str, tuple[set[Row], set[Row]]]
STATES = (Variant.OLD, Variant.NEW)
SO_FAR = " so far in "  # names the rows of a component that a query has derived, in one state


class ExplainedProgram:
    """The rows that a maintenance program stores, and what its rules do to them."""

    def __init__(self, maintenance: MaintenanceProgram, base: Mapping[str, set[Row]]) -> None:
        self.maintenance = maintenance
        self.relations = maintenance.program.relations
        self.derived = set(maintenance.derived_views)
        self.queries = requested_queries(maintenance).queries
        self.magic = {magic_relation(p, self.relations[p.relation]).name: p for p in self.queries}
        self.rows: Rows = {name: set(base.get(name, ())) for name in maintenance.program.bases}
        self.counts: dict[str, Counter[Row]] = {}
        self.count_changes: dict[str, Counter[Row]] = {}
        self.forget()
        for section in maintenance.sections:
            for phase in section.initial:
                self.run(phase)

    def forget(self) -> None:
        """Drop what was derived on demand, and the requests."""
        self.requests: dict[tuple[Variant, BindingPattern], set[Row]] = {}
        self.answers: dict[tuple[Variant, str], set[Row]] = {}

    def propagate(self, deltas: Deltas) -> Deltas:
        """The plus and minus of every maintained view, for those of base relations."""
        for name, (plus, minus) in deltas.items():
            self.rows[f"{name}^ins"], self.rows[f"{name}^del"] = set(plus), set(minus)
        for section in self.maintenance.sections:
            self.maintain(section)
        names = [name for section in self.maintenance.sections for name in section.component.relations]
        return {name: (self.named(f"{name}^ins"), self.named(f"{name}^del")) for name in names}

    def maintain(self, section: Section) -> None:
        names = [f"{name}^{sign}" for name in section.component.relations for sign in ("ins", "del")]
        for phase in section.phases:
            self.run(phase)
        if section.from_scratch:
            incremental = [set(self.named(name)) for name in names]
            for phase in section.from_scratch:
                self.run(phase)
            assert [self.named(name) for name in names] == incremental, section.component.relations

    def commit(self) -> None:
        """The new states become the old ones; everything else is dropped."""
        stored = (*self.maintenance.program.bases, *self.maintenance.stored_views)
        self.rows = {n: (self.named(n) - self.named(f"{n}^del")) | self.named(f"{n}^ins") for n in stored}
        for name, change in self.count_changes.items():
            self.counts[name].update(change)
        self.count_changes.clear()
        self.forget()
        for section in self.maintenance.sections:
            self.check_by_partition(section)
            for phase in section.initial:
                self.check_source(phase.fold)

    def check_by_partition(self, section: Section) -> None:
        """A recursion that is evaluated by partitions is the stored one."""
        if section.by_partition is None:
            return
        (name,), partition = section.component.relations, section.by_partition
        seeds = {row for m in partition.seeds for row in self.heads(m)}
        found: set[Row] = set()
        for value in {row[partition.column] for row in seeds}:
            base = {other: self.read(other, Variant.OLD, (), ()) for other in partition.others}
            part = ExplainedProgram(
                partition.inside, {partition.seed: {r for r in seeds if r[partition.column] == value}, **base}
            )
            found |= part.rows.get(name, set())
        assert found == self.named(name), name

    def check_source(self, fold: Fold | None) -> None:
        """The rule that derives the source of an aggregate at once derives what its query rules derive."""
        if fold is not None and fold.source is not None:
            assert set(self.heads(fold.source)) == self.whole(fold), fold

    # Phases

    def run(self, phase: Phase) -> None:
        match phase.semantics:
            case Semantics.SET | Semantics.FILTERED:
                while any(self.add(m.rule.head.name, self.heads(m)) for m in phase.rules):
                    pass
            case Semantics.BAG:
                self.count(phase.rules)
            case Semantics.GROUPS:
                assert phase.fold is not None
                self.groups(phase.rules, phase.fold)
            case Semantics.FOLD:
                assert phase.fold is not None
                self.add(phase.fold.definition.relation, self.folded(phase.fold.aggregate, self.whole(phase.fold)))
            case Semantics.NET | Semantics.DIFF:
                self.net(phase.rules)

    def count(self, rules: Sequence[MaintenanceRule]) -> None:
        """p^add and p^sub move the counts; a row enters when its count leaves zero, and leaves when it returns to zero."""
        for name in {m.rule.head.relation for m in rules}:
            if all(m.rule.head.variant is Variant.OLD for m in rules):
                self.counts[name] = Counter(row for m in rules for row in self.heads(m))
                self.rows[name] = set(self.counts[name])
                continue
            change: Counter[Row] = Counter()
            for m in rules:
                for row in self.heads(m):
                    change[row] += 1 if m.rule.head.variant is Variant.ADD else -1
            before = self.counts[name]
            self.rows[f"{name}^ins"] = {row for row in change if not before[row] and before[row] + change[row]}
            self.rows[f"{name}^del"] = {row for row in change if before[row] and not before[row] + change[row]}
            self.count_changes[name] = change

    def groups(self, rules: Sequence[MaintenanceRule], fold: Fold) -> None:
        view, source = fold.aggregate.relation, fold.aggregate.source
        self.check_source(fold)
        for m in rules:
            if m.label == "I":
                for group in self.named(f"{view}^touched"):
                    key = dict(zip(fold.aggregate.group, group, strict=True))
                    bound = tuple(sorted(key))
                    members = self.read(source, fold.state, bound, tuple(key[i] for i in bound))
                    self.add(f"{view}^fold", self.folded(fold.aggregate, members))
            self.add(m.rule.head.name, self.heads(m))
        self.replace_by_net(view)

    def net(self, rules: Sequence[MaintenanceRule]) -> None:
        for m in rules:
            self.rows[m.rule.head.name] = set(self.heads(m))
        for name in {m.rule.head.relation for m in rules}:
            self.replace_by_net(name)

    def replace_by_net(self, name: str) -> None:
        """p^ins and p^del are the net effect from here on."""
        self.rows[f"{name}^ins"], self.rows[f"{name}^del"] = self.named(f"{name}^plus"), self.named(f"{name}^minus")

    def whole(self, fold: Fold) -> set[Row]:
        return self.read(fold.aggregate.source, fold.state, (), ())

    @staticmethod
    def folded(aggregate: Aggregate, rows: set[Row]) -> set[Row]:
        found: dict[Row, list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(row[i] for i in aggregate.group), []).append(row)
        return {(*group, fold(aggregate, members)) for group, members in found.items()}

    def add(self, name: str, rows: Iterator[Row] | set[Row]) -> bool:
        known = self.rows.setdefault(name, set())
        before = len(known)
        known |= set(rows)
        return len(known) > before

    def named(self, name: str) -> set[Row]:
        return self.rows.get(name, set())

    # Rules

    def heads(self, m: MaintenanceRule) -> Iterator[Row]:
        """A head row for each binding of a body, which is joined from the rule's first driver on."""
        body = join_from(m.whole.body, m.drivers[0])
        return iter([tuple(value_of(term, b) for term in m.rule.head.terms) for b in self.solutions(body, {})])

    def solutions(self, body: Sequence[Literal], binding: Binding, state: Variant | None = None) -> Iterator[Binding]:
        """All bindings that make the body true, literal by literal; in a query, every literal reads `state`."""
        if not body:
            yield binding
            return
        literal, rest = body[0], body[1:]
        match literal:
            case Atom():
                for row in self.candidates(literal, binding, state):
                    extended = matched(literal, row, binding)
                    if extended is not None:
                        yield from self.solutions(rest, extended, state)
            case Negation(atom):
                if all(matched(atom, row, binding) is None for row in self.candidates(atom, binding, state)):
                    yield from self.solutions(rest, binding, state)
            case Comparison():
                for extended in compared(literal, binding):
                    yield from self.solutions(rest, extended, state)

    def candidates(self, atom: Atom, binding: Binding, state: Variant | None) -> set[Row]:
        """Rows among which all that match the atom are."""
        if atom.relation in self.magic:
            assert state is not None
            return set(self.requests.get((state, self.magic[atom.relation]), ()))
        known = [(i, t) for i, t in enumerate(atom.terms) if isinstance(t, Constant) or t.name in binding]
        key = tuple(value_of(term, binding) for _, term in known)
        variant = atom.variant if state is None or SO_FAR in atom.relation else state
        return set(self.read(atom.relation, variant, tuple(i for i, _ in known), key))

    def read(self, name: str, variant: Variant, bound: tuple[int, ...], key: Row) -> set[Row]:
        """The rows of a relation in one variant that have these values in the bound columns."""
        law = self.maintenance.states.get(name)
        if variant is Variant.NEW and law is not None:
            old, gone = self.read(name, Variant.OLD, bound, key), self.named(f"{name}^{law.gone.value}")
            rows = (old - gone).union(*(self.named(f"{name}^{came.value}") for came in law.came))
        elif variant in STATES and name in self.derived:
            self.request(BindingPattern(name, bound), variant, key)
            rows = self.answers[variant, name]
        else:
            rows = self.named(Atom(name, (), variant).name)
        return {row for row in rows if all(row[i] == value for i, value in zip(bound, key, strict=True))}

    # Queries

    def request(self, pattern: BindingPattern, state: Variant, key: Row) -> None:
        """Make the rows of a derived view complete for one binding."""
        component = self.maintenance.component(pattern.relation)
        for name in component.relations:
            self.answers.setdefault((state, name), set())
        asked = self.requests.setdefault((state, pattern), set())
        if key in asked:
            return
        assert pattern in self.queries, f"{pattern} is not printed"
        asked.add(key)
        for definition in component.definitions:
            if isinstance(definition, Aggregate):
                self.answers[state, pattern.relation] |= self.requested_groups(definition, pattern, state, key)
                return
        while any(self.derive(m, state, component.relations) for p in list(self.queries) for m in self.rules_of(p, state)):
            pass

    def requested_groups(self, aggregate: Aggregate, pattern: BindingPattern, state: Variant, key: Row) -> set[Row]:
        values = {aggregate.group[i]: v for i, v in zip(pattern.bound, key, strict=True) if i < len(aggregate.group)}
        bound = aggregate_pattern(pattern, aggregate).bound
        return self.folded(aggregate, self.read(aggregate.source, state, bound, tuple(values[i] for i in bound)))

    def rules_of(self, pattern: BindingPattern, state: Variant) -> tuple[MaintenanceRule, ...]:
        return self.queries[pattern] if self.requests.get((state, pattern)) else ()

    def derive(self, m: MaintenanceRule, state: Variant, inside: Sequence[str]) -> bool:
        """Run one query rule of the component, unless it is a lookup in a lower view; whether it found anything."""
        head = m.rule.head
        requested = self.magic.get(head.relation)
        if (requested.relation if requested is not None else head.relation) not in inside:
            return False
        into = self.requests.setdefault((state, requested), set()) if requested else self.answers[state, head.relation]
        before = len(into)
        for binding in list(self.inside_solutions(m.rule, state, inside)):
            into.add(tuple(value_of(term, binding) for term in head.terms))
        return len(into) > before

    def inside_solutions(self, rule: Rule, state: Variant, inside: Sequence[str]) -> Iterator[Binding]:
        """As `solutions`; literals of the component itself read what is derived so far: its own rules request the rest."""
        names = {name: f"{name}{SO_FAR}{state}" for name in inside}
        self.rows |= {other: self.answers[state, name] for name, other in names.items()}
        body = [self.renamed(literal, names) for literal in rule.body]
        return self.solutions(body, {}, state)

    @staticmethod
    def renamed(literal: Literal, names: Mapping[str, str]) -> Literal:
        if isinstance(literal, Atom) and literal.relation in names:
            return Atom(names[literal.relation], literal.terms, Variant.OLD)
        return literal
