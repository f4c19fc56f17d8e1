"""Who may do what: bearer tokens, what they reach, and how fast."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from rederive.engines.base import Action, Operation
from rederive.errors import DuplicateKey, Forbidden, TooMany, Unauthorized, Violated
from rederive.ir.rules import Relation
from rederive.ir.terms import Value
from rederive.monitor.questions import positions
from rederive.service.settings import ALL, Token

ANYONE = Token("anyone", "", frozenset({ALL}), frozenset({ALL}), define=True, admin=True)
"""Whoever reaches a service that has no tokens: it listens on this machine alone."""


@dataclass(slots=True)
class Bucket:
    """Holds up to `burst` permits and gains `rate` of them in a second.

    >>> bucket = Bucket(rate=10.0, burst=1)
    >>> bucket.take(0.0), bucket.take(0.0), bucket.take(0.1)
    (0.0, 0.1, 0.0)
    """

    rate: float
    burst: int
    left: float = -1.0
    at: float = 0.0

    def take(self, now: float) -> float:
        """Take a permit; else the seconds after which there is one."""
        full = self.burst if self.left < 0 else self.left + (now - self.at) * self.rate
        self.left, self.at = min(float(self.burst), full), now
        if self.left < 1.0 - 1e-9:
            return (1.0 - self.left) / self.rate
        self.left -= 1.0
        return 0.0


@dataclass(slots=True)
class Access:
    """The tokens of a service. Without any, everyone who reaches it may do everything."""

    tokens: Sequence[Token]
    rate: float
    burst: int
    _digests: list[tuple[bytes, Token]] = field(default_factory=list)
    _buckets: dict[str, Bucket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._digests = [(_digest(token.secret), token) for token in self.tokens]

    def holder(self, secret: str | None) -> Token:
        """Who holds this secret. All of them are compared, each in constant time: how long it takes tells nothing."""
        if not self.tokens:
            return ANYONE
        if secret is None:
            raise Unauthorized("a token is needed", hint="send it: Authorization: Bearer ...")
        given = _digest(secret)
        found = [token for digest, token in self._digests if hmac.compare_digest(digest, given)]
        if not found:
            raise Unauthorized("the token is not known")
        return found[0]

    def admit(self, token: Token, now: float) -> None:
        """Refuse what comes faster than a token may ask."""
        bucket = self._buckets.setdefault(token.name, Bucket(self.rate, self.burst))
        if wait := bucket.take(now):
            raise TooMany(f"more than {self.rate:g} requests in a second", hint=f"try again in {wait:.3f} s")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def can_read(token: Token, relation: str) -> bool:
    return ALL in token.read or relation in token.read


def check_read(token: Token, relation: str) -> None:
    if not can_read(token, relation):
        raise Forbidden(f"the token '{token.name}' does not read '{relation}'")


def check_define(token: Token) -> None:
    if not token.define:
        raise Forbidden(f"the token '{token.name}' does not define views")


def check_admin(token: Token) -> None:
    if not token.admin:
        raise Forbidden(f"the token '{token.name}' does not administer the service")


def enforced(token: Token, relation: Relation, asked: Mapping[int, Value]) -> dict[int, Value]:
    """The bindings that were asked for, with those that the token has; a part that the token does not reach is refused.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> order = Relation("order", (Column("who", SYMBOL), Column("what", SYMBOL)))
    >>> enforced(Token("ann", "", rows={"order": {"who": "ann"}}), order, {1: "bolt"})
    {1: 'bolt', 0: 'ann'}
    """
    own = _own(token, relation)
    for position, value in own.items():
        if position in asked and asked[position] != value:
            raise Forbidden(f"the token '{token.name}' does not reach these rows of '{relation.name}'")
    return {**asked, **own}


def check_write(token: Token, relations: Mapping[str, Relation], operations: Sequence[Operation]) -> None:
    """Refuse changes of relations and rows that the token does not reach."""
    for operation in operations:
        relation = relations[operation.relation]
        if ALL not in token.write and relation.name not in token.write:
            raise Forbidden(f"the token '{token.name}' does not write '{relation.name}'")
        if own := _own(token, relation):
            _check_rows(token, relation, operation, own)


def _check_rows(token: Token, relation: Relation, operation: Operation, own: Mapping[int, Value]) -> None:
    # An upsert takes out the row with the same key; the token must reach that one too, whatever it is.
    if operation.action is Action.UPSERT and relation.key and not set(own) <= set(relation.key):
        raise Forbidden(f"an upsert into '{relation.name}' could replace rows that the token '{token.name}' does not reach")
    for row in operation.rows:
        if any(row[i] != value for i, value in own.items()):
            raise Forbidden(f"the token '{token.name}' does not reach the row {row!r} of '{relation.name}'")


def _own(token: Token, relation: Relation) -> dict[int, Value]:
    return positions(relation, token.rows.get(relation.name, {}))


def discreet(token: Token, error: Exception) -> Exception:
    """What a token may know of an error: not the row of somebody else that has the same key, nor rows that it does not read."""
    match error:
        case DuplicateKey() if error.relation in token.rows:
            return Forbidden(f"a row with this key is in '{error.relation}' already")
        case Violated() if error.view in token.rows or not can_read(token, error.view):
            hidden = Violated(error.view, ())
            hidden.message = f"the transaction violates '{error.view}'"
            return hidden
        case _:
            return error
