"""Every block of the documentation runs as it stands there; `pages.py` says what that means for each kind of block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.notebooks import run_notebook
from tests.examples.pages import ROOT, Block, PageRun, blocks, needs_spark, run_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Pages that other tests run, with data that the page does not show.
ELSEWHERE = {ROOT / "docs" / "in_place.md"}  # tests/lake/test_in_place.py
PAGES = sorted(
    {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")}
    - ELSEWHERE
)
# What a test cannot have. Everything else runs.
REASONS = ("a bucket", "a Kafka broker", "a receiver", "PostgreSQL", "another host", "its own test", "the whole demo")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page(page: Path, tmp_path: Path) -> None:
    """Without the blocks that need Spark."""
    run_page(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=name_of)
def test_a_page_with_spark(page: Path, tmp_path: Path, spark: SparkSession) -> None:
    run_page(page, tmp_path, spark=spark)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_left_out_has_a_reason(page: Path) -> None:
    left_out = [block for block in blocks(page) if block.is_left_out]
    assert [block.name for block in left_out if not any(reason in block.note for reason in REASONS)] == []
    unknown = [block.name for block in blocks(page) if block.language in ("sh", "shell", "bash", "py", "datalog", "pycon")]
    assert unknown == [], "the languages are those of pages.py"


def test_the_tour_shows_what_it_stores(tmp_path: Path) -> None:
    for stored, shown in run_notebook(ROOT / "examples" / "tour.ipynb", tmp_path):
        assert json.dumps(shown, ensure_ascii=False) == json.dumps(stored, ensure_ascii=False)


# The runner itself


def block(language: str, text: str) -> Block:
    return Block(ROOT / "README.md", 1, language, text, "")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "print(1)  # 2\n"),
        ("python", ">>> 1\n2\n\n"),
        ("python", "nothing\n"),
        ("sql", "SELECT nothing;\n"),
        ("prolog", "p(x) :- q(x).\n"),
        ("console", "$ echo a\nb\n"),
        ("console", "$ false\n"),
        ("text", "never printed\n"),
        ("json", "{\n"),
        ("toml", "[\n"),
    ],
)
def test_a_block_that_is_wrong_fails(language: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r".*"):
        PageRun(tmp_path).run(block(language, text))


def test_blocks_share_names_and_output_is_compared(tmp_path: Path) -> None:
    run = PageRun(tmp_path)
    for language, text in (
        ("python", "import rederive\ndb = rederive.open()\n"),
        ("sql", "CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1)\n"),
        ("python", "print(db.rows('t'))  # [(1,)]   one row\n"),
        ("text", "[(1,)]\n"),
        ("console", "$ echo a; echo b; echo c\na\n...\nc\n"),
    ):
        run.run(block(language, text))
