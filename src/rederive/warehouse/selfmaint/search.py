"""The decision for views with projections and unions: a bounded search through canonical databases (HU97, section 6).

A row of such a view may follow from one of several rules, and from hidden values, each a known constant or a fresh symbol. So
there are many canonical databases (Definition 6.1). Every database that is consistent with the views contains one that the search
visits, up to the names of symbols.

Law (Theorems 6.2, 6.3): the view is self-maintainable if and only if, for all canonical databases, (1) the updated view is the
same and has no fresh symbol, and (2) no further facts that are consistent with all views add a row to it.

One point goes beyond the text of the paper: a fresh symbol in the updated view means many possible values. Then the view is
not self-maintainable, even if only one canonical database is consistent.

Views with comparisons and negated local relations are searched in the same way: see `search_conditions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, Final, TypeAlias

from rederive.errors import InconsistentViews
from rederive.ir.rules import Atom, Comparison, Negation, Relation, literal_variables
from rederive.ir.terms import NUMBER, Constant, Row, Type, Variable
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.facts import Binding, Fact, Facts, ground, match_row
from rederive.warehouse.selfmaint.search_conditions import compares_order, holds, is_searched, places
from rederive.warehouse.selfmaint.source_update import PartialCopy, Rows, SourceUpdate

STEPS: Final = 10_000  # rows looked at and values tried, before the answer is UNKNOWN; about 50 ms
MAX_OPEN_ROWS: Final = 100  # rows of views with projections or unions; the search explains each


class Maintainability(Enum):
    """The answer of the search. UNKNOWN is treated like NO."""

    YES = "self-maintainable"
    NO = "not self-maintainable"
    UNKNOWN = "not known to be self-maintainable"


State: TypeAlias = Mapping[str, Set[tuple[Any, ...]]]  # arbitrary values are fresh symbols


@dataclass(frozen=True, slots=True)
class SearchDecision:
    """The answer of the search.

    With YES, `rows` are those of the updated view. With NO, `evidence` is two states of the sources that give the same stored
    views, and different updated ones.
    """

    answer: Maintainability
    rows: frozenset[Row] = frozenset()
    evidence: tuple[State, State] | None = None


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows of the stored views and of the relations of `KnownRelations`.

    `local`: before-images of local relations. `read`: after-images of relations that were read. `log`: a partial copy.
    """

    views: Rows
    local: Rows = field(default_factory=dict)
    read: Rows = field(default_factory=dict)
    log: PartialCopy = field(default_factory=PartialCopy)


@dataclass(frozen=True, slots=True)
class FreshSymbol:
    """A symbol for a value that occurs nowhere else."""

    number: int


Fresh: TypeAlias = FreshSymbol | Fraction  # a fraction has a place among the whole numbers, and is none of them


class _Exceeded(Exception):
    pass


def decide(
    view: StoredView,
    views: Sequence[StoredView],
    relations: Mapping[str, Relation],
    knowledge: KnownRows,
    update: SourceUpdate,
    steps: int = STEPS,
) -> SearchDecision:
    """Decide whether the view is self-maintainable under the update, and find its new rows; UNKNOWN if the search is too long.

    >>> from rederive.lang import compile_program
    >>> from rederive.warehouse.selfmaint.conjunctive import stored_views
    >>> program = compile_program('''
    ...     .decl s(x: symbol, y: symbol)  .remote s
    ...     .decl v(x: symbol, z: symbol)  v(x, z) :- s(x, y), s(y, z).
    ... ''')
    >>> views = stored_views(program)
    >>> known, update = KnownRows({"v": {("d", "c")}}), SourceUpdate.of(insert={"s": [("a", "b")]})
    >>> decide(views[0], views, program.relations, known, update).answer
    <Maintainability.NO: 'not self-maintainable'>
    """
    if not is_searched(view, relations, knowledge.local):
        return SearchDecision(Maintainability.UNKNOWN)
    # Other views tell nothing that the search can use; leaving them out only makes the answer more careful.
    used = [other for other in views if is_searched(other, relations, knowledge.local)]
    # The search explains each of these rows, so more of them are not even looked at.
    if sum(len(knowledge.views.get(other.name, ())) for other in used if other.kind is not ViewClass.PLAIN) > MAX_OPEN_ROWS:
        return SearchDecision(Maintainability.UNKNOWN)
    try:
        return _Search(view, used, relations, knowledge, update, steps).decision()
    except _Exceeded:
        return SearchDecision(Maintainability.UNKNOWN)


class _Search:
    def __init__(
        self,
        view: StoredView,
        views: Sequence[StoredView],
        relations: Mapping[str, Relation],
        knowledge: KnownRows,
        update: SourceUpdate,
        steps: int,
    ) -> None:
        self._view = view
        self._views = views
        self._is_ordered = compares_order(views)
        self._relations = relations
        self._knowledge = knowledge
        self._update = update
        self._steps = steps
        self._fresh: list[tuple[Fresh, Type]] = []
        self._facts = Facts(self._known_facts(), self._step)
        self._constants = self._known_constants()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _Exceeded

    def decision(self) -> SearchDecision:
        first: tuple[State, frozenset[Row]] | None = None
        for _ in self._visit_databases():
            state, after = self._facts.copy(), self._updated()
            found = self._answers(after)
            # Condition (1): no fresh symbol, and the same rows as in every other canonical database.
            if any(isinstance(value, Fraction) for row in found for value in row):
                return SearchDecision(Maintainability.UNKNOWN)  # a gap may have room for one number only
            if any(isinstance(value, FreshSymbol) for row in found for value in row):
                return SearchDecision(Maintainability.NO, evidence=(state, _rename_symbols(state, len(self._fresh))))
            if first is not None and found != first[1]:
                return SearchDecision(Maintainability.NO, evidence=(first[0], state))
            # Condition (2): no further possible facts add a row.
            if (more := self._find_difference(after, found)) is not None:
                return SearchDecision(Maintainability.NO, evidence=(state, more))
            first = first or (state, found)
        if first is None:
            raise InconsistentViews(view.name for view in self._views)
        return SearchDecision(Maintainability.YES, first[1])

    # Knowledge

    def _known_facts(self) -> dict[str, set[Row]]:
        """Return the facts that must hold, apart from those that the rows of views need."""
        facts: dict[str, set[Row]] = {name: set(rows) for name, rows in self._knowledge.local.items()}
        # The before-image of a relation that was read contains its after-image without the inserted rows.
        for name, rows in self._knowledge.read.items():
            facts.setdefault(name, set()).update(rows - self._update.inserts.get(name, frozenset()))
        for name, rows in (*self._knowledge.log.present.items(), *(self._update.deletes.items() if self._update.net else ())):
            facts.setdefault(name, set()).update(rows)
        return facts

    def _is_allowed(self, fact: Fact) -> bool:
        """Tell whether a fact may hold before the update, by what is known about its relation."""
        name, row = fact
        if row in self._knowledge.log.absent.get(name, ()) or (self._update.net and row in self._update.inserts.get(name, ())):
            return False
        if name in self._knowledge.local:
            return row in self._knowledge.local[name]
        if name in self._knowledge.read:  # rows of the update may or may not have been present
            changed = (self._update.inserts.get(name, frozenset()), self._update.deletes.get(name, frozenset()))
            return row in self._knowledge.read[name] or any(row in rows for rows in changed)
        return True

    def _known_constants(self) -> dict[Type, list[Any]]:
        """Return the constants of views, update, known facts and definitions, by type."""
        found: dict[Type, dict[Any, None]] = {}
        sets = [self._knowledge.views, self._update.inserts, self._update.deletes, self._facts.copy()]
        for rows_by_name in sets:
            for name, rows in rows_by_name.items():
                for row in rows:
                    for given, type_ in zip(row, self._relations[name].types, strict=True):
                        found.setdefault(type_, {})[given] = None
        for query in (query for view in self._views for query in view.queries):
            compared = [t for c in query.conditions if isinstance(c, Comparison) for t in (c.left, c.right)]
            negated = [c.atom for c in query.conditions if isinstance(c, Negation)]
            for term in (*compared, *(t for atom in (query.head, *query.body, *negated) for t in atom.terms)):
                if isinstance(term, Constant):
                    found.setdefault(term.type, {})[term.value] = None
        return {type_: list(values) for type_, values in found.items()}

    # Canonical databases

    def _visit_databases(self) -> Iterator[None]:
        """Visit the canonical databases: at each step, `self._facts` is one of them."""
        plain = [view for view in self._views if view.kind is ViewClass.PLAIN]
        for view in plain:
            for row in self._knowledge.views.get(view.name, ()):
                binding = match_row(view.query.head, row, {})
                for fact in (ground(atom, binding) for atom in view.query.body) if binding is not None else ():
                    self._step()
                    # No database is consistent with the views: without a visited one, `decision` reports them.
                    if not self._is_allowed(fact):
                        return
                    if fact not in self._facts:
                        self._facts.add(fact)
        if not all(self._derives_only_stored(view, query, {}, query.body) for view in self._views for query in view.queries):
            return
        # Plain views have no hidden variable, so their rows determine their facts: there is nothing to search.
        rows = [(view, row) for view in self._views if view not in plain for row in self._knowledge.views.get(view.name, ())]
        # Sorted, so that the same input takes the same steps: UNKNOWN must not depend on the order of a set.
        yield from self._explain(sorted(rows, key=lambda entry: repr(entry[1])))

    def _explain(self, rows: Sequence[tuple[StoredView, Row]]) -> Iterator[None]:
        """Explain the rows one after the other, in every consistent way.

        A row that is derived already needs no further facts: a database that explains it by others contains a visited one.
        """
        if not rows:
            yield
            return
        # Backtracking: the facts that explain a row are removed before the next explanation is tried.
        (view, row), *rest = rows
        starts = [(query, match_row(query.head, row, {})) for query in view.queries]
        if any(binding is not None and self._is_derived(query, binding) for query, binding in starts):
            yield from self._explain(rest)
            return
        for query, binding in starts:
            if binding is not None:
                for facts in self._groundings(query, binding, query.hidden):
                    with_fact = self._add(facts)
                    if with_fact is not None:
                        yield from self._explain(rest)
                        self._remove(with_fact)

    def _is_derived(self, query: ConjunctiveQuery, binding: Binding) -> bool:
        return any(self._holds(query, found) for found in self._facts.join(query.body, binding))

    def _holds(self, query: ConjunctiveQuery, binding: Binding, after: Facts | None = None) -> bool:
        """Tell whether the conditions of a query hold before the update, or after it."""
        facts = self._facts if after is None else after
        return holds(query, binding, lambda atom, row: (atom.relation, row) in facts)

    def _groundings(self, query: ConjunctiveQuery, binding: Binding, hidden: Sequence[Variable]) -> Iterator[list[Fact]]:
        """Yield the facts of the body, for all allowed values of the hidden variables."""
        known = (atom for atom in query.body if all(isinstance(t, Constant) or t in binding for t in atom.terms))
        if not all(self._is_allowed(ground(atom, binding)) for atom in known):
            return
        if not hidden:
            if self._holds(query, binding):
                yield [ground(atom, binding) for atom in query.body]
            return
        variable, *rest = hidden
        for given in self._values(self._type(query, variable)):
            yield from self._groundings(query, {**binding, variable: given}, rest)

    def _values(self, type_: Type) -> Iterator[Any]:
        """Yield new symbols, each of which exists while it is tried, then the known constants and the symbols in use."""
        used = (*self._constants.get(type_, ()), *(symbol for symbol, t in tuple(self._fresh) if t == type_))
        # Without an order one suffices: symbols that are not in use yet are interchangeable. It is first: a database of new
        # symbols derives the fewest rows, so it is consistent most often, and mostly has the evidence for a "no".
        is_placed = self._is_ordered and type_ == NUMBER
        for fresh in tuple(places(used)) if is_placed else (FreshSymbol(len(self._fresh)),):
            self._step()
            self._fresh.append((fresh, type_))
            yield fresh
            self._fresh.pop()
        for given in used:
            self._step()
            yield given

    def _type(self, query: ConjunctiveQuery, variable: Variable) -> Type:
        for atom in query.body:
            for term, type_ in zip(atom.terms, self._relations[atom.relation].types, strict=True):
                if term == variable:
                    return type_
        raise AssertionError(variable)

    # Consistency

    def _add(self, facts: Sequence[Fact]) -> list[Fact] | None:
        """Add the new facts and return them. If a view would get a row that it does not have, add none and return None."""
        # Only new facts are returned: removing them later must not remove what was there before.
        new = [fact for fact in dict.fromkeys(facts) if fact not in self._facts]
        for fact in new:
            self._facts.add(fact)
        if self._is_consistent(new):
            return new
        self._remove(new)
        return None

    def _remove(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            self._facts.remove(fact)

    def _is_consistent(self, new: Sequence[Fact]) -> bool:
        """Whether what the new facts derive is stored. Consistency only shrinks as facts are added."""
        return all(
            self._derives_only_stored(view, query, binding, tuple(other for other in query.body if other is not atom))
            for view in self._views
            for query in view.queries
            for atom in query.body
            for fact in new
            if fact[0] == atom.relation
            if (binding := match_row(atom, fact[1], {})) is not None
        )

    def _derives_only_stored(self, view: StoredView, query: ConjunctiveQuery, binding: Binding, body: tuple[Atom, ...]) -> bool:
        stored = self._knowledge.views.get(view.name, frozenset())
        found = (found for found in self._facts.join(body, binding) if self._holds(query, found))
        return all(ground(query.head, one)[1] in stored for one in found)

    # The update

    def _updated(self) -> Facts:
        rows = self._facts.copy()
        for name in self._update.relations:
            rows[name] = set(self._update.after(name, frozenset(rows.get(name, ()))))
        return Facts(rows, self._step)

    def _answers(self, after: Facts) -> frozenset[Row]:
        return frozenset(
            ground(query.head, found)[1]
            for query in self._view.queries
            for found in after.join(query.body, {})
            if self._holds(query, found, after)
        )

    def _find_difference(self, after: Facts, found: frozenset[Row]) -> State | None:
        """Return a state with further possible facts that add a row to the updated view; None if there is none."""
        for query, start, rest in self._starts(found):
            for binding, unknown in self._match_partly(after, rest, start, ()):
                free = dict.fromkeys(v for atom in unknown for v in literal_variables(atom) if v not in binding)
                state = self._add_unknown(query, binding, unknown, tuple(free), found, after) if unknown else None
                if state is not None:
                    return state
        return None

    def _starts(self, found: frozenset[Row]) -> Iterator[tuple[ConjunctiveQuery, Binding, tuple[Atom, ...]]]:
        """Yield where a further row of the updated view can begin: with an inserted fact or as a stored row that is lost.

        A negated fact that is deleted is also a start. A row whose facts all held before the update is stored, by consistency,
        so nothing else in the database is looked at.
        """
        lost = self._knowledge.views.get(self._view.name, frozenset()) - found
        for query in self._view.queries:
            for i, atom in enumerate(query.body):
                for row in sorted(self._update.inserts.get(atom.relation, ()), key=repr):
                    if (binding := match_row(atom, row, {})) is not None:
                        yield query, binding, query.body[:i] + query.body[i + 1 :]
            for atom in (c.atom for c in query.conditions if isinstance(c, Negation)):
                for row in sorted(self._update.deletes.get(atom.relation, ()), key=repr):
                    if (binding := match_row(atom, row, {})) is not None:
                        yield query, binding, query.body
            for row in sorted(lost, key=repr):
                if (binding := match_row(query.head, row, {})) is not None:
                    yield query, binding, query.body

    def _match_partly(
        self, after: Facts, body: tuple[Atom, ...], binding: Binding, unknown: tuple[Atom, ...]
    ) -> Iterator[tuple[Binding, tuple[Atom, ...]]]:
        """Yield every way to match each atom with a fact after the update, or to leave it unknown."""
        if not body:
            yield binding, unknown
            return
        # Matching an atom and leaving it unknown are both tried: a fact that is there does not exclude another one.
        first, *rest = body
        for extended in after.matches(first, binding):
            yield from self._match_partly(after, tuple(rest), extended, unknown)
        yield from self._match_partly(after, tuple(rest), binding, (*unknown, first))

    def _add_unknown(
        self,
        query: ConjunctiveQuery,
        binding: Binding,
        unknown: tuple[Atom, ...],
        free: Sequence[Variable],
        found: frozenset[Row],
        after: Facts,
    ) -> State | None:
        if free:
            variable, *rest = free
            values = self._values(self._type(query, variable))
            states = (self._add_unknown(query, {**binding, variable: given}, unknown, rest, found, after) for given in values)
            return next((state for state in states if state is not None), None)
        if not self._holds(query, binding, after):
            return None
        facts = [ground(atom, binding) for atom in unknown]
        # Evidence needs a row that the updated view would gain, from facts that may hold before and after the update.
        if ground(query.head, binding)[1] in found or not all(self._is_possible(fact) for fact in facts):
            return None
        added = self._add(facts)
        if added is None:
            return None
        state = self._facts.copy()
        self._remove(added)
        return state

    def _is_possible(self, fact: Fact) -> bool:
        """Tell whether a fact outside of the canonical database may hold before and after the update."""
        return fact not in self._facts and fact[1] not in self._update.deletes.get(fact[0], ()) and self._is_allowed(fact)


def _rename_symbols(state: State, beyond: int) -> State:
    """Return the same state with other symbols."""

    def other(value: Any) -> Any:
        return FreshSymbol(value.number + beyond) if isinstance(value, FreshSymbol) else value

    return {name: {tuple(map(other, row)) for row in rows} for name, rows in state.items()}
