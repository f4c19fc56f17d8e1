"""A rule over Arrow tables in the driver: joins, anti-joins and plain comparisons, without a job (decision 44)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from rederive.engines.spark.plan.rule_plan import RulePlan
from rederive.engines.spark.plan.sources import Distributed, Local, Source, frames
from rederive.engines.spark.run.arrow_sets import ArrowColumn, cast_columns
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import arrow_type, column
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator
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


def derive_table(compiled: RulePlan, read: Mapping[int, Source], jobs: Jobs) -> pa.Table | None:
    """What a rule derives from the sources of its literals, each row as often as it is derived; None where it is left to Spark.

    All that the rule reads is in the driver, or small and fetched into it, where it stays for the transactions to come.
    """
    if compiled.computes or not compiled.rule.head.terms or not _is_worth_fetching(compiled, read, jobs):
        return None
    fetched = {place: jobs.queries.fetch(source) for place, source in read.items()}
    tables = {place: table for place, table in fetched.items() if table is not None}
    if len(tables) < len(fetched):
        return None
    try:
        return _ArrowJoin(compiled, tables, jobs.tuning.arrow_join_factor * jobs.tuning.arrow_rows).run()
    except _LeftToSpark:
        return None


def _is_worth_fetching(compiled: RulePlan, read: Mapping[int, Source], jobs: Jobs) -> bool:
    """Whether every frame may be in the driver, and the rows that the rule starts from, or any large frame, are there already."""
    if not all(map(jobs.queries.can_fetch, read.values())):
        return False
    many = [frame for source in read.values() for frame in frames(source) if isinstance(frame, Distributed)]
    start = read.get(compiled.driver) if compiled.driver is not None else None
    starts_here = start is not None and all(isinstance(f, Local) or f.table is not None for f in frames(start))
    # If all large frames are in Spark, a job there moves nothing; a fetch would.
    return starts_here or not many or any(frame.table is not None for frame in many)


@dataclass(frozen=True)
class _ArrowJoin:
    """The literals of a rule, joined one after the other: a table with a column for each variable that matters.

    A join that would find more than `most_rows` is left to Spark.
    """

    compiled: RulePlan
    read: Mapping[int, pa.Table]
    most_rows: int

    def run(self) -> pa.Table:
        table: pa.Table | None = None
        for place, literal in self.compiled.order:
            table = self._with(table, place, literal)
        return self._head(table)

    def _with(self, table: pa.Table | None, place: int, literal: Literal) -> pa.Table:
        match literal:
            case Atom():
                right = self._matching(place, literal)
                return right if table is None else self._inner(table, right, literal)
            # A negation or a test needs bindings; a body without atoms is left to Spark.
            case _ if table is None:
                raise _LeftToSpark
            case Negation(atom):
                right = self._matching(place, atom)
                names = right.column_names
                # !r(_): whether r has any row, which is not a join.
                if not names:
                    raise _LeftToSpark
                return table.join(right, _keys(table, right, names), join_type="left anti")
            case Comparison():
                return _filter(table, literal)

    def _matching(self, place: int, atom: Atom) -> pa.Table:
        """The rows of an atom that match its constants and repeated variables, with the columns that others need."""
        rows, first = self.read[place], dict[str, int]()
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
        needed = {name: i for name, i in first.items() if name in self.compiled.needed}
        return rows.select([column(i) for i in needed.values()]).rename_columns(list(needed))

    def _inner(self, left: pa.Table, right: pa.Table, atom: Atom) -> pa.Table:
        names = [name for name in right.column_names if name in left.column_names]
        # A product.
        if not names:
            raise _LeftToSpark
        keys = _keys(left, right, names)
        bound = {i for i, t in enumerate(atom.terms) if isinstance(t, Constant) or t.name in left.column_names}
        key = self.compiled.relations[atom.relation].key
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
        head = self.compiled.rule.head
        values = [self._value(table, term) for term in head.terms]
        named = pa.table(values, names=[column(i) for i in range(len(values))])
        return cast_columns(named, self.compiled.relations[head.relation].types)

    @staticmethod
    def _value(table: pa.Table, term: Simple) -> Any:
        if isinstance(term, Constant):
            return pa.array([term.value] * table.num_rows, arrow_type(term.type))
        return table[term.name]


def _keys(left: pa.Table, right: pa.Table, names: Sequence[str]) -> list[str]:
    """The columns to join by, where Arrow finds the same equal as we do."""
    # Neither as a key nor next to one does Arrow join a nested column.
    if any(map(pa.types.is_nested, (*left.schema.types, *right.schema.types))):
        raise _LeftToSpark
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
    """The rows for which a comparison holds; neither of its values is NULL, unless NULL itself is compared with."""
    match comparison.left, comparison.operator, comparison.right:
        case (Variable(name), Operator.EQ | Operator.NE, Constant(None)) if name in table.column_names:
            value = table[name]
            return table.filter(pc.is_null(value) if comparison.operator is Operator.EQ else pc.is_valid(value))
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
