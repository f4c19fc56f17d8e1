"""Random warehouses with projections, unions and conditions, and the definition of self-maintainability by brute force.

A program is text for the warehouse and a list of Python rules for the witness, which shares no code with it. All databases over a
small domain are tried: those with the stored views and the local rows must agree on the view after the update, or the answer
"maintained without a source" is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random

from tests.warehouse.witness import Database, subsets

DOMAIN = (0, 1, 2)
LOCAL = "l"
MOST_ROWS = 3
TESTS = ("<", "<=", "!=", ">")
HOLDS = {"<": int.__lt__, "<=": int.__le__, "!=": int.__ne__, ">": int.__gt__}


@dataclass(frozen=True)
class Query:
    """`head :- atoms, tests, !negated`; a head term `x+1` is computed. Variables are letters, constants are digits."""

    head: tuple[str, ...]
    atoms: tuple[tuple[str, tuple[str, ...]], ...]
    tests: tuple[tuple[str, str, str], ...] = ()
    negated: tuple[str, ...] = ()

    def text(self, view: str) -> str:
        body = [f"{name}({', '.join(terms)})" for name, terms in self.atoms]
        body += [f"{left} {operator} {right}" for left, operator, right in self.tests]
        body += [f"!{LOCAL}({variable})" for variable in self.negated]
        return f"{view}({', '.join(self.head)}) :- {', '.join(body)}."

    def rows(self, database: Database) -> Iterator[tuple[int, ...]]:
        for rows in product(*(database[name] for name, _ in self.atoms)):
            binding: dict[str, int] = {}
            if all(
                (int(term) if term.isdigit() else binding.setdefault(term, value)) == value
                for (_, terms), row in zip(self.atoms, rows, strict=True)
                for term, value in zip(terms, row, strict=True)
            ) and self._holds(binding, database):
                yield tuple(_value(term, binding) for term in self.head)

    def _holds(self, binding: dict[str, int], database: Database) -> bool:
        return all(HOLDS[o](_value(left, binding), _value(right, binding)) for left, o, right in self.tests) and all(
            (binding[variable],) not in database[LOCAL] for variable in self.negated
        )


def _value(term: str, binding: dict[str, int]) -> int:
    variable, _, more = term.partition("+")
    return (binding[variable] if variable in binding else int(variable)) + int(more or 0)


@dataclass(frozen=True)
class Problem:
    """Views over remote relations and a local one, a state of all of them, and an update."""

    arities: tuple[tuple[str, int], ...]
    views: tuple[tuple[Query, ...], ...]
    keyed: bool
    state: Database
    insert: Database
    delete: Database
    net: bool

    def text(self) -> str:
        columns = {1: "a: number", 2: "a: number, b: number"}
        keys = {name: " key(a)" if self.keyed and arity == 2 else "" for name, arity in self.arities}
        lines = [f".decl {name}({columns[arity]}){keys[name]}" for name, arity in self.arities]
        lines += [f".remote {', '.join(name for name, _ in self.arities if name != LOCAL)}"]
        for i, queries in enumerate(self.views):
            head = ", ".join(f"c{j}: number" for j in range(len(queries[0].head)))
            lines += [f".decl v{i}({head})", *(query.text(f"v{i}") for query in queries)]
        return "\n".join([*lines, f".stored {', '.join(f'v{i}' for i in range(len(self.views)))}"])

    def updated(self, database: Database) -> Database:
        return {
            name: (rows - self.delete.get(name, frozenset())) | self.insert.get(name, frozenset())
            for name, rows in database.items()
        }

    def answer(self, view: int, database: Database) -> frozenset[tuple[int, ...]]:
        return frozenset(row for query in self.views[view] for row in query.rows(database))

    def consistent(self) -> Iterator[Database]:
        """The databases over the domain with the stored views and the local rows, in which the update is possible."""
        stored = [self.answer(i, self.state) for i in range(len(self.views))]
        remote = [(name, arity) for name, arity in self.arities if name != LOCAL]
        for extents in product(*(_extents(arity) for _, arity in remote)):
            database = {LOCAL: self.state[LOCAL], **{name: rows for (name, _), rows in zip(remote, extents, strict=True)}}
            if self._is_possible(database) and all(self.answer(i, database) == rows for i, rows in enumerate(stored)):
                yield database

    def _is_possible(self, database: Database) -> bool:
        if self.keyed and any(
            not _has_key(state[name]) for state in (database, self.updated(database)) for name, _ in self.arities
        ):
            return False
        return not self.net or all(
            not self.insert.get(name, frozenset()) & rows and self.delete.get(name, frozenset()) <= rows
            for name, rows in database.items()
        )


def _has_key(rows: frozenset[tuple[int, ...]]) -> bool:
    return len({row[0] for row in rows}) == len(rows)


@cache
def _space(arity: int) -> tuple[tuple[int, ...], ...]:
    return tuple(product(DOMAIN, repeat=arity))


@cache
def _extents(arity: int) -> tuple[frozenset[tuple[int, ...]], ...]:
    """All relations with at most three rows; a wrong answer that only larger ones show is not found."""
    return tuple(rows for rows in subsets(_space(arity)) if len(rows) <= MOST_ROWS)


def _some(random: Random, arity: int, most: int) -> frozenset[tuple[int, ...]]:
    return frozenset(random.choice(_space(arity)) for _ in range(random.randint(0, most)))


def _query(random: Random, arities: dict[str, int], width: int | None) -> Query:
    remote = [name for name in arities if name != LOCAL]
    atoms = tuple(
        (name, tuple(random.choice("xxyyz0") for _ in range(arities[name])))
        for name in (random.choice([*remote, *remote, LOCAL]) for _ in range(random.randint(1, 3)))
    )
    variables = sorted({term for _, terms in atoms for term in terms if not term.isdigit()})
    tests, negated = [], []
    if variables and random.random() < 0.4:
        tests.append((random.choice(variables), random.choice(TESTS), random.choice([*variables, "1", "2"])))
    if variables and random.random() < 0.3:
        negated.append(random.choice(variables))
    shown = random.sample(variables, random.randint(0, len(variables))) if random.random() < 0.6 else variables
    head = [f"{term}+1" if random.random() < 0.15 else term for term in shown]
    if width is not None:
        head = (head + [random.choice([*variables, "0"]) for _ in range(width)])[:width]
    return Query(tuple(head), atoms, tuple(tests), tuple(negated))


def random_problem(seed: int) -> Problem:
    """A problem that is the same for the same seed."""
    random = Random(seed)
    arities = random.choice([{"r": 2, "s": 1, LOCAL: 1}, {"r": 1, "s": 1, "t": 1, LOCAL: 1}, {"r": 2, LOCAL: 1}])
    views = []
    for _ in range(random.randint(1, 3)):
        first = _query(random, arities, None)
        others = [_query(random, arities, len(first.head))] if random.random() < 0.3 else []
        # A view over the local relation alone is no view of a warehouse.
        if any(name != LOCAL for query in (first, *others) for name, _ in query.atoms):
            views.append((first, *others))
    if not views:
        return random_problem(seed + 100_000)
    state = {name: _some(random, arity, MOST_ROWS) for name, arity in arities.items()}
    keyed, net = random.random() < 0.3, random.random() < 0.5
    changed = {
        name: (_some(random, arity, 2), _some(random, arity, 2)) for name, arity in arities.items() if random.random() < 0.5
    }
    insert, delete = ({name: sides[i] for name, sides in changed.items()} for i in (0, 1))
    if net:
        insert, delete = ({n: rows - state[n] for n, rows in insert.items()}, {n: rows & state[n] for n, rows in delete.items()})
    delete = {name: rows - insert.get(name, frozenset()) for name, rows in delete.items()}
    found = Problem(tuple(arities.items()), tuple(views), keyed, state, insert, delete, net)
    is_keyed = all(_has_key(some[name]) for some in (state, found.updated(state)) for name in arities)
    return found if not keyed or is_keyed else random_problem(seed + 100_000)
