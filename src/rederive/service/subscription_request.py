"""What a request asks for, from the texts of its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rederive.catalog import check_view
from rederive.commit.announce import signs
from rederive.delta import Sign
from rederive.engines.protocol import Query
from rederive.errors import IllTypedRow, MalformedInput, StrategyError, UnknownColumn, UnknownOption, UnknownRelation
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Value
from rederive.maintain.plan import PRECISIONS
from rederive.service.access import check_read, enforced
from rederive.service.hub import SubscriptionRequest
from rederive.service.settings import Token
from rederive.store.position import Position
from rederive.values import from_text

OPTIONS: Final = ("only", "every", "precision", "since", "view", "format")
SHORTEST: Final = 0.05  # seconds of an interval
Parameters = Sequence[tuple[str, str]]


def declared(program: Program, name: str) -> Relation:
    """A relation of the user; those that lowering made have no name outside."""
    if name not in program.relations or program.relations[name].auxiliary:
        raise UnknownRelation(name, (n for n, relation in program.relations.items() if not relation.auxiliary))
    return program.relations[name]


def bindings(relation: Relation, parameters: Parameters, options: Iterable[str] = OPTIONS) -> dict[int, Value]:
    """The columns that parameters fix. `relation.column` names any column, also one that is called like an option.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> bindings(Relation("r", (Column("x", NUMBER), Column("only", NUMBER))), [("x", "1"), ("r.only", "2"), ("only", "plus")])
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
            raise MalformedInput(f"the column '{column}' is given twice").at(name)
        try:
            found[position] = from_text(text, relation.types[position])
        except ValueError as error:
            raise IllTypedRow(f"relation '{relation.name}', column '{column}': {error}").at(name) from None
    return found


def question(program: Program, token: Token, name: str, parameters: Parameters, options: Iterable[str] = OPTIONS) -> Query:
    """The part of a relation that is asked for, and that the token reaches."""
    check_read(token, name)
    relation = declared(program, name)
    wanted = enforced(token, relation, bindings(relation, parameters, options))
    return Query(name, tuple(sorted(wanted.items())))


def wish(
    program: Program,
    precision: str,
    token: Token,
    views: Sequence[str],
    parameters: Parameters,
    together: bool,
    epoch: str = "",
) -> SubscriptionRequest:
    """What a subscriber wants. With several views, `view.column` says whose column is bound."""
    options = dict(parameters)
    if not views:
        raise MalformedInput("no view is named", hint="name one or several: ?view=a&view=b").at("view")
    _check_precision(options.get("precision", "exact"), precision)
    parts = []
    for view in dict.fromkeys(views):
        check_read(token, view)
        check_view(program, view)
        parts.append(question(program, token, view, _own(view, views, parameters) if together else parameters))
    return SubscriptionRequest(tuple(parts), _signs(options), together, _every(options), token.name, epoch)


def _own(view: str, views: Sequence[str], parameters: Parameters) -> Parameters:
    """The parameters of one view among several."""
    for name, _ in parameters:
        if name not in OPTIONS and name.partition(".")[0] not in views:
            raise MalformedInput(f"unknown parameter '{name}'", hint="a column of a view is VIEW.COLUMN").at(name)
    return [(name, text) for name, text in parameters if name.startswith(f"{view}.")]


def _check_precision(asked: str, given: str) -> None:
    """Exact changes are good enough for the nervous; the other way round, rows would be told that never changed."""
    if asked not in PRECISIONS:
        raise UnknownOption("precision", asked, PRECISIONS)
    if asked == "exact" and given == "nervous":
        raise StrategyError("the database is kept with nervous precision", hint="ask for precision=nervous")


def _signs(options: Mapping[str, str]) -> frozenset[Sign]:
    return signs(options.get("only"))


def _every(options: Mapping[str, str]) -> float:
    """Seconds of an interval: `5s`, `250ms`, `1m`, `1h`.

    >>> _every({"every": "250ms"}), _every({"every": "2m"}), _every({})
    (0.25, 120.0, 0.0)
    """
    text = options.get("every")
    if text is None:
        return 0.0
    number = text.rstrip("smh")
    unit = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}.get(text[len(number) :])
    try:
        seconds = float(number) * unit if unit is not None and number.isascii() else math.nan
    except ValueError:
        seconds = math.nan
    if not SHORTEST <= seconds <= 86_400:
        raise MalformedInput(f"'{text}' is no interval", hint="as in 5s, 250ms, 1m; from 50ms to 24h").at("every")
    return seconds


def cursor(last_event_id: str | None, since: str | None) -> Position | None:
    """How far a subscriber is; the header wins, as browsers repeat the address as it was.

    >>> str(cursor("00c0ffee00c0ffee-7", "3")), str(cursor(None, "3")), cursor(None, None)
    ('00c0ffee00c0ffee-7', '3', None)
    """
    for place, text in (("Last-Event-ID", last_event_id), ("since", since)):
        if text:
            try:
                return Position.of(text)
            except MalformedInput as error:
                raise error.at(place) from None
    return None
