"""A small database of facts for the search: lookups by any columns, additions, and removals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rederive.ir.rules import Atom
from rederive.ir.terms import Constant, Simple, Variable

Fact = tuple[str, tuple[Any, ...]]
Binding = dict[Variable, Any]
Step = Callable[[], None]


class Facts:
    """Rows by relation, with an index for each set of bound columns. `step` is called for every row that is looked at."""

    def __init__(self, rows: Mapping[str, Iterable[tuple[Any, ...]]], step: Step) -> None:
        self._rows: dict[str, set[tuple[Any, ...]]] = {name: set(given) for name, given in rows.items()}
        self._indexes: dict[tuple[str, tuple[int, ...]], dict[tuple[Any, ...], set[tuple[Any, ...]]]] = {}
        self._step = step

    def __contains__(self, fact: Fact) -> bool:
        return fact[1] in self._rows.get(fact[0], ())

    def rows(self, relation: str) -> set[tuple[Any, ...]]:
        """Return the rows of a relation."""
        return self._rows.get(relation, set())

    def copy(self) -> dict[str, set[tuple[Any, ...]]]:
        """Return a copy of all rows."""
        return {name: set(rows) for name, rows in self._rows.items()}

    def add(self, fact: Fact) -> None:
        """Add a fact that is absent."""
        name, row = fact
        self._rows.setdefault(name, set()).add(row)
        for (relation, columns), index in self._indexes.items():
            if relation == name:
                index.setdefault(tuple(row[i] for i in columns), set()).add(row)

    def remove(self, fact: Fact) -> None:
        """Remove a fact that is present."""
        name, row = fact
        self._rows[name].remove(row)
        for (relation, columns), index in self._indexes.items():
            if relation == name:
                index[tuple(row[i] for i in columns)].remove(row)

    def matches(self, atom: Atom, binding: Binding) -> Iterator[Binding]:
        """Yield the binding, extended by each row that the atom matches."""
        columns = tuple(i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term in binding)
        key = tuple(value(atom.terms[i], binding) for i in columns)
        # A copy, because the search adds and removes facts while somebody iterates over matches.
        for row in tuple(self._index(atom.relation, columns).get(key, ())):
            self._step()
            extended = match_row(atom, row, binding)
            if extended is not None:
                yield extended

    def _index(self, relation: str, columns: tuple[int, ...]) -> dict[tuple[Any, ...], set[tuple[Any, ...]]]:
        if (relation, columns) not in self._indexes:
            index: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
            for row in self._rows.get(relation, ()):
                self._step()
                index.setdefault(tuple(row[i] for i in columns), set()).add(row)
            self._indexes[relation, columns] = index
        return self._indexes[relation, columns]

    def join(self, atoms: tuple[Atom, ...], binding: Binding) -> Iterator[Binding]:
        """Yield the bindings under which all atoms are facts. The atom with most bound columns is looked up first."""
        if not atoms:
            yield binding
            return
        first = max(atoms, key=lambda atom: sum(isinstance(t, Constant) or t in binding for t in atom.terms))
        rest = tuple(atom for atom in atoms if atom is not first)
        for extended in self.matches(first, binding):
            yield from self.join(rest, extended)


def value(term: Simple, binding: Binding) -> Any:
    """Return the value of a term under a binding."""
    return term.value if isinstance(term, Constant) else binding[term]


def match_row(atom: Atom, row: tuple[Any, ...], binding: Binding) -> Binding | None:
    """Return the binding extended so that the atom is this row; None if there is none.

    >>> x = Variable("x")
    >>> match_row(Atom("r", (x, x)), (1, 1), {}), match_row(Atom("r", (x, x)), (1, 2), {})
    ({Variable(name='x'): 1}, None)
    """
    extended = dict(binding)
    for term, given in zip(atom.terms, row, strict=True):
        known = term.value if isinstance(term, Constant) else extended.setdefault(term, given)
        if known != given:
            return None
    return extended


def ground(atom: Atom, binding: Binding) -> Fact:
    """Return the fact that an atom is under a binding of all its variables."""
    return atom.relation, tuple(value(term, binding) for term in atom.terms)
