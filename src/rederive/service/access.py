"""Who may do what: bearer tokens, what they reach, and how fast."""

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
"""Whoever reaches a service that has no tokens: it listens on this machine alone."""

NOBODY = Token("nobody", "")
"""Whoever is not known, or not yet."""


@dataclass(slots=True)
class TokenBucket:
    """Holds up to `burst` permits and gains `rate` of them in a second.

    >>> bucket = TokenBucket(rate=10.0, burst=1)
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
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)

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
        bucket = self._buckets.setdefault(token.name, TokenBucket(self.rate, self.burst))
        if wait := bucket.take(now):
            raise TooMany(f"more than {self.rate:g} requests in a second", hint=f"try again in {wait:.3f} s")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def can_read(token: Token, relation: str) -> bool:
    return ALL in token.read or relation in token.read


def can_write(token: Token, relation: str) -> bool:
    return ALL in token.write or relation in token.write


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


def check_writes(token: Token, relations: Iterable[str]) -> None:
    """Refuse a transaction before anything of it is looked at: it needs the right to write each of its relations, or some.

    Whether a relation that the token does not write exists is not told.
    """
    if not token.write:
        raise Forbidden(f"the token '{token.name}' does not write")
    for relation in relations:
        if not can_write(token, relation):
            raise Forbidden(f"the token '{token.name}' does not write '{relation}'")


def check_write(token: Token, relations: Mapping[str, Relation], operations: Sequence[Operation]) -> None:
    """Refuse changes of relations and rows that the token does not reach."""
    for operation in operations:
        relation = relations[operation.relation]
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


# What errors show. Each says what it is about (`RederiveError.about`); here it is decided who sees that.


def reads_all(token: Token) -> bool:
    """Whether nothing is hidden from a token. Whoever may define can define a view over everything."""
    return token.define or (ALL in token.read and not token.rows)


def reads_whole(token: Token, relation: str) -> bool:
    """Whether a token reads all rows of a relation; one that lowering made belongs to the name before its dot."""
    name = relation.partition(".")[0]
    return reads_all(token) or (can_read(token, name) and name not in token.rows)


def discreet(token: Token, error: Exception) -> Exception:
    """What a token may know of an error: neither rows that it does not read, nor names of relations, rules and files."""
    match error:
        case UnknownRelation():
            return error.among([name for name in error.known if can_read(token, name) or can_write(token, name)])
        case DuplicateKey() if error.relation in token.rows:
            return Forbidden(f"a row with this key is in '{error.relation}' already")
        case RuleError() if token.admin:
            return error
        case RederiveError() if error.about is not None and all(reads_whole(token, name) for name in error.about):
            return error
        case RederiveError() if reads_all(token):
            return error
        case Violated():
            return _hidden(error, Violated(error.view if can_read(token, error.view) else "", ()))
        case RederiveError():
            return _hidden(error, RederiveError(""))
        case _:
            return error


def _hidden(error: RederiveError, shown: RederiveError) -> RederiveError:
    """An error of the same code that tells nothing else; problem details depend on the class, so that is the same too."""
    hidden = error.__class__.__new__(error.__class__)
    RederiveError.__init__(hidden, "the request fails on data or definitions that the token does not read", hint=_ASK)
    hidden.code = error.code
    if isinstance(hidden, Violated) and isinstance(shown, Violated):
        hidden.view, hidden.rows = shown.view, ()
        hidden.message = f"the transaction violates '{shown.view}'" if shown.view else "the transaction violates a constraint"
    if isinstance(hidden, ProgramError):
        hidden.span = None
    return hidden


_ASK: Final = "nothing was changed; ask whoever administers the service"
