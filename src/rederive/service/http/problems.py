"""Errors as problem details (RFC 9457), with the stable code of the error and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from logging import getLogger
from typing import Any, Final
from uuid import uuid4

from starlette.responses import Response

from rederive.boundary import as_ours
from rederive.errors import (
    Busy,
    Closed,
    Conflict,
    DataError,
    DuplicateKey,
    EvaluationError,
    Expired,
    Forbidden,
    Internal,
    LakeError,
    LateLoad,
    MalformedInput,
    Mismatch,
    MissingDependency,
    NotAcceptable,
    NotFound,
    ProgramError,
    Redefined,
    RederiveError,
    RequestError,
    SourceUnavailable,
    StillNeeded,
    StoreError,
    StrategyError,
    TimedOut,
    TooLarge,
    TooMany,
    Unauthorized,
    UnknownOption,
    UnknownRelation,
    Violated,
    WrongMedia,
    WrongMethod,
)
from rederive.values import to_json

LOG: Final = getLogger("rederive.service")
MEDIA: Final = "application/problem+json"
MOST: Final = 1000  # violations in one answer
# The first class that an error is an instance of decides.
STATUS: Final[tuple[tuple[type[RederiveError], int], ...]] = (
    (Internal, 500),
    (NotFound, 404),
    (WrongMethod, 405),
    (NotAcceptable, 406),
    (WrongMedia, 415),
    (TooLarge, 413),
    (TimedOut, 408),
    (Unauthorized, 401),
    (Forbidden, 403),
    (TooMany, 429),
    (Busy, 503),
    (RequestError, 400),
    (UnknownRelation, 404),
    (MalformedInput, 400),
    (UnknownOption, 400),
    (DuplicateKey, 409),
    (Redefined, 409),
    (StillNeeded, 409),
    (DataError, 422),
    (ProgramError, 422),
    (StrategyError, 422),
    (EvaluationError, 422),
    (Conflict, 409),
    (Mismatch, 409),
    (LateLoad, 409),
    (Violated, 409),
    (Expired, 410),
    (Closed, 503),
    (StoreError, 503),
    (LakeError, 503),
    (SourceUnavailable, 503),
    (MissingDependency, 503),
    (RederiveError, 422),
)


def status_of(error: RederiveError) -> int:
    """
    >>> status_of(Expired("gone"))
    410
    """
    return next(status for kind, status in STATUS if isinstance(error, kind))


def problem(error: RederiveError, extra: Mapping[str, Any] | None = None) -> Response:
    """The response that says what is wrong."""
    status = status_of(error)
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}.get(status, {})
    if isinstance(error, WrongMethod) and error.hint:
        headers = {"Allow": error.hint}
    return Response(encoded(status, error, extra or {}), status, headers, MEDIA)


def answer(error: Exception) -> Response:
    """The response to whatever was raised. Of a bug of ours the client learns a reference; the log has the rest."""
    ours = as_ours(error)
    if not isinstance(ours, Internal):
        assert isinstance(ours, RederiveError)
        return problem(ours)
    reference = uuid4().hex[:12]
    LOG.error("internal error, reference %s", reference, exc_info=error)
    hidden = Internal(RuntimeError())
    hidden.message = f"the service failed; its log has more under reference {reference}"
    hidden.hint = "report this with what the log has"
    return problem(hidden, {"reference": reference})


def encoded(status: int, error: RederiveError, extra: Mapping[str, Any]) -> bytes:
    """The problem details as JSON."""
    body: dict[str, Any] = {
        "type": f"urn:rederive:error:{error.code}",
        "title": error.code.replace("_", " "),
        "status": status,
        "code": error.code,
        "detail": error.message,
    }
    if error.hint:
        body["hint"] = error.hint
    if error.place and not isinstance(error, StoreError | LakeError):  # theirs are folders of the service
        body["place"] = error.place
    if isinstance(error, ProgramError) and error.span is not None:
        body["place"] = str(error.span)
        body["excerpt"] = error.span.excerpt()
    if isinstance(error, Violated):
        body["violations"] = _violations(error)
    return json.dumps({**body, **extra}).encode()


def _violations(error: Violated) -> dict[str, Any]:
    """The rows that would have violated a constraint; of very many, the first."""
    rows = [[to_json(value) for value in row] for row in error.rows[:MOST]]
    return {"view": error.view, "rows": rows, "more": max(0, len(error.rows) - MOST)}
