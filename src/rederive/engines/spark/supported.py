"""What this engine runs: the programs of Datalog. What only SQL adds is refused by name, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator

from rederive.errors import StrategyError
from rederive.ir.rules import BAG, COPIES, Aggregate, Atom, Comparison, Function, Negation, Program, Relation, Rule
from rederive.ir.terms import FLOAT, NUMBER, Call, Constant, Term, Type, Variable


def check_supported(program: Program) -> None:
    """Refuse a program with something that Spark SQL, as this engine prints it, would not compute as the resident engine does.

    >>> from rederive.ir.rules import Column
    >>> check_supported(Program({"n": Relation("n", (Column("x", NUMBER),))}, ()))
    >>> check_supported(Program({"n": Relation("n", (Column("x", NUMBER, nullable=True),))}, ()))
    Traceback (most recent call last):
    ...
    rederive.errors.StrategyError: error[strategy]: the Spark engine does not run this yet: column 'x' of 'n' may hold NULL
      help: open the database with engine="resident"
    """
    for found in _refused(program):
        raise StrategyError(f"the Spark engine does not run this yet: {found}", hint='open the database with engine="resident"')


def _refused(program: Program) -> Iterator[str]:
    for definition in program.definitions:
        match definition:
            case Rule():
                yield from _of_rule(definition)
            case Aggregate():
                yield from _of_aggregate(definition, program)
    for relation in program.relations.values():
        yield from _of_relation(relation)


def _of_relation(relation: Relation) -> Iterator[str]:
    name, _, part = relation.name.partition(".")
    if part in (COPIES, BAG):
        yield f"'{name}' may hold a row several times"
    for column in relation.columns:
        if column.nullable:
            yield f"column '{column.name}' of '{name}' may hold NULL"


def _of_rule(rule: Rule) -> Iterator[str]:
    for literal in (rule.head, *rule.body):
        match literal:
            case Atom(_, terms) | Negation(Atom(_, terms)):
                given: tuple[Term, ...] = terms
            case Comparison():
                given = (literal.left, literal.right)
        for term in given:
            yield from (f"{what} in '{rule.head.relation.partition('.')[0]}'" for what in _of_term(term))


def _of_term(term: Term) -> Iterator[str]:
    """A functor of SQL may have the name of one of Datalog; the type that it carries tells them apart."""
    match term:
        case Variable():
            return
        case Constant():
            if term.value is None:
                yield "NULL"
        case Call():
            if term.gives is not None:
                yield f"SQL's '{term.functor}'"
            for argument in term.arguments:
                yield from _of_term(argument)


def _of_aggregate(aggregate: Aggregate, program: Program) -> Iterator[str]:
    relation, name = program.relations[aggregate.relation], aggregate.relation.partition(".")[0]
    if aggregate.function is Function.ROW_NUMBER:
        yield f"'{name}' numbers rows"
    elif (given := relation.columns[-1].type) != (folded := _folded(aggregate, program)):
        yield f"'{name}' has a {aggregate.function.value} of type {given}, not {folded}"


def _folded(aggregate: Aggregate, program: Program) -> Type:
    """The type of what the aggregate gives in Datalog."""
    match aggregate.function, aggregate.value:
        case Function.MEAN, _:
            return FLOAT
        case ((Function.SUM | Function.MIN | Function.MAX), int(value)):
            return program.relations[aggregate.source].columns[value].type
        case _:
            return NUMBER
