"""Statements to programs: declarations, facts, directives and clauses extend a program, or all their errors are raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rederive.analysis.nullable import nullable_columns
from rederive.analysis.types import relation_of
from rederive.errors import (
    ProgramError,
    ProgramRefused,
    Redefined,
    Span,
    SyntaxProblem,
    UnknownName,
    UnsafeVariable,
    Unsupported,
)
from rederive.ir.rules import Atom, Column, Constraint, Fact, Input, Program, Relation, Remote
from rederive.ir.terms import Constant, Simple, Type, Variable
from rederive.lang.datalog.clauses import lower_clause, lower_constant
from rederive.lang.datalog.directive_options import check_output_options, input_options, remote_options
from rederive.lang.datalog.parser import RESERVED
from rederive.lang.datalog.rule_directives import active_rule, constraint_mode
from rederive.lang.datalog.simplification import typed_constant
from rederive.lang.datalog.syntax import (
    Clause,
    ConstraintDirective,
    Declaration,
    Directive,
    InputDirective,
    OutputDirective,
    ParsedAtom,
    RemoteDirective,
    RuleDirective,
    Statement,
    StoredDirective,
    TypeDefinition,
    Value,
    Var,
    relations,
)
from rederive.lang.datalog.type_names import TypeNames
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.rules.syntax import ViewCondition

_S = TypeVar(
    "_S",
    Clause,
    ConstraintDirective,
    Declaration,
    InputDirective,
    OutputDirective,
    RemoteDirective,
    RuleDirective,
    StoredDirective,
    TypeDefinition,
)


def lower(statements: Sequence[Statement], known: Program) -> Program:
    """The program extended by statements; raises the one error, or ProgramRefused with all errors."""
    errors: list[ProgramError] = []
    lowering = _ProgramLowering(statements, known)

    def each(kind: type[_S], step: Callable[[_S], None]) -> None:
        for statement in statements:
            if isinstance(statement, kind):
                try:
                    step(statement)
                # Each statement is tried on its own, so that one run reports all errors of a text.
                except ProgramError as error:
                    errors.append(error)
                except RecursionError:
                    errors.append(_too_deep(statement.span))

    # Statements may refer to later ones, so each kind is lowered as a whole: types, relations, rules, then what names them.
    each(TypeDefinition, lowering.type_definition)
    each(Declaration, lowering.declaration)
    each(Clause, lowering.clause)
    each(InputDirective, lowering.input)
    each(OutputDirective, lowering.output)
    each(RemoteDirective, lowering.remote)
    each(StoredDirective, lowering.stored)
    each(ConstraintDirective, lowering.constraint)
    each(RuleDirective, lowering.rule)
    if errors:
        raise _together(errors)
    return _with_nullable(lowering.builder.program(), known)


def _with_nullable(program: Program, known: Program) -> Program:
    """The program with nullable columns marked: those of new relations that can get NULL from SQL tables."""
    # Datalog has no NULL of its own: its columns are nullable only by what they read from SQL tables.
    relations = dict(program.relations)
    for name, i in nullable_columns(program, [name for name in relations if name not in known.relations]):
        columns = relations[name].columns
        marked = (*columns[:i], replace(columns[i], nullable=True), *columns[i + 1 :])
        relations[name] = replace(relations[name], columns=marked)
    return replace(program, relations=relations) if relations != program.relations else program


def lower_query(atom: ParsedAtom, program: Program) -> Atom:
    """The atom with its constants typed by their columns."""
    relation = relation_of(atom.relation, len(atom.arguments), program.relations, atom.span)
    # A constant of a query means a value of its column: "2024-02-29" in a date column is a date.
    pairs = zip(atom.arguments, relation.types, strict=True)
    return Atom(atom.relation, tuple(_query_term(value, type) for value, type in pairs), span=atom.span)


def _query_term(value: Value, type: Type) -> Simple:
    if isinstance(value, Var):
        return Variable(value.name, value.span)
    constant = lower_constant(value)
    if constant is None:
        raise Unsupported("not supported: an expression in a query", value.span, hint="use constants, variables and '_'")
    return typed_constant(constant, type)


def _together(errors: Sequence[ProgramError]) -> ProgramError:
    """The one error, or all errors in the order of the text."""
    if len(errors) == 1:
        return errors[0]
    return ProgramRefused(sorted(errors, key=lambda error: (error.span.line, error.span.column) if error.span else (0, 0)))


def _too_deep(span: Span) -> Unsupported:
    return Unsupported("not supported: a statement with such deep nesting", span, hint="define relations for its parts")


class _ProgramLowering:
    """One step for each kind of statement. Types come before declarations, and declarations before what uses them."""

    def __init__(self, statements: Sequence[Statement], known: Program) -> None:
        self.builder = ProgramBuilder.of(known)
        self._known = known
        self._known_views = frozenset(known.views)
        self._types = TypeNames(s for s in statements if isinstance(s, TypeDefinition))
        self._declared: dict[str, Declaration] = {}
        # A relation is a view if some clause of the text is a rule for it, wherever that clause is.
        self._ruled = frozenset(
            head.relation for s in statements if isinstance(s, Clause) and not _is_fact(s) for head in s.heads
        )

    def type_definition(self, definition: TypeDefinition) -> None:
        self._types.check(definition)

    def declaration(self, declaration: Declaration) -> None:
        for name in declaration.names:
            if name.text in RESERVED:
                raise SyntaxProblem(f"'{name.text}' is a reserved word and cannot name a relation", name.span)
            if name.text in self._known.relations or name.text in self._declared:
                raise Redefined(f"'{name.text}' is declared already", name.span, hint=self._earlier(name.text))
            self._declared[name.text] = declaration
        columns = _distinct_columns(declaration, self._types)
        key = _key(declaration, columns)
        for name in declaration.names:
            # The key of a view follows from its rules, and could contradict a declared one.
            if key and name.text in self._ruled:
                raise Unsupported(f"not supported: a key on '{name.text}', which has rules", declaration.key[0].span)
            self.builder.relations[name.text] = Relation(name.text, columns, key, name.span)

    def clause(self, clause: Clause) -> None:
        nodes = clause.heads if clause.body is None else (*clause.heads, clause.body)
        if self._hopeless(name for node in nodes for name in relations(node)):
            return
        for head in clause.heads:
            self._refuse_known(head, _is_fact(clause))
        # A fact of a relation with rules is a rule without a body: the relation is a view.
        if _is_fact(clause) and clause.heads[0].relation not in self._ruled:
            self.builder.facts.append(_fact(clause, self.builder.relations))
        else:
            lower_clause(clause, self.builder)

    def input(self, directive: InputDirective) -> None:
        name = directive.relation.text
        if self._hopeless([name]):
            return
        relation = self._relation(directive)
        if name in self._known_views:
            raise Redefined(f"'{name}' is a view of an earlier text and accepts no input", directive.relation.span)
        options = input_options(directive)
        if name in self._ruled:
            # A relation with rules is a view. Its rows from files are a base relation, which one more rule reads.
            name = self.builder.input_base(relation, directive.span)
            # Soufflé's default is named after the relation that the user declared.
            options.setdefault("filename", f"{relation.name}.facts")
        self.builder.inputs.append(Input(name, tuple(options.items()), directive.span))

    def output(self, directive: OutputDirective) -> None:
        name = directive.relation.text
        check_output_options(directive)
        if not self._hopeless([name]) and self._relation(directive).name not in self.builder.outputs:
            self.builder.outputs.append(name)

    def remote(self, directive: RemoteDirective) -> None:
        name = directive.relation.text
        if self._hopeless([name]):
            return
        relation = self._relation(directive)
        if name in self._known_views or name in self._ruled:
            hint = "declare a base relation .remote, and the view over it .stored"
            raise Unsupported(f"not supported: the view '{name}' as a remote relation", directive.relation.span, hint=hint)
        # Twice is refused even with equal options: a second source would silently win.
        if any(declared.relation == name for declared in self.builder.remotes):
            raise Redefined(f"'{name}' is declared remote already", directive.relation.span)
        self.builder.remotes.append(Remote(relation.name, remote_options(directive), directive.span))

    def stored(self, directive: StoredDirective) -> None:
        name = directive.relation.text
        if self._hopeless([name]):
            return
        self._relation(directive)
        if name not in self._known_views and name not in self._ruled:
            hint = "declare it .remote, or omit .stored: a relation without rules is a base relation"
            raise Unsupported(f"not supported: the base relation '{name}' as a stored view", directive.relation.span, hint=hint)
        # .stored has no options; the first one that is given is reported.
        for option in directive.options:
            raise UnknownName("option", option.name.text, (), option.name.span)
        if name not in self.builder.stored:
            self.builder.stored.append(name)

    def constraint(self, directive: ConstraintDirective) -> None:
        name = directive.relation.text
        if self._hopeless([name]):
            return
        self._relation(directive)
        if name not in self._known_views and name not in self._ruled:
            hint = "define a view whose rows are the violations, and declare it .constraint"
            raise Unsupported(f"not supported: the base relation '{name}' as a constraint", directive.relation.span, hint=hint)
        if any(constraint.view == name for constraint in self.builder.constraints):
            raise Redefined(f"'{name}' is a constraint already", directive.relation.span)
        self.builder.constraints.append(Constraint(name, constraint_mode(directive), directive.span))

    def rule(self, directive: RuleDirective) -> None:
        """Check the rule against the program. Its action is checked later, when functions and addresses are known."""
        rule = active_rule(directive)
        if isinstance(rule.condition, ViewCondition) and not self._hopeless([rule.condition.relation]):
            from rederive.lang.rules.lower import add_condition

            add_condition(self.builder.program(), rule)

    def _hopeless(self, names: Iterable[str]) -> bool:
        """Whether the declaration of one of these names was refused: errors that follow from it are not reported."""
        return any(name in self._declared and name not in self.builder.relations for name in names)

    def _relation(self, directive: Directive) -> Relation:
        name, known = directive.relation.text, self.builder.relations
        if name not in known:
            raise UnknownName("relation", name, (other for other in known if "." not in other), directive.relation.span)
        return known[name]

    def _refuse_known(self, head: ParsedAtom, fact: bool) -> None:
        """Refuse new rules for relations of an earlier text; its base relations accept new facts."""
        name = head.relation
        if name in self._known.relations and (name in self._known_views or not fact):
            kind = "view" if name in self._known_views else "base relation"
            raise Redefined(
                f"'{name}' is a {kind} of an earlier text and accepts no new rules", head.span, hint="declare another view"
            )

    def _earlier(self, name: str) -> str | None:
        first = next((n.span for n in self._declared[name].names if n.text == name), None) if name in self._declared else None
        span = first or self._known.relations[name].span
        return f"the first declaration is at {span}" if span is not None else None


def _is_fact(clause: Clause) -> bool:
    """Whether a clause is a fact. A computed value makes it a rule. A variable does not: it is an error in the fact."""
    return (
        clause.body is None
        and len(clause.heads) == 1
        and all(isinstance(value, Var) or lower_constant(value) is not None for value in clause.heads[0].arguments)
    )


def _fact(clause: Clause, known: Mapping[str, Relation]) -> Fact:
    head = clause.heads[0]
    relation = relation_of(head.relation, len(head.arguments), known, head.span)
    row = tuple(typed_constant(_stated(value), type).value for value, type in zip(head.arguments, relation.types, strict=True))
    return Fact(relation.name, row, clause.span)


def _stated(value: Value) -> Constant:
    constant = lower_constant(value)
    if constant is None:
        hint = 'write a symbol in quotes, as in "a"'
        raise UnsafeVariable(f"the fact has a variable, '{value.span.text}'", value.span, hint=hint)
    return constant


def _distinct_columns(declaration: Declaration, types: TypeNames) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    for column in declaration.columns:
        if column.name.text in columns:
            raise Redefined(f"column '{column.name.text}' is declared already", column.name.span)
        columns[column.name.text] = Column(column.name.text, types.resolve(column.type))
    return tuple(columns.values())


def _key(declaration: Declaration, columns: Sequence[Column]) -> tuple[int, ...]:
    names = [column.name for column in columns]
    for name in declaration.key:
        if name.text not in names:
            raise UnknownName("column", name.text, names, name.span)
    # Sorted: the order of a key's columns has no meaning, and equal keys compare equal.
    return tuple(sorted({names.index(name.text) for name in declaration.key}))
