"""From a commit to the highlighted row, measured in a real browser: `python -m benchmarks.page [URL VIEW TABLE]`.

The page itself sends each transaction and notes the time; it notes the time again when a row with the mark of its version is in
the document and the browser is about to paint it. Both are on one clock. Without arguments, a small closure is served.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.service.browser import Page, opened
from tests.service.conftest import start, until

ROUNDS = 60

# Resolves with the milliseconds from sending the transaction to the frame that paints the marked row.
ROUND = """
new Promise((resolve) => {
  const node = %s, start = performance.now();
  const watch = new MutationObserver(() => {
    const row = [...document.querySelectorAll("tr.plus")].find((one) => one.innerText.includes(node));
    if (!row) return;
    watch.disconnect();
    requestAnimationFrame(() => resolve(performance.now() - start));
  });
  watch.observe(document.querySelector("tbody"), { childList: true });
  fetch("/v1/transactions", { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ insert: { %s: [[node, node + " target"]] } }) });
})
"""


def measure(page: Page, table: str) -> list[float]:
    """The milliseconds of each round; the first ones warm the page. Each row sorts before all others: it is on the page."""
    times = [float(page.wait(ROUND % (json.dumps(f"!{9999 - i}"), table))) for i in range(ROUNDS + 5)]
    return sorted(times[5:])


def report(url: str, view: str, table: str, folder: Path) -> None:
    """Open the table of a view, and print how fast changes appear in it."""
    with opened(f"{url}/", folder / "profile") as page:
        until(lambda: "live" in str(page.evaluate("document.getElementById('status').innerText")))
        page.evaluate(f"location.hash = 'view={view}'")
        until(lambda: " of " in str(page.evaluate("document.querySelector('.pager')?.innerText")))
        size = page.evaluate("document.querySelector('.pager').innerText").rpartition(" of ")[2]
        times = measure(page, table)
        print(f"{view}, {size}: commit to highlighted row, {len(times)} transactions: ", end="")
        print(f"median {median(times):.0f} ms, 90 of 100 within {times[len(times) * 9 // 10]:.0f} ms")


def main() -> None:
    """Measure a running service, or a small one."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if len(sys.argv) == 4:
            report(sys.argv[1], sys.argv[2], sys.argv[3], folder)
            return
        served = start(folder / "project")
        served.insert("edge", *([f"n{i}", f"n{i + 1}"] for i in range(60)))
        report(served.url, "closure", "edge", folder)
        served.end()


if __name__ == "__main__":
    main()
