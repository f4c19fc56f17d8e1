"""The definition of self-maintainability itself, by brute force over all databases with a small domain. Imports no engine.

`Universe` evaluates the views over every database there is and groups the databases by what the views hold. A view is
self-maintainable under an update where all databases of a group give one updated view: formula (1) of HU97, word by word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any

from rederive.ir.terms import Constant
from rederive.selfmaint.conjunctive import Query, View
from rederive.selfmaint.update import Update

Database = dict[str, frozenset[tuple[Any, ...]]]
Signature = tuple[frozenset[tuple[Any, ...]], ...]


def evaluated(query: Query, database: Mapping[str, Iterable[tuple[Any, ...]]]) -> frozenset[tuple[Any, ...]]:
    """Nested loops."""
    bindings: list[dict[Any, Any]] = [{}]
    for atom in query.body:
        found = []
        for binding in bindings:
            for row in database[atom.relation]:
                extended = dict(binding)
                terms = zip(atom.terms, row, strict=True)
                if all((t.value if isinstance(t, Constant) else extended.setdefault(t, value)) == value for t, value in terms):
                    found.append(extended)
        bindings = found
    return frozenset(tuple(t.value if isinstance(t, Constant) else b[t] for t in query.head.terms) for b in bindings)


def answers(view: View, database: Mapping[str, Iterable[tuple[Any, ...]]]) -> frozenset[tuple[Any, ...]]:
    return frozenset(chain.from_iterable(evaluated(query, database) for query in view.queries))


def updated(update: Update, database: Database) -> Database:
    return {name: update.after(name, rows) for name, rows in database.items()}


def subsets(rows: Sequence[tuple[Any, ...]]) -> Iterator[frozenset[tuple[Any, ...]]]:
    for size in range(len(rows) + 1):
        yield from map(frozenset, combinations(rows, size))


def databases(arities: Mapping[str, int], domain: Sequence[Any]) -> Iterator[Database]:
    """Every database over the domain."""
    spaces = [list(subsets(list(product(domain, repeat=arity)))) for arity in arities.values()]
    for extents in product(*spaces):
        yield dict(zip(arities, extents, strict=True))


@dataclass(frozen=True, slots=True)
class Universe:
    """All databases over a domain, grouped by the contents of the views."""

    views: tuple[View, ...]
    groups: Mapping[Signature, list[Database]]

    @classmethod
    def of(cls, views: Sequence[View], arities: Mapping[str, int], domain: Sequence[Any]) -> Universe:
        groups: dict[Signature, list[Database]] = {}
        for database in databases(arities, domain):
            groups.setdefault(tuple(answers(view, database) for view in views), []).append(database)
        return cls(tuple(views), groups)

    def outcomes(
        self, view: View, signature: Signature, update: Update, agrees: Any = lambda database: True
    ) -> set[frozenset[tuple[Any, ...]]]:
        """The updated views that the databases of a group give; one of them means self-maintainable."""
        return {answers(view, updated(update, database)) for database in self.groups[signature] if agrees(database)}
