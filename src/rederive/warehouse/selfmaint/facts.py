"""A small database of facts that can be searched by any columns, and added to and taken from again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rederive.ir.rules import Atom
from rederive.ir.terms import Constant, Simple, Variable

Fact = tuple[str, tuple[Any, ...]]
Binding = dict[Variable, Any]
Step = Callable[[], None]


class Facts:
    """Rows by relation, with an index for each pattern of bound columns that was asked for; `step` counts every row looked at."""

    def __init__(self, rows: Mapping[str, Iterable[tuple[Any, ...]]], step: Step) -> None:
        self._rows: dict[str, set[tuple[Any, ...]]] = {name: set(given) for name, given in rows.items()}
        self._indexes: dict[tuple[str, tuple[int, ...]], dict[tuple[Any, ...], set[tuple[Any, ...]]]] = {}
        self._step = step

    def __contains__(self, fact: Fact) -> bool:
        return fact[1] in self._rows.get(fact[0], ())

    def rows(self, relation: str) -> set[tuple[Any, ...]]:
        return self._rows.get(relation, set())

    def copy(self) -> dict[str, set[tuple[Any, ...]]]:
        return {name: set(rows) for name, rows in self._rows.items()}

    def add(self, fact: Fact) -> None:
        name, row = fact
        self._rows.setdefault(name, set()).add(row)
        for (relation, columns), index in self._indexes.items():
            if relation == name:
                index.setdefault(tuple(row[i] for i in columns), set()).add(row)

    def remove(self, fact: Fact) -> None:
        name, row = fact
        self._rows[name].remove(row)
        for (relation, columns), index in self._indexes.items():
            if relation == name:
                index[tuple(row[i] for i in columns)].remove(row)

    def matches(self, atom: Atom, binding: Binding) -> Iterator[Binding]:
        """The bindings extended by each row that the atom fits."""
        columns = tuple(i for i, term in enumerate(atom.terms) if isinstance(term, Constant) or term in binding)
        key = tuple(value(atom.terms[i], binding) for i in columns)
        for row in tuple(self._index(atom.relation, columns).get(key, ())):
            self._step()
            extended = bound(atom, row, binding)
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

    def joined(self, atoms: tuple[Atom, ...], binding: Binding) -> Iterator[Binding]:
        """The bindings under which all atoms are facts; the atom with most bound columns is looked up first."""
        if not atoms:
            yield binding
            return
        first = max(atoms, key=lambda atom: sum(isinstance(t, Constant) or t in binding for t in atom.terms))
        rest = tuple(atom for atom in atoms if atom is not first)
        for extended in self.matches(first, binding):
            yield from self.joined(rest, extended)


def value(term: Simple, binding: Binding) -> Any:
    return term.value if isinstance(term, Constant) else binding[term]


def bound(atom: Atom, row: tuple[Any, ...], binding: Binding) -> Binding | None:
    """The binding extended so that the atom is this row; None where it cannot be.

    >>> x = Variable("x")
    >>> bound(Atom("r", (x, x)), (1, 1), {}), bound(Atom("r", (x, x)), (1, 2), {})
    ({Variable(name='x'): 1}, None)
    """
    extended = dict(binding)
    for term, given in zip(atom.terms, row, strict=True):
        known = term.value if isinstance(term, Constant) else extended.setdefault(term, given)
        if known != given:
            return None
    return extended


def ground(atom: Atom, binding: Binding) -> Fact:
    return atom.relation, tuple(value(term, binding) for term in atom.terms)
