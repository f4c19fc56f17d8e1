"""Parts of a program as programs of their own, for an engine that evaluates one part by other means.

The rules stay those of the program; only the relations that they read get other names, or become base relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Program, Relation, Rule, Variant
from rederive.maintain.maintenance_rule import canonical, in_state

HEAD = "head"


def rule_over_state(rule: Rule, state: Variant) -> Rule:
    """A rule of a view over one state of the relations that it reads."""
    return Rule(rule.head, in_state(rule.body, state), rule.span)


def rule_program(rule: Rule, atoms: Sequence[Atom], relations: Mapping[str, Relation]) -> Program:
    """One rule whose view is `HEAD`, with a base relation for each of these atoms: `atom_name(i)` for the i-th.

    Atoms are distinguished by identity: the same relation in two variants is two base relations. An atom of the body that is not
    among them has no rows; where it is negated, the negation holds and is left out.
    """
    # By identity, not equality: two atoms that read alike are two inputs.
    names = {id(atom): atom_name(i) for i, atom in enumerate(atoms)}
    declared = {names[id(atom)]: Relation(names[id(atom)], relations[atom.relation].columns) for atom in atoms}
    body = tuple(one for literal in rule.body if (one := _renamed(literal, names)) is not None)
    view = Relation(HEAD, relations[rule.head.relation].columns)
    return Program({HEAD: view, **declared}, (Rule(replace(rule.head, relation=HEAD), body, rule.span),))


def atom_name(position: int) -> str:
    """The base relation of the atom at this position of the atoms that are given."""
    return f"a{position}"


def _renamed(literal: Literal, names: Mapping[int, str]) -> Literal | None:
    match literal:
        case Comparison():
            return literal
        case Negation(atom):
            # !r over an empty r holds.
            return Negation(Atom(names[id(atom)], atom.terms)) if id(atom) in names else None
        case Atom():
            return Atom(names[id(literal)], literal.terms)


def recursive_rules(component: Component) -> list[Rule]:
    """The rules whose body reads a relation of their own component."""
    rules = (definition for definition in component.definitions if isinstance(definition, Rule))
    return [rule for rule in rules if any(atom.relation in component.relations for atom in _atoms(rule))]


def other_relations(component: Component) -> list[str]:
    """The relations of other components that the recursive rules read."""
    names = (atom.relation for rule in recursive_rules(component) for atom in _atoms(rule))
    return [name for name in dict.fromkeys(names) if name not in component.relations]


def _atoms(rule: Rule) -> list[Atom]:
    atoms = (literal.atom if isinstance(literal, Negation) else literal for literal in rule.body)
    return [atom for atom in atoms if isinstance(atom, Atom)]


def seeds_name(view: str) -> str:
    """The base relation that holds what the rules without recursion derive."""
    return f"{view}.seed"


def program_over_seeds(component: Component, program: Program) -> Program:
    """The recursive rules over their seeds: a program whose base relations are everything else that they read."""
    (name,) = component.relations
    relation = program.relations[name]
    seed = replace(relation, name=seeds_name(name))
    # p(X) :- p.seed(X).  The exit rules are evaluated elsewhere, and their rows are the seeds.
    start = Rule(canonical(relation), (canonical(seed),))
    relations = {one.name: one for one in (relation, seed, *(program.relations[other] for other in other_relations(component)))}
    return Program(relations, (start, *recursive_rules(component)))
