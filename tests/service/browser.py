"""Debian's Chromium, without a window, driven over its DevTools protocol."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.service.conftest import until

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0"
).split()


class Page:
    """A page in a tab of its own."""

    def __init__(self, socket: ClientConnection, url: str) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._session: str | None = None
        target = self._call("Target.createTarget", url=url)["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        # A new tab shows an empty document first; what is done to that one is lost.
        until(lambda: self.evaluate("document.readyState === 'complete' && location.href !== 'about:blank'"))

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Give the page the size of another screen; a narrow one is that of a phone."""
        narrow = width < 600
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow)

    def scheme(self, name: str) -> None:
        """Prefer light or dark colours."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def type(self, key: str, modifiers: int = 0) -> None:
        """Press a key; `modifiers`: 2 for Ctrl."""
        text = key if len(key) == 1 and not modifiers else ""
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
        shared = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text="\r" if key == "Enter" and not modifiers else text, **shared)
        self._call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def picture(self, whole: bool = False) -> bytes:
        """What the page looks like, as PNG."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return b64decode(found["data"])

    def wait(self, expression: str) -> Any:
        """The value of a promise."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session is not None else {}
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def opened(url: str, profile: Path) -> Iterator[Page]:
    """A page at an address, in a browser with an empty profile."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "Chromium is not installed: make browser"
    command = [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = next(filter(None, (re.search(r"DevTools listening on (ws://\S+)", line) for line in process.stderr)))
        with connect(found[1], max_size=None, proxy=None) as socket:
            yield Page(socket, url)
    finally:
        process.terminate()
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()
