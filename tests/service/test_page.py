"""The page of the service, in a real browser: the network, live rows, why, the feed, a dry run; and what it may load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.browser import Page, opened
from tests.service.conftest import Served, start, until


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Page]]:
    folder = tmp_path_factory.mktemp("page")
    served = start(folder / "project")
    with opened(f"{served.url}/", folder / "profile") as browser:
        until(lambda: "live" in text(browser, "#status"))
        yield served, browser
    served.end()


def text(page: Page, selector: str = "body") -> str:
    # SVG has no innerText
    return str(
        page.evaluate(f"((one) => one?.innerText ?? one?.textContent ?? '')(document.querySelector({json.dumps(selector)}))")
    )


def press(page: Page, label: str) -> None:
    page.evaluate(f"[...document.querySelectorAll('button')].find((one) => one.textContent === {json.dumps(label)}).click()")


def go(page: Page, part: str) -> None:
    page.evaluate(f"location.hash = {json.dumps(part)}")


def test_the_network_shows_relations_and_what_reads_them(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "overview")
    until(lambda: "closure" in text(browser, "svg"))
    assert browser.evaluate("document.querySelectorAll('.arc[data-source=edge][data-target=closure]').length") == 1
    served.insert("edge", ["n", "m"])
    # what a transaction changes lights up
    until(lambda: browser.evaluate("document.querySelectorAll('.node.lit').length") == 1)
    assert browser.evaluate("document.querySelector('.node.lit').dataset.name") == "closure"
    served.delete("edge", ["n", "m"])


def test_rows_enter_and_leave_while_one_looks(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "view=closure")
    until(lambda: "version" in text(browser, "main"))
    served.insert("edge", ["a", "b"], ["b", "c"])
    until(lambda: "a\tc" in text(browser, "tr.plus") or "a\tc" in text(browser, "tbody"))
    served.delete("edge", ["b", "c"])
    until(lambda: "b\tc" in text(browser, "tr.minus") or "a\tc" in text(browser, "tr.minus"))
    served.insert("edge", ["b", "c"])


def test_a_row_is_explained_and_so_is_one_that_is_absent(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["a", "b"], ["b", "c"])
    go(browser, "view=closure")
    until(lambda: "a\tc" in text(browser, "tbody"))
    browser.evaluate("[...document.querySelectorAll('tbody tr')].find((one) => one.innerText === 'a\\tc').click()")
    until(lambda: 'Why closure("a", "c")' in text(browser))
    assert 'edge("a", "b")' in text(browser)
    browser.evaluate('document.querySelector(\'[aria-label="a row as JSON"]\').value = \'["c", "a"]\'')
    press(browser, "Ask")
    until(lambda: 'Why not closure("c", "a")' in text(browser))
    assert 'fails: no row edge("c", "a")' in text(browser)


def test_rows_are_filtered_and_sorted_by_the_server(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("stock", ["bolt", 2], ["nut", 1])
    go(browser, "view=low")
    until(lambda: "bolt\t2" in text(browser, "tbody"))
    press(browser, "n")
    until(lambda: text(browser, "tbody").startswith("nut"))
    box = "document.querySelector('[aria-label=\"filter n\"]')"
    browser.evaluate(f"{box}.value = '2'; {box}.dispatchEvent(new Event('change'))")
    until(lambda: text(browser, "tbody").strip() == "bolt\t2")


def test_a_dry_run_shows_the_change_and_commits_nothing(page: tuple[Served, Page]) -> None:
    served, browser = page
    version = served.get("/v1/health").json()["version"]
    go(browser, "work")
    until(lambda: "Dry run" in text(browser))
    body = json.dumps({"insert": {"stock": [["screw", 3]]}})
    browser.evaluate(f"document.querySelector('[aria-label=transaction]').value = {json.dumps(body)}")
    press(browser, "Dry run")
    until(lambda: '+ low("screw", 3)' in text(browser))
    assert served.get("/v1/health").json()["version"] == version
    press(browser, "Apply")
    until(lambda: f"committed as version {version + 1}" in text(browser))
    go(browser, "feed")
    until(lambda: '+ low("screw", 3)' in text(browser))


def test_an_error_is_shown_at_its_position(page: tuple[Served, Page]) -> None:
    _, browser = page
    go(browser, "work")
    until(lambda: "Definition" in text(browser))
    browser.evaluate("document.querySelector('[aria-label=definition]').value = 'CREATE VIEW x AS SELECT itm FROM stock'")
    press(browser, "Define")
    until(lambda: "^^^" in text(browser, ".problem"))


def test_nothing_of_the_page_comes_from_elsewhere(graph: Served) -> None:
    answer = graph.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in Path("src/rederive/service/page").iterdir():
        served = graph.get(f"/page/{path.name}")
        assert served.text == path.read_text()
        assert "https://" not in served.text
    assert graph.get("/page/..%2Fproject.py").status_code == 404
    assert graph.get("/page/nothing.js").status_code == 404


def test_pages_of_rows(graph: Served) -> None:
    graph.insert("stock", ["a", 3], ["b", 1], ["c", 2])
    found = graph.get("/v1/relations/stock/page?order=-n&limit=2&offset=1").json()
    assert (found["rows"], found["total"], found["complete"]) == ([["c", 2], ["b", 1]], 3, True)
    assert graph.get('/v1/relations/stock/page?where={"item":"b"}').json()["rows"] == [["b", 1]]
    assert graph.get("/v1/relations/stock/page?order=m").status_code == 422
    assert graph.get("/v1/relations/stock/page?where=[]").status_code == 400
    assert graph.get("/v1/relations/stock/page?limit=5000").status_code == 400
