"""A real server on a loopback port, in a thread, and clients that know nothing of our code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from rederive.lang.programs import defines_in_sql
from rederive.service.http.server import Server, listen, make_server
from rederive.service.project import read_project
from rederive.service.settings import Address

GRAPH = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
.decl stock(item: symbol, n: number) key(item)
.decl low(item: symbol, n: number)
.decl inner(x: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
low(item, n) :- stock(item, n), n < 10.
inner(x) :- edge(x, _), edge(_, x).
.output closure
.output low
"""
PATIENCE = 60.0
CLIENT = httpx.Client(timeout=PATIENCE, verify=False, limits=httpx.Limits(max_connections=None))


@dataclass
class Served:
    """A running server and its project."""

    url: str
    folder: Path
    server: Server
    thread: Thread
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        options["headers"] = {**self.headers, **options.get("headers", {})}
        return CLIENT.request(method, f"{self.url}{path}", **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def commit(self, changes: dict[str, Any], **headers: str) -> httpx.Response:
        return self.request("POST", "/v1/transactions", json=changes, headers=headers)

    def insert(self, relation: str, *rows: Any) -> int:
        response = self.commit({"insert": {relation: list(rows)}})
        assert response.status_code == 200, response.text
        version: int = response.json()["version"]
        return version

    def delete(self, relation: str, *rows: Any) -> int:
        response = self.commit({"delete": {relation: list(rows)}})
        assert response.status_code == 200, response.text
        version: int = response.json()["version"]
        return version

    def rows(self, view: str, **bindings: str) -> list[list[Any]]:
        found: list[list[Any]] = self.get(f"/v1/views/{view}/rows", params=bindings).json()["rows"]
        return found

    @contextmanager
    def events(self, path: str, last: int | str | None = None) -> Iterator[Iterator[Told]]:
        """The events of a stream, as a browser would read them."""
        headers = {**self.headers, "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        with CLIENT.stream("GET", f"{self.url}{path}", headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield parsed(response.iter_lines())

    def end(self) -> None:
        self.server.end()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Told(dict[str, Any]):
    """An event; its `id` is the version alone. `position` is the whole id, with the epoch before the version."""

    position: str | None = None


def parsed(lines: Iterator[str]) -> Iterator[Told]:
    """Server-Sent Events by the standard's own rules, as far as they are used."""
    event: dict[str, Any] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            position = event.get("id")
            number = position.rpartition("-")[2] if position is not None else None
            told = Told({"event": event["event"], "id": number, **json.loads(event["data"])})
            told.position = position
            yield told
            event = {}


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


Serve = Callable[..., Served]


def start(folder: Path, program: str = GRAPH, settings: str = "", port: int = 0, **environment: str) -> Served:
    """Serve a project; a folder that has one is served as it is, with these settings."""
    folder.mkdir(exist_ok=True)
    name = "views.sql" if defines_in_sql(program) else "views.dl"
    (folder / name).write_text(program)
    (folder / "rederive.toml").write_text(f'programs = ["{name}"]\n{settings}')
    project = read_project(folder, environment)
    server = make_server(project)
    listening = listen(Address("127.0.0.1", port))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    return Served(f"http://127.0.0.1:{listening.getsockname()[1]}", folder, server, thread)


@pytest.fixture(scope="session", autouse=True)
def _connections() -> Iterator[None]:
    yield
    CLIENT.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[Served] = []

    def serve(program: str = GRAPH, settings: str = "", folder: str = "project", **environment: str) -> Served:
        running.append(start(tmp_path / folder, program, settings, 0, **environment))
        return running[-1]

    yield serve
    for served in running:
        if served.thread.is_alive():
            served.end()


@pytest.fixture
def graph(serve: Serve) -> Served:
    return serve()
