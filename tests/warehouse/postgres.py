"""A PostgreSQL server of Debian's packages with a data folder of its own, and a client that stays connected."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "a secret of this test"
_ACCOUNT = "postgres" if os.getuid() == 0 else None  # the server refuses to run as root


def programs() -> Path | None:
    """The folder of the server's programs, of the newest release there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class Server:
    """One database, `shop`. It can be stopped, and started again with what it holds."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._running = False
        self._bin = programs()
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        _own(folder, secret)
        settings = ["-U", "shop", "--pwfile", str(secret), "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", str(folder / "data"), *settings)

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=shop&password=${{SHOP_PASSWORD}}"

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder} -F"
        self._control("start", "-l", str(self._folder / "log"), "-o", options)
        self._running = True

    def stop(self) -> None:
        if self._running:
            self._control("stop", "-m", "fast")
        self._running = False

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        assert self._bin is not None
        command = [str(self._bin / program), *arguments]
        out = self._folder / f"{program}.out"  # the server inherits it: a pipe would not end
        with out.open("wb") as log:
            done = subprocess.run(command, user=_ACCOUNT, stdout=log, stderr=log, cwd="/", timeout=120, check=False)
        assert done.returncode == 0, out.read_text()

    @contextmanager
    def client(self) -> Iterator[Client]:
        assert self._bin is not None
        command = [str(self._bin / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "-qAtX", "-F", "\t"]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen([*command, "postgres"], env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
            yield Client(process)
            process.stdin.close()


class Client:
    """psql at the other end of a pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    def run(self, statement: str) -> list[tuple[str, ...]]:
        """One statement, or several with semicolons; the rows that it prints."""
        self._to.write(f"{statement};\n\\echo .\n")
        self._to.flush()
        rows = []
        while (line := self._from.readline()) != ".\n":
            assert line, "psql has ended"
            assert not line.startswith(("ERROR", "psql:")), line
            rows.append(tuple(line.rstrip("\n").split("\t")))
        return rows


@contextmanager
def server() -> Iterator[Server]:
    """A running server; its folder goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="rederive-postgres-"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        found = Server(folder, port)
        found.start()
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder)


def _own(*paths: Path) -> None:
    if _ACCOUNT is not None:
        for path in paths:
            shutil.chown(path, _ACCOUNT)
