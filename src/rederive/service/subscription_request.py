"""What a request asks for: the parameters of its URL, parsed and checked against the program and the token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rederive.catalog import check_view
from rederive.commit.announce import signs
from rederive.delta import Sign
from rederive.engines.protocol import Query
from rederive.errors import IllTypedRow, MalformedInput, StrategyError, UnknownColumn, UnknownOption, UnknownRelation
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Value
from rederive.maintain.plan import PRECISIONS
from rederive.service.access import check_read, restrict_bindings
from rederive.service.events import EventShape
from rederive.service.settings import Token
from rederive.store.position import Position
from rederive.values import from_text

OPTIONS: Final = ("only", "every", "precision", "since", "view", "format")
MIN_INTERVAL, MAX_INTERVAL = 0.05, 86_400.0  # seconds between two coalesced changes
Parameters = Sequence[tuple[str, str]]
"""Names and values, as the URL has them."""


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What a subscriber asks for: parts of views and signs of changes.

    `together`: one event for all views of a version. `every`: seconds of an interval, at the end of which the subscriber
    receives the net change; 0 without one. `owner`: the name of the token.
    """

    parts: tuple[Query, ...]
    signs: frozenset[Sign]
    together: bool = False
    every: float = 0.0
    owner: str = ""
    epoch: str = ""

    @property
    def shape(self) -> EventShape:
        """The layout of the subscription's events."""
        return EventShape(tuple(part.view for part in self.parts), self.together, self.epoch)


def declared(program: Program, name: str) -> Relation:
    """Return a declared relation. Auxiliary relations have no name outside of the program."""
    if name not in program.relations or program.relations[name].is_auxiliary:
        raise UnknownRelation(name, (n for n, relation in program.relations.items() if not relation.is_auxiliary))
    return program.relations[name]


def parse_bindings(relation: Relation, parameters: Parameters, options: Iterable[str] = OPTIONS) -> dict[int, Value]:
    """Return the columns that parameters bind. `relation.column` names any column, even one with the name of an option.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> relation = Relation("r", (Column("x", NUMBER), Column("only", NUMBER)))
    >>> parse_bindings(relation, [("x", "1"), ("r.only", "2"), ("only", "plus")])
    {0: 1, 1: 2}
    """
    columns = {column.name: i for i, column in enumerate(relation.columns)}
    found: dict[int, Value] = {}
    for name, text in parameters:
        if name in options:
            continue
        column = name.removeprefix(f"{relation.name}.")
        if column not in columns:
            raise UnknownColumn(relation.name, column, columns)
        position = columns[column]
        if position in found:
            raise MalformedInput(f"the column '{column}' is bound twice").at(name)
        try:
            found[position] = from_text(text, relation.types[position])
        except ValueError as error:
            raise IllTypedRow(f"relation '{relation.name}', column '{column}': {error}").at(name) from None
    return found


def parse_query(program: Program, token: Token, name: str, parameters: Parameters, options: Iterable[str] = OPTIONS) -> Query:
    """Return the requested part of a relation, restricted to the rows that the token may read."""
    # Before the name is looked up: `forbidden` must not reveal whether a relation exists.
    check_read(token, name)
    relation = declared(program, name)
    bound = restrict_bindings(token, relation, parse_bindings(relation, parameters, options))
    return Query(name, tuple(sorted(bound.items())))


def parse_request(
    program: Program,
    precision: str,
    token: Token,
    views: Sequence[str],
    parameters: Parameters,
    together: bool,
    epoch: str = "",
) -> SubscriptionRequest:
    """Return the request of a subscriber. With several views, `view.column` says which view a column belongs to."""
    options = dict(parameters)
    if not views:
        raise MalformedInput("the request names no view", hint="name one or more: ?view=a&view=b").at("view")
    _check_precision(options.get("precision", "exact"), precision)
    parts = []
    for view in dict.fromkeys(views):
        check_read(token, view)
        check_view(program, view)
        parts.append(parse_query(program, token, view, _parameters_of(view, views, parameters) if together else parameters))
    return SubscriptionRequest(tuple(parts), signs(options.get("only")), together, _interval(options), token.name, epoch)


def _parameters_of(view: str, views: Sequence[str], parameters: Parameters) -> Parameters:
    """Return the bindings of one view among several."""
    for name, _ in parameters:
        if name not in OPTIONS and name.partition(".")[0] not in views:
            raise MalformedInput(f"unknown parameter '{name}'", hint="write VIEW.COLUMN for a column of a view").at(name)
    return [(name, text) for name, text in parameters if name.startswith(f"{view}.")]


def _check_precision(requested: str, maintained: str) -> None:
    """Refuse exact changes of a database whose changes may repeat rows. Exact changes satisfy a nervous request."""
    if requested not in PRECISIONS:
        raise UnknownOption("precision", requested, PRECISIONS)
    if requested == "exact" and maintained == "nervous":
        raise StrategyError("this database maintains nervous changes", hint="subscribe with precision=nervous")


def _interval(options: Mapping[str, str]) -> float:
    """Return the seconds of an interval: `5s`, `250ms`, `1m`, `1h`.

    >>> _interval({"every": "250ms"}), _interval({"every": "2m"}), _interval({})
    (0.25, 120.0, 0.0)
    """
    text = options.get("every")
    if text is None:
        return 0.0
    number = text.rstrip("smh")
    unit = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}.get(text[len(number) :])
    try:
        # `float` also reads digits of other scripts.
        seconds = float(number) * unit if unit is not None and number.isascii() else math.nan
    except ValueError:
        seconds = math.nan
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise MalformedInput(f"'{text}' is not an interval", hint="write 5s, 250ms or 1m, for example; 50ms to 24h").at("every")
    return seconds


def parse_position(last_event_id: str | None, since: str | None) -> Position | None:
    """Return the position that a subscriber resumes from. The header wins: a browser that reconnects repeats the first URL.

    >>> str(parse_position("00c0ffee00c0ffee-7", "3")), str(parse_position(None, "3")), parse_position(None, None)
    ('00c0ffee00c0ffee-7', '3', None)
    """
    for place, text in (("Last-Event-ID", last_event_id), ("since", since)):
        if text:
            try:
                return Position.of(text)
            except MalformedInput as error:
                raise error.at(place) from None
    return None
