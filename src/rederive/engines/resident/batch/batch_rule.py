"""One rule over whole columns: a join by sorted keys for each atom, tests and arithmetic on arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

import numpy as np

from rederive.analysis.bindings import JoinStep, binding_pattern, join_order
from rederive.engines.resident.batch.sources import ColumnSource
from rederive.engines.resident.batch.terms import Bindings, holds, vector_of
from rederive.engines.resident.batch.vectors import Batch, NotByColumn, Space, Vector
from rederive.engines.resident.storage.row_index import MOST_MATCHES, Array, TooManyMatches
from rederive.ir.rules import Atom, Comparison, Negation, Operator, Rule, literal_variables
from rederive.ir.terms import Constant, Term, Type, Variable

_FEW: Final = 16  # rows of a driver
_TRUSTED: Final = 16  # changes of few rows for which the growth of a plan is not estimated again


class WorkMeter(Protocol):
    """Counts what is looked at, and stops the work where a budget is exceeded."""

    def count(self, tuples: int) -> None:
        """Count so many tuples."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The steps of a join. `growth`: about how many bindings come of one row of the driver."""

    steps: tuple[JoinStep, ...]
    growth: float


class BatchRule:
    """A rule that starts from all rows of its driver, or without one from whatever atom is joined first.

    Every binding gives one row of the head. The caller knows whether these are distinct.
    """

    def __init__(
        self, rule: Rule, driver: int | None, sources: Mapping[Atom, ColumnSource], space: Space, types: Mapping[str, Type]
    ) -> None:
        self.rule = rule
        self._driver = driver
        self._sources = sources
        self._every_source = tuple(sources.values())
        self._space = space
        self._types = types
        self._plans: dict[tuple[int, ...], JoinPlan] = {}
        self._growth, self._trusted = 0.0, 0
        self.start = sources[self._atom(driver)] if driver is not None else None  # what the driver reads
        named = Counter(v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal))
        self._read = frozenset(name for name, times in named.items() if times > 1)

    def _atom(self, position: int) -> Atom:
        atom = self.rule.body[position]
        assert isinstance(atom, Atom)
        return atom

    def expected(self) -> float:
        """About how many bindings there will be."""
        rows = self.start.rows() if self.start is not None else _FEW
        # The sizes of all sources cost more to read than a few rows to join: some changes go by those of one before them.
        if rows >= _FEW or not self._trusted:
            self._growth, self._trusted = self._plan().growth, _TRUSTED
        self._trusted -= 1
        return self._growth * (rows if self.start is not None else 1)

    def preparation(self) -> int:
        """The rows that have to be copied before it can run."""
        return sum(source.preparation() for source in self._every_source)

    def _plan(self) -> JoinPlan:
        """The join order for sizes within a factor of four of the present ones."""
        sizes = tuple([source.rows().bit_length() // 2 for source in self._every_source])
        plan = self._plans.get(sizes)
        if plan is None:
            plan = self._plans[sizes] = self._new_plan()
        return plan

    def _new_plan(self) -> JoinPlan:
        rest = [literal for i, literal in enumerate(self.rule.body) if i != self._driver]
        known = frozenset[str]()
        start: tuple[JoinStep, ...] = ()
        if self._driver is not None:
            first = self._atom(self._driver)
            known = frozenset(v.name for v in literal_variables(first))
            start = (JoinStep(first, binding_pattern(first, frozenset())),)
        steps = join_order(rest, known, lambda atom, bound: self._sources[atom].fanout(bound))
        atoms = [(step.literal, step.bound) for step in steps if isinstance(step.literal, Atom)]
        growth = prod(self._sources[a].fanout(b) if b else self._sources[a].rows() for a, b in atoms if len(b) < len(a.terms))
        return JoinPlan((*start, *steps), growth)

    def run(self, meter: WorkMeter) -> Batch:
        """The rows of the head. Raises `NotByColumn` where they have to be found one by one."""
        try:
            return self._run(meter)
        except TooManyMatches:
            raise NotByColumn("more bindings than arrays should hold") from None

    def _run(self, meter: WorkMeter) -> Batch:
        frame = Bindings(self._space, 1, {})
        for step in self._plan().steps:
            frame = self._step(frame, step)
            meter.count(0)  # the budget of time is checked after each join
        vectors = [self._head(frame, term) for term in self.rule.head.terms]
        return Batch(vectors, frame.count)

    def _head(self, frame: Bindings, term: Term) -> Vector:
        return vector_of(term, frame, self._types)

    def _step(self, frame: Bindings, step: JoinStep) -> Bindings:
        match step.literal:
            case Atom():
                return self._join(frame, step)
            case Negation(atom):
                positions, _ = self._matches(frame, atom, tuple(range(len(atom.terms))), ())
                absent = np.ones(frame.count, np.bool_)
                absent[positions] = False
                return frame.where(absent)
            case Comparison() as comparison:
                return self._compare(frame, comparison)

    def _compare(self, frame: Bindings, comparison: Comparison) -> Bindings:
        if comparison.operator is Operator.EQ:
            for variable, term in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
                if isinstance(variable, Variable) and variable.name not in frame.vectors:
                    vector = vector_of(term, frame, self._types)
                    if vector.type != self._types[variable.name]:
                        raise NotByColumn("a term of another type than its variable")
                    return Bindings(frame.space, frame.count, {**frame.vectors, variable.name: vector})
        return frame.where(holds(comparison, frame, self._types))

    def _join(self, frame: Bindings, step: JoinStep) -> Bindings:
        atom = step.literal
        assert isinstance(atom, Atom)
        free = [i for i in range(len(atom.terms)) if i not in step.bound]
        # A variable that is named once is not read.
        wanted = [i for i in free if not isinstance(t := atom.terms[i], Variable) or t.name in self._read]
        positions, columns = self._matches(frame, atom, step.bound, wanted)
        # Each binding matches one row in a join by a key that is always there: nothing moves.
        is_same = len(positions) == frame.count and bool((positions == np.arange(frame.count)).all())
        vectors = dict(frame.vectors if is_same else frame.take(positions).vectors)
        same: Array | None = None
        for i, codes in zip(wanted, columns, strict=True):
            name = atom.terms[i].name  # type: ignore[union-attr]
            if name in vectors:
                equal: Array = vectors[name].codes() == codes
                same = equal if same is None else same & equal
            else:
                vectors[name] = Vector(frame.space, self._types[name], codes)
        joined = Bindings(frame.space, len(positions), vectors)
        return joined if same is None else joined.where(same)

    def _matches(self, frame: Bindings, atom: Atom, bound: tuple[int, ...], wanted: Sequence[int]) -> tuple[Array, list[Array]]:
        source, terms = self._sources[atom], atom.terms
        # Constants alone do not select enough to keep an index for them: the rows are read, and the others left out.
        if all(isinstance(terms[i], Constant) for i in bound):
            columns = source.scan()
            chosen = np.ones(len(columns[0]), np.bool_)
            for i, term in ((i, terms[i]) for i in bound):
                assert isinstance(term, Constant)
                chosen &= columns[i] == self._space.codes.codec(term.type).encode(term.value)
            found = [columns[i] if chosen.all() else columns[i][chosen] for i in wanted]
            rows = int(np.count_nonzero(chosen))
            if rows * frame.count > MOST_MATCHES:
                raise TooManyMatches
            if frame.count == 1:
                return np.zeros(rows, np.int64), found
            return np.repeat(np.arange(frame.count), rows), [np.tile(column, frame.count) for column in found]
        return source.find(bound, [frame.codes(terms[i]) for i in bound], wanted)
