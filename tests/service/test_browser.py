"""The page of docs/service.md, as it stands there, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.service.browser import opened
from tests.service.conftest import Served, start, until
from tests.service.serving import free_port

DOCS = Path(__file__).parents[2] / "docs" / "service.md"
(PAGE,) = re.findall(r"```html\n(.*?)```", DOCS.read_text(), re.DOTALL)


AGAIN = """
    var resets = 0;
    (() => {
      // The same page after a long sleep: its connection is made again, from the version that it shows.
      const since = document.getElementById("version").textContent;
      const again = new EventSource(`${source.url}?since=${since}`);
      again.addEventListener("reset", () => { resets += 1; });
      for (const name of ["snapshot", "change", "progress"]) {
        again.addEventListener(name, (event) => source.dispatchEvent(new MessageEvent(name, event)));
      }
    })()
"""


def test_the_script_is_as_short_as_it_says() -> None:
    script = PAGE[PAGE.index("<script>") + len("<script>") : PAGE.index("</script>")].strip()
    assert len(script.splitlines()) <= 20
    assert "JSON.parse" in script


@contextmanager
def hosted(page: str) -> Iterator[str]:
    """The page from a host of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.encode() if self.path == "/" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_follows_a_view_through_a_restart_and_a_reset(tmp_path: Path) -> None:
    port = free_port()
    with hosted(PAGE.replace("127.0.0.1:8420", f"127.0.0.1:{port}")) as url:
        settings = f'origins = ["{url}"]\nretention = 3\n[bounds]\nheartbeat = 0.2'

        def served() -> Served:
            return start(tmp_path / "project", settings=settings, port=port)

        service = served()
        try:
            service.insert("edge", ["a", "b"], ['quote"', "<b>"])
            with opened(url, tmp_path / "profile") as page:

                def agree(version: int) -> None:
                    """The page shows this version, and what a fresh query answers."""
                    until(lambda: page.evaluate("document.getElementById('version')?.textContent") == str(version))
                    shown = page.evaluate("document.getElementById('rows').textContent").splitlines()
                    assert sorted(map(json.loads, shown)) == sorted(service.rows("closure"))

                agree(1)
                agree(service.insert("edge", ["b", "c"]))
                agree(service.delete("edge", ["a", "b"]))
                agree(service.insert("stock", ["bolt", 3]))  # nothing of the view: progress is marked
                service.end()
                service = served()
                agree(service.insert("edge", ["c", "d"]))  # resumed
                page.evaluate("source.close()")
                for i in range(6):
                    last = service.insert("edge", ["x", f"{i}"])
                page.evaluate(AGAIN)
                agree(last)  # by a reset: only three versions are kept
                assert page.evaluate("resets") == 1
        finally:
            if service.thread.is_alive():
                service.end()
