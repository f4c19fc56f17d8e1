"""What a client can do wrong below HTTP: it costs the service little, and is answered with a problem, never with a traceback."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import closing
from time import monotonic, sleep
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.service.conftest import Serve, Served, until

QUICK = "[bounds]\nheader_seconds = 0.3\nbody_seconds = 0.3\nheaders = 4096\nconnections = 20\n"
POST = "POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def opened(served: Served) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def sent(served: Served, data: bytes) -> tuple[int, dict[str, Any]]:
    """What the service answers to these bytes."""
    with closing(opened(served)) as connection:
        connection.sendall(data)
        return answered(connection)


def answered(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    text = b""
    while part := connection.recv(65536):
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    "headers", ["Host: [", "Host: ]", "Host: [::1", "Host: localhost\r\nOrigin: http://[", "Host: a\r\nOrigin: ["]
)
@pytest.mark.parametrize("path", ["/v1/health", "/v1/views", "/nowhere"])
def test_a_host_or_origin_that_is_not_an_address_is_forbidden(graph: Served, headers: str, path: str) -> None:
    status, problem = sent(graph, f"GET {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n".encode())
    assert (status, problem["code"]) in [(403, "forbidden"), (404, "not_found")]


def test_a_bug_is_an_internal_problem_that_is_counted_and_logged(
    graph: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns a reference and nothing else."""

    def fail(*_: Any) -> None:
        raise KeyError("secret value")

    monkeypatch.setattr("rederive.service.http.views.parse_query", fail)
    answer = graph.get("/v1/views/closure/rows")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert any(problem["reference"] in record.getMessage() and record.exc_info for record in caplog.records)
    metrics = graph.get("/v1/metrics").text
    assert 'rederive_requests_total{method="GET",route="/v1/views/{name}/rows",status="500"} 1.0' in metrics


def test_half_sent_requests_are_closed(serve: Serve) -> None:
    """Headers, bodies and nothing at all: each is answered in time, and nothing is left open."""
    served = serve(settings=QUICK)
    halves = [b"", b"GET /v1/he", b"GET /v1/health HTTP/1.1\r\nHost: loc", f"{POST}Content-Length: 50\r\n\r\n{{".encode()]
    for half in halves:
        started = monotonic()
        status, problem = sent(served, half)
        assert (status, problem["code"]) == (408, "timed_out")
        assert monotonic() - started < 3
    with closing(opened(served)) as dripping:  # a byte now and then does not win time
        started = monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while monotonic() - started < 5:
                dripping.sendall(b"\r\n")
                sleep(0.05)
        assert monotonic() - started < 3
    until(lambda: not served.server.server_state.connections)
    assert served.get("/v1/health").json()["version"] == 0


def test_a_connection_is_kept_between_requests_and_while_it_streams(serve: Serve) -> None:
    """Deadlines are of requests: neither an idle connection nor a stream has one."""
    served = serve(settings=QUICK)
    with closing(opened(served)) as connection:
        for _ in range(2):
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b'"version"' in connection.recv(65536)
            sleep(0.5)
    with served.events("/v1/views/closure/changes") as events:
        next(events)
        sleep(0.5)
        served.insert("edge", ["a", "b"])
        assert next(events)["plus"] == [["a", "b"]]


@pytest.mark.parametrize("name", ["X", "X" * 5000])
def test_large_headers_are_refused(serve: Serve, name: str) -> None:
    served = serve(settings=QUICK)
    whole = f"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n{name}: {'x' * 5000}\r\n\r\n"
    for data in (whole, whole.removesuffix("\r\n\r\n"), f"GET /{'x' * 5000}"):
        status, problem = sent(served, data.encode())
        assert (status, problem["code"]) == (431, "too_large")
    many = "".join(f"X-{i}: {'x' * 50}\r\n" for i in range(100))
    assert sent(served, f"GET / HTTP/1.1\r\n{many}\r\n".encode())[0] == 431


def test_what_is_not_http_is_refused(graph: Served) -> None:
    status, problem = sent(graph, b"hello\r\n\r\n")
    assert (status, problem["code"]) == (400, "malformed")


def test_connections_beyond_the_bound_are_refused(serve: Serve) -> None:
    served = serve(settings="[bounds]\nconnections = 5\n")
    held = [opened(served) for _ in range(5)]
    until(lambda: len(served.server.server_state.connections) == 5)
    status, problem = sent(served, b"")
    assert (status, problem["code"]) == (503, "busy")
    for one in held:
        one.close()
    until(lambda: not served.server.server_state.connections)
    assert served.get("/v1/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/views/closure/changes", "/v1/changes?view=closure"])
def test_a_polite_close_of_a_websocket_logs_nothing(graph: Served, caplog: pytest.LogCaptureFixture, path: str) -> None:
    service = graph.server._app.state.service
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        with connect(f"{graph.url.replace('http', 'ws')}{path}") as client:
            assert json.loads(client.recv())["event"] == "snapshot"
        until(lambda: not service.hub.subscribers)
    sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_refused_websocket_is_counted_and_logs_nothing(graph: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(Exception, match="404"), connect(f"{graph.url.replace('http', 'ws')}/v1/views/nothing/changes"):
        pass
    sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []
    assert 'method="WEBSOCKET",route="/v1/views/{name}/changes",status="404"' in graph.get("/v1/metrics").text
