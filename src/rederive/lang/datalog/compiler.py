"""The Datalog compiler: text to programs."""

from __future__ import annotations

from collections.abc import Sequence

from rederive.analysis.graph import check_stratified
from rederive.errors import DuplicateKey, SourceText, Span, SyntaxProblem, Unsupported
from rederive.ir.rules import Atom, Program
from rederive.ir.terms import Row
from rederive.lang.datalog.lower import lower, lower_query
from rederive.lang.datalog.parser import parse_program, parse_query
from rederive.lang.datalog.syntax import Statement


def compile_program(text: str, name: str = "<text>", known: Program | None = None) -> Program:
    """The program of `text`, which extends `known`; errors call the text `name`. Raises all errors of the text together.

    The result starts with everything of `known`, in its order: `program.facts[len(known.facts):]` are the new facts.
    A base relation of `known` accepts new facts. No relation of `known` accepts new rules.

    >>> from rederive.ir.printing import show_definition
    >>> program = compile_program('''
    ...     .decl edge(x: symbol, y: symbol)
    ...     .decl closure(x: symbol, y: symbol)
    ...     closure(x, y) :- edge(x, y) ; edge(x, z), closure(z, y).
    ... ''')
    >>> print(*(show_definition(definition, program) for definition in program.definitions), sep="\\n")
    closure(x, y) :- edge(x, y).
    closure(x, y) :- edge(x, z), closure(z, y).
    """
    return extend_program(known if known is not None else Program({}, ()), parse_statements(text, name))


def extend_program(known: Program, statements: Sequence[Statement]) -> Program:
    """The program extended by statements, as `compile_program` describes it."""
    try:
        # Parsing and lowering recurse with the nesting of the text, and Python's stack limits both.
        program = lower(statements, known)
    except RecursionError:
        raise _too_deep(statements[0].span.source) from None
    check_stratified(program, known)
    _check_keys(program)
    return program


def parse_statements(text: str, name: str = "<text>") -> tuple[Statement, ...]:
    """The statements of a text, parsed but not checked."""
    source = SourceText(name, text)
    try:
        return tuple(parse_program(source))
    except RecursionError:
        raise _too_deep(source) from None


def compile_query(text: str, program: Program) -> Atom:
    """The atom of a query; its constants have the types of their columns.

    >>> from rederive.ir.printing import show_atom
    >>> show_atom(compile_query('edge("a", y)', compile_program(".decl edge(x: symbol, y: symbol)")))
    'edge("a", y)'
    """
    source = SourceText("<query>", text)
    try:
        return lower_query(parse_query(source), program)
    except SyntaxProblem as error:
        if (relation := program.relations.get(text.strip())) is not None:  # a name alone, for all rows
            places = ", ".join("_" * relation.arity)
            error.hint = f"write {relation.name}({places}), with constants where values are known"
        raise
    except RecursionError:
        raise _too_deep(source) from None


def _check_keys(program: Program) -> None:
    """Refuse facts that share a key and differ."""
    seen: dict[tuple[str, Row], Row] = {}
    for fact in program.facts:
        relation = program.relations[fact.relation]
        if relation.key:
            other = seen.setdefault((fact.relation, tuple(fact.row[i] for i in relation.key)), fact.row)
            if other != fact.row:
                names = [relation.columns[i].name for i in relation.key]
                raise DuplicateKey(relation.name, names, fact.row, other).at(str(fact.span))


def _too_deep(source: SourceText) -> Unsupported:
    return Unsupported("not supported: a text with such deep nesting", Span(source, 1, 1, 1, 1))
