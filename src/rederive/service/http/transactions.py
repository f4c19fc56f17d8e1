"""The endpoint that commits transactions: POST /v1/transactions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rederive.commit.pending import BatchOutcome, TransactionRequest
from rederive.commit.pipeline import DryRun
from rederive.commit.sql_statements import SqlRun
from rederive.database import Database
from rederive.delta import Delta
from rederive.engines.protocol import Operation
from rederive.errors import Forbidden, MalformedInput, RederiveError, Unsupported
from rederive.ingest.change_file import ChangeLine, decode_line, parse_change_line, type_change_line
from rederive.result import Result
from rederive.service.access import (
    ANYONE,
    can_read_all_rows,
    can_read_everything,
    check_write_relations,
    check_write_rows,
    redact,
)
from rederive.service.events import delta_text
from rederive.service.http.parameters import number_parameter
from rederive.service.http.problems import problem
from rederive.service.http.request_limits import read_body
from rederive.service.http.service import JSON, LINES, SQL, Service
from rederive.service.settings import Token
from rederive.store.position import Position

POSITION: Final = "Rederive-Position"
"""The header with the epoch and version of an answer: a position from which a client can follow the changes."""


async def commit(service: Service, token: Token, request: Request) -> Response:
    """Commit the transactions of the body. The answer is sent when they are durable."""
    started = perf_counter()
    key = _idempotency_key(request, token)
    # A client that disconnects while it sends the body raises ClientDisconnect here: nothing is changed.
    media, body = await read_body(request, service.project.bounds, (JSON, LINES, SQL))
    is_preview, most = request.query_params.get("preview") == "true", preview_limit(request)
    if media == SQL:
        return await _run_sql(service, token, decode_line(body, "body", 1), is_preview, most)
    # JSON is parsed here, in the event loop. Rows are typed by the writer, under the program that is current then.
    raw = _parse(body, media)
    # Rights before names: typing the rows first would reveal which relations exist (decision 0024).
    check_write_relations(token, (name for transaction in raw for name in transaction.relations))
    lines = media == LINES
    if is_preview:
        return await _preview(service, token, raw, most)
    outcome = await service.writer.commit(lambda db: _writes(db, token, raw, key, lines))
    service.metrics.seconds.observe(perf_counter() - started)
    if outcome.error is not None:
        return _refusal(token, outcome.error, outcome, raw)
    results = _answers(raw, outcome, service.hub.version)
    # The writer publishes a version before it answers, so the hub's version is at least that of the results.
    last = max((result.version for result in outcome.results), default=service.hub.version)
    headers = {POSITION: str(Position(last, service.hub.epoch))}
    return Response(json.dumps({"transactions": results} if lines else results[0]), media_type=JSON, headers=headers)


async def _preview(service: Service, token: Token, raw: Sequence[ChangeLine], most: int | None) -> Response:
    """Answer with the changes of the views that the token reads, as if the transaction were committed; nothing is changed."""
    if len(raw) != 1:
        raise Unsupported("a dry run is of one transaction", hint="send one transaction as application/json")

    def run(db: Database) -> dict[str, Any]:
        requests = _writes(db, token, raw, None, False)
        return preview_answer(token, db, [db.pipeline.preview(requests[0])] if requests else [], most)

    return Response(json.dumps(await service.writer.run(lambda db, _: run(db))), media_type=JSON)


def preview_limit(request: Request) -> int | None:
    """How many rows of each sign a preview shows of a view; None for all."""
    return number_parameter(request.query_params, "limit", 0, 2**53) if "limit" in request.query_params else None


def preview_answer(token: Token, db: Database, results: Sequence[Result], most: int | None) -> dict[str, Any]:
    """What versions would change, of the views that the token reads; with `most`, the first rows and how many more."""
    changes = (change for result in results for change in result.changes.values())
    shown = [change for change in changes if can_read_all_rows(token, change.view)]
    return {"version": db.version, "changes": [{"view": change.view, **_delta_answer(change.delta, most)} for change in shown]}


def _delta_answer(delta: Delta, most: int | None) -> dict[str, Any]:
    part = delta if most is None else delta.first(most)
    found: dict[str, Any] = json.loads(f"{{{delta_text(part)}}}")
    if most is None:
        return found
    return found | {"more": {"plus": len(delta.plus) - len(part.plus), "minus": len(delta.minus) - len(part.minus)}}


async def _run_sql(service: Service, token: Token, text: str, is_preview: bool, most: int | None) -> Response:
    """Commit statements that change data as one transaction. They may read every relation, so the token must, too."""
    if not can_read_everything(token):
        raise Forbidden(f"the token '{token.name}' may not read everything, which statements may", hint="send rows as JSON")
    check_write_relations(token, ())

    def run(db: Database) -> list[Result]:
        state = db.pipeline.state

        def check(operations: Sequence[Operation]) -> None:
            check_write_relations(token, (operation.relation for operation in operations))
            check_write_rows(token, state.program.relations, operations)

        return [SqlRun(DryRun(state, db.pipeline.runtime) if is_preview else db.pipeline).run_changes(text, "body", check)]

    if is_preview:
        found = await service.writer.run(lambda db, _: preview_answer(token, db, run(db), most))
        return Response(json.dumps(found), media_type=JSON)
    # Alone, not in a group: what a statement reads must be committed, and not only prepared, when it is evaluated.
    (made,) = await service.writer.redefine(run)
    headers = {POSITION: str(Position(made.version, service.hub.epoch))}
    return Response(json.dumps({"version": made.version, "repeated": False}), media_type=JSON, headers=headers)


def _parse(body: bytes, media: str) -> list[ChangeLine]:
    """Return the transaction of a JSON body, or the transactions of its lines."""
    if media == JSON:
        return [parse_change_line(decode_line(body, "body", 1), "body", 1)]
    # Split as bytes: only LF ends a line, and no other line end of Unicode.
    lines = ((number, decode_line(line, "body", number)) for number, line in enumerate(body.split(b"\n"), 1))
    return [parse_change_line(line, "body", number) for number, line in lines if line.strip()]


def _idempotency_key(request: Request, token: Token) -> str | None:
    """Return the key of the request. Tokens have separate keys: two tokens may use the same text."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= 255:
        raise MalformedInput(f"the idempotency key has {len(key)} characters", hint="use 1 to 255").at("Idempotency-Key")
    return f"{token.name}:{key}" if key is not None and token is not ANYONE else key


def _writes(db: Database, token: Token, raw: Sequence[ChangeLine], key: str | None, lines: bool) -> list[TransactionRequest]:
    """Type the rows of all transactions before any is committed. The key of a line is the request's key with its number."""
    writes = []
    for number, transaction in enumerate(raw, 1):
        operations = type_change_line(transaction, db.pipeline.state.program).operations
        check_write_rows(token, db.pipeline.state.program.relations, operations)
        if transaction.has_rows:
            writes.append(TransactionRequest(operations, f"{key}#{number}" if key is not None and lines else key))
    return writes


def _answers(raw: Sequence[ChangeLine], outcome: BatchOutcome, version: int) -> list[dict[str, Any]]:
    """Return the version of each transaction. One without rows makes no version: it gets the version before it."""
    version = outcome.results[0].version - 1 if outcome.results else version
    results, answers = iter(outcome.results), []
    for transaction in raw:
        result = next(results) if transaction.has_rows else None
        version = result.version if result is not None else version
        answers.append({"version": version, "repeated": result.repeated if result is not None else False})
    return answers


def _refusal(token: Token, error: Exception, outcome: BatchOutcome, raw: Sequence[ChangeLine]) -> Response:
    """Answer with the problem. Of several transactions, those before the refused one stay committed; the answer lists them."""
    shown = redact(token, error)
    if not isinstance(shown, RederiveError):
        raise shown
    if len(raw) == 1:
        return problem(shown)
    # Transactions run in order and stop at the first refusal: as many are before it as were committed.
    refused = [transaction for transaction in raw if transaction.has_rows][len(outcome.results)]
    return problem(shown.at(shown.place or refused.place), {"committed": [result.version for result in outcome.results]})
