"""What an active rule adds to a program: its condition as a view, and the table of its rows that a change of data may read.

The condition of rule r is the view `r.condition`. It is a set: a row of it is true or it is not, however often it is derived.
"""

from __future__ import annotations

from sqlglot import exp

from rederive.analysis.graph import check_stratified
from rederive.errors import DataError, Redefined, SyntaxProblem, UnknownName, Unsupported
from rederive.ir.rules import Atom, Program, Relation, Rule
from rederive.ir.terms import Variable
from rederive.lang.program_builder import Draft
from rederive.lang.rules.definition import (
    CONDITION,
    FIRING,
    ActiveRule,
    Call,
    Event,
    EventKind,
    Whole,
    Write,
    condition_name,
    event_table,
)
from rederive.lang.sql.context import Context
from rederive.lang.sql.ddl import define_view
from rederive.lang.sql.dml import DataChange, data_change
from rederive.lang.sql.parser import Parsed
from rederive.lang.sql.query import Queries


def with_condition(program: Program, rule: ActiveRule) -> Program:
    """The program with one more view, the rule's condition; refused where the rule does not fit the program."""
    draft = Draft.of(program)
    name = condition_name(rule.name)
    match rule.condition:
        case Whole():
            _copy(draft, name, rule.condition)
        case Parsed() as parsed:
            rel = Queries(Context(draft, name, parsed)).query(_distinct(parsed.tree), None, name)
            define_view(draft, name, rel, (), parsed, monitored=False)
    extended = draft.program()
    check_stratified(extended)
    _check_columns(rule, extended.relations[name])
    _check_event(rule.event, program)
    return extended


def _copy(draft: Draft, name: str, whole: Whole) -> None:
    """r.condition(x) :- view(x)."""
    known = draft.relations
    found = [n for n in known if n == whole.relation] or [n for n in known if n.lower() == whole.relation.lower()]
    if not found or "." in found[0]:
        raise UnknownName("table or view", whole.relation, (n for n in known if "." not in n), whole.span)
    columns = known[found[0]].columns
    terms = tuple(Variable(f"c{i}") for i in range(len(columns)))
    draft.relations[name] = Relation(name, columns, span=whole.span, monitored=False)
    draft.definitions.append(Rule(Atom(name, terms), (Atom(found[0], terms),), whole.span))


def _distinct(tree: exp.Expr) -> exp.Expr:
    """The query as a set. The first rows of an order are taken before copies are put together."""
    if isinstance(tree, exp.Select) and not (tree.args.get("limit") or tree.args.get("offset") or tree.args.get("with_")):
        found = tree.copy()
        found.set("distinct", exp.Distinct())
        return found
    inner = exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this=exp.to_identifier(CONDITION)))
    return exp.Select(expressions=[exp.Star()], distinct=exp.Distinct()).from_(inner, copy=False)


def _check_columns(rule: ActiveRule, condition: Relation) -> None:
    known = [column.name for column in condition.columns]
    for name in (rule.action.columns or ()) if isinstance(rule.action, Call) else ():
        if name.text not in known:
            raise UnknownName("column", name.text, known, name.span)
    if isinstance(rule.action, Write) and len(rule.signs) > 1:
        hint = "write one rule ON PLUS and another one ON MINUS"
        raise Unsupported("not supported: a change of data ON BOTH", rule.action.span, hint=hint)


def _check_event(event: Event | None, program: Program) -> None:
    if event is None:
        return
    table = event_table(event, program)
    if event.kind is EventKind.UPDATE and not program.relations[table].key:
        hint = "without a key, an update is a row that leaves and another one that enters: use INSERT OF or DELETE OF"
        raise SyntaxProblem(f"'{event.relation}' has no key, so that no row of it is updated", event.span, hint=hint)


def write_of(program: Program, rule: ActiveRule) -> DataChange:
    """What the rule's change of data asks for. `program` has the rule's condition, whose columns are those of `firing`."""
    assert isinstance(rule.action, Write)
    draft = Draft.of(program)
    if any(name.lower() == FIRING for name in draft.relations):
        hint = "in an action, this name stands for the rows that the rule fires for; rename the relation"
        raise Redefined(f"there is a relation '{FIRING}'", rule.action.span, hint=hint)
    draft.relations[FIRING] = Relation(FIRING, program.relations[condition_name(rule.name)].columns, span=rule.span)
    try:
        return data_change(rule.action.parsed, draft.program())
    except DataError as error:
        raise error.at(error.place or str(rule.action.span)) from None
