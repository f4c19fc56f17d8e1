"""Active rules to views and changes of data.

The condition of rule r is the view `r.condition`. It is a set: a rule fires for a row when the row enters the condition, however
often it is derived. An action that changes data reads the rows as the table `firing`.
"""

from __future__ import annotations

from sqlglot import exp

from rederive.analysis.graph import check_stratified
from rederive.errors import DataError, Redefined, SyntaxProblem, UnknownName, Unsupported
from rederive.ir.rules import Atom, Program, Relation, Rule
from rederive.ir.terms import Variable
from rederive.lang.program_builder import ProgramBuilder
from rederive.lang.rules.syntax import (
    CONDITION,
    FIRING,
    ActiveRule,
    CallAction,
    EventKind,
    RuleEvent,
    ViewCondition,
    WriteAction,
    condition_name,
    event_table,
)
from rederive.lang.sql.ddl import define_view
from rederive.lang.sql.dml import CompiledQuery, DataChange, compile_change, compile_select
from rederive.lang.sql.parser import ParsedStatement
from rederive.lang.sql.query import QueryLowering
from rederive.lang.sql.statement_context import StatementContext


def add_condition(program: Program, rule: ActiveRule) -> Program:
    """The program with one more view, the condition of the rule; refused if the rule does not fit the program."""
    builder = ProgramBuilder.of(program)
    name = condition_name(rule.name)
    match rule.condition:
        case ViewCondition():
            _copy(builder, name, rule.condition)
        case ParsedStatement() as parsed:
            rel = QueryLowering(StatementContext(builder, name, parsed)).query(_distinct(parsed.tree), None, name)
            define_view(builder, name, rel, (), parsed, monitored=False)
    extended = builder.program()
    # The query may be recursive, and a negation inside of its recursion is refused as in any view.
    check_stratified(extended)
    _check_columns(rule, extended.relations[name])
    _check_event(rule.event, program)
    return extended


def _copy(builder: ProgramBuilder, name: str, whole: ViewCondition) -> None:
    """r.condition(x) :- view(x)."""
    known = builder.relations
    found = [n for n in known if n == whole.relation] or [n for n in known if n.lower() == whole.relation.lower()]
    # Auxiliary relations have a dot in their names, and cannot be named by a user.
    if not found or "." in found[0]:
        raise UnknownName("table or view", whole.relation, (n for n in known if "." not in n), whole.span)
    columns = known[found[0]].columns
    terms = tuple(Variable(f"c{i}") for i in range(len(columns)))
    builder.relations[name] = Relation(name, columns, span=whole.span, monitored=False)
    builder.definitions.append(Rule(Atom(name, terms), (Atom(found[0], terms),), whole.span))


def _distinct(tree: exp.Expr) -> exp.Expr:
    """The query as a set. LIMIT applies before duplicates are removed, so such a query goes into FROM."""
    if isinstance(tree, exp.Select) and not (tree.args.get("limit") or tree.args.get("offset") or tree.args.get("with_")):
        found = tree.copy()
        found.set("distinct", exp.Distinct())
        return found
    inner = exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this=exp.to_identifier(CONDITION)))
    return exp.Select(expressions=[exp.Star()], distinct=exp.Distinct()).from_(inner, copy=False)


def _check_columns(rule: ActiveRule, condition: Relation) -> None:
    known = [column.name for column in condition.columns]
    for name in (rule.action.columns or ()) if isinstance(rule.action, CallAction) else ():
        if name.text not in known:
            raise UnknownName("column", name.text, known, name.span)
    # `firing` has one set of rows. Rows that entered and rows that left would be indistinguishable in it.
    if isinstance(rule.action, WriteAction) and len(rule.signs) > 1:
        hint = "write one rule ON PLUS and another ON MINUS"
        raise Unsupported("not supported: an action ON BOTH that changes data", rule.action.span, hint=hint)


def _check_event(event: RuleEvent | None, program: Program) -> None:
    if event is None:
        return
    table = event_table(event, program)
    if event.kind is EventKind.UPDATE and not program.relations[table].key:
        hint = "use INSERT OF or DELETE OF: without a key, an update is a row that leaves and a row that enters"
        raise SyntaxProblem(f"'{event.relation}' has no key, so its rows cannot be updated", event.span, hint=hint)


def compile_write(program: Program, rule: ActiveRule) -> DataChange:
    """The change of data that an action requests. `program` has the condition of the rule, whose columns `firing` has."""
    assert isinstance(rule.action, WriteAction)
    # Compiled when the rule is defined: an action that does not fit the tables is refused then, and not when the rule fires.
    try:
        return compile_change(rule.action.parsed, _with_firing(program, rule))
    except DataError as error:
        raise error.at(error.place or str(rule.action.span)) from None


def compile_arguments(program: Program, rule: ActiveRule) -> CompiledQuery | None:
    """The query of a call's arguments over the rows that the rule fires for; None if they are columns."""
    action = rule.action
    if not isinstance(action, CallAction) or action.arguments is None:
        return None
    # Over the columns of the condition alone: another table has other rows before and after the transaction.
    return compile_select(action.arguments, _with_firing(Program({}, (), zone=program.zone), rule, program))


def _with_firing(program: Program, rule: ActiveRule, conditions: Program | None = None) -> Program:
    """The program with the table of the rows that a rule fires for."""
    builder = ProgramBuilder.of(program)
    if any(name.lower() == FIRING for name in builder.relations):
        hint = "rename the relation: in an action, this name means the rows that the rule fires for"
        raise Redefined(f"a relation has the reserved name '{FIRING}'", rule.action.span, hint=hint)
    columns = (conditions or program).relations[condition_name(rule.name)].columns
    builder.relations[FIRING] = Relation(FIRING, columns, span=rule.span)
    return builder.program()
