"""Stored views as unions of conjunctive queries over base relations, and their classes (HU97; conditions: decision 135)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import prod
from typing import Final

from rederive.analysis.graph import components
from rederive.errors import StrategyError
from rederive.ir.rules import (
    Aggregate,
    Atom,
    Comparison,
    Function,
    Literal,
    Negation,
    Operator,
    Program,
    Role,
    Rule,
    literal_variables,
)
from rederive.ir.substitute import substitute_term
from rederive.ir.terms import Call, Constant, Kind, Simple, Term, Variable

MAX_QUERIES: Final = 64  # of one view, after unfolding; a view with more counts as one of class OTHER


@dataclass(frozen=True, slots=True)
class ConjunctiveQuery:
    """`head :- body, conditions`: a conjunctive query over base relations.

    `conditions`: comparisons, equations with functors, and negated local relations. HU97's queries have none.
    """

    head: Atom
    body: tuple[Atom, ...]
    conditions: tuple[Comparison | Negation, ...] = ()

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of the body, each once, in order."""
        return tuple(dict.fromkeys(v for atom in self.body for v in literal_variables(atom)))

    @property
    def hidden(self) -> tuple[Variable, ...]:
        """The variables that the head projects out."""
        shown = set(literal_variables(self.head))
        return tuple(v for v in self.variables if v not in shown)


class ViewClass(Enum):
    """The form of a view's definition, which decides how its self-maintainability is tested."""

    PLAIN = "conjunctive, without projection"  # HU97 sections 3 to 5: a compiled test
    PROJECTION = "conjunctive, with projection"  # HU97 6.1: a compiled test, then a bounded search
    UNION = "a union of conjunctive queries"  # HU97 6.2: likewise
    CONDITIONAL = "conjunctive, with conditions"  # decision 135: a compiled test alone
    TOTALS = "counts and sums over a conjunctive query"  # decision 136: moved by the change of the query
    OTHER = "more than conjunctive queries"  # no test: all its sources are read


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts and sums of the rows of a query, by group.

    `query`: the rows; its head is over the columns of the source. `group`: the columns that a group shares. `folded`: for each
    column of the view, the place in the group, or the column that is summed, or None for the count.
    """

    query: ConjunctiveQuery
    group: tuple[int, ...]
    folded: tuple[tuple[str, int | None], ...]

    @property
    def counts(self) -> bool:
        """Whether a row shows how many rows its group has: then it is known when the group ends."""
        return ("count", None) in self.folded


@dataclass(frozen=True, slots=True)
class StoredView:
    """A stored view, its queries over base relations, and the base relations that it depends on; or its totals."""

    name: str
    kind: ViewClass
    queries: tuple[ConjunctiveQuery, ...]
    sources: tuple[str, ...]
    totals: Totals | None = None

    @property
    def query(self) -> ConjunctiveQuery:
        """The only query of a plain view."""
        (query,) = self.queries
        return query


def stored_views(program: Program) -> tuple[StoredView, ...]:
    """Return the stored views of a program: the declared ones, or else the monitored views over remote relations.

    >>> from rederive.lang import compile_program
    >>> views = stored_views(compile_program('''
    ...     .decl r(x: number, y: number)  .decl s(y: number)  .remote r, s
    ...     .decl v(x: number, y: number)  v(x, y) :- r(x, y), s(y).
    ...     .decl w(x: number)             w(x) :- v(x, _).
    ... '''))
    >>> [(view.name, view.kind.name, view.sources) for view in views]
    [('v', 'PLAIN', ('r', 's')), ('w', 'PROJECTION', ('r', 's'))]
    """
    remote = {declared.relation for declared in program.remotes}
    read = base_relations(program)
    # A monitored view over local relations alone is maintained by the database itself.
    chosen = program.stored or [name for name in program.monitored if remote & set(read[name])]
    for name in chosen:
        _check_sets(name, read[name], program)
    unfolding = _Unfolding(program)
    return tuple(_view(name, unfolding, read[name]) for name in chosen)


def _check_sets(view: str, sources: Sequence[str], program: Program) -> None:
    """Refuse bags: HU97 is about sets, and a warehouse stores each row of a view once."""
    if program.relations[view].role is Role.BAG:
        hint = "select the primary keys of its tables, or SELECT DISTINCT"
        raise StrategyError(f"the stored view '{view}' may have equal rows, and a warehouse stores sets", hint=hint)
    bags = {name for name in program.tables if program.relations[name].role is Role.BAG}
    if bag := next((name for name in bags if program.numbered_copies(name) in sources), None):
        hint = "declare PRIMARY KEY (columns)"
        raise StrategyError(f"'{view}' reads the table '{bag}', which has no primary key, and a warehouse stores sets", hint=hint)


def base_relations(program: Program) -> dict[str, tuple[str, ...]]:
    """Return the base relations that each view depends on, in the order of their declaration."""
    found: dict[str, set[str]] = {name: {name} for name in program.bases}
    for component in components(program):
        read = {name for d in component.definitions for name in _read(d)} - set(component.relations)
        for relation in component.relations:
            found[relation] = {base for name in read for base in found[name]}
    return {name: tuple(base for base in program.bases if base in found[name]) for name in found}


def _read(definition: Rule | Aggregate) -> Iterator[str]:
    match definition:
        case Aggregate():
            yield definition.source
        case Rule(_, body):
            for literal in body:
                if not isinstance(literal, Comparison):
                    yield literal.relation if isinstance(literal, Atom) else literal.atom.relation


def _view(name: str, unfolding: _Unfolding, sources: tuple[str, ...]) -> StoredView:
    queries = unfolding.queries(name)
    if queries is None and (totals := unfolding.totals(name)) is not None:
        return StoredView(name, ViewClass.TOTALS, (), sources, totals)
    if queries is None:
        return StoredView(name, ViewClass.OTHER, (), sources)
    if any(query.conditions for query in queries):
        return StoredView(name, ViewClass.CONDITIONAL, queries, sources)
    # Without queries every rule contradicts itself: the view is an empty union, which no update changes.
    if len(queries) != 1:
        return StoredView(name, ViewClass.UNION, queries, sources)
    return StoredView(name, ViewClass.PROJECTION if queries[0].hidden else ViewClass.PLAIN, queries, sources)


class _Unfolding:
    """Unfolds views over views into queries over base relations."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[str, tuple[ConjunctiveQuery, ...] | None] = {}
        remote = {declared.relation for declared in program.remotes}
        self._local = frozenset(name for name in program.bases if name not in remote)
        for component in components(program):
            for name in component.relations:
                self._known[name] = None if component.recursive else self._queries_of(name)

    def queries(self, name: str) -> tuple[ConjunctiveQuery, ...] | None:
        """Return the queries of a view; None if it is not a union of conjunctive queries."""
        return self._known[name]

    def totals(self, name: str) -> Totals | None:
        """Return the totals that a view shows: of one rule, over counts and sums of one relation with the same groups."""
        definitions = self._program.definitions_of(name)
        rule = definitions[0]
        if len(definitions) != 1 or not isinstance(rule, Rule) or not all(isinstance(a, Atom) for a in rule.body):
            return None
        atoms = [atom for atom in rule.body if isinstance(atom, Atom)]
        folds = {atom: fold for atom in atoms if (fold := self._fold(atom.relation)) is not None}
        if len({(fold.source, fold.group, atom.terms[:-1]) for atom, fold in folds.items()}) != 1:
            return None
        first = next(iter(folds.values()))
        group = next(iter(folds)).terms[:-1]
        results = {atom.terms[-1]: (fold.function.value, fold.value) for atom, fold in folds.items()}
        # A group has rows, so an atom of the source for the group adds nothing: `v(x, n) :- r(x, _), n = count : { r(x, _) }`.
        others = [atom for atom in atoms if atom not in folds]
        query = self._rows_of(first.source)
        is_guarded = all(_asks_for_group(atom, first, group, atoms, rule.head) for atom in others)
        shown = set(rule.head.terms)
        # The whole group is shown: two groups never share a row of the view.
        if query is None or not is_guarded or not shown.issuperset(group) or not shown <= {*group, *results}:
            return None
        if len(set(group)) < len(group) or not all(isinstance(term, Variable) for term in (*group, *results)):
            return None
        folded = tuple(results.get(term) or ("group", group.index(term)) for term in rule.head.terms)
        return Totals(query, first.group, folded)

    def _fold(self, relation: str) -> Aggregate | None:
        """Return the count or sum that defines a relation, over values that are never NULL and have exact sums."""
        definitions = self._program.definitions_of(relation) if self._program.is_view(relation) else ()
        fold = definitions[0] if len(definitions) == 1 else None
        if not isinstance(fold, Aggregate) or fold.is_window or fold.function not in (Function.COUNT, Function.SUM):
            return None
        column = self._program.relations[fold.source].columns[fold.value] if fold.value is not None else None
        if fold.function is Function.COUNT:
            return fold if fold.value is None else None
        is_exact = column is not None and not column.nullable and column.type.kind in (Kind.NUMBER, Kind.DECIMAL)
        return fold if is_exact else None

    def _rows_of(self, source: str) -> ConjunctiveQuery | None:
        """Return the query of a relation, if each of its rows has one derivation."""
        if source in self._program.bases:
            terms = tuple(Variable(column.name) for column in self._program.relations[source].columns)
            return ConjunctiveQuery(Atom(source, terms), (Atom(source, terms),))
        queries = self._known[source] or ()
        return queries[0] if len(queries) == 1 and self._has_one_derivation(queries[0]) else None

    def _has_one_derivation(self, query: ConjunctiveQuery) -> bool:
        """Tell whether a row determines all variables of its derivation: by showing them, or by keys (decision 38)."""
        found = set(literal_variables(query.head))
        for _ in query.body:
            for atom in query.body:
                key = self._program.relations[atom.relation].key or range(len(atom.terms))
                if all(isinstance(atom.terms[i], Constant) or atom.terms[i] in found for i in key):
                    found.update(literal_variables(atom))
        return found.issuperset(query.variables)

    def _queries_of(self, name: str) -> tuple[ConjunctiveQuery, ...] | None:
        found: dict[ConjunctiveQuery, None] = {}
        for definition in self._program.definitions_of(name):
            queries = self._unfold(definition) if isinstance(definition, Rule) else None
            if queries is None:
                return None
            found.update(dict.fromkeys(queries))
            if len(found) > MAX_QUERIES:
                return None
        return tuple(found)

    def _unfold(self, rule: Rule) -> list[ConjunctiveQuery] | None:
        """Return one query for each choice of a rule for every view in the body; None if a literal is not conjunctive."""
        if not all(self._is_conjunctive(literal) for literal in rule.body) or not any(isinstance(a, Atom) for a in rule.body):
            return None
        inner = [self._known[a.relation] for a in rule.body if isinstance(a, Atom) and a.relation in self._known]
        # A join distributes over unions: every combination of the queries of the views in the body is one query.
        choices = [queries for queries in inner if queries is not None]
        if len(choices) < len(inner) or prod(map(len, choices)) > MAX_QUERIES:
            return None
        combined = (self._combine(rule, chosen) for chosen in product(*choices))
        return [query for query in combined if query is not None]

    def _is_conjunctive(self, literal: Literal) -> bool:
        """Tell whether a test reads the literal. A negated relation must be one whose rows the warehouse holds."""
        return not isinstance(literal, Negation) or self._local_atom(literal.atom) is not None

    def _local_atom(self, atom: Atom) -> Atom | None:
        """Return the atom over a local relation; a view that only renames or orders its columns is unfolded. Otherwise None."""
        if atom.relation in self._local:
            return atom
        queries = self._known.get(atom.relation) or ()
        if len(queries) != 1 or queries[0].conditions or queries[0].hidden or len(queries[0].body) != 1:
            return None
        (query,) = queries
        is_renaming = all(isinstance(term, Variable) for term in query.head.terms)
        if not is_renaming or len(set(query.head.terms)) < len(query.head.terms) or query.body[0].relation not in self._local:
            return None
        terms = {v: term for v, term in zip(query.head.terms, atom.terms, strict=True) if isinstance(v, Variable)}
        return substitute(query.body[0], terms)

    def _combine(self, rule: Rule, chosen: Sequence[ConjunctiveQuery]) -> ConjunctiveQuery | None:
        """Return the rule with these queries in place of its views; None if it contradicts itself."""
        body: list[Atom] = []
        pairs: list[tuple[Term, Term]] = [(e.left, e.right) for e in rule.body if _is_equation(e) and isinstance(e, Comparison)]
        conditions: list[Comparison | Negation] = []
        for literal in rule.body:
            if isinstance(literal, Negation):
                local = self._local_atom(literal.atom)
                assert local is not None
                conditions.append(Negation(local))
            elif isinstance(literal, Comparison) and not _is_equation(literal):
                conditions.append(literal)
        queries = iter(chosen)
        for i, literal in enumerate(rule.body):
            if isinstance(literal, Atom) and literal.relation in self._known:
                inner = _rename(next(queries), str(i))
                pairs += zip(inner.head.terms, literal.terms, strict=True)
                body += inner.body
                conditions += inner.conditions
            elif isinstance(literal, Atom):
                body.append(literal)
        bindings = unify(pairs)
        if bindings is None:
            return None
        # A repeated atom says nothing more: the body of a conjunctive query is a set.
        unique = dict.fromkeys(substitute(atom, bindings) for atom in body)
        held = dict.fromkeys(substitute_condition(condition, bindings) for condition in conditions)
        if any(_is_contradiction(condition, unique) for condition in held):
            return None
        return _simplify_names(ConjunctiveQuery(substitute(rule.head, bindings), tuple(unique), tuple(held)))


def _asks_for_group(atom: Atom, fold: Aggregate, group: Sequence[Simple], atoms: Sequence[Atom], head: Atom) -> bool:
    """Tell whether an atom of a body only asks for some row of the source in the group."""
    others = [term for i, term in enumerate(atom.terms) if i not in fold.group]
    used = [term for other in (*atoms, head) for term in other.terms]
    shows_group = atom.relation == fold.source and tuple(atom.terms[i] for i in fold.group) == tuple(group)
    return shows_group and all(isinstance(term, Variable) and used.count(term) == 1 for term in others)


def _is_equation(literal: Literal) -> bool:
    """Tell whether a literal equates two simple terms."""
    return (
        isinstance(literal, Comparison)
        and literal.operator is Operator.EQ
        and all(isinstance(side, Variable | Constant) for side in (literal.left, literal.right))
    )


def _is_contradiction(condition: Comparison | Negation, atoms: Container[Atom]) -> bool:
    """Tell whether no values fulfil a condition: it negates an atom of the body, or compares a variable with itself."""
    if isinstance(condition, Negation):
        return condition.atom in atoms
    strict = condition.operator in (Operator.NE, Operator.LT, Operator.GT)
    return strict and isinstance(condition.left, Variable) and condition.left == condition.right


def _rename(query: ConjunctiveQuery, mark: str) -> ConjunctiveQuery:
    # Marked by the place of the view in the body: two occurrences of one view do not share variables.
    names: dict[Variable, Simple] = {v: Variable(f"{v.name}.{mark}") for v in _all_variables(query)}
    return substitute_query(query, names)


def _all_variables(query: ConjunctiveQuery) -> tuple[Variable, ...]:
    """Return the variables of the body, the head and the conditions: a functor may compute some that no atom has."""
    others = (v for literal in (query.head, *query.conditions) for v in literal_variables(literal))
    return tuple(dict.fromkeys((*query.variables, *others)))


def substitute_query(query: ConjunctiveQuery, names: Mapping[Variable, Simple]) -> ConjunctiveQuery:
    """Return the query with other terms for variables."""
    body = tuple(substitute(atom, names) for atom in query.body)
    return ConjunctiveQuery(
        substitute(query.head, names), body, tuple(substitute_condition(condition, names) for condition in query.conditions)
    )


def _simplify_names(query: ConjunctiveQuery) -> ConjunctiveQuery:
    """Return the query with short names of variables: as written if that is unique, else numbered."""
    names: dict[Variable, Simple] = {}
    taken: set[str] = set()
    variables = _all_variables(query)
    for variable in variables:
        stem = variable.name.split(".")[0]
        stem = f"u{stem}" if stem[0].isdigit() else stem
        name = next(n for n in (stem, *(f"{stem}{i}" for i in range(1, len(variables) + 1))) if n not in taken)
        taken.add(name)
        names[variable] = Variable(name)
    return substitute_query(query, names)


def unify(pairs: Sequence[tuple[Term, Term]]) -> dict[Variable, Simple] | None:
    """Return the most general substitution that makes each pair equal; None if two constants differ.

    >>> x, y = Variable("x"), Variable("y")
    >>> unify([(x, y)])
    {Variable(name='x'): Variable(name='y')}
    """
    bindings: dict[Variable, Simple] = {}

    def find(term: Term) -> Simple:
        assert not isinstance(term, Call)
        while isinstance(term, Variable) and term in bindings:
            term = bindings[term]
        return term

    for left, right in pairs:
        one, other = find(left), find(right)
        if isinstance(one, Constant) and isinstance(other, Constant):
            if one != other:
                return None
        elif one != other:
            source, target = (one, other) if isinstance(one, Variable) else (other, one)
            assert isinstance(source, Variable)
            bindings[source] = target
    return {variable: find(variable) for variable in bindings}


def substitute(atom: Atom, bindings: Mapping[Variable, Simple]) -> Atom:
    """Return the atom with bound variables replaced."""
    return Atom(atom.relation, tuple(bindings.get(t, t) if isinstance(t, Variable) else t for t in atom.terms), span=atom.span)


def substitute_condition(condition: Comparison | Negation, bindings: Mapping[Variable, Simple]) -> Comparison | Negation:
    """Return the condition with bound variables replaced."""
    if isinstance(condition, Negation):
        return Negation(substitute(condition.atom, bindings))
    values: dict[str, Term] = {variable.name: term for variable, term in bindings.items()}
    left, right = (substitute_term(side, values) for side in (condition.left, condition.right))
    return Comparison(condition.operator, left, right, condition.span)


def substitute_literal(literal: Literal, bindings: Mapping[Variable, Simple]) -> Literal:
    """Return the literal with bound variables replaced."""
    return substitute(literal, bindings) if isinstance(literal, Atom) else substitute_condition(literal, bindings)
