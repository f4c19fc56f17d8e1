"""The body of a rule under construction: its literals, the classes of equal variables, and the sources of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rederive.ir.rules import Atom, Column, Comparison, Literal, Negation, Operator, literal_variables
from rederive.ir.terms import BOOLEAN, Call, Constant, Simple, Term, Variable
from rederive.lang.sql.lowered_relation import LoweredRelation, TypedTerm, column_of

TRUE = Constant(True, BOOLEAN)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of one source: `terms` are all its columns, and `key` those that identify a row."""

    terms: tuple[Simple, ...]
    key: tuple[Simple, ...]


@dataclass(slots=True)
class RuleBody:
    """Grows by sources and conditions.

    `outer` are the variables of enclosing queries that the body mentions; `domain` finds the atom that binds one of them there.
    `equal_to` maps a variable to a term that equals it; `representative` follows these links, as union-find does. `not_null` are
    the variables that are known not to be NULL.
    """

    fresh: Callable[[str], Variable]
    literals: list[Literal] = field(default_factory=list)
    sources: list[SourceRows] = field(default_factory=list)
    outer: dict[str, Variable] = field(default_factory=dict)
    not_null: set[str] = field(default_factory=set)
    equal_to: dict[str, Simple] = field(default_factory=dict)
    domain: Callable[[str], Atom | None] = lambda name: None
    columns: dict[str, Column] = field(default_factory=dict)

    # Sources

    def read(self, rel: LoweredRelation) -> tuple[TypedTerm, ...]:
        """Join a relation, and return its visible columns as terms."""
        columns = [self.fresh(column.name) for column in rel.own]
        self.columns.update({variable.name: column for variable, column in zip(columns, rel.own, strict=True)})
        self.mention(rel.outer)
        self.literals.append(Atom(rel.name, (*columns, *rel.outer)))
        self.sources.append(SourceRows((*columns, *rel.outer), (*(columns[i] for i in rel.identity), *rel.outer)))
        return tuple(TypedTerm(v, f.type, f.nullable) for v, f in zip(columns, rel.fields, strict=False))

    def mention(self, found: Iterable[Variable]) -> None:
        """Add to `outer` the variables that no source or atom of this body binds."""
        own = {v.name for source in self.sources for v in source.terms if isinstance(v, Variable)} | _bound(self.literals)
        for variable in found:
            if variable.name not in own - self.outer.keys():
                self.outer.setdefault(variable.name, variable)

    # Conditions

    def add(self, *literals: Literal) -> None:
        """Add literals at the end."""
        self.literals += literals

    def fail(self) -> None:
        """Make the body unsatisfiable."""
        self.add(Comparison(Operator.EQ, Constant(False, BOOLEAN), TRUE))

    def require(self, typed: TypedTerm) -> None:
        """Keep the bindings for which a condition is true: neither false nor NULL."""
        self.add(Comparison(Operator.EQ, typed.term, TRUE))

    def require_not_null(self, typed: TypedTerm) -> None:
        """Keep the bindings for which a simple term is not NULL."""
        term = self.representative(typed.term) if not isinstance(typed.term, Call) else typed.term
        if isinstance(term, Constant):
            if term.value is None:
                self.fail()
        elif typed.nullable and isinstance(term, Variable) and term.name not in self.not_null:
            self.not_null.add(term.name)
            # The null test comes first, so that every comparison of the variable can rely on it.
            self.literals.insert(0, Comparison(Operator.NE, term, Constant(None, typed.type.type)))

    def is_not_null(self, typed: TypedTerm) -> bool:
        """Whether the term is known not to be NULL."""
        return not typed.nullable or (isinstance(typed.term, Variable) and self.name_of(typed.term) in self.not_null)

    def name_of(self, variable: Variable) -> str:
        """The name of the variable that represents this one; empty if a constant does."""
        found = self.representative(variable)
        return found.name if isinstance(found, Variable) else ""

    def equate(self, one: TypedTerm, two: TypedTerm) -> None:
        """Require `one = two`: both become one variable, which is not NULL, since NULL = NULL is not true."""
        for side in (one, two):
            self.require_not_null(side)
        # All joins of the IR are by identity, where NULL matches NULL. With the
        # null test above, a shared variable is SQL's equality (decision 0016).
        left, right = (self.representative(side.term) for side in (one, two))
        if isinstance(left, Constant) and isinstance(right, Constant):
            if left.value is None or left.value != right.value:
                self.fail()
        elif None in (left.value if isinstance(left, Constant) else 0, right.value if isinstance(right, Constant) else 0):
            self.fail()
        elif left != right:
            self._merge(left, right)

    def _merge(self, left: Simple, right: Simple) -> None:
        """Link two terms: a constant represents a variable, and an outer variable represents one of this body."""
        if isinstance(left, Constant) or (isinstance(right, Variable) and right.name not in self.outer):
            left, right = right, left
        assert isinstance(left, Variable)
        if isinstance(right, Variable):
            self.not_null.add(right.name)
        self.equal_to[left.name] = right

    def representative(self, term: Term) -> Simple:
        """The term that represents all terms equal to this one."""
        assert not isinstance(term, Call)
        while isinstance(term, Variable) and term.name in self.equal_to:
            term = self.equal_to[term.name]
        return term

    def assign(self, typed: TypedTerm, name: str) -> TypedTerm:
        """The value as a simple term; a computed value is assigned to a new variable."""
        if not isinstance(typed.term, Call):
            return TypedTerm(self.representative(typed.term), typed.type, not self.is_not_null(typed))
        variable = self.fresh(name)
        self.columns[variable.name] = column_of(typed, name)
        self.add(Comparison(Operator.EQ, variable, typed.term))
        return TypedTerm(variable, typed.type, typed.nullable)

    # The finished rule

    def finish(self) -> tuple[Literal, ...]:
        """The literals of the finished rule.

        Equal variables are one, and the atoms of enclosing queries are added that bind what this body does not bind: a rule must
        be safe by itself.
        """
        literals = list(dict.fromkeys(self.substitute(literal) for literal in self.literals))
        bound = _bound(literals)
        for name in tuple(self.outer):
            term = self.representative(Variable(name))
            if isinstance(term, Variable) and term.name not in bound and (atom := self.domain(name)) is not None:
                literals.insert(0, self.substitute(atom))
                bound = _bound(literals)
        return tuple(literals)

    def substitute(self, literal: Literal) -> Literal:
        """The literal with the representative of each term."""
        match literal:
            case Atom():
                return replace(literal, terms=tuple(self.representative(term) for term in literal.terms))
            case Negation(atom):
                return Negation(replace(atom, terms=tuple(self.representative(term) for term in atom.terms)))
            case Comparison():
                return replace(literal, left=self.term(literal.left), right=self.term(literal.right))

    def term(self, term: Term) -> Term:
        """The term with the representative of each part."""
        if isinstance(term, Call):
            return replace(term, arguments=tuple(map(self.term, term.arguments)))
        return self.representative(term)

    def binder(self, name: str) -> Atom | None:
        """The atom that binds a variable in this body, or else in an enclosing query."""
        for literal in self.literals:
            if isinstance(literal, Atom):
                atom = replace(literal, terms=tuple(map(self.representative, literal.terms)))
                if Variable(name) in atom.terms:
                    return atom
        return self.domain(name)

    def identity(self, outputs: Sequence[Simple]) -> list[Variable]:
        """The variables that, together with the outputs, identify the source rows that a row is made from.

        These become the hidden columns of a bag. The key of a source determines all its columns, so that a source whose key is
        known adds no variable.
        """
        known = {term.name for term in map(self.representative, (*outputs, *self.outer.values())) if isinstance(term, Variable)}
        added: list[Variable] = []
        for source in self.sources:
            self._close(known)
            for term in map(self.representative, source.key):
                if isinstance(term, Variable) and term.name not in known:
                    added.append(term)
                    known.add(term.name)
        return added

    def _close(self, known: set[str]) -> None:
        # Closure under functional dependencies: a known key determines
        # all columns of its source, which may be another one's key.
        growing = True
        while growing:
            growing = False
            for source in self.sources:
                key, terms = self._names(source.key), self._names(source.terms)
                if key <= known and not terms <= known:
                    known |= terms
                    growing = True

    def _names(self, terms: Iterable[Simple]) -> set[str]:
        return {term.name for term in map(self.representative, terms) if isinstance(term, Variable)}


def _bound(literals: Iterable[Literal]) -> set[str]:
    return {v.name for literal in literals if isinstance(literal, Atom) for v in literal_variables(literal)}
