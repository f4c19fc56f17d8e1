"""Non-recursive rules as SQL text: one common table expression for each view, UNION for its rules, NOT EXISTS for negation.

Joins of the IR are identity joins, so every equality is null-safe; how that is written is the dialect's.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rederive.errors import StrategyError, Unsupported
from rederive.ir.rules import Aggregate, Atom, Comparison, Negation, Operator, Program, Relation, Rule
from rederive.ir.terms import Call, Constant, Kind, Term, Variable, variables

_ORDERINGS: Final = frozenset({Operator.LT, Operator.LE, Operator.GT, Operator.GE})
WHOLE: Final = "holds"  # the one column of a relation that has none


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database writes names, strings and null-safe equality."""

    quote: str
    identical: str
    text: Callable[[str], str]


def _backslashed(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _doubled(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


SPARK: Final = Dialect("`", "<=>", _backslashed)
DUCKDB: Final = Dialect('"', "IS NOT DISTINCT FROM", _doubled)


def sql_text(program: Program, target: str, dialect: Dialect = SPARK) -> str:
    """The rows of a view, as one query over the program's base relations; of a view without columns, whether it holds.

    A dot in a relation's name becomes two underscores.

    >>> x, y = Variable("x"), Variable("y")
    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> edge, source = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL))), Relation("source", (Column("x", SYMBOL),))
    >>> rule = Rule(Atom("source", (x,)), (Atom("edge", (x, y)), Negation(Atom("edge", (y, x)))))
    >>> print(sql_text(Program({"edge": edge, "source": source}, (rule,)), "source"))
    WITH `source` AS (
      SELECT DISTINCT t0.`x` AS `x` FROM `edge` t0
      WHERE NOT EXISTS (SELECT 1 FROM `edge` n WHERE n.`x` <=> t0.`y` AND n.`y` <=> t0.`x`)
    )
    SELECT * FROM `source`
    """
    return _Printer(program, dialect).query(target)


class _Printer:
    def __init__(self, program: Program, dialect: Dialect) -> None:
        self._program = program
        self._dialect = dialect
        self._identifiers = _identifiers(program.relations)

    def query(self, target: str) -> str:
        relation = self._program.relations[target]
        needed = [name for name in self._in_order(target) if relation.columns or name != target]
        tables = ",\n".join(f"{self._name(name)} AS (\n{self._table(name)}\n)" for name in needed)
        answer = f"SELECT * FROM {self._name(target)}" if relation.columns else f"SELECT {self._truth(relation)}"
        return f"WITH {tables}\n{answer}" if needed else answer

    def _in_order(self, target: str) -> list[str]:
        """The views that the target needs, each after those that it reads."""
        views = set(self._program.views)
        found: dict[str, None] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            # A common table expression can read those before it only.
            if name in path:
                raise StrategyError(f"'{name}' is recursive, and cannot be printed as one SQL query")
            if name in views and name not in found:
                for rule in self._rules(name):
                    for atom in _atoms(rule):
                        visit(atom.relation, (*path, name))
                found[name] = None

        visit(target, ())
        return list(found)

    def _rules(self, name: str) -> Iterator[Rule]:
        for definition in self._program.definitions_of(name):
            if isinstance(definition, Aggregate):
                raise StrategyError(f"'{name}' is an aggregate, which cannot be printed as SQL")
            yield definition

    def _table(self, name: str) -> str:
        rules = list(self._rules(name))
        # UNION makes a set of several rules by itself.
        word = "SELECT DISTINCT" if len(rules) == 1 else "SELECT"
        return "\n  UNION\n".join(self._select(rule, self._program.relations[name], word) for rule in rules)

    def _select(self, rule: Rule, relation: Relation, word: str) -> str:
        places, source, conditions = self._body(rule)
        # Columns are named by the view, so that all parts of a UNION agree.
        pairs = zip(rule.head.terms, relation.columns, strict=True)
        columns = [f"{self._term(term, places)} AS {self._quoted(c.name)}" for term, c in pairs] or [f"TRUE AS {WHOLE}"]
        where = f"\n  WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"  {word} {', '.join(columns)}{source}{where}"

    def _truth(self, relation: Relation) -> str:
        """Whether some rule of a relation without columns has a match."""
        # A relation without columns holds where any of its rules does.
        parts = [self._holds(rule) for rule in self._rules(relation.name)]
        return f"{' OR '.join(parts) or 'FALSE'} AS {self._quoted(relation.name.rpartition('.')[2])}"

    def _holds(self, rule: Rule) -> str:
        _, source, conditions = self._body(rule)
        if not source:
            return " AND ".join(conditions) or "TRUE"
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"EXISTS (SELECT 1{source}{where})"

    def _body(self, rule: Rule) -> tuple[dict[Variable, str], str, list[str]]:
        """Where each variable's value is found, the FROM clause, and the conditions of a rule."""
        places: dict[Variable, str] = {}
        conditions: list[str] = []
        atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
        # Atoms first: the first column in which a variable occurs is where its value is found.
        for i, atom in enumerate(atoms):
            conditions += self._matched(atom, f"t{i}", places, binds=True)
        waiting = [literal for literal in rule.body if isinstance(literal, Comparison)]
        while waiting:
            # An equation that binds a variable comes before those that read it, wherever it is in the body.
            literal = next((test for test in waiting if _ready(test, places)), waiting[0])
            waiting.remove(literal)
            conditions += self._compared(literal, places)
        # Negations last: they bind nothing.
        conditions += (self._absent(literal.atom, places) for literal in rule.body if isinstance(literal, Negation))
        source = ", ".join(f"{self._name(atom.relation)} t{i}" for i, atom in enumerate(atoms))
        return places, f" FROM {source}" if source else "", conditions

    def _matched(self, atom: Atom, alias: str, places: dict[Variable, str], *, binds: bool) -> Iterator[str]:
        """The equalities of an atom's columns with what is known already; a new variable is found in its column from then on."""
        for term, column in zip(atom.terms, self._program.relations[atom.relation].columns, strict=True):
            place = f"{alias}.{self._quoted(column.name)}"
            if isinstance(term, Variable) and term not in places:
                # A variable that only a negated atom has is `_`: any value will do, so it adds no condition.
                if binds:
                    places[term] = place
                continue
            yield f"{place} {self._dialect.identical} {self._term(term, places)}"

    def _absent(self, atom: Atom, places: dict[Variable, str]) -> str:
        conditions = list(self._matched(atom, "n", places, binds=False))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"NOT EXISTS (SELECT 1 FROM {self._name(atom.relation)} n{where})"

    def _compared(self, literal: Comparison, places: dict[Variable, str]) -> Iterator[str]:
        """An equation; one with a new variable says where its value is found."""
        if literal.operator is not Operator.EQ:
            left, right = (self._term(side, places) for side in (literal.left, literal.right))
            if literal.operator in _ORDERINGS:
                yield f"{left} {literal.operator.value} {right}"
            elif literal.operator is Operator.NE:
                yield f"NOT ({left} {self._dialect.identical} {right})"
            else:
                raise StrategyError(f"'{literal.operator.value}' is not written by this printer")
            return
        for one, other in ((literal.left, literal.right), (literal.right, literal.left)):
            # An alias in the generated text, not a condition: x = t adds no predicate where it binds x.
            if isinstance(one, Variable) and one not in places:
                places[one] = self._term(other, places)
                return
        yield f"{self._term(literal.left, places)} {self._dialect.identical} {self._term(literal.right, places)}"

    def _term(self, term: Term, places: Mapping[Variable, str]) -> str:
        match term:
            case Variable():
                return places[term]
            case Constant():
                return _literal(term, self._dialect)
            case Call():
                raise StrategyError(f"the functor '{term.functor}' is not written by this printer")

    def _name(self, relation: str) -> str:
        return self._quoted(self._identifiers[relation])

    def _quoted(self, name: str) -> str:
        return f"{self._dialect.quote}{name}{self._dialect.quote}"


def _atoms(rule: Rule) -> Iterator[Atom]:
    for literal in rule.body:
        if not isinstance(literal, Comparison):
            yield literal if isinstance(literal, Atom) else literal.atom


def _ready(test: Comparison, places: Mapping[Variable, str]) -> bool:
    """Whether one side of an equation is known."""
    return any(all(v in places for v in variables(side)) for side in (test.left, test.right))


def identifier(relation: str) -> str:
    """What a relation is called in SQL.

    >>> identifier("r.inserted")
    'r__inserted'
    """
    return relation.replace(".", "__")


def _identifiers(relations: Sequence[str] | Mapping[str, Relation]) -> dict[str, str]:
    found = {name: identifier(name) for name in relations}
    # `a.b` and `a__b` would be one name.
    if len(set(found.values())) < len(found):
        clash = next(name for name in found if "." in name and found[name] in relations)
        raise StrategyError(f"'{found[clash]}' is the name in SQL of what is made for '{clash}'", hint="rename that relation")
    return found


def _literal(constant: Constant, dialect: Dialect) -> str:
    match constant.value:
        case None:
            return "NULL"
        # bool is a subclass of int, and datetime of date: the subclass is matched first.
        case bool():
            return "TRUE" if constant.value else "FALSE"
        case int():
            return str(constant.value)
        case str():
            return dialect.text(constant.value)
        # From text: a literal such as 0.1 would be a DECIMAL, and infinity has no literal at all.
        case float():
            return f"CAST('{constant.value!r}' AS DOUBLE)"
        case Decimal():
            return f"CAST('{constant.value}' AS {constant.type})".replace(Kind.DECIMAL.value, "DECIMAL")
        case datetime.datetime():
            return f"TIMESTAMP '{constant.value}'"
        case datetime.date():
            return f"DATE '{constant.value}'"
        case _:
            raise Unsupported(f"not supported: a constant of {constant.type} in SQL of other databases", None)
