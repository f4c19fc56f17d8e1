"""Transitive closures in the linear form that suits them best.

A view written as  p(X, Y) :- p(X, Z), p(Z, Y)  over exit rules without p is the transitive closure of what these derive. As sets,

    p(X, Y) :- p.step(X, Y).        p(X, Y) :- p.step(X, Z), p(Z, Y).

is the same, with the exit rules for p.step; and it derives a pair once for each step that it can begin with, not once for each
of its middles. Where the only exit rule is  p(X, Y) :- step(X, Y),  `step` serves as it is.

The right-linear form is the one that is maintained: a change spreads from z to x with all its y at once. For a query, and for a
constant that is pushed into the rules, the form is the one that carries the bound half along: left-linear where that is X,
right-linear where it is Y. Only what is reachable from it is then derived.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rederive.analysis.closure import Closure, Form, closure_of
from rederive.analysis.graph import components
from rederive.ir.rules import Atom, Definition, Program, Relation, Rule, defines, literal_variables
from rederive.ir.substitute import substitute_variables
from rederive.ir.terms import Variable


def linearize(program: Program) -> Program:
    """The program with every non-linear transitive closure in right-linear form.

    >>> from rederive.ir.printing import show_definition
    >>> from rederive.lang import compile_program
    >>> program = linearize(compile_program('''
    ...     .decl a(x: symbol, y: symbol)  .decl b(x: symbol, y: symbol)  .decl p(x: symbol, y: symbol)
    ...     p(x, y) :- a(x, y).  p(x, y) :- b(y, x).  p(x, y) :- p(x, z), p(z, y).
    ... '''))
    >>> for definition in program.definitions:
    ...     print(show_definition(definition, program))
    p.step(x, y) :- a(x, y).
    p.step(x, y) :- b(y, x).
    p(x, y) :- p.step(x, y).
    p(x, y) :- p.step(x, z), p(z, y).
    """
    # Only non-linear ones: a left-linear view stays as it is written, and queries choose their form by themselves.
    for closure in closures(program).values():
        if closure.form is Form.NONLINEAR:
            program = _with_step(program, closure)
    return program


def closures(program: Program) -> dict[str, Closure]:
    """The views that are transitive closures."""
    found = map(closure_of, components(program))
    return {closure.relation: closure for closure in found if closure is not None}


def form_for(closure: Closure, bound: Collection[int]) -> Form:
    """The form that carries the bound columns along, where one does; else the form as it is written."""
    # The recursion must carry the bound half unchanged to the head: p(X, Z) does so for X, p(Z, Y) for Y.
    if all(i in bound for i in range(closure.width)):
        return Form.LEFT
    if all(i in bound for i in range(closure.width, 2 * closure.width)):
        return Form.RIGHT
    return closure.form


def in_form(closure: Closure, form: Form) -> tuple[Rule, ...]:
    """The rules of a linear closure in the other linear form, or as they are."""
    if form is closure.form:
        return (*closure.exits, *closure.recursive)
    assert closure.form is not Form.NONLINEAR, "linearise the program first"
    # The steps of a linear closure are its exit rules, so these give the recursive rules of the other form.
    return (*closure.exits, *(_recursive(closure, rule, form) for rule in closure.exits))


def _recursive(closure: Closure, exit_rule: Rule, form: Form) -> Rule:
    """p(X, Y) :- p(X, Z), step(Z, Y)  or  p(X, Y) :- step(X, Z), p(Z, Y), for the step of an exit rule p(X, Y) :- step(X, Y)."""
    first, last = exit_rule.head.terms[: closure.width], exit_rule.head.terms[closure.width :]
    middle = _middle(closure, exit_rule)
    # step(Z, Y) or step(X, Z): one half of the exit rule's head is renamed to the middle.
    replaced = first if form is Form.LEFT else last
    names = {term.name: z for term, z in zip(replaced, middle, strict=True) if isinstance(term, Variable)}
    step = substitute_variables(exit_rule, names).body
    before = (Atom(closure.relation, (*first, *middle)),) if form is Form.LEFT else ()
    after = (Atom(closure.relation, (*middle, *last)),) if form is Form.RIGHT else ()
    return replace(exit_rule, body=(*before, *step, *after))


def _middle(closure: Closure, rule: Rule) -> tuple[Variable, ...]:
    """The variables to join on: those of the closure's own rule, under another name where this rule has one like it."""
    taken = {v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal)}
    names = []
    for variable in closure.middle:
        name = variable.name if not variable.is_anonymous else "z"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(Variable(name))
    return tuple(names)


def _with_step(program: Program, closure: Closure) -> Program:
    name = closure.relation
    recursive = closure.recursive[0]  # a repeated rule adds nothing
    steps, step = (closure.exits, closure.step) if closure.step is not None else _step_rules(closure)
    first, last = recursive.head.terms[: closure.width], recursive.head.terms[closure.width :]
    rules: list[Definition] = [*steps]
    if closure.step is None:
        # p(X, Y) :- p.step(X, Y).
        rules.append(Rule(recursive.head, (Atom(step, recursive.head.terms),), recursive.span))
    # p(X, Y) :- step(X, Z), p(Z, Y).
    rules.append(replace(recursive, body=(Atom(step, (*first, *closure.middle)), Atom(name, (*closure.middle, *last)))))
    relations = dict(program.relations)
    if closure.step is None:
        relations[step] = Relation(step, program.relations[name].columns)
    return replace(program, relations=relations, definitions=_replaced(program, name, rules))


def _step_rules(closure: Closure) -> tuple[tuple[Rule, ...], str]:
    """The exit rules as those of a relation of their own."""
    name = f"{closure.relation}.step"
    return tuple(replace(rule, head=replace(rule.head, relation=name)) for rule in closure.exits), name


def _replaced(program: Program, name: str, rules: list[Definition]) -> tuple[Definition, ...]:
    """The definitions with these in the place of the relation's own."""
    found: list[Definition] = []
    for definition in program.definitions:
        if defines(definition) != name:
            found.append(definition)
        elif rules:
            found += rules
            rules = []
    return tuple(found)
