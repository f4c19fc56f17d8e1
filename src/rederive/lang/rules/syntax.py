"""Active rules as data: a condition, an action, and when a change of one leads to the other. Does not import the parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from rederive.delta import Sign
from rederive.errors import Span, UnknownName
from rederive.ir.rules import Program
from rederive.lang.datalog.syntax import Name

if TYPE_CHECKING:
    from rederive.lang.sql.parser import ParsedStatement

PLUS = frozenset({Sign.PLUS})
CONDITION = "condition"
FIRING = "firing"  # in an action that changes data, the table of the rows that the rule fires for


def condition_name(rule: str) -> str:
    """The name of the view that is a rule's condition.

    >>> condition_name("monitor_items")
    'monitor_items.condition'
    """
    return f"{rule}.{CONDITION}"


class EventKind(Enum):
    """The kinds of changes that an event names."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class RuleEvent:
    """`ON INSERT OF relation`: the rule fires only in transactions with such a change."""

    kind: EventKind
    relation: str
    span: Span = field(compare=False, repr=False)


def event_table(event: RuleEvent, program: Program) -> str:
    """The base relation whose changes are the event."""
    known = program.tables
    # Datalog distinguishes case and SQL does not: the exact name wins.
    found = [n for n in known if n == event.relation] or [n for n in known if n.lower() == event.relation.lower()]
    if not found:
        raise UnknownName("table", event.relation, known, event.span)
    # Transactions change a bag through its numbered copies, so that is where the event is seen.
    return program.numbered_copies(found[0]) or found[0]


@dataclass(frozen=True, slots=True)
class ViewCondition:
    """`TABLE view`: the condition is an existing table or view."""

    relation: str
    span: Span = field(compare=False, repr=False)


Condition: TypeAlias = "ParsedStatement | ViewCondition"


@dataclass(frozen=True, slots=True)
class CallAction:
    """`CALL function(columns)`: calls a registered function once with all rows; without columns, with whole rows.

    `arguments`: if some argument is not a column, a query of all of them over the table `firing`; `columns` is None then.
    """

    function: str
    columns: tuple[Name, ...] | None
    span: Span = field(compare=False, repr=False)
    arguments: ParsedStatement | None = None


@dataclass(frozen=True, slots=True)
class WebhookAction:
    """`WEBHOOK 'url'`: posts the rows to the address after the commit."""

    url: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteAction:
    """`INSERT`, `UPDATE` or `DELETE`: changes data in the transaction that fires the rule; it reads the rows as `firing`."""

    parsed: ParsedStatement

    @property
    def span(self) -> Span:
        """The place of the statement in its text."""
        return self.parsed.span


Action: TypeAlias = CallAction | WebhookAction | WriteAction


@dataclass(frozen=True, slots=True)
class ActiveRule:
    """One active rule. `text` is its CREATE RULE statement; it is empty if the rule is part of a Datalog program.

    `since_check`: the condition is compared with the state in which the rule was last checked, not with that before the round.
    """

    name: str
    condition: Condition
    action: Action
    span: Span = field(compare=False, repr=False)
    strict: bool = True
    immediate: bool = False
    signs: frozenset[Sign] = PLUS
    priority: int = 0
    event: RuleEvent | None = None
    recursive: bool = False
    since_check: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateRule:
    """CREATE [OR REPLACE] RULE."""

    rule: ActiveRule
    replaces: bool


@dataclass(frozen=True, slots=True)
class AlterRule:
    """ALTER RULE. `values` are the first columns of the rows that it concerns; None for all rows."""

    name: str
    active: bool
    values: tuple[str | int | float | bool | None, ...] | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DropRule:
    """DROP RULE [IF EXISTS]."""

    name: str
    may_miss: bool
    span: Span = field(compare=False, repr=False)


RuleStatement: TypeAlias = CreateRule | AlterRule | DropRule
