"""`rederive.sources`: stream sources for users, without Spark."""

from __future__ import annotations

import subprocess
import sys

import rederive.sources


def test_importing_the_sources_imports_no_spark() -> None:
    code = "import sys, rederive, rederive.sources; print([name for name in ('pyspark', 'pyarrow') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_source_has_a_docstring_with_an_example() -> None:
    for name in set(rederive.sources.__all__) - {"StreamSource"}:
        assert ">>>" in (getattr(rederive.sources, name).__doc__ or "")
