"""A rule over Arrow tables in the driver: joins, anti-joins and plain comparisons, without a job (decision 44)."""

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
from rederive.engines.spark.run.arrow_sets import ArrowColumn, cast_columns
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import FindRows
from rederive.engines.spark.session.types import arrow_type, column
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Relation, Rule, literal_variables
from rederive.ir.terms import Constant, Simple, Term, Variable

# The operators for which Arrow and the engines agree; patterns and containment are left to Spark.
_COMPARISONS: Mapping[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}


class _LeftToSpark(Exception):
    """Arrow would give another answer, or too many rows."""


def derive_table(
    rule: Rule, driver: int | None, delta: Source | None, find: FindRows, jobs: Jobs, relations: Mapping[str, Relation]
) -> pa.Table | None:
    """What a rule derives, each row as often as it is derived; None where the rule is left to Spark.

    All that the rule reads is in the driver, or small and fetched into it. Rows are fetched only if some are there already.
    """
    read = _sources(rule, driver, delta, find)
    if read is None or not _is_worth_fetching(list(read.values()), jobs.tuning.arrow_rows):
        return None
    fetched = {place: jobs.queries.fetch(source) for place, source in read.items()}
    tables = {place: table for place, table in fetched.items() if table is not None}
    if len(tables) < len(fetched):
        return None
    try:
        return _ArrowJoin(rule, relations, tables, jobs.tuning.arrow_join_factor * jobs.tuning.arrow_rows).run(driver)
    except _LeftToSpark:
        return None


def _sources(rule: Rule, driver: int | None, delta: Source | None, find: FindRows) -> dict[int, Source] | None:
    """What each literal reads, by its identity; None where that is derived on demand, or a term is computed."""
    # Sources are found by the identity of their literal, so no object may be in the body twice.
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


def _is_worth_fetching(sources: Sequence[Source], arrow_rows: int) -> bool:
    """Whether every frame may be in the driver, and one of the large ones is there already."""
    parts = [frame for source in sources for frame in frames(source)]
    many = [frame for frame in parts if isinstance(frame, Distributed)]
    fits = all(len(frame) <= arrow_rows for frame in parts)
    # If all large frames are in Spark, a job there moves nothing; a fetch would.
    return fits and (not many or any(frame.table is not None for frame in many))


@dataclass(frozen=True)
class _ArrowJoin:
    """The literals of a rule, joined one after the other: a table with a column for each variable that matters.

    A join that would find more than `most_rows` is left to Spark.
    """

    rule: Rule
    relations: Mapping[str, Relation]
    read: Mapping[int, pa.Table]
    most_rows: int

    def run(self, driver: int | None) -> pa.Table:
        rest = list(self.rule.body)
        first = [rest.pop(driver)] if driver is not None else []
        # The driver first, as in the maintenance program; sizes are not known, so the order of the rest is the default one.
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
            # A negation or a test needs bindings; a body without atoms is left to Spark.
            case _ if table is None:
                raise _LeftToSpark
            case Negation(atom):
                right = self._matching(literal, atom)
                names = right.column_names
                # !r(_): whether r has any row, which is not a join.
                if not names:
                    raise _LeftToSpark
                return table.join(right, _keys(table, right, names), join_type="left anti")
            case Comparison():
                return _filter(table, literal)

    def _matching(self, literal: Literal, atom: Atom) -> pa.Table:
        """The rows of an atom that match its constants and repeated variables, with the columns that others need."""
        rows, first = self.read[id(literal)], dict[str, int]()
        tests = []
        for i, term in enumerate(atom.terms):
            if isinstance(term, Constant):
                tests.append(_equals_constant(pc.field(column(i)), rows.column(i).type, term))
            elif term.name in first:
                _check_comparable(rows.column(first[term.name]), rows.column(i))
                tests.append(pc.field(column(i)) == pc.field(column(first[term.name])))
            else:
                first[term.name] = i
        rows = rows.filter(reduce(and_, tests)) if tests else rows
        needed = {name: i for name, i in first.items() if name in self._needed}
        return rows.select([column(i) for i in needed.values()]).rename_columns(list(needed))

    @cached_property
    def _needed(self) -> set[str]:
        """The variables that the head has, or more than one literal."""
        needed = {term.name for term in self.rule.head.terms if isinstance(term, Variable)}
        seen: set[str] = set()
        for literal in self.rule.body:
            names = {variable.name for variable in literal_variables(literal)}
            needed |= seen & names
            seen |= names
        return needed

    def _inner(self, left: pa.Table, right: pa.Table, atom: Atom) -> pa.Table:
        names = [name for name in right.column_names if name in left.column_names]
        # A product.
        if not names:
            raise _LeftToSpark
        keys = _keys(left, right, names)
        bound = {i for i, t in enumerate(atom.terms) if isinstance(t, Constant) or t.name in left.column_names}
        key = self.relations[atom.relation].key
        # By the whole key a row finds one row at most, and the size needs no estimate.
        if not (key and bound.issuperset(key)) and self._rows_found(left, right, keys) > self.most_rows:
            raise _LeftToSpark
        # Arrow builds its hash table of the right side.
        one, other = (left, right) if right.num_rows <= left.num_rows else (right, left)
        return one.join(other, keys, join_type="inner")

    def _rows_found(self, left: pa.Table, right: pa.Table, keys: list[str]) -> int:
        """The number of rows that a join finds; an upper bound where that is low enough."""
        most = left.num_rows * right.num_rows
        if most <= self.most_rows:
            return most
        # Exactly: the sum over keys of the product of both sides' numbers.
        sides = [side.group_by(keys).aggregate([([], "count_all")]) for side in (left, right)]
        both = sides[0].join(sides[1].rename_columns([*keys, "others"]), keys, join_type="inner")
        return int(pc.sum(pc.multiply(both["count_all"], both["others"])).as_py() or 0)

    def _head(self, table: pa.Table | None) -> pa.Table:
        if table is None:
            raise _LeftToSpark
        head = self.rule.head
        values = [self._value(table, term) for term in head.terms]
        named = pa.table(values, names=[column(i) for i in range(len(values))])
        return cast_columns(named, self.relations[head.relation].types)

    @staticmethod
    def _value(table: pa.Table, term: Simple) -> Any:
        if isinstance(term, Constant):
            return pa.array([term.value] * table.num_rows, arrow_type(term.type))
        return table[term.name]


def _keys(left: pa.Table, right: pa.Table, names: Sequence[str]) -> list[str]:
    """The columns to join by, where Arrow finds the same equal as we do."""
    for name in names:
        _check_comparable(left[name], right[name])
    return list(names)


def _check_comparable(one: ArrowColumn, other: ArrowColumn) -> None:
    """Leave a comparison to Spark where Arrow differs: it never finds NULL equal to NULL, and compares floats in its own way."""
    if one.type != other.type or pa.types.is_floating(one.type) or (one.null_count and other.null_count):
        raise _LeftToSpark


def _equals_constant(value: pc.Expression, type: pa.DataType, constant: Constant) -> pc.Expression:
    if pa.types.is_floating(type):
        raise _LeftToSpark
    return value.is_null() if constant.value is None else value == pa.scalar(constant.value, type)


def _filter(table: pa.Table, comparison: Comparison) -> pa.Table:
    """The rows for which a comparison holds; neither of its values is NULL."""
    (left, one), (right, other) = (_operand(table, term) for term in (comparison.left, comparison.right))
    if one != other or pa.types.is_floating(one) or comparison.operator not in _COMPARISONS:
        raise _LeftToSpark
    return table.filter(_COMPARISONS[comparison.operator](left, right))


def _operand(table: pa.Table, term: Term) -> tuple[pc.Expression, pa.DataType]:
    match term:
        case Constant(value, type) if value is not None:
            return pc.scalar(cast(Any, pa.scalar(value, arrow_type(type)))), arrow_type(type)
        case Variable(name) if name in table.column_names and not table[name].null_count:
            return pc.field(name), table[name].type
    raise _LeftToSpark
