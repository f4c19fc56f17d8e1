"""The definition of self-maintainability itself, by brute force over all databases with a small domain. Imports no engine.

A view is self-maintainable under an update where all databases that are consistent with the stored views give one updated view:
formula (1) of HU97, word by word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations, product
from typing import Any

from rederive.ir.terms import Constant
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView
from rederive.warehouse.selfmaint.source_update import SourceUpdate

Database = dict[str, frozenset[tuple[Any, ...]]]


def evaluated(query: ConjunctiveQuery, database: Mapping[str, Iterable[tuple[Any, ...]]]) -> frozenset[tuple[Any, ...]]:
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


def answers(view: StoredView, database: Mapping[str, Iterable[tuple[Any, ...]]]) -> frozenset[tuple[Any, ...]]:
    return frozenset(chain.from_iterable(evaluated(query, database) for query in view.queries))


def updated(update: SourceUpdate, database: Database) -> Database:
    return {name: update.after(name, rows) for name, rows in database.items()}


def subsets(rows: Sequence[tuple[Any, ...]]) -> Iterator[frozenset[tuple[Any, ...]]]:
    for size in range(len(rows) + 1):
        yield from map(frozenset, combinations(rows, size))


@cache
def databases(arities: tuple[tuple[str, int], ...], domain: tuple[Any, ...]) -> tuple[Database, ...]:
    """Every database over the domain."""
    spaces = [list(subsets(list(product(domain, repeat=arity)))) for _, arity in arities]
    return tuple(dict(zip(dict(arities), extents, strict=True)) for extents in product(*spaces))


def consistent(
    views: Sequence[StoredView], contents: Mapping[str, frozenset[Any]], arities: Mapping[str, int], domain: tuple[Any, ...]
) -> list[Database]:
    """The databases from which every view has exactly these contents."""
    every = databases(tuple(arities.items()), domain)
    return [database for database in every if all(answers(view, database) == contents[view.name] for view in views)]


def outcomes(view: StoredView, candidates: Iterable[Database], update: SourceUpdate) -> set[frozenset[tuple[Any, ...]]]:
    """The updated views that these databases give; just one of them means self-maintainable."""
    return {answers(view, updated(update, database)) for database in candidates}
