"""Magic sets: the rules of a view, restricted to the bindings that somebody asks for.

A question is a relation and the columns whose values it gives, its *pattern* (`bf`: the first bound, the second free). The
bindings asked for are rows of a magic relation such as m_closure^bf(x). For a rule  p :- r1, ..., rn  and a pattern of p, the
body is joined from the bound columns on; before each literal rj of the same component stands the question that it answers:

    m_rj :- m_p, r1, ..., r(j-1).           p :- m_p, r1, ..., rn.

and in supplementary form, where what was joined so far is kept:

    sup_j :- sup_(j-1), r(j-1), ....        m_rj :- sup_j.        p :- sup_n, rn.

The values of m_p are those of a question, which no row need have: functors are applied to values of the body's atoms alone
(`analysis.bindings`), so that the questions that a recursion raises come to an end where the recursion does.

Relations of lower components are asked through their own magic relations, each component on its own, so a negated literal or an
aggregate always reads answers that are complete for its binding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from rederive.analysis.bindings import binding_pattern, join_order
from rederive.analysis.types import variable_types
from rederive.ir.rules import Aggregate, Atom, Column, Definition, Literal, Negation, Relation, Rule, literal_variables
from rederive.ir.terms import Variable
from rederive.maintain.program import MaintenanceRule

Bound = tuple[int, ...]
ASKING = "M"  # labels the rules that raise questions


@dataclass(frozen=True, slots=True)
class Question:
    """A relation and the columns whose values are given."""

    relation: str
    bound: Bound


def pattern(bound: Bound, arity: int) -> str:
    """The papers' way to write which columns are bound.

    >>> pattern((0,), 2)
    'bf'
    """
    return "".join("b" if i in bound else "f" for i in range(arity))


def magic_relation(question: Question, relation: Relation) -> Relation:
    """The relation that holds the bindings asked for; its columns are the bound ones."""
    name = f"m_{relation.name}^{pattern(question.bound, relation.arity)}"
    return Relation(name, tuple(relation.columns[i] for i in question.bound))


def magic_atom(question: Question, atom: Atom, relation: Relation) -> Atom:
    return Atom(magic_relation(question, relation).name, tuple(atom.terms[i] for i in question.bound))


@dataclass(frozen=True, slots=True)
class QueryRules:
    """The rules that answer a question, the relations they add, and the questions that they raise."""

    rules: tuple[MaintenanceRule, ...]
    relations: tuple[Relation, ...]
    asks: tuple[Question, ...]


def query_rules(
    question: Question,
    definitions: Collection[Definition],
    relations: Mapping[str, Relation],
    inside: Collection[str],
    *,
    supplementary: bool,
) -> QueryRules:
    """Rewrite the definitions of the question's relation; literals of the relations `inside` get magic rules."""
    rules: list[MaintenanceRule] = []
    added = [magic_relation(question, relations[question.relation])]
    asks: list[Question] = []
    names = _names(question, relations)
    for definition in definitions:
        if isinstance(definition, Aggregate):
            asks.append(_aggregate_question(question, definition))
            if asks[-1].relation in inside:
                rules.append(_aggregate_rule(question, definition, relations))
            continue
        one = _Rewriting(question, definition, relations, inside, names if supplementary else None)
        rules += one.rules()
        added += one.relations
        asks += one.asks
    return QueryRules(tuple(rules), tuple(added), tuple(dict.fromkeys(asks)))


def _names(question: Question, relations: Mapping[str, Relation]) -> Callable[[], str]:
    """Names of supplementary relations: sup1_closure^bf, sup2_closure^bf, ..."""
    number = 0

    def following() -> str:
        nonlocal number
        number += 1
        return f"sup{number}_{question.relation}^{pattern(question.bound, relations[question.relation].arity)}"

    return following


def _aggregate_question(question: Question, aggregate: Aggregate) -> Question:
    """An aggregate asks for the rows of the groups that are bound; a bound result only restricts the answers."""
    group = tuple(sorted(aggregate.group[i] for i in question.bound if i < len(aggregate.group)))
    return Question(aggregate.source, group)


def _aggregate_rule(question: Question, aggregate: Aggregate, relations: Mapping[str, Relation]) -> MaintenanceRule:
    """The rule by which the groups asked for ask for their rows."""
    view, source = relations[aggregate.relation], relations[aggregate.source]
    groups = {column: Variable(view.columns[i].name) for i, column in enumerate(aggregate.group)}
    asked = Atom(source.name, tuple(groups.get(i, Variable(c.name)) for i, c in enumerate(source.columns)))
    asking = magic_atom(question, Atom(view.name, tuple(Variable(c.name) for c in view.columns)), view)
    return MaintenanceRule(ASKING, Rule(magic_atom(_aggregate_question(question, aggregate), asked, source), (asking,)), (0,))


class _Rewriting:
    """One rule under one question."""

    def __init__(
        self,
        question: Question,
        rule: Rule,
        relations: Mapping[str, Relation],
        inside: Collection[str],
        names: Callable[[], str] | None,
    ) -> None:
        self.question = question
        self.rule = rule
        self.declared = relations
        self.inside = inside
        self.names = names
        self.relations: list[Relation] = []
        self.asks: list[Question] = []

    def rules(self) -> Iterator[MaintenanceRule]:
        head = self.rule.head
        magic = magic_atom(self.question, head, self.declared[head.relation])
        known = {v.name for v in literal_variables(magic)}
        before: list[Literal] = [magic]
        bound = set(known)
        steps = join_order(self.rule.body, frozenset(known), firm=frozenset())
        for i, step in enumerate(steps):
            atom = step.literal.atom if isinstance(step.literal, Negation) else step.literal
            if isinstance(atom, Atom) and atom.relation in self.inside:
                if self.names is not None and len(before) > 1:
                    later = [s.literal for s in steps[i:]]
                    sup, rule = self._supplementary(before, later)
                    yield rule
                    before = [sup]
                asking = self._ask(atom, before, bound)
                if asking.rule.body != (asking.rule.head,):
                    yield asking
            before.append(step.literal)
            bound.update(v.name for v in literal_variables(step.literal))
        yield self._rule("Q", head, before)

    def _ask(self, atom: Atom, before: list[Literal], bound: set[str]) -> MaintenanceRule:
        asked = Question(atom.relation, binding_pattern(atom, bound))
        self.asks.append(asked)
        return self._rule(ASKING, magic_atom(asked, atom, self.declared[atom.relation]), before)

    def _supplementary(self, before: list[Literal], later: list[Literal]) -> tuple[Atom, MaintenanceRule]:
        """What was joined so far, kept in the variables that are still needed."""
        assert self.names is not None
        needed = {v.name for literal in (self.rule.head, *later) for v in literal_variables(literal)}
        found = dict.fromkeys(v.name for literal in before for v in literal_variables(literal) if v.name in needed)
        name = self.names()
        types = variable_types(self.rule, self.declared)
        self.relations.append(Relation(name, tuple(Column(v, types[v]) for v in found)))
        sup = Atom(name, tuple(Variable(v) for v in found))
        return sup, self._rule("S", sup, before)

    def _rule(self, label: str, head: Atom, body: list[Literal]) -> MaintenanceRule:
        grows = [i for i, literal in enumerate(body) if isinstance(literal, Atom) and self._grows(literal.relation)]
        return MaintenanceRule(label, Rule(head, tuple(body), self.rule.span), tuple(grows))

    def _grows(self, name: str) -> bool:
        return name in self.inside or name not in self.declared
