"""The description is true: every endpoint is in it, and no request that it allows, or forbids, makes the service fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rederive.service.http.app import ENDPOINTS
from rederive.service.http.openapi import openapi_document
from tests.service.conftest import Served, start


@schemathesis.serializer("application/x-ndjson", "application/sql")
def lines(ctx: schemathesis.SerializationContext, value: Any) -> bytes:
    """A text as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


schema = schemathesis.openapi.from_dict(openapi_document(), config=SchemathesisConfig())


def test_every_endpoint_is_described_and_every_description_has_an_endpoint() -> None:
    paths: dict[str, dict[str, Any]] = openapi_document()["paths"]
    assert {(e.method.lower(), e.path) for e in ENDPOINTS} == {(m, path) for path, item in paths.items() for m in item}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = start(tmp_path_factory.mktemp("openapi") / "project")
    running.insert("edge", ["a", "b"])
    running.insert("stock", ["bolt", 3])
    yield running
    running.end()


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_it_fail(case: Any, served: Served) -> None:
    """Streams are asked for as lines, which end. Names are real ones half of the time."""
    if case.path_parameters and crc32(repr(case.path_parameters).encode(errors="replace")) % 2:
        case.path_parameters = {"name": "closure"}
    if "changes" in case.path:
        case.headers = {**(case.headers or {}), "Accept": "application/x-ndjson"}
    response = case.call(base_url=served.url, timeout=20)
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    case.validate_response(response, checks=checks)
