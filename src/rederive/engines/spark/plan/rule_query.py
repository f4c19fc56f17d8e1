"""A rule as a SELECT: its literals joined one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from rederive.engines.spark.plan.functors import Expression, Functions
from rederive.engines.spark.plan.sources import BROADCAST_ROWS, NULL_SAFE, PUSHED, Distributed, Local, Source, pushed
from rederive.engines.spark.session.types import column, literal
from rederive.ir.rules import Atom, Comparison, Operator, Relation
from rederive.ir.terms import Constant, Row, Simple, Type, Value, Variable


@dataclass(slots=True)
class Select:
    """The literals of a body so far.

    `columns`: where each variable's value is; `computed`: those that are expressions; `among`: the few values that a variable can
    have, where rows in the driver tell them; `rows`: how many rows there are so far, at most.
    """

    functions: Functions
    types: Mapping[str, Type]
    items: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    among: dict[str, frozenset[Value]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    small: list[str] = field(default_factory=list)
    aliases: int = 0
    alone: tuple[Atom, Local] | None = None
    rows: float = inf

    def join(self, atom: Atom, source: Source, relation: Relation) -> None:
        """`r(x, y)`: a join on the columns that are bound. By the key of `r`, no row finds more than one."""
        self._settle()
        size = len(source) if isinstance(source, Local | Distributed) else inf
        sent = bool(self.items) and self.rows <= BROADCAST_ROWS and 2 * self.rows < size
        if sent:
            self._wrap()
        found = self.rows if relation.key and self._bound(atom).issuperset(relation.key) else inf
        self.rows = found if self.items else size
        self.alone = (atom, source) if isinstance(source, Local) and not self.items else None
        alias, conditions = self._matching(atom, source, relation)
        if source.small and self.items and not sent:
            self.small.append(alias)
        if not self.items:
            self.items.append(f"{source.text()} {alias}")
            self.where += conditions
        elif conditions:
            self.items.append(f"JOIN {source.text()} {alias} ON {' AND '.join(conditions)}")
        else:
            self.items.append(f"CROSS JOIN {source.text()} {alias}")
        for i, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                self.columns.setdefault(term.name, f"{alias}.{column(i)}")
                if isinstance(source, Local) and len(source) <= PUSHED:
                    self.among.setdefault(term.name, frozenset(row[i] for row in source.rows))

    def exclude(self, atom: Atom, source: Source, relation: Relation) -> None:
        """`!r(x, y)`: an anti-join; all its variables are bound."""
        if source.empty:
            return
        self._settle()
        self._start()
        self.alone = None
        alias, conditions = self._matching(atom, source, relation)
        if source.small:
            self.small.append(alias)
        self.items.append(f"LEFT ANTI JOIN {source.text()} {alias} ON {' AND '.join(conditions) or 'TRUE'}")

    def compare(self, comparison: Comparison) -> None:
        """A test, or the assignment of the one variable that is not bound yet."""
        self.alone = None
        for one, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
            if comparison.operator is Operator.EQ and isinstance(one, Variable) and one.name not in self.columns:
                value = self.functions.term(other, self.columns, self.types)
                self.columns[one.name] = value.text
                self.computed.add(one.name)
                self._fails(value)
                return
        test = self.functions.test(comparison, self.columns, self.types)
        self.where.append(_or_fails(test))
        self._fails(test)

    def leave_out_failures(self) -> None:
        if self.errors:
            self.where.append(f"{self._error} IS NULL")
            self.errors = []

    def bindings(self, terms: Sequence[Simple]) -> str:
        """The values that terms have so far."""
        return self._text(self._values(terms))

    def projected(self, terms: Sequence[Simple]) -> frozenset[Row] | None:
        """The same without a query, while all that was joined is one atom whose rows are in the driver."""
        if self.alone is None:
            return None
        atom, source = self.alone
        found = set()
        for row in source.rows:
            values: dict[str, Value] = {}
            if all(_fits(term, value, values) for term, value in zip(atom.terms, row, strict=True)):
                found.add(tuple(term.value if isinstance(term, Constant) else values[term.name] for term in terms))
        return frozenset(found)

    def head(self, atom: Atom) -> str:
        """What the rule derives, and the error of each row where there may be one."""
        return self._text(self._values(atom.terms) + ([f"{self._error} AS e"] if self.errors else []))

    @property
    def _error(self) -> str:
        """The first error of a row, or NULL."""
        return f"coalesce({', '.join(self.errors)}, NULL)" if self.errors else "CAST(NULL AS STRING)"

    def _values(self, terms: Sequence[Simple]) -> list[str]:
        return [f"{self._value(term)} AS {column(i)}" for i, term in enumerate(terms)] or ["TRUE AS c0"]

    def _value(self, term: Simple) -> str:
        return literal(term.value, term.type) if isinstance(term, Constant) else self.columns[term.name]

    def _text(self, values: Sequence[str]) -> str:
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        hint = f" /*+ BROADCAST({', '.join(self.small)}) */" if self.small else ""
        start = f" FROM {' '.join(self.items)}" if self.items else ""
        return f"SELECT{hint} {', '.join(values)}{start}{where}"

    def _matching(self, atom: Atom, source: Source, relation: Relation) -> tuple[str, list[str]]:
        """A new alias for an atom, and the conditions under which its rows fit what is bound.

        NULL is identical to NULL; where one side cannot be NULL, `=` says the same, and Spark joins faster. Where only few values
        can fit, a scan of many rows is told them: of files it reads only what can have one.
        """
        alias = f"a{self.aliases}"
        self.aliases += 1
        here: dict[str, str] = {}
        conditions = []
        for i, term in enumerate(atom.terms):
            value = f"{alias}.{column(i)}"
            equal = NULL_SAFE if relation.columns[i].nullable else "="
            if isinstance(term, Constant) or term.name in self.columns:
                conditions.append(f"{value} {equal} {self._value(term)}")
                if isinstance(term, Variable) and not isinstance(source, Local):
                    conditions += pushed(value, self.among.get(term.name, frozenset()), source.types[i])
            elif term.name in here:
                conditions.append(f"{value} {equal} {here[term.name]}")
            else:
                here[term.name] = value
        return alias, conditions

    def _start(self) -> None:
        """An anti-join needs something to its left: where nothing is joined yet, one row."""
        if not self.items:
            self.items.append(f"(SELECT TRUE AS c0) a{self.aliases}")
            self.aliases += 1

    def _bound(self, atom: Atom) -> set[int]:
        """The columns of an atom whose values are known."""
        return {i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term.name in self.columns}

    def _settle(self) -> None:
        """Make computed values columns of a subquery, so that joins compare columns alone."""
        if self.computed:
            self._subquery()

    def _wrap(self) -> None:
        """Make what is joined so far a subquery, which is sent to where the rows of the next relation are."""
        alias = self._subquery()
        self.small.append(alias)

    def _subquery(self) -> str:
        """Everything so far as one item, under an alias."""
        names = list(self.columns)
        alias = f"s{self.aliases}"
        self.aliases += 1
        values = [f"{self.columns[name]} AS {column(i)}" for i, name in enumerate(names)]
        inner = self._text([*values, f"{self._error} AS e"])
        failing = bool(self.errors)
        self.items, self.where, self.small = [f"({inner}) {alias}"], [], []
        self.columns = {name: f"{alias}.{column(i)}" for i, name in enumerate(names)}
        self.computed, self.errors = set(), [f"{alias}.e"] if failing else []
        return alias

    def _fails(self, expression: Expression) -> None:
        self.errors += expression.errors


def _fits(term: Simple, value: Value, values: dict[str, Value]) -> bool:
    """Whether a value can stand in a term's place, given those of the variables before it."""
    return (term.value if isinstance(term, Constant) else values.setdefault(term.name, value)) == value


def _or_fails(test: Expression) -> str:
    if not test.errors:
        return f"({test.text})"
    failed = " OR ".join(f"{error} IS NOT NULL" for error in test.errors)
    return f"({failed} OR {test.text})"
