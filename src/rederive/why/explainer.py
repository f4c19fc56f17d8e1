"""Turns proofs and failed matches into explanations that speak of tables and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from re import IGNORECASE, escape, search

from rederive.analysis.declared import bag_owners, declared_sources
from rederive.analysis.graph import components
from rederive.analysis.types import variable_types
from rederive.ir.printing import show_definition, show_literal, show_value
from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Literal, Negation, Operator, Program, Rule
from rederive.ir.substitute import substitute_variables
from rederive.ir.terms import Constant, Simple, Value
from rederive.why.explanation import Absence, Condition, DerivationStep, Explanation, FailedRule, Premise, show_fact, shown_name
from rederive.why.instances import Binding, FailedMatch, GroundAtom, Read, RuleInstance, RuleInstances, bound_columns, unify
from rederive.why.proofs import Proofs

MOST_DEPTH = 100  # levels of a tree: far below the depth at which Python stops a recursion


@dataclass(slots=True)
class _Found:
    """The premises of a step, each once, in order; `left_out` rows of groups are not among them."""

    premises: dict[GroundAtom | Condition, None] = field(default_factory=dict)
    left_out: int = 0


class Explainer:
    """Explains rows of one state of a program. `queries`: the text of the views that are defined in SQL."""

    def __init__(self, program: Program, read: Read, queries: Mapping[str, str] | None = None) -> None:
        self.program = program
        self.queries = queries or {}
        self.instances = RuleInstances(program, read)
        self.proofs = Proofs(self.instances)
        self._tables = frozenset(program.tables)
        self._recursive = {name for c in components(program) if c.recursive for name in c.relations}
        # The relations that hold a bag are shown as the bag.
        self._bags = bag_owners(program)
        # A recursion in WITH is shown by its own name: its rows are the levels of the proof.
        auxiliary = (name for name in self._recursive if program.relations[name].is_auxiliary and name not in self._bags)
        texts = {name: _with_part(self.queries.get(name.partition(".")[0], ""), shown_name(name)) for name in auxiliary}
        self._recursions = {name: text for name, text in texts.items() if text}

    # Why

    def why(self, fact: GroundAtom, depth: int, width: int) -> Explanation | None:
        """Explain a row by at most `width` derivations, each as a proof of at most `depth` levels; None if it is not there."""
        if not self.proofs.prove(fact):
            return None
        return self._explain(fact, min(depth, MOST_DEPTH), width, set(), is_top=True)

    def _explain(self, fact: GroundAtom, depth: int, width: int, shown: set[GroundAtom], *, is_top: bool = False) -> Explanation:
        if fact.relation in self._tables:
            return Explanation(fact.relation, fact.row, is_base=True)
        if fact in shown:
            return Explanation(fact.relation, fact.row, is_repeated=True)
        if depth <= 0:
            return Explanation(fact.relation, fact.row, is_cut=True)
        # Below the top, one proof of each row: it ends at base rows, and other derivations are a question of their own.
        found = list(islice(self._steps(fact, width), width + 1 if is_top else 1))
        steps = []
        for step in found[: width if is_top else 1]:
            premises = tuple(
                premise if isinstance(premise, Condition) else self._explain(premise, depth - 1, width, shown)
                for premise in step.premises
            )
            steps.append(DerivationStep(self.title(fact.relation, step.definition), premises, step.left_out))
            # After the first derivation, which is a proof: a row is referred to only where its own proof is complete.
            shown.add(fact)
        return Explanation(fact.relation, fact.row, tuple(steps), further=is_top and len(found) > width)

    def _steps(self, fact: GroundAtom, width: int) -> Iterator[_Step]:
        """The derivations of a row, the one that proves it first, each by the rows and conditions that a user knows."""
        seen: set[tuple[GroundAtom | Condition, ...]] = set()
        for instance in self._instances(fact):
            found = _Found()
            self._collect(instance, fact.relation, width, found)
            premises = tuple(found.premises)
            # A row that is derived from itself is derived otherwise, too.
            if premises not in seen and fact not in premises:
                seen.add(premises)
                yield _Step(instance.definition, premises, found.left_out)

    def _instances(self, fact: GroundAtom) -> Iterator[RuleInstance]:
        bag = self.program.relations[fact.relation].bag
        # Of a bag, every copy of the row has derivations of its own.
        copies = [fact] if bag is None else [GroundAtom(bag.rows, row) for row in self._copies(bag.rows, fact)]
        for copy in copies:
            self.proofs.prove(copy)
            yield self.proofs.chosen[copy]
        for copy in copies:
            yield from self.instances.of(copy)

    def _copies(self, relation: str, fact: GroundAtom) -> Sequence[tuple[Value, ...]]:
        return list(self.instances.rows(relation, dict(enumerate(fact.row))))

    def _collect(self, instance: RuleInstance, owner: str, width: int, found: _Found) -> None:
        """Add the premises of an instance; those of an auxiliary relation are replaced by the premises of its row."""
        match instance.definition:
            case Aggregate():
                for fact in instance.facts[:width]:
                    self._add(fact, owner, width, found)
                found.left_out += max(len(instance.facts) - width, 0)
            case Rule() as rule:
                for fact in instance.facts:
                    self._add(fact, owner, width, found)
                for literal in rule.body:
                    if (text := self.condition(rule, literal, instance.binding)) is not None:
                        found.premises[Condition(text)] = None

    def as_shown(self, fact: GroundAtom, owner: str, width: int) -> tuple[GroundAtom | Condition, ...]:
        """A row that holds as the rows and conditions that a user knows."""
        found = _Found()
        self._add(fact, owner, width, found)
        return tuple(found.premises)

    def _add(self, fact: GroundAtom, owner: str, width: int, found: _Found) -> None:
        known = self.visible(fact, owner)
        if known is not None:
            found.premises[known] = None
        elif self.proofs.prove(fact):
            self._collect(self.proofs.chosen[fact], owner, width, found)

    def visible(self, fact: GroundAtom, owner: str) -> GroundAtom | None:
        """The row as the user knows it; None for a row that lowering needs to define the owner."""
        if not self.is_hidden(fact.relation):
            return fact
        bag = self._bags.get(fact.relation)
        if bag is None or bag == owner:
            return None
        return GroundAtom(bag, fact.row[: self.program.relations[bag].arity])

    def is_hidden(self, relation: str) -> bool:
        """Whether a user does not know the relation."""
        return self.program.relations[relation].is_auxiliary and relation not in self._recursions

    # Why not

    def why_not(self, fact: GroundAtom) -> Absence | None:
        """Explain why a row is not in a relation; None if it is there."""
        if self.instances.holds(fact):
            return None
        if fact.relation in self._tables:
            return Absence(fact.relation, fact.row)
        failures = self._failures(fact.relation, dict(enumerate(fact.row)), fact.relation, ())
        return Absence(fact.relation, fact.row, tuple(dict.fromkeys(failures)))

    def _failures(self, relation: str, wanted: Mapping[int, Value], owner: str, above: tuple[str, ...]) -> Iterator[FailedRule]:
        """What fails in each definition of a relation, for rows with these values in these columns. `above`: what led here."""
        above = (*above, relation)
        for definition in self.program.definitions_of(relation):
            title = self.title(owner, definition)
            match definition:
                case Rule():
                    yield from self._failed_rule(definition, wanted, owner, title, above)
                case Aggregate():
                    yield from self._failed_aggregate(definition, wanted, owner, title, above)

    def _failed_rule(
        self, rule: Rule, wanted: Mapping[int, Value], owner: str, title: str, above: tuple[str, ...]
    ) -> Iterator[FailedRule]:
        binding = unify(rule.head.terms, wanted, {})
        if binding is None:
            yield FailedRule(title, (), Condition(self._other_form(rule, wanted)))
            return
        failed = FailedMatch()
        if next(self.instances.solve(rule, binding, failed), None) is not None or failed.literal is None:
            return  # this part holds; what fails is elsewhere
        holds = self._held(rule, failed.binding, owner)
        literal = failed.literal
        # A hidden recursion leads back to itself; there it is enough to say what it reads.
        is_below = isinstance(literal, Atom) and self.is_hidden(literal.relation) and literal.relation not in above
        if is_below and isinstance(literal, Atom) and self._bags.get(literal.relation, owner) == owner:
            for below in self._failures(literal.relation, bound_columns(literal.terms, failed.binding), owner, above):
                yield FailedRule(title, tuple(dict.fromkeys((*holds, *below.holds))), below.fails)
        else:
            yield FailedRule(title, holds, Condition(self._failure(rule, literal, failed.binding, owner)))

    def _other_form(self, rule: Rule, wanted: Mapping[int, Value]) -> str:
        """Why a head is not the row that is looked for: the columns in which it has other values."""
        columns = self.program.relations[rule.head.relation].columns
        given = {i: term.value for i, term in enumerate(rule.head.terms) if isinstance(term, Constant) and i in wanted}
        other = [f"{columns[i].name} = {show_value(value)}" for i, value in given.items() if value != wanted[i]]
        # Otherwise a variable occurs twice in the head.
        return f"it derives only rows with {', '.join(other) if other else show_literal(rule.head)}"

    def _held(self, rule: Rule, binding: Binding, owner: str) -> tuple[Premise, ...]:
        """The atoms of the body that are satisfied, as the user knows them."""
        found = _Found()
        for literal in rule.body:
            if isinstance(literal, Atom):
                row = bound_columns(literal.terms, binding)
                fact = GroundAtom(literal.relation, tuple(row.values()))
                if len(row) == len(literal.terms) and self.instances.holds(fact):
                    self._add(fact, owner, 1, found)
        return tuple(p if isinstance(p, Condition) else Explanation(p.relation, p.row) for p in found.premises)

    def _failed_aggregate(
        self, aggregate: Aggregate, wanted: Mapping[int, Value], owner: str, title: str, above: tuple[str, ...]
    ) -> Iterator[FailedRule]:
        group = {column: wanted[i] for i, column in enumerate(aggregate.group) if i in wanted}
        if not self.instances.rows(aggregate.source, group):
            if self.is_hidden(aggregate.source):
                yield from self._failures(aggregate.source, group, owner, above)
            else:
                yield FailedRule(title, (), Condition(f"no row {self._pattern(aggregate.source, group)}"))
            return
        keys = {i: wanted[i] for i in range(len(aggregate.group)) if i in wanted}
        results = sorted({show_value(row[-1]) for row in self.instances.rows(aggregate.relation, keys)})
        text = f"the {aggregate.function.value} is {', '.join(results[:3])}{' ...' if len(results) > 3 else ''}"
        yield FailedRule(title, (), Condition(text))

    def _failure(self, rule: Rule, literal: Literal, binding: Binding, owner: str) -> str:
        match literal:
            case Atom(relation, terms):
                return f"no row {self._pattern(relation, bound_columns(terms, binding))}"
            case Negation(atom):
                row = self._copies_of(atom, binding)[0]
                found = _Found()
                self._add(GroundAtom(atom.relation, row), owner, 1, found)
                there = [show_fact(p.relation, p.row) for p in found.premises if isinstance(p, GroundAtom)]
                return f"{' and '.join(there)} exists" if len(there) == 1 else f"{' and '.join(there)} exist"
            case Comparison():
                return self._with_values(rule, literal, binding)

    def _copies_of(self, atom: Atom, binding: Binding) -> Sequence[tuple[Value, ...]]:
        return list(self.instances.rows(atom.relation, bound_columns(atom.terms, binding)))

    # Texts

    def title(self, relation: str, definition: Definition) -> str:
        """How the user wrote the definition: a view of SQL as a whole, a rule of Datalog by itself."""
        text = self.queries.get(relation) or self._recursions.get(relation)
        if text is None and definition.span is not None:
            text = definition.span.whole
        return " ".join(text.split()) if text else show_definition(definition, self.program)

    def condition(self, rule: Rule, literal: Literal, binding: Binding) -> str | None:
        """A test or negation that holds; None for atoms, assignments and the guards that lowering adds."""
        match literal:
            case Negation(atom):
                return f"no row {self._pattern(atom.relation, bound_columns(atom.terms, binding))}"
            case Comparison(Operator.NE, _, Constant(None)) | Comparison(Operator.NE, Constant(None), _):
                return None
            case Comparison(Operator.EQ):
                return None
            case Comparison():
                return self._with_values(rule, literal, binding)
            case _:
                return None

    def _with_values(self, rule: Rule, literal: Comparison, binding: Binding) -> str:
        types = variable_types(rule, self.program.relations)
        values: dict[str, Simple] = {name: Constant(v, types[name]) for name, v in binding.items() if name in types}
        (shown,) = substitute_variables(Rule(rule.head, (literal,)), values).body
        return show_literal(shown)

    def _pattern(self, relation: str, bound: Mapping[int, Value]) -> str:
        """A relation with the values that are looked for, as a user knows it: `edge("a", _)`."""
        name = self._bags.get(relation, relation)
        if self.is_hidden(name):
            columns = self.program.relations[name].columns
            given = ", ".join(f"{columns[i].name} = {show_value(value)}" for i, value in bound.items())
            return f"of {', '.join(declared_sources(self.program, name))}{f' with {given}' if given else ''} matches"
        columns = self.program.relations[name].columns
        return f"{shown_name(name)}({', '.join(show_value(bound[i]) if i in bound else '_' for i in range(len(columns)))})"


@dataclass(frozen=True, slots=True)
class _Step:
    definition: Definition
    premises: tuple[GroundAtom | Condition, ...]
    left_out: int


def _with_part(query: str, name: str) -> str | None:
    """The part of a query that defines a name in WITH; None where none does: lowering made the relation up.

    >>> _with_part("WITH RECURSIVE p(x) AS (SELECT (1) UNION SELECT x FROM p) SELECT x FROM p", "p")
    'p(x) AS (SELECT (1) UNION SELECT x FROM p)'
    """
    found = search(rf"\b{escape(name)}\b[\s`\"]*(\([^()]*\))?\s*AS\s*\(", query, IGNORECASE)
    if found is None:
        return None
    depth = 1
    for end in range(found.end(), len(query)):
        depth += {"(": 1, ")": -1}.get(query[end], 0)
        if depth == 0:
            return query[found.start() : end + 1]
    return query
