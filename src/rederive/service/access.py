"""Bearer tokens: who sends a request, what the token permits, how often, and what its holder may see of an error."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from rederive.engines.protocol import Action, Operation
from rederive.errors import (
    DuplicateKey,
    Forbidden,
    ProgramError,
    RederiveError,
    RuleError,
    TooMany,
    Unauthorized,
    UnknownRelation,
    Violated,
)
from rederive.ir.rules import Relation
from rederive.ir.terms import Value
from rederive.queries import positions
from rederive.service.settings import ALL, Token

ANYONE = Token("anyone", "", frozenset({ALL}), frozenset({ALL}), define=True, admin=True)
"""Any client of a service without tokens. Such a service listens on this machine only."""

NOBODY = Token("nobody", "")
"""A client that is not authenticated."""


@dataclass(slots=True)
class TokenBucket:
    """A rate limiter: it holds up to `burst` permits and gains `rate` permits in a second.

    >>> bucket = TokenBucket(rate=10.0, burst=1)
    >>> bucket.take(0.0), bucket.take(0.0), bucket.take(0.1)
    (0.0, 0.1, 0.0)
    """

    rate: float
    burst: int
    left: float = -1.0
    at: float = 0.0

    def take(self, now: float) -> float:
        """Take a permit and return 0, or return the seconds until there is one."""
        # A negative number marks a new bucket, which is full.
        full = self.burst if self.left < 0 else self.left + (now - self.at) * self.rate
        self.left, self.at = min(float(self.burst), full), now
        if self.left < 1.0 - 1e-9:  # a permit that is missing by rounding only counts as one
            return (1.0 - self.left) / self.rate
        self.left -= 1.0
        return 0.0


@dataclass(slots=True)
class Access:
    """The tokens of a service. Without tokens, every client may do everything."""

    tokens: Sequence[Token]
    rate: float
    burst: int
    _digests: list[tuple[bytes, Token]] = field(default_factory=list)
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._digests = [(_digest(token.secret), token) for token in self.tokens]

    def authenticate(self, secret: str | None) -> Token:
        """Return the token with this secret."""
        if not self.tokens:
            return ANYONE
        if secret is None:
            raise Unauthorized("the request has no token", hint="send the header Authorization: Bearer TOKEN")
        given = _digest(secret)
        # Every secret is compared, each in constant time: the duration of the comparison reveals nothing.
        found = [token for digest, token in self._digests if hmac.compare_digest(digest, given)]
        if not found:
            raise Unauthorized("the token is unknown")
        return found[0]

    def admit(self, token: Token, now: float) -> None:
        """Refuse a request that exceeds the rate of its token."""
        # By token, not by address: clients behind one proxy share an address.
        bucket = self._buckets.setdefault(token.name, TokenBucket(self.rate, self.burst))
        if wait := bucket.take(now):
            raise TooMany(f"the token sends more than {self.rate:g} requests per second", hint=f"try again in {wait:.3f} s")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def can_read(token: Token, relation: str) -> bool:
    """Tell whether a token reads a relation, or some of its rows."""
    return ALL in token.read or relation in token.read


def can_write(token: Token, relation: str) -> bool:
    """Tell whether a token writes a base relation, or some of its rows."""
    return ALL in token.write or relation in token.write


def check_read(token: Token, relation: str) -> None:
    """Refuse a token that does not read a relation."""
    if not can_read(token, relation):
        raise Forbidden(f"the token '{token.name}' may not read '{relation}'")


def check_define(token: Token) -> None:
    """Refuse a token that does not define views."""
    if not token.define:
        raise Forbidden(f"the token '{token.name}' may not define views")


def check_admin(token: Token) -> None:
    """Refuse a token that does not administer the service."""
    if not token.admin:
        raise Forbidden(f"the token '{token.name}' may not administer the service")


def restrict_bindings(token: Token, relation: Relation, requested: Mapping[int, Value]) -> dict[int, Value]:
    """Return the requested bindings with those of the token; rows outside of the token's bindings are refused.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> order = Relation("order", (Column("who", SYMBOL), Column("what", SYMBOL)))
    >>> restrict_bindings(Token("ann", "", rows={"order": {"who": "ann"}}), order, {1: "bolt"})
    {1: 'bolt', 0: 'ann'}
    """
    # The bindings of the token always hold, whatever the request says.
    own = _own_bindings(token, relation)
    # Other rows are refused and not answered with none: an empty answer would say that there are no such rows.
    for position, value in own.items():
        if position in requested and requested[position] != value:
            raise Forbidden(f"the token '{token.name}' may not read these rows of '{relation.name}'")
    return {**requested, **own}


def check_write_relations(token: Token, relations: Iterable[str]) -> None:
    """Refuse a transaction on relations that the token does not write.

    This runs before the relations are looked up: the answer must not reveal whether a relation exists.
    """
    if not token.write:
        raise Forbidden(f"the token '{token.name}' may not write")
    for relation in relations:
        if not can_write(token, relation):
            raise Forbidden(f"the token '{token.name}' may not write '{relation}'")


def check_write_rows(token: Token, relations: Mapping[str, Relation], operations: Sequence[Operation]) -> None:
    """Refuse changes of rows that the token does not write."""
    for operation in operations if token.rows else ():
        relation = relations[operation.relation]
        if own := _own_bindings(token, relation):
            _check_rows(token, relation, operation, own)


def _check_rows(token: Token, relation: Relation, operation: Operation, own: Mapping[int, Value]) -> None:
    # An upsert deletes the row with the same key. Unless the key has all bound columns, that row may be another token's.
    if operation.action is Action.UPSERT and relation.key and not set(own) <= set(relation.key):
        raise Forbidden(f"an upsert into '{relation.name}' may replace rows that the token '{token.name}' may not write")
    for row in operation.rows:
        if any(row[i] != value for i, value in own.items()):
            raise Forbidden(f"the token '{token.name}' may not write the row {row!r} of '{relation.name}'")


def _own_bindings(token: Token, relation: Relation) -> dict[int, Value]:
    return positions(relation, token.rows.get(relation.name, {}))


# What errors show. An error names the relations that its text is about (`RederiveError.about`).


def can_read_everything(token: Token) -> bool:
    """Tell whether nothing is hidden from a token. A token that defines views can define one over every relation."""
    return token.define or (ALL in token.read and not token.rows)


def can_read_all_rows(token: Token, relation: str) -> bool:
    """Tell whether a token reads all rows of a relation. An auxiliary relation belongs to the name before its dot."""
    name = relation.partition(".")[0]
    return can_read_everything(token) or (can_read(token, name) and name not in token.rows)


def redact(token: Token, error: Exception) -> Exception:
    """Return the error without rows, relations, rules and files that the token may not read."""
    match error:
        # The hint of the error lists similar names: only those that the token may know.
        case UnknownRelation():
            return error.among([name for name in error.known if can_read(token, name) or can_write(token, name)])
        # The error shows the other row with this key, which may be outside of the token's rows.
        case DuplicateKey() if error.relation in token.rows:
            return Forbidden(f"'{error.relation}' has a row with this key")
        case RuleError() if token.admin:
            return error
        case RederiveError() if error.about is not None and all(can_read_all_rows(token, name) for name in error.about):
            return error
        case RederiveError() if can_read_everything(token):
            return error
        case Violated():
            return _redacted(error, Violated(error.view if can_read(token, error.view) else "", ()))
        case RederiveError():
            return _redacted(error, RederiveError(""))
        case _:
            return error


def _redacted(error: RederiveError, shown: RederiveError) -> RederiveError:
    """Return an error of the same class and code, without its text; problem details depend on the class."""
    # Without `__init__`, whose arguments would be the hidden text. The class decides the HTTP status.
    hidden = error.__class__.__new__(error.__class__)
    RederiveError.__init__(
        hidden, "the request fails on data or definitions that the token may not read", hint=_ASK_ADMINISTRATOR
    )
    hidden.code = error.code
    if isinstance(hidden, Violated) and isinstance(shown, Violated):
        hidden.view, hidden.rows = shown.view, ()
        hidden.message = f"the transaction violates '{shown.view}'" if shown.view else "the transaction violates a constraint"
    if isinstance(hidden, ProgramError):
        hidden.span = None
    return hidden


_ASK_ADMINISTRATOR: Final = "nothing was changed; ask the administrator of the service"
