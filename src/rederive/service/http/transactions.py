"""POST /v1/transactions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from rederive.commit.group import Outcome, Write
from rederive.database import Database
from rederive.errors import MalformedInput, RederiveError
from rederive.ingest.change_file import ChangeLine, typed
from rederive.service.access import ANYONE, check_write, check_writes, discreet
from rederive.service.http import bodies
from rederive.service.http.problems import problem
from rederive.service.http.service import Service
from rederive.service.http.views import POSITION
from rederive.service.settings import Token
from rederive.store.position import Position


async def commit(service: Service, token: Token, request: Request) -> Response:
    """Commit the transactions of the body. The answer comes when they are on disk."""
    started = perf_counter()
    kind = bodies.media(request, (bodies.JSON, bodies.LINES))
    key = _key(request, token)
    raw = bodies.transactions(await bodies.read(request, service.project.bounds.body), kind)
    check_writes(token, (name for transaction in raw for name in transaction.relations))
    lines = kind == bodies.LINES
    asking = [transaction for transaction in raw if transaction.has_rows]
    outcome = await service.writer.commit(lambda db: _writes(db, token, raw, key, lines))
    service.metrics.seconds.observe(perf_counter() - started)
    if outcome.error is not None:
        return _refused(token, outcome.error, outcome, asking, len(raw))
    results = _answers(raw, outcome, service.hub.version)
    body = {"transactions": results} if lines else results[0]
    last = max((result.version for result in outcome.results), default=service.hub.version)
    headers = {POSITION: str(Position(last, service.hub.epoch))}
    return Response(json.dumps(body), media_type=bodies.JSON, headers=headers)


def _answers(raw: Sequence[ChangeLine], outcome: Outcome, version: int) -> list[dict[str, Any]]:
    """What became of each transaction. One without rows made no version: it is answered with the one before."""
    version = outcome.results[0].version - 1 if outcome.results else version
    made, found = iter(outcome.results), []
    for transaction in raw:
        result = next(made) if transaction.has_rows else None
        version = result.version if result is not None else version
        found.append({"version": version, "repeated": result.repeated if result is not None else False})
    return found


def _key(request: Request, token: Token) -> str | None:
    """Keys of one token are nothing to another."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= 255:
        raise MalformedInput("an idempotency key has 1 to 255 characters").at("Idempotency-Key")
    return f"{token.name}:{key}" if key is not None and token is not ANYONE else key


def _writes(db: Database, token: Token, raw: Sequence[ChangeLine], key: str | None, lines: bool) -> list[Write]:
    """Nothing is committed unless all of them fit the relations. The key of a line is the request's with its number."""
    writes = []
    for number, transaction in enumerate(raw, 1):
        operations = typed(transaction, db.program).operations
        check_write(token, db.program.relations, operations)
        if not transaction.has_rows:
            continue
        writes.append(Write(operations, f"{key}#{number}" if key is not None and lines else key))
    return writes


def _refused(token: Token, error: Exception, outcome: Outcome, asking: Sequence[ChangeLine], lines: int) -> Response:
    """Of several transactions, those before the refused one stand, and the answer says which."""
    shown = discreet(token, error)
    if not isinstance(shown, RederiveError):
        raise shown
    if lines == 1:
        return problem(shown)
    refused = asking[len(outcome.results)]
    return problem(shown.at(shown.place or refused.place), {"committed": [result.version for result in outcome.results]})
