"""A rule as a plan: its literals joined one after the other, each with the columns that are bound so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rederive.engines.spark.plan.expressions import (
    TRUE,
    ColumnRef,
    Expression,
    FunctionCall,
    Named,
    NullTest,
    Output,
    TypedValue,
    disjunction,
    equal,
    ref,
)
from rederive.engines.spark.plan.functors import Checked, Functors
from rederive.engines.spark.plan.nodes import Aliased, Hint, Join, JoinKind, OneRow, Plan, Projection, filtered
from rederive.engines.spark.plan.sources import Distributed, Local, Source, broadcast_hint, pushed_filter, scan
from rederive.engines.spark.session.types import column
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Atom, Comparison, Operator, Relation
from rederive.ir.terms import SYMBOL, Constant, Row, Simple, Type, Value, Variable

ERROR = "e"  # the column of a row's first error, NULL where there is none
_NO_ERROR = TypedValue(None, SYMBOL)


@dataclass(slots=True)
class RuleQuery:
    """The literals of a body so far.

    `types`: of the rule's variables. `columns`: where each variable's value is; `computed`: variables whose value is an
    expression; `among`: the few values that a variable can have, where rows in the driver tell them; `most_rows`: how many rows
    there are so far, at most; `only`: the one atom so far, where its rows are in the driver.
    """

    functors: Functors
    types: Mapping[str, Type]
    tuning: Tuning
    joined: Plan | None = None
    where: list[Expression] = field(default_factory=list)
    columns: dict[str, Expression] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    among: dict[str, frozenset[Value]] = field(default_factory=dict)
    errors: list[Expression] = field(default_factory=list)
    aliases: int = 0
    only: tuple[Atom, Local] | None = None
    most_rows: float = inf

    def join(self, atom: Atom, source: Source, relation: Relation) -> None:
        """`r(x, y)`: a join on the columns that are bound. By the key of `r`, no row finds more than one."""
        self._name_computed_values()
        size = len(source) if isinstance(source, Local | Distributed) else inf
        # The smaller side is the build side.
        sends_left = self.joined is not None and self.most_rows <= self.tuning.broadcast_rows and 2 * self.most_rows < size
        if sends_left:
            self._nest(Hint.BROADCAST)
        # A join by the whole key is functional: it cannot add rows.
        by_key = bool(relation.key) and self._bound(atom).issuperset(relation.key)
        self.most_rows = size if self.joined is None else self.most_rows if by_key else inf
        # From the second atom on, the bindings need a join, and so a query.
        self.only = (atom, source) if isinstance(source, Local) and self.joined is None else None
        alias, conditions = self._match(atom, source, relation)
        read = scan(source, self.tuning)
        if self.joined is None:
            self.joined = Aliased(read, alias)
            self.where += conditions
        else:
            right = Aliased(read, alias, None if sends_left else broadcast_hint(source, self.tuning))
            self.joined = Join(self.joined, right, JoinKind.INNER if conditions else JoinKind.CROSS, tuple(conditions))
        for i, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                # The first column of a variable gives its value; later ones are compared with it in `_match`.
                self.columns.setdefault(term.name, ref(i, alias))
                if isinstance(source, Local) and len(source) <= self.tuning.pushed_values:
                    self.among.setdefault(term.name, frozenset(row[i] for row in source.rows))

    def exclude(self, atom: Atom, source: Source, relation: Relation) -> None:
        """`!r(x, y)`: an anti-join; all its variables are bound."""
        # !r over an empty r holds for every binding.
        if source.empty:
            return
        self._name_computed_values()
        if self.joined is None:  # an anti-join needs a left side
            self.joined = Aliased(Projection(OneRow(), (Named(TRUE, column(0)),)), self._alias("a"))
        self.only = None
        alias, conditions = self._match(atom, source, relation)
        right = Aliased(scan(source, self.tuning), alias, broadcast_hint(source, self.tuning))
        # NOT EXISTS, not NOT IN: with null-safe equality NULL matches NULL, and a NULL in r excludes nothing else.
        self.joined = Join(self.joined, right, JoinKind.ANTI, tuple(conditions) or (TRUE,))

    def compare(self, comparison: Comparison) -> None:
        """A test, or the assignment of the one variable that is not bound yet."""
        self.only = None
        for one, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
            if comparison.operator is Operator.EQ and isinstance(one, Variable) and one.name not in self.columns:
                # x = f(y) binds x; an error stays with the row until the whole body holds.
                value = self.functors.term(other, self.columns, self.types)
                self.columns[one.name] = value.value
                self.computed.add(one.name)
                self.errors += value.errors
                return
        test = self.functors.test(comparison, self.columns, self.types)
        self.where.append(_passes_or_fails(test))
        self.errors += test.errors

    def drop_failures(self) -> None:
        """Leave out the rows for which a functor fails."""
        # No row can answer a request whose value does not exist.
        if self.errors:
            self.where.append(NullTest(self._error))
            self.errors = []

    def bindings(self, terms: Sequence[Simple]) -> Plan:
        """The values that terms have so far."""
        return self._project(self._outputs(terms))

    def local_bindings(self, terms: Sequence[Simple]) -> frozenset[Row] | None:
        """The same rows without a query, while all that is joined is one atom whose rows are in the driver; else None."""
        if self.only is None:
            return None
        atom, source = self.only
        found = set()
        for row in source.rows:
            values: dict[str, Value] = {}
            if all(_matches(term, value, values) for term, value in zip(atom.terms, row, strict=True)):
                found.add(tuple(term.value if isinstance(term, Constant) else values[term.name] for term in terms))
        return frozenset(found)

    def head(self, atom: Atom) -> Plan:
        """What the rule derives, and the error of each row in column `e` where there may be one."""
        return self._project(self._outputs(atom.terms) + ([Named(self._error, ERROR)] if self.errors else []))

    @property
    def _error(self) -> Expression:
        """The first error of a row, or NULL."""
        return FunctionCall("coalesce", (*self.errors, TypedValue(None, SYMBOL))) if self.errors else _NO_ERROR

    def _outputs(self, terms: Sequence[Simple]) -> list[Output]:
        return [Named(self._value(term), column(i)) for i, term in enumerate(terms)] or [Named(TRUE, column(0))]

    def _value(self, term: Simple) -> Expression:
        return TypedValue(term.value, term.type) if isinstance(term, Constant) else self.columns[term.name]

    def _project(self, outputs: Sequence[Output]) -> Plan:
        return Projection(filtered(self.joined or OneRow(), self.where), tuple(outputs))

    def _match(self, atom: Atom, source: Source, relation: Relation) -> tuple[str, list[Expression]]:
        """A new alias for an atom, and the conditions under which its rows match what is bound.

        NULL is identical to NULL; where one side cannot be NULL, `=` means the same, and Spark joins faster. Where only few
        values can match, a scan of many rows gets them as a filter.
        """
        alias = self._alias("a")
        first: dict[str, Expression] = {}
        conditions: list[Expression] = []
        for i, term in enumerate(atom.terms):
            value, null_safe = ref(i, alias), relation.columns[i].nullable
            # Bound: a condition of the join. A repeated variable within the atom is a condition on its own columns.
            if isinstance(term, Constant) or term.name in self.columns:
                conditions.append(equal(value, self._value(term), null_safe=null_safe))
                if isinstance(term, Variable) and not isinstance(source, Local):
                    among = self.among.get(term.name, frozenset())
                    conditions += pushed_filter(value, among, source.types[i], self.tuning)
            elif term.name in first:
                conditions.append(equal(value, first[term.name], null_safe=null_safe))
            else:
                first[term.name] = value
        return alias, conditions

    def _alias(self, letter: str) -> str:
        self.aliases += 1
        return f"{letter}{self.aliases - 1}"

    def _bound(self, atom: Atom) -> set[int]:
        """The columns of an atom whose values are known."""
        return {i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term.name in self.columns}

    def _name_computed_values(self) -> None:
        """Make computed values columns of a subquery: Spark joins by columns, not by expressions."""
        if self.computed:
            self._nest(None)

    def _nest(self, hint: Hint | None) -> None:
        """Make everything so far one aliased subquery."""
        names = list(self.columns)
        alias = self._alias("s")
        values = [Named(self.columns[name], column(i)) for i, name in enumerate(names)]
        has_errors = bool(self.errors)
        # The error goes through the subquery as a column, so that it is not lost where the values get new names.
        self.joined = Aliased(self._project([*values, Named(self._error, ERROR)]), alias, hint)
        self.where = []
        self.columns = {name: ref(i, alias) for i, name in enumerate(names)}
        self.computed, self.errors = set(), [ColumnRef(ERROR, alias)] if has_errors else []


def _matches(term: Simple, value: Value, values: dict[str, Value]) -> bool:
    """Whether a value can be a term's, given the values of the variables before it."""
    return (term.value if isinstance(term, Constant) else values.setdefault(term.name, value)) == value


def _passes_or_fails(test: Checked) -> Expression:
    """A test lets rows through for which it fails: whether their error counts is known when the whole body holds."""
    if not test.errors:
        return test.value
    return disjunction([*(NullTest(error, is_null=False) for error in test.errors), test.value])
