"""A server in a process of its own, and the clients that load it: they speak HTTP by hand, to take little of the machine."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import cast

ROOT = Path(__file__).parent.parent
PROGRAM = """
.decl stock(item: number, n: number) key(item)
.decl low(item: number, n: number)
low(item, n) :- stock(item, n), n < 10.
.output low
"""
SETTINGS = 'programs = ["views.dl"]\n[bounds]\nrate = 1000000\nheartbeat = 3600'
ITEMS, WRITERS = 1000, 16
INSTANT = 1e-6  # seconds
Told = list[tuple[float, int, int, int]]
"""When, the first and the last version, and how many events."""


# The server


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: int

    @property
    def memory(self) -> int:
        """Its resident set, in bytes."""
        status = Path(f"/proc/{self.process}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def serving(most: int | None = None) -> Iterator[Server]:
    """A server of an empty project; `most`: how many transactions it may keep by one sync."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "views.dl").write_text(PROGRAM)
        (Path(folder) / "rederive.toml").write_text(SETTINGS)
        command = [sys.executable, "-m", "benchmarks.service_load", folder, *([str(most)] if most is not None else [])]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Server(int(process.stdout.readline()), process.pid)
        finally:
            process.terminate()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()


def _serve(folder: str, most: str | None) -> None:
    from dataclasses import replace

    from rederive.service import writer
    from rederive.service.http.server import serve
    from rederive.service.project import read_project
    from rederive.service.settings import Address

    if most is not None:
        writer.MAX_BATCH = int(most)  # type: ignore[misc]
    project = replace(read_project(Path(folder)), address=Address("127.0.0.1", 0))
    serve(project, lambda address: print(address.port, flush=True))


# The clients


class Subscriber(asyncio.Protocol):
    """Notes when which versions came. Of a write of the server only the first and the last one are looked at."""

    def __init__(self) -> None:
        self.told: Told = []
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own is one by its methods
        self.transport.write(b"GET /v1/views/low/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        events, end, self._rest = (self._rest + data).rpartition(b"\n\n")
        if not end:
            return
        if (first := events.find(b"event: change\nid: ")) >= 0:
            last = events.rfind(b"event: change\nid: ")
            self.told.append((now, _number(events, first), _number(events, last), events.count(b"event: change\n")))
        elif not self.began.done() and b"event: snapshot" in events:
            self.began.set_result(None)


def _number(events: bytes, start: int) -> int:
    """
    >>> _number(b"event: change\\nid: 17\\ndata: {}", 0)
    17
    """
    start += len(b"event: change\nid: ")
    return int(events[start : events.index(b"\n", start)].rpartition(b"-")[2])  # an id is an epoch and a version


@asynccontextmanager
async def subscribed(server: Server, number: int) -> AsyncIterator[list[Subscriber]]:
    """Subscribers that have their snapshot."""
    loop = asyncio.get_running_loop()
    found: list[Subscriber] = []
    for _ in range(number):
        found.append((await loop.create_connection(Subscriber, "127.0.0.1", server.port))[1])
    await asyncio.wait_for(asyncio.gather(*(one.began for one in found)), 60)
    try:
        yield found
    finally:
        for one in found:
            one.transport.close()


@dataclass(slots=True)
class Work:
    """What the writers did: when each version was due and when it was acknowledged, and how long it all took."""

    due: dict[int, float] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def waits(self) -> list[float]:
        """How long each transaction waited for its acknowledgement, in order."""
        return sorted(self.acknowledged[version] - due for version, due in self.due.items())


class Asking:
    """A connection that asks and waits for the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, server: Server) -> Asking:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None
        assert head.startswith(b"HTTP/1.1 200"), head
        return await self._reader.readexactly(int(found[1]))

    def close(self) -> None:
        self._writer.close()


def upsert(step: int) -> bytes:
    body = json.dumps({"upsert": {"stock": [[step % ITEMS, step // ITEMS % 10]]}}).encode()
    head = f"POST /v1/transactions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


async def write(server: Server, seconds: float, rate: float | None) -> Work:
    """Transactions for some seconds: at a rate, each measured from when it was due; or as fast as they are answered."""
    work, start, steps = Work(), perf_counter(), iter(range(10**9))

    async def one() -> None:
        asking = await Asking.to(server)
        while (begun := perf_counter()) < start + seconds:
            step = next(steps)
            if rate is not None:
                begun = start + step / rate
                await asyncio.sleep(max(0.0, begun - perf_counter()))
            found = json.loads(await asking.ask(upsert(step)))
            work.acknowledged[found["version"]] = perf_counter()
            work.due[found["version"]] = begun
        asking.close()

    await asyncio.gather(*(one() for _ in range(WRITERS)))
    work.seconds = perf_counter() - start
    return work


async def poll(server: Server, told: Told, ends: asyncio.Event) -> None:
    """What a client without subscriptions does: ask for all rows again, and see that there is a newer version."""
    asking, last = await Asking.to(server), 0
    with suppress(asyncio.CancelledError):
        while not ends.is_set():
            request = b"GET /v1/views/low/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n"
            found = re.match(rb'\{"version":(\d+)', await asking.ask(request))
            assert found is not None
            version, now = int(found[1]), perf_counter()
            if version > last:
                told.append((now, last + 1, version, version - last))
                last = version
    asking.close()


def late(since: Mapping[int, float], told: Sequence[Told]) -> list[float]:
    """How long after a moment each version came to each client. What came before its acknowledgement came at once."""
    return sorted(
        max(INSTANT, now - since[version])
        for one in told
        for now, first, last, _ in one
        for version in range(first, last + 1)
        if version in since
    )


def at(share: float, ordered: Sequence[float]) -> float:
    """
    >>> at(0.99, list(range(1000)))
    990
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
