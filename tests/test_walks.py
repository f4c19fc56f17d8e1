"""How many files an operation passes: `tools/trace_walk.py` counts them, and issue 17 bounds them.

A walk that exceeds its goal prints its files. Either the new file does nothing for this operation, and need not be entered, or
it belongs to one that is passed already.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "trace_walk.py"


@pytest.mark.parametrize("walk", ["memory", "store", "http", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_walk_meets_its_goal(walk: str) -> None:
    done = subprocess.run([sys.executable, TOOL, "--check", walk], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
