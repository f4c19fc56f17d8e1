"""Errors as problem details (RFC 9457): the status, the stable code of the error, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from logging import getLogger
from typing import Any, Final
from uuid import uuid4

from starlette.responses import Response

from rederive.boundary import to_public_error
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
MAX_VIOLATIONS: Final = 1000  # rows of a violated constraint in one answer
# An error has the status of the first class in this list that it is an instance of: subclasses come before their base.
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
    """Return the HTTP status of an error.

    >>> status_of(Expired("gone"))
    410
    """
    # The first that matches: subclasses stand before their bases in the table, and the base of all comes last.
    return next(status for kind, status in STATUS if isinstance(error, kind))


def problem(error: RederiveError, extra: Mapping[str, Any] | None = None) -> Response:
    """Return the response for an error."""
    status = status_of(error)
    # RFC 9110 requires the challenge with 401; Retry-After is in seconds.
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}.get(status, {})
    if isinstance(error, WrongMethod) and error.hint:
        headers = {"Allow": error.hint}
    return Response(encode_problem(status, error, extra or {}), status, headers, MEDIA)


def answer_exception(error: Exception) -> Response:
    """Return the response for any exception. For a bug, the client gets a reference to the log, and no more."""
    ours = to_public_error(error)
    if not isinstance(ours, Internal):
        assert isinstance(ours, RederiveError)
        return problem(ours)
    # The text of a bug may hold rows that the client may not read, so it goes to the log alone.
    reference = uuid4().hex[:12]
    LOG.error("internal error, reference %s", reference, exc_info=error)
    hidden = Internal(RuntimeError())
    hidden.message = f"the service has failed; its log has the details under reference {reference}"
    hidden.hint = "report this with the entry of the log"
    return problem(hidden, {"reference": reference})


def encode_problem(status: int, error: RederiveError, extra: Mapping[str, Any]) -> bytes:
    """Encode the problem details of an error as JSON."""
    body: dict[str, Any] = {
        # A URN and no address: the service need not be reachable for a client to know the type.
        "type": f"urn:rederive:error:{error.code}",
        "title": error.code.replace("_", " "),
        "status": status,
        "code": error.code,
        "detail": error.message,
    }
    if error.hint:
        body["hint"] = error.hint
    if error.place and not isinstance(error, StoreError | LakeError):  # their places are folders of the service
        body["place"] = error.place
    if isinstance(error, ProgramError) and error.span is not None:
        body["place"] = str(error.span)
        body["excerpt"] = error.span.excerpt()
    if isinstance(error, Violated):
        body["violations"] = _violations(error)
    return json.dumps({**body, **extra}).encode()


def _violations(error: Violated) -> dict[str, Any]:
    """Return the first rows that violate a constraint, and the number of further ones."""
    rows = [[to_json(value) for value in row] for row in error.rows[:MAX_VIOLATIONS]]
    return {"view": error.view, "rows": rows, "more": max(0, len(error.rows) - MAX_VIOLATIONS)}
