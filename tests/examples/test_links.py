"""Every relative link of the documentation leads to a file and, if it has one, to a heading; every named file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
# A path in backquotes that starts with a folder of the repository, such as `tests/store/test_kills.py`.
NAMED_FILE = re.compile(r"`((?:src|tests|docs|examples|benchmarks|tools)/[\w./-]+\.(?:py|md|dl|sql|toml))`")
DECISIONS = ROOT / "docs" / "decisions"


def text_of(page: Path) -> str:
    """Return a page without its code blocks, whose brackets are not links."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by GitHub's rule: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_files(page: Path) -> None:
    assert [name for name in NAMED_FILE.findall(text_of(page)) if not (ROOT / name).exists()] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One page\n[a](#one-page) [b](#other) [c](page.md) [d](gone.md) [e](https://example.com/gone)\n")
    assert broken_links(page) == ["#other", "gone.md"]


def test_the_index_has_every_decision() -> None:
    linked = set(LINK.findall(text_of(DECISIONS / "README.md")))
    assert {path.name for path in DECISIONS.glob("[0-9]*.md")} <= linked
