"""The page of the service, in a real browser: network, time, rows, why, feed, work, operations; and what it may load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import rederive
from rederive.ingest.stream_cursor import cursor_of_stream
from tests.service.browser import Page, opened
from tests.service.conftest import Served, start, until
from tests.service.serving import free_port

PROGRAM = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
.decl stock(item: symbol, n: number) key(item)
.decl low(item: symbol, n: number)
.decl total(n: number)
.decl negative(item: symbol)
.decl mutual(x: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
low(item, n) :- stock(item, n), n < 10.
total(n) :- n = sum m : { stock(_, m) }.
negative(item) :- stock(item, n), n < 0.
mutual(x) :- closure(x, y), edge(y, x).
.output closure
.output low
.output total
.constraint negative
"""
RULE = "CREATE RULE empty WHEN SELECT item FROM stock WHERE n = 0 DO DELETE FROM edge WHERE x IN (SELECT item FROM firing)"


NOBODY = "127.0.0.1:9"  # the port of the discard service, where nobody listens


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Page]]:
    folder = tmp_path_factory.mktemp("page")
    start(folder / "project", PROGRAM).end()
    with rederive.open(folder / "project" / "store") as db:  # as a stream and a subscriber with a name leave it
        db.pipeline.state.acknowledge(cursor_of_stream("3f", "folder incoming"), 0)
        db.pipeline.state.acknowledge("mail", 0)
    hooks = f'[webhooks]\nhosts = ["{NOBODY}"]\nsecret = "HOOK"\nprivate = true'
    served = start(folder / "project", PROGRAM, hooks, HOOK="a secret of sixteen")
    assert served.request("POST", "/v1/views", json={"language": "sql", "text": RULE}).status_code == 201
    with opened(f"{served.url}/", folder / "profile") as browser:
        until(lambda: "live" in text(browser, "#status"))
        browser.evaluate("window.mistakes = []; window.addEventListener('error', (event) => window.mistakes.push(event.message))")
        browser.evaluate("window.addEventListener('unhandledrejection', (event) => window.mistakes.push(String(event.reason)))")
        yield served, browser
        assert browser.evaluate("window.mistakes") == [], "the scripts of the page made no mistake"
    served.end()


def text(page: Page, selector: str = "body") -> str:
    # SVG has no innerText
    return str(
        page.evaluate(f"((one) => one?.innerText ?? one?.textContent ?? '')(document.querySelector({json.dumps(selector)}))")
    )


def words(page: Page, selector: str) -> str:
    return " ".join(text(page, selector).split())


def count(page: Page, selector: str) -> int:
    return int(page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))


def press(page: Page, label: str) -> None:
    found = f"[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith({json.dumps(label)}))"
    until(lambda: bool(page.evaluate(f"Boolean({found})")))
    page.evaluate(f"{found}.click()")


def click(page: Page, selector: str) -> None:
    until(lambda: count(page, selector) > 0)
    page.evaluate(f"document.querySelector({json.dumps(selector)}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


def fill(page: Page, selector: str, value: str) -> None:
    until(lambda: count(page, selector) > 0)
    found = f"document.querySelector({json.dumps(selector)})"
    page.evaluate(f"{found}.value = {json.dumps(value)}; {found}.dispatchEvent(new Event('input', {{bubbles: true}}))")


def go(page: Page, part: str) -> None:
    page.evaluate(f"location.hash = ''; location.hash = {json.dumps(part)}")
    until(lambda: page.evaluate("document.getElementById('main').dataset.part") == part.partition("=")[0])


def rows(page: Page) -> list[list[str]]:
    lines = "[...document.querySelectorAll('tbody tr[tabindex]:not(.minus)')]"
    found: list[list[str]] = page.evaluate(f"{lines}.map((row) => [...row.children].slice(1).map((cell) => cell.innerText))")
    return found


def travel(page: Page, version: int) -> None:
    fill(page, "#time input", str(version))


def test_a_version_lights_up_what_it_passes(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "overview")
    until(lambda: "closure" in text(browser, "svg.network"))
    assert count(browser, '.arc[data-source="edge"][data-target="closure"]') == 1
    # constraints and rules are nodes, too, and a rule leads to the table that it changes
    assert count(browser, ".node.constraint") == count(browser, ".node.rule") == 1
    assert count(browser, '.arc[data-source="rule empty"][data-target="edge"]') == 1
    served.insert("edge", ["a", "b"], ["b", "c"])
    until(lambda: count(browser, ".node.lit") == 2)
    assert text(browser, '.arc.lit[data-source="edge"] text') == "+2"
    assert text(browser, '.node[data-name="closure"] .badge').startswith("+3 · ")
    assert text(browser, '.node[data-name="closure"] .badge').endswith(("µs", "ms"))
    assert text(browser, '.node[data-name="closure"] .size').startswith("3 rows")
    # where nobody subscribes, there is no node; then there is one
    with served.events("/v1/views/closure/changes") as events:
        next(events)
        go(browser, "overview")
        until(lambda: "1 connected" in text(browser, "svg.network"))


def test_the_first_screen_says_how_much_there_is_and_what_happened_last(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "overview")
    until(lambda: "Constraints" in words(browser, ".tiles"))
    before = served.get("/v1/relations/edge/page").json()["total"]
    version = served.insert("edge", ["first", "screen"])
    until(lambda: count(browser, f'.feed li[data-version="{version}"]') == 1)
    assert "edge +1 closure +1" in words(browser, f'.feed li[data-version="{version}"] .changes')
    assert count(browser, ".feed li[data-version]") <= 6
    shown = words(browser, ".tiles")
    stock = served.get("/v1/relations/stock/page").json()["total"]
    assert f"Base relations 2 {before + 1 + stock} row" in shown
    assert "Constraints hold" in shown
    assert shown.endswith("s median of the latest versions")
    served.delete("edge", ["first", "screen"])


# The arcs that pass over a node which they neither leave nor enter, and the texts that are wider than their node.
CROSSED = """[...document.querySelectorAll(".arc")].flatMap((arc) => {
  const way = arc.querySelector("path"), ends = [arc.dataset.source, arc.dataset.target];
  const box = (node) => node.querySelector("rect").getBoundingClientRect();
  const at = (i) => way.getPointAtLength((way.getTotalLength() * i) / 40).matrixTransform(way.getScreenCTM());
  const points = [...Array(41).keys()].map(at);
  const isInside = ({ x, y }, { left, right, top, bottom }) => x > left && x < right && y > top && y < bottom;
  return [...document.querySelectorAll(".node")].filter((one) => !ends.includes(one.dataset.name))
    .filter((one) => points.some((point) => isInside(point, box(one)))).map((one) => `${ends} over ${one.dataset.name}`);
}).concat([...document.querySelectorAll(".node")].flatMap((node) => [...node.querySelectorAll(".name, .size")]
  .filter((one) => one.getBBox().x + one.getBBox().width > node.querySelector("rect").getBBox().width)
  .map((one) => `${node.dataset.name}: ${one.textContent}`)))"""


def test_arcs_go_around_nodes_and_texts_fit_into_them(page: tuple[Served, Page]) -> None:
    _, browser = page
    go(browser, "overview")
    # the arc from edge to mutual has to go around closure, and the rule leads back to edge
    until(lambda: count(browser, '.arc[data-source="edge"][data-target="mutual"] path') == 1)
    assert browser.evaluate(CROSSED) == []


def test_the_network_of_a_phone_goes_downwards(page: tuple[Served, Page]) -> None:
    _, browser = page
    go(browser, "overview")
    place = "(({ x, y }) => [x, y])(document.querySelector('.node[data-name=\"%s\"] rect').getBoundingClientRect())"

    def ends() -> tuple[list[float], list[float]]:
        until(lambda: count(browser, '.arc[data-source="edge"][data-target="closure"] path') == 1)
        return browser.evaluate(place % "edge"), browser.evaluate(place % "closure")

    until(lambda: ends()[1][0] > ends()[0][0] + 100)
    try:
        browser.size(390, 844)
        until(lambda: ends()[1][1] > ends()[0][1] + 60)
        # whatever is at the top is in sight: one begins to read there
        boxes = "[...document.querySelectorAll('.node')].map((one) => one.getBoundingClientRect())"
        left = f"{boxes}.reduce((one, other) => (other.top < one.top ? other : one)).left"
        assert 0 <= browser.evaluate(left) <= 390
        assert browser.evaluate(CROSSED) == []
    finally:
        browser.size(1280, 860)
    until(lambda: ends()[1][0] > ends()[0][0] + 100)


def test_the_network_and_the_rows_as_they_were(page: tuple[Served, Page]) -> None:
    served, browser = page
    first = served.insert("edge", ["t", "u"])
    served.insert("edge", ["u", "v"])
    go(browser, "view=closure")
    until(lambda: ["t", "v"] in rows(browser))
    travel(browser, first)
    until(lambda: ["t", "v"] not in rows(browser))
    assert ["t", "u"] in rows(browser)
    go(browser, "overview")
    until(lambda: browser.evaluate("document.querySelector('.picture')?.dataset.version") == str(first))
    # what led to the version is lit as long as one looks at it
    until(lambda: text(browser, '.node[data-name="edge"] .badge') == "+1")
    press(browser, "Back to live")
    until(lambda: count(browser, "body.past") == 0)
    served.delete("edge", ["t", "u"], ["u", "v"])


def test_rows_that_enter_and_leave_are_marked_with_their_version(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "view=closure")
    until(lambda: "of" in text(browser, ".pager"))
    version = served.insert("edge", ["p", "q"])
    until(lambda: f"+{version}\tp\tq" in text(browser, "tr.plus"))
    left = served.delete("edge", ["p", "q"])
    until(lambda: f"−{left}\tp\tq" in text(browser, "tr.minus"))


def test_a_row_that_left_is_explained_by_what_broke(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["k", "l"], ["l", "m"])
    go(browser, "view=closure")
    until(lambda: ["k", "m"] in rows(browser))
    version = served.delete("edge", ["l", "m"])
    until(lambda: "k\tm" in text(browser, "tbody") and count(browser, "tr.minus") == 2)
    browser.evaluate("[...document.querySelectorAll('tr.minus')].find((row) => row.innerText.includes('k')).click()")
    until(lambda: f"Why it left at version {version}" in text(browser, ".panel"))
    until(lambda: 'closure("l", "m") left' in words(browser, ".panel"))
    click(browser, ".panel .branch")
    until(lambda: 'edge("l", "m") deleted' in words(browser, ".panel"))
    press(browser, "why it is not there")
    until(lambda: "fails" in text(browser, ".panel"))


def test_a_row_is_explained_one_level_at_a_time_and_so_is_one_that_is_absent(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["a", "b"], ["b", "c"])
    go(browser, "view=closure")
    until(lambda: ["a", "c"] in rows(browser))
    browser.evaluate("[...document.querySelectorAll('tbody tr')].find((one) => one.innerText.trim() === 'a\\tc').click()")
    until(lambda: 'edge("a", "b")' in text(browser, ".panel"))
    assert 'edge("b", "c")' not in text(browser, ".panel")
    click(browser, ".panel .branch")
    until(lambda: 'edge("b", "c")' in text(browser, ".panel"))
    fill(browser, '[aria-label="value of x"]', "c")
    fill(browser, '[aria-label="value of y"]', "a")
    press(browser, "Ask")
    until(lambda: "Why not" in text(browser, ".panel"))
    assert 'no row edge("c", "a")' in text(browser, ".panel")


def test_rows_are_filtered_sorted_and_paged_by_the_server(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("stock", ["bolt", 2], ["nut", 1], *([f"part{i:03}", 9] for i in range(60)))
    go(browser, "view=low")
    until(lambda: len(rows(browser)) == 50)
    press(browser, "Next")
    until(lambda: len(rows(browser)) == 12)
    press(browser, "nnumber")
    until(lambda: rows(browser)[:2] == [["nut", "1"], ["bolt", "2"]])
    fill(browser, '[aria-label="filter item"]', "OLT")
    until(lambda: rows(browser) == [["bolt", "2"]])
    fill(browser, '[aria-label="filter item"]', "")
    fill(browser, '[aria-label="filter n"]', "=1")
    until(lambda: rows(browser) == [["nut", "1"]])


def test_a_binary_relation_is_a_graph_that_follows(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["a", "b"])
    go(browser, "view=edge")
    press(browser, "Graph")
    fill(browser, '[aria-label="node"]', "a")
    press(browser, "Add")
    until(lambda: "a" in text(browser, ".graph .dot.chosen"))
    served.insert("edge", ["a", "new"])
    until(lambda: count(browser, ".edge.plus") == 1)
    click(browser, '.dot[aria-label="node new"]')
    until(lambda: count(browser, ".dot.chosen") >= 2)
    served.delete("edge", ["a", "new"])


def test_a_numeric_view_is_a_chart_over_versions(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("stock", ["gear", 100])
    go(browser, "view=total")
    press(browser, "Chart")
    until(lambda: count(browser, ".chart .line") == 1)
    drawn = "document.querySelector('.chart .line').getAttribute('d')"
    before = browser.evaluate(drawn)
    served.insert("stock", ["wheel", 1000])
    until(lambda: browser.evaluate(drawn) != before)
    press(browser, "number of rows")
    until(lambda: text(browser, ".chart title") == "rows")


def test_the_legend_of_a_chart_has_the_value_at_the_version(page: tuple[Served, Page]) -> None:
    served, browser = page
    version = served.insert("stock", ["nail", 4])
    ((total,),) = served.rows("total")
    served.commit({"upsert": {"stock": [["nail", 5]]}})
    go(browser, "view=total")
    press(browser, "Chart")
    until(lambda: words(browser, ".legend") == f"n {total + 1:,}")
    travel(browser, version)
    until(lambda: words(browser, ".legend") == f"n {total:,}")
    press(browser, "Back to live")
    served.delete("stock", ["nail", 5])


def test_a_view_shows_how_it_is_defined_and_maintained(page: tuple[Served, Page]) -> None:
    _, browser = page
    go(browser, "view=closure")
    press(browser, "Definition")
    until(lambda: "closure(x, y) :- edge(x, z), closure(z, y)." in text(browser, ".definition"))
    until(lambda: "Maintenance program" in text(browser, "main h2") and "strategy:" in text(browser, "h2 + .definition"))
    go(browser, "view=stock")
    press(browser, "Definition")
    until(lambda: ".decl stock(item: symbol, n: number) key(item)" in text(browser, ".definition"))


def test_the_feed_pauses_and_resumes_without_loss(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "feed")
    until(lambda: count(browser, ".feed li[data-version]") > 3)
    press(browser, "Pause")
    versions = [served.insert("edge", ["feed", f"{i}"]) for i in range(3)]
    until(lambda: "3 versions waiting" in text(browser, "main"))
    assert count(browser, f'.feed li[data-version="{versions[0]}"]') == 0
    press(browser, "Resume")
    until(lambda: count(browser, f'.feed li[data-version="{versions[-1]}"]') == 1)
    shown = browser.evaluate(
        "[...document.querySelectorAll('.feed li[data-version]')].slice(0, 3).map((one) => one.dataset.version)"
    )
    assert shown == [str(version) for version in reversed(versions)]
    assert "resident, auto" in text(browser, ".feed summary")
    click(browser, ".feed summary")
    until(lambda: 'closure("feed", "2")' in text(browser, ".feed"))


def test_a_dry_run_shows_the_change_and_commits_nothing(page: tuple[Served, Page]) -> None:
    served, browser = page
    go(browser, "work")
    press(browser, "Change data, SQL")
    version = served.get("/v1/health").json()["version"]
    fill(browser, "textarea", "INSERT INTO stock VALUES ('screw', 3);\nDELETE FROM stock WHERE item = 'nut'")
    browser.evaluate("document.querySelector('textarea').focus()")
    browser.type("Enter", 2)
    until(lambda: 'low("screw", 3)' in text(browser, ".answer") and 'low("nut", 1)' in text(browser, ".answer"))
    assert served.get("/v1/health").json()["version"] == version
    press(browser, "Discard")
    until(lambda: "Nothing was changed" in text(browser, ".answer"))
    press(browser, "Change data, Datalog")
    fill(browser, "textarea", '~stock("nut", 2).\n+edge("dry", "run").')
    press(browser, "Dry run")
    until(lambda: 'closure("dry", "run")' in text(browser, ".answer"))
    press(browser, "Apply")
    until(lambda: f"Committed as version {version + 1}." in text(browser, ".answer"))


def test_a_definition_is_tried_and_then_defined(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["def", "ined"])
    go(browser, "work")
    press(browser, "Define, SQL")
    fill(browser, "textarea", "CREATE VIEW starts AS SELECT DISTINCT x FROM edge WHERE x = 'def'")
    press(browser, "Dry run")
    until(lambda: 'starts("def")' in text(browser, ".answer"))
    assert served.get("/v1/views/starts/rows").status_code == 404
    press(browser, "Apply")
    until(lambda: served.get("/v1/views/starts/rows").status_code == 200)
    go(browser, "view=starts")
    until(lambda: rows(browser) == [["def"]])


def test_a_dry_run_ships_a_part_of_a_large_change(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("stock", *([f"many{i:03}", 9] for i in range(120)))
    go(browser, "work")
    press(browser, "Define, SQL")
    fill(browser, "textarea", "CREATE VIEW many AS SELECT item FROM stock WHERE item LIKE 'many%'")
    press(browser, "Dry run")
    until(lambda: "many +120" in words(browser, ".answer h3"))
    assert count(browser, ".answer .rows li code") == 50
    assert "and 70 more rows" in text(browser, ".answer")
    served.delete("stock", *([f"many{i:03}", 9] for i in range(120)))


def test_work_shows_what_there_is_to_read(page: tuple[Served, Page]) -> None:
    _, browser = page
    go(browser, "work")
    until(lambda: "stock(item symbol, n number) key item" in words(browser, ".schema"))


@pytest.mark.parametrize(
    ("kind", "written", "line", "says"),
    [
        ("Define, SQL", "CREATE VIEW x AS\nSELECT itm FROM stock", 2, "unknown column 'itm'"),
        ("Define, Datalog", ".decl y(x: symbol)\n\ny(x) :- edgy(x, _).", 3, "edgy"),
        ("Change data, SQL", "DELETE FROM stock\nWHERE m = 1", 2, "m"),
        ("Change data, Datalog", '+edge("a", "b").\nedge("c")', 2, "not a change"),
    ],
)
def test_an_error_is_shown_at_its_position(page: tuple[Served, Page], kind: str, written: str, line: int, says: str) -> None:
    _, browser = page
    go(browser, "work")
    press(browser, kind)
    fill(browser, "textarea", written)
    press(browser, "Dry run")
    until(lambda: says in text(browser, ".answer .problem"))
    until(lambda: text(browser, ".numbers .wrong").strip() == str(line))
    assert count(browser, ".marks mark") == 1


def test_operations_show_rules_constraints_and_who_is_behind(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["empty", "shelf"])
    served.commit({"upsert": {"stock": [["empty", 0]]}})
    with served.events("/v1/views/closure/changes") as events:
        next(events)
        go(browser, "operations")
        until(lambda: "up to date" in text(browser, "main"))
        shown = text(browser, "main")
    assert all(word in shown for word in ("Constraints", "negative", "holds", "empty", "done", "Webhooks", "Lake"))
    assert ["empty", "shelf"] not in served.rows("closure")


def test_operations_show_violations_waiting_webhooks_streams_and_named_subscribers(page: tuple[Served, Page]) -> None:
    served, browser = page
    for statement in (
        "CREATE CONSTRAINT MONITOR VIEW huge AS SELECT item FROM stock WHERE n > 5000",
        f"CREATE RULE call WHEN SELECT item FROM stock WHERE n > 5000 DO WEBHOOK 'http://{NOBODY}/'",
    ):
        answer = served.request("POST", "/v1/views", json={"language": "sql", "text": statement})
        assert answer.status_code == 201, answer.text
    served.insert("stock", ["anvil", 7777])
    go(browser, "operations")
    until(lambda: "1 violation" in text(browser, "main"))
    until(lambda: "1 waiting" in text(browser, ".tiles"))
    rows = browser.evaluate("[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.split('\\t'))")
    (stream,) = (row for row in rows if row[0] == "folder incoming")
    assert (stream[1], stream[3]) == ("not in this process", "0")
    assert stream[2].endswith("ago")
    (mail,) = (row for row in rows if row[0] == "mail")
    assert mail[-1].endswith("behind")
    served.delete("stock", ["anvil", 7777])
    until(lambda: "1 violation" not in text(browser, "main"))


def test_the_keyboard_is_enough(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["a", "b"])
    go(browser, "overview")
    browser.type("2")
    until(lambda: browser.evaluate("document.getElementById('main').dataset.part") == "view")
    go(browser, "view=closure")
    until(lambda: len(rows(browser)) > 0)
    browser.type("j")
    browser.type("Enter")
    until(lambda: "Why" in text(browser, ".panel h2"))
    browser.type("Escape")
    until(lambda: count(browser, ".panel:not([hidden])") == 0)
    browser.type("[")
    until(lambda: count(browser, "body.past") == 1)
    browser.type("l")
    until(lambda: count(browser, "body.past") == 0)
    browser.type("/")
    assert browser.evaluate("document.activeElement.ariaLabel") == "filter x"
    browser.evaluate("document.activeElement.blur()")
    browser.type("?")
    until(lambda: "one version back" in text(browser, "#help"))
    browser.evaluate("document.getElementById('help').close()")


@pytest.mark.parametrize("part", ["overview", "view=closure", "feed", "work", "operations"])
def test_a_phone_shows_every_part_without_scrolling_sideways(page: tuple[Served, Page], part: str) -> None:
    _, browser = page
    browser.size(390, 844)
    browser.scheme("dark")
    go(browser, part)
    until(lambda: len(text(browser, "main")) > 20)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.scheme("light")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    browser.size(1280, 860)


def test_values_are_never_read_as_html(page: tuple[Served, Page]) -> None:
    served, browser = page
    served.insert("edge", ["<img src=x onerror=alert(1)>", "<b>"])
    go(browser, "view=closure")
    fill(browser, '[aria-label="filter x"]', "<img")
    until(lambda: rows(browser) == [["<img src=x onerror=alert(1)>", "<b>"]])
    assert count(browser, "main img") == 0


def test_a_lost_connection_is_resumed(tmp_path: Path) -> None:
    port = free_port()
    served = start(tmp_path / "project", PROGRAM, port=port)
    try:
        with opened(f"{served.url}/#feed", tmp_path / "profile") as browser:
            until(lambda: "live" in text(browser, "#status"))
            served.end()
            until(lambda: "reconnecting" in text(browser, "#status"))
            served = start(tmp_path / "project", PROGRAM, port=port)
            versions = [served.insert("edge", ["back", f"{i}"]) for i in range(3)]
            for version in versions:
                until(lambda version=version: count(browser, f'.feed li[data-version="{version}"]') == 1)  # type: ignore[misc]
    finally:
        served.end()


def test_what_failed_without_a_connection_is_asked_for_again(tmp_path: Path) -> None:
    port = free_port()
    served = start(tmp_path / "project", PROGRAM, port=port)
    try:
        served.insert("edge", ["a", "b"])
        with opened(f"{served.url}/#feed", tmp_path / "profile") as browser:
            until(lambda: "live" in text(browser, "#status"))
            served.end()
            until(lambda: "reconnecting" in text(browser, "#status"))
            go(browser, "view=closure")
            until(lambda: "The service does not answer." in text(browser, "main"))
            served = start(tmp_path / "project", PROGRAM, port=port)
            until(lambda: rows(browser) == [["a", "b"]])
    finally:
        served.end()


def test_an_empty_service_says_where_to_begin(tmp_path: Path) -> None:
    served = start(tmp_path / "project", "")
    try:
        with opened(f"{served.url}/", tmp_path / "profile") as browser:
            until(lambda: "Nothing is defined yet." in text(browser, "main"))
            click(browser, '.empty a[href="#work"]')
            press(browser, "Dry run")
            until(lambda: "It would change no monitored view." in text(browser, ".answer"))
            press(browser, "Apply")
            until(lambda: "stock" in text(browser, ".schema"))
    finally:
        served.end()


def test_a_token_is_asked_for_and_shows_what_it_reads(tmp_path: Path) -> None:
    token = '[[token]]\nname = "ann"\nsecret = "ANN"\nread = ["low"]\nrows = { low = { item = "bolt" } }'
    served = start(tmp_path / "project", PROGRAM, token, ANN="secret of sixteen")
    try:
        with opened(f"{served.url}/", tmp_path / "profile") as browser:
            until(lambda: bool(browser.evaluate("document.getElementById('token').open")))
            assert browser.evaluate("document.getElementById('refused').hidden")
            fill(browser, "#secret", "a wrong secret")
            press(browser, "Sign in")
            until(lambda: not browser.evaluate("document.getElementById('refused').hidden"))
            browser.type("Escape")
            assert browser.evaluate("document.getElementById('token').open")
            fill(browser, "#secret", "secret of sixteen")
            press(browser, "Sign in")
            until(lambda: "low" in text(browser, "svg.network"))
            assert "stock" not in text(browser, "svg.network")
            go(browser, "operations")
            until(lambda: "may not administer" in text(browser, "main"))
    finally:
        served.end()


def test_nothing_of_the_page_comes_from_elsewhere(graph: Served) -> None:
    answer = graph.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for path in Path("src/rederive/service/page").iterdir():
        served = graph.get(f"/page/{path.name}")
        assert served.text == path.read_text()
        assert "https://" not in served.text
        assert "style=" not in served.text
    assert graph.get("/page/..%2Fproject.py").status_code == 404
    assert graph.get("/page/nothing.js").status_code == 404
    # a library comes from the wheel that carries it, and nothing else of that wheel is served
    assert "export" in graph.get("/library/dagre.js").text
    assert graph.get("/library/dagre.js").headers["content-security-policy"] == policy
    assert graph.get("/library/view.js").status_code == 404


def test_pages_of_rows(graph: Served) -> None:
    graph.insert("stock", ["a", 3], ["b", 1], ["c", 2])
    found = graph.get("/v1/relations/stock/page?order=-n&limit=2&offset=1").json()
    assert (found["rows"], found["total"], found["complete"]) == ([["c", 2], ["b", 1]], 3, True)
    assert graph.get('/v1/relations/stock/page?where={"item":"b"}').json()["rows"] == [["b", 1]]
    assert graph.get("/v1/relations/stock/page?order=m").status_code == 422
    assert graph.get("/v1/relations/stock/page?where=[]").status_code == 400
    assert graph.get("/v1/relations/stock/page?limit=5000").status_code == 400
    assert graph.get("/v1/relations/stock/page?version=0").json()["rows"] == []
    assert graph.get("/v1/relations/stock/page?version=9").status_code == 400


def test_statements_over_http_are_one_transaction(graph: Served) -> None:
    def run(statements: str, preview: str = "") -> tuple[int, dict[str, object]]:
        headers = {"Content-Type": "application/sql"}
        answer = graph.request("POST", f"/v1/transactions{preview}", content=statements, headers=headers)
        return answer.status_code, answer.json()

    assert run("INSERT INTO stock VALUES ('a', 1); UPDATE stock SET n = n + 1 WHERE item = 'a'") == (
        200,
        {"version": 1, "repeated": False},
    )
    assert graph.rows("low") == [["a", 2]]
    status, found = run("DELETE FROM stock WHERE n = 2", "?preview=true")
    assert (status, found["changes"]) == (200, [{"view": "low", "plus": [], "minus": [["a", 2]]}])
    assert graph.rows("low") == [["a", 2]]
    assert run("CREATE TABLE t (x INT)")[0] == 422
    assert run("")[0] == 400


def test_a_preview_has_as_many_rows_as_it_is_asked_for(graph: Served) -> None:
    rows = [[f"item{i}", 1] for i in range(5)]
    answer = graph.request("POST", "/v1/transactions?preview=true&limit=2", json={"insert": {"stock": rows}}).json()
    (change,) = answer["changes"]
    assert (len(change["plus"]), change["minus"], change["more"]) == (2, [], {"plus": 3, "minus": 0})
    body = {"language": "sql", "text": "CREATE VIEW all_of_it AS SELECT item, 1 AS one FROM stock"}
    graph.insert("stock", *rows)
    (change,) = graph.request("POST", "/v1/views?preview=true&limit=0", json=body).json()["changes"]
    assert (change["plus"], change["more"]) == ([], {"plus": 5, "minus": 0})
    (whole,) = graph.request("POST", "/v1/views?preview=true", json=body).json()["changes"]
    assert (len(whole["plus"]), "more" in whole) == (5, False)
    assert graph.request("POST", "/v1/views?preview=true&limit=x", json=body).status_code == 400


def test_the_text_of_a_definition(graph: Served) -> None:
    body = {"language": "sql", "text": "CREATE VIEW cheap AS\n  SELECT item FROM stock WHERE n < 2"}
    assert graph.request("POST", "/v1/views", json=body).status_code == 201
    assert graph.get("/v1/relations/cheap/definition").text == body["text"]
    assert graph.get("/v1/relations/low/definition").text.splitlines() == [
        ".decl low(item: symbol, n: number)",
        "low(item, n) :- stock(item, n), n < 10.",
    ]
    assert graph.get("/v1/relations/stock/definition").text == ".decl stock(item: symbol, n: number) key(item)"
    assert graph.get("/v1/relations/nothing/definition").status_code == 404


def test_versions_and_their_rows(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    graph.insert("edge", ["b", "c"])
    found = graph.get("/v1/versions?limit=1").json()
    assert found["first"] == 0
    (last,) = found["versions"]
    changes = {change["relation"]: (change["plus"], change["minus"]) for change in last["changes"]}
    assert (last["version"], changes) == (2, {"edge": (1, 0), "closure": (2, 0)})
    rows = {change["relation"]: change["plus"] for change in graph.get("/v1/versions/2").json()["changes"]}
    assert rows == {"edge": [["b", "c"]], "closure": [["a", "c"], ["b", "c"]]}
    assert graph.get("/v1/versions/3").status_code == 404
    with graph.events("/v1/versions", "1") as events:
        assert [next(events)["event"], next(events)["version"]] == ["progress", 2]


def test_why_a_row_left_and_why_it_was_there_over_http(graph: Served) -> None:
    graph.insert("edge", ["a", "b"])
    graph.delete("edge", ["a", "b"])
    ask = '/v1/views/closure/why?row=["a","b"]'
    assert graph.get(ask).json()["present"] is False
    assert graph.get(f"{ask}&version=1").json()["present"] is True
    left = graph.get(f"{ask}&version=2&changed=true").json()
    assert left["change"] == "left"
    assert left["derivations"][0]["changed"] == [{"relation": "edge", "row": ["a", "b"], "change": "left", "base": True}]
    assert graph.get(f"{ask}&version=9&changed=true").status_code == 409
