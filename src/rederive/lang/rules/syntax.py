"""Active rules as they are written: a condition, an action, and when one leads to the other. Knows nothing of the parser."""

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
FIRING = "firing"  # the table of the rows that a rule fires for, in its change of data


def condition_name(rule: str) -> str:
    """The view that is a rule's condition.

    >>> condition_name("monitor_items")
    'monitor_items.condition'
    """
    return f"{rule}.{CONDITION}"


class EventKind(Enum):
    INSERT = "insert"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class RuleEvent:
    """`ON INSERT OF relation`: the condition is tested only where this happened."""

    kind: EventKind
    relation: str
    span: Span = field(compare=False, repr=False)


def event_table(event: RuleEvent, program: Program) -> str:
    """The base relation whose changes are the event."""
    known = program.tables
    found = [n for n in known if n == event.relation] or [n for n in known if n.lower() == event.relation.lower()]
    if not found:
        raise UnknownName("table", event.relation, known, event.span)
    return program.copies_of(found[0]) or found[0]


@dataclass(frozen=True, slots=True)
class ViewCondition:
    """`TABLE view`: the condition is a relation that there is."""

    relation: str
    span: Span = field(compare=False, repr=False)


Condition: TypeAlias = "ParsedStatement | ViewCondition"


@dataclass(frozen=True, slots=True)
class CallAction:
    """`CALL function(columns)`: a registered function, called once with all rows; without columns, with whole rows."""

    function: str
    columns: tuple[Name, ...] | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WebhookAction:
    """`WEBHOOK 'url'`: the rows are posted there after the commit."""

    url: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteAction:
    """`INSERT`, `UPDATE` or `DELETE`: part of the transaction that fired the rule; its rows are the table `firing`."""

    parsed: ParsedStatement

    @property
    def span(self) -> Span:
        return self.parsed.span


Action: TypeAlias = CallAction | WebhookAction | WriteAction


@dataclass(frozen=True, slots=True)
class ActiveRule:
    """`text` is the rule as one statement of SQL, where it is kept apart from a program's text."""

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
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateRule:
    rule: ActiveRule
    replaces: bool


@dataclass(frozen=True, slots=True)
class AlterRule:
    """`values`: the first columns of the rows that it is about; None for all rows."""

    name: str
    active: bool
    values: tuple[str | int | float | bool | None, ...] | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DropRule:
    name: str
    may_miss: bool
    span: Span = field(compare=False, repr=False)


RuleStatement: TypeAlias = CreateRule | AlterRule | DropRule
