"""The directives `.rule` and `.constraint`: the active rules and constraints of SQL, over views of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rederive.delta import BOTH, Sign
from rederive.errors import Span, SyntaxProblem, UnknownName
from rederive.ir.rules import Mode
from rederive.lang.datalog.syntax import ConstraintDirective, Option, RuleDirective
from rederive.lang.rules.syntax import Action, ActiveRule, EventKind, RuleEvent, ViewCondition

_Reader = Callable[[Option], dict[str, Any]]


def constraint_mode(directive: ConstraintDirective) -> Mode:
    """What a constraint does with a violation; by default, it rejects the transaction."""
    mode = Mode.REJECT
    for option in directive.options:
        if option.name.text != "mode":
            raise UnknownName("option", option.name.text, ["mode"], option.name.span)
        mode = _choice(option, {one.value: one for one in Mode})
    return mode


def active_rule(directive: RuleDirective) -> ActiveRule:
    """The active rule of a directive.

    >>> from rederive.lang.datalog.compiler import parse_statements
    >>> text = '.rule low(when=scarce, do="CALL order(i)", priority=10)'
    >>> rule = active_rule(parse_statements(text)[0])
    >>> rule.name, rule.condition.relation, rule.action.function, rule.priority
    ('low', 'scarce', 'order', 10)
    """
    # Of equal options the last one counts.
    given = {option.name.text: option for option in directive.options}
    for name, option in given.items():
        if name not in _OPTIONS and name not in ("when", "do"):
            raise UnknownName("option", name, ("when", "do", *_OPTIONS), option.name.span)
    for name in ("when", "do"):
        if name not in given:
            hint = 'write .rule name(when=view, do="CALL function(columns)")'
            raise SyntaxProblem(f"the rule '{directive.relation.text}' has no option '{name}'", directive.span, hint=hint)
    when = ViewCondition(given["when"].value, given["when"].span)
    settings: dict[str, Any] = {}
    for name, read in _OPTIONS.items():
        settings |= read(given[name]) if name in given else {}
    return ActiveRule(directive.relation.text.lower(), when, _action(given["do"]), directive.span, **settings)


def _action(option: Option) -> Action:
    from rederive.lang.rules.parser import parse_action

    return parse_action(option.value, option.span, _content(option.span))


def _event(option: Option) -> RuleEvent:
    """The event of an option such as `event="INSERT OF quantity"`."""
    # Padded, so that a text of too few words is refused below and not by the unpacking.
    kind, of, relation, *more = [*option.value.split(), "", "", ""]
    if of.upper() != "OF" or any(more) or kind.lower() not in [k.value for k in EventKind]:
        hint = "write INSERT OF, DELETE OF or UPDATE OF, and a relation"
        raise SyntaxProblem(f"'{option.value}' is not an event", option.span, hint=hint)
    return RuleEvent(EventKind(kind.lower()), relation, option.span)


def _content(span: Span) -> int:
    """The position in the text at which the content of an option's quotes starts."""
    # + 1: the line feed that `split` has taken.
    line = sum(len(line) + 1 for line in span.source.text.split("\n")[: span.line - 1])
    start = line + span.column - 1
    quote = span.source.text.find('"', start)
    # An option without quotes starts at its own place.
    return quote + 1 if quote >= 0 else start


def _choice(option: Option, choices: Mapping[str, Any]) -> Any:
    if option.value not in choices:
        raise UnknownName(option.name.text, option.value, choices, option.span)
    return choices[option.value]


def _number(option: Option) -> int:
    try:
        return int(option.value)
    except ValueError:
        raise SyntaxProblem(f"'{option.value}' is not a number", option.span) from None


_SIGNS: Final = {"plus": frozenset({Sign.PLUS}), "minus": frozenset({Sign.MINUS}), "both": BOTH}
_TRUTH: Final = {"true": True, "false": False}
_OPTIONS: Final[Mapping[str, _Reader]] = {
    "precision": lambda o: {"strict": _choice(o, {"strict": True, "nervous": False})},
    "mode": lambda o: {"immediate": _choice(o, {"immediate": True, "deferred": False})},
    "on": lambda o: {"signs": _choice(o, _SIGNS)},
    "priority": lambda o: {"priority": _number(o)},
    "event": lambda o: {"event": _event(o)},
    "since": lambda o: {"since_check": _choice(o, {"transaction": False, "check": True})},
    "recursive": lambda o: {"recursive": _choice(o, _TRUTH)},
}
