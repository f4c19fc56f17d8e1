"""Rules over tables in the driver: joins, anti-joins and plain tests by Arrow, without a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, eq, ge, gt, le, lt, ne
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from rederive.analysis.bindings import join_order
from rederive.engines.spark.plan.sources import Distributed, Source, frames
from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.arrow_sets import Values
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Find
from rederive.engines.spark.session.types import arrow_type, column
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Relation, Rule, literal_variables
from rederive.ir.terms import Constant, Simple, Term, Variable

_MOST_FOUND = 4  # times as many rows as a table may have, that a join may find
_COMPARED: Mapping[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}


class _NotHere(Exception):
    """The rule is Spark's: Arrow would do something else, or too much."""


def joined(
    rule: Rule, driver: int | None, delta: Source | None, find: Find, jobs: Jobs, relations: Mapping[str, Relation]
) -> pa.Table | None:
    """What a rule derives, each row as often as it does; None where that is not a matter of tables in the driver.

    All that the rule reads must be in the driver, or little and fetched for it: at least one table that is there already, or
    nothing but rows in the driver.
    """
    read = _read(rule, driver, delta, find)
    if read is None or not _worth(list(read.values())):
        return None
    found = {place: jobs.fetched(source) for place, source in read.items()}
    at_hand = {place: table for place, table in found.items() if table is not None}
    if len(at_hand) < len(found):
        return None
    try:
        return _Join(rule, relations, at_hand).run(driver)
    except _NotHere:
        return None


def _read(rule: Rule, driver: int | None, delta: Source | None, find: Find) -> dict[int, Source] | None:
    """What each literal of a relation reads, by its identity; None where that is derived on demand, or a term is computed."""
    if len(set(map(id, rule.body))) < len(rule.body) or not rule.head.terms:
        return None
    found: dict[int, Source] = {}
    for i, literal in enumerate(rule.body):
        if isinstance(literal, Comparison):
            if not all(isinstance(term, Variable | Constant) for term in (literal.left, literal.right)):
                return None
            continue
        atom = literal.atom if isinstance(literal, Negation) else literal
        source = delta if delta is not None and i == driver else find(atom)
        if not isinstance(source, Source):
            return None
        found[id(literal)] = source
    return found


def _worth(sources: Sequence[Source]) -> bool:
    """Whether no more is fetched than is there already, for this rule or for later ones."""
    parts = [frame for source in sources for frame in frames(source)]
    many = [frame for frame in parts if isinstance(frame, Distributed)]
    fits = all(len(frame) <= tables.MOST for frame in parts)
    return fits and (not many or any(frame.table is not None for frame in many))


@dataclass(frozen=True)
class _Join:
    """The literals of a rule, joined one after the other: a table with a column for each variable that matters."""

    rule: Rule
    relations: Mapping[str, Relation]
    read: Mapping[int, pa.Table]

    def run(self, driver: int | None) -> pa.Table:
        rest = list(self.rule.body)
        first = [rest.pop(driver)] if driver is not None else []
        known = frozenset(variable.name for literal in first for variable in literal_variables(literal))
        table: pa.Table | None = None
        for literal in (*first, *(step.literal for step in join_order(rest, known))):
            table = self._with(table, literal)
        return self._head(table)

    def _with(self, table: pa.Table | None, literal: Literal) -> pa.Table:
        match literal:
            case Atom():
                right = self._matching(literal, literal)
                return right if table is None else self._inner(table, right, literal)
            case _ if table is None:
                raise _NotHere
            case Negation(atom):
                right = self._matching(literal, atom)
                names = right.column_names
                if not names:
                    raise _NotHere
                return table.join(right, _keys(table, right, names), join_type="left anti")
            case Comparison():
                return _compared(table, literal)

    def _matching(self, literal: Literal, atom: Atom) -> pa.Table:
        """The rows of an atom that fit its constants and repeated variables, with the columns that others ask for."""
        rows, first = self.read[id(literal)], dict[str, int]()
        tests = []
        for i, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                tests.append(_is(pc.field(column(i)), rows.column(i).type, term))
            elif term.name in first:
                _comparable(rows.column(first[term.name]), rows.column(i))
                tests.append(pc.field(column(i)) == pc.field(column(first[term.name])))
            else:
                first[term.name] = i
        rows = rows.filter(reduce(and_, tests)) if tests else rows
        wanted = {name: i for name, i in first.items() if name in self._wanted}
        return rows.select([column(i) for i in wanted.values()]).rename_columns(list(wanted))

    @cached_property
    def _wanted(self) -> set[str]:
        """The variables that the head has, or more than one literal."""
        wanted = {term.name for term in self.rule.head.terms if isinstance(term, Variable)}
        seen: set[str] = set()
        for literal in self.rule.body:
            here = {variable.name for variable in literal_variables(literal)}
            wanted |= seen & here
            seen |= here
        return wanted

    def _inner(self, left: pa.Table, right: pa.Table, atom: Atom) -> pa.Table:
        names = [name for name in right.column_names if name in left.column_names]
        if not names:
            raise _NotHere
        keys = _keys(left, right, names)
        bound = {i for i, t in enumerate(atom.terms) if isinstance(t, Constant) or t.name in left.column_names}
        key = self.relations[atom.relation].key
        if not (key and bound.issuperset(key)) and _found(left, right, keys) > _MOST_FOUND * tables.MOST:
            raise _NotHere
        one, other = (left, right) if right.num_rows <= left.num_rows else (right, left)
        return one.join(other, keys, join_type="inner")

    def _head(self, table: pa.Table | None) -> pa.Table:
        if table is None:
            raise _NotHere
        head = self.rule.head
        values = [self._value(table, term) for term in head.terms]
        named = pa.table(values, names=[column(i) for i in range(len(values))])
        return tables.typed(named, self.relations[head.relation].types)

    @staticmethod
    def _value(table: pa.Table, term: Simple) -> Any:
        if isinstance(term, Constant):
            return pa.array([term.value] * table.num_rows, arrow_type(term.type))
        return table[term.name]


def _keys(left: pa.Table, right: pa.Table, names: Sequence[str]) -> list[str]:
    """The columns to join by, where Arrow finds the same equal as we do."""
    for name in names:
        _comparable(left[name], right[name])
    return list(names)


def _comparable(one: Values, other: Values) -> None:
    """Arrow never finds NULL equal to NULL, and has its own view of floats."""
    if one.type != other.type or pa.types.is_floating(one.type) or (one.null_count and other.null_count):
        raise _NotHere


def _is(value: pc.Expression, type: pa.DataType, constant: Constant) -> pc.Expression:
    if pa.types.is_floating(type):
        raise _NotHere
    return value.is_null() if constant.value is None else value == pa.scalar(constant.value, type)


def _compared(table: pa.Table, comparison: Comparison) -> pa.Table:
    """A test of two values that are there, neither of them NULL."""
    (left, one), (right, other) = (_tested(table, term) for term in (comparison.left, comparison.right))
    if one != other or pa.types.is_floating(one) or comparison.operator not in _COMPARED:
        raise _NotHere
    return table.filter(_COMPARED[comparison.operator](left, right))


def _tested(table: pa.Table, term: Term) -> tuple[pc.Expression, pa.DataType]:
    match term:
        case Constant(value, type) if value is not None:
            return pc.scalar(cast(Any, pa.scalar(value, arrow_type(type)))), arrow_type(type)
        case Variable(name) if name in table.column_names and not table[name].null_count:
            return pc.field(name), table[name].type
    raise _NotHere


def _found(left: pa.Table, right: pa.Table, keys: list[str]) -> int:
    """How many rows a join finds."""
    most = left.num_rows * right.num_rows
    if most <= _MOST_FOUND * tables.MOST:
        return most
    sides = [side.group_by(keys).aggregate([([], "count_all")]) for side in (left, right)]
    both = sides[0].join(sides[1].rename_columns([*keys, "others"]), keys, join_type="inner")
    return int(pc.sum(pc.multiply(both["count_all"], both["others"])).as_py() or 0)
